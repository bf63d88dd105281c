//! `textwrap.TextWrapper(...).fill(text)` with its defaults otherwise.

use std::sync::LazyLock;

use fancy_regex::Regex;

use crate::text::strip;

/// The form of a paragraph.
#[derive(Clone, Copy, Debug)]
pub struct Wrapper<'a> {
    /// The columns of a line, its indentation included.
    pub width: usize,
    /// Before the first line.
    pub initial_indent: &'a str,
    /// Before all others.
    pub subsequent_indent: &'a str,
}

impl Wrapper<'_> {
    /// The text in lines of at most [`Wrapper::width`] columns.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        self.wrap(text).join("\n")
    }

    fn wrap(&self, text: &str) -> Vec<String> {
        let text = expand_tabs(text).replace(is_wrapped_space, " ");
        let mut chunks = chunks_of(&text);
        chunks.reverse();
        let mut lines = Vec::new();
        while !chunks.is_empty() {
            let indent = match lines.is_empty() {
                true => self.initial_indent,
                false => self.subsequent_indent,
            };
            let width = self.width.saturating_sub(indent.chars().count());
            if !lines.is_empty() && chunks.last().is_some_and(|chunk| strip(chunk).is_empty()) {
                chunks.pop();
            }
            let line = take_line(&mut chunks, width);
            if !line.is_empty() {
                lines.push(format!("{indent}{line}"));
            }
        }
        lines
    }
}

/// The chunks that one line has room for, off the end of the list.
fn take_line(chunks: &mut Vec<String>, width: usize) -> String {
    let mut line: Vec<String> = Vec::new();
    let mut length = 0;
    while let Some(chunk) = chunks.pop_if(|chunk| length + count(chunk) <= width) {
        length += count(&chunk);
        line.push(chunk);
    }
    if let Some(long) = chunks.last_mut().filter(|chunk| count(chunk) > width) {
        // A column at least, so that each line takes something.
        let room = if width < 1 { 1 } else { width - length };
        let end = split_point(long, room);
        let at = long
            .char_indices()
            .nth(end)
            .map_or(long.len(), |(at, _)| at);
        let rest = long.split_off(at);
        line.push(std::mem::replace(long, rest));
    }
    if line.last().is_some_and(|chunk| strip(chunk).is_empty()) {
        line.pop();
    }
    line.concat()
}

/// The letters of a long word that stay on the line: up to its last hyphen, if letters are before it.
fn split_point(word: &str, room: usize) -> usize {
    if count(word) <= room {
        return room;
    }
    let start: Vec<char> = word.chars().take(room).collect();
    let hyphen = start.iter().rposition(|letter| *letter == '-');
    match hyphen {
        Some(at) if at > 0 && start.iter().take(at).any(|letter| *letter != '-') => at + 1,
        _ => room,
    }
}

fn count(text: &str) -> usize {
    text.chars().count()
}

const fn is_wrapped_space(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\x0b' | '\x0c' | '\r' | ' ')
}

/// `text.expandtabs()`: columns of eight.
fn expand_tabs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut column = 0;
    for letter in text.chars() {
        match letter {
            '\t' => {
                let spaces = 8 - column % 8;
                out.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
                continue;
            }
            '\n' | '\r' => column = 0,
            _ => column += 1,
        }
        out.push(letter);
    }
    out
}

/// Chunks between which a line may end: words, parts of hyphenated words, dashes, and the spaces
/// between.
static CHUNK: LazyLock<Regex> = LazyLock::new(|| {
    let space = r"[\t\n\x0b\x0c\r ]";
    let other = r"[^\t\n\x0b\x0c\r ]";
    let word = r"\p{L}\p{N}_";
    let punctuation = format!(r#"[{word}!"'&.,?]"#);
    let letter = r"[[\p{L}\p{N}_]&&[^\p{Nd}]]";
    let expression = format!(
        "{space}+|(?<={punctuation})-{{2,}}(?=[{word}])|{other}+?(?:-(?:(?<={letter}{{2}}-)|\
         (?<={letter}-{punctuation}-))(?={letter}-?{letter})|(?={space}|\\z)|(?<={punctuation})\
         (?=-{{2,}}[{word}]))"
    );
    Regex::new(&expression).expect("invariant: a valid expression")
});

/// The text in chunks; what no chunk matches stands between them as it is.
fn chunks_of(text: &str) -> Vec<String> {
    let mut chunks = Vec::new();
    let mut end = 0;
    for found in CHUNK.find_iter(text).flatten() {
        chunks.extend(text.get(end..found.start()).map(str::to_owned));
        chunks.push(found.as_str().to_owned());
        end = found.end();
    }
    chunks.extend(text.get(end..).map(str::to_owned));
    chunks.retain(|chunk| !chunk.is_empty());
    chunks
}

//! Python's classes of characters: white space, line ends, digits, printable.

use std::sync::LazyLock;

use regex::Regex;

/// `str.isspace` of one character: Unicode's white space and the four separators U+001C to U+001F.
#[must_use]
pub fn is_space(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\x1c'..='\x1f')
}

/// Whether `str.splitlines` ends a line here.
#[must_use]
pub fn is_line_end(letter: char) -> bool {
    matches!(
        letter,
        '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// `str.isprintable` of one character: all but other, separator and unassigned ones, and the space
/// is printable, too. Unicode's newest characters are so even where the site's Python does not know
/// them yet.
#[must_use]
pub fn is_printable(letter: char) -> bool {
    static UNPRINTABLE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"[\p{Other}\p{Separator}]").expect("invariant: a valid expression")
    });
    match letter {
        ' '..='~' => true,
        _ if letter.is_ascii() => false,
        _ if letter.is_alphabetic() => !is_private(letter),
        _ => !UNPRINTABLE.is_match(letter.encode_utf8(&mut [0; 4])),
    }
}

const fn is_private(letter: char) -> bool {
    matches!(letter, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..)
}

/// The value of a decimal digit of any script (`unicodedata.decimal`).
#[must_use]
pub fn digit_value(letter: char) -> Option<u32> {
    static DECIMAL: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\p{Nd}").expect("invariant: a valid expression"));
    if letter.is_ascii() {
        return letter.to_digit(10);
    }
    let is_decimal = |letter: char| DECIMAL.is_match(letter.encode_utf8(&mut [0; 4]));
    if !letter.is_numeric() || !is_decimal(letter) {
        return None;
    }
    // Unicode keeps the ten digits of a script together, from its zero on, and has at most a few
    // such rows side by side.
    let code = u32::from(letter);
    let before = (0..code).rev().map(char::from_u32);
    let count = before.take_while(|c| c.is_some_and(is_decimal)).count();
    u32::try_from(count % 10).ok()
}

/// `text.strip()`.
#[must_use]
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `text.lstrip()`.
#[must_use]
pub fn lstrip(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

/// `text.rstrip()`.
#[must_use]
pub fn rstrip(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// `text.split()`.
pub fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// `text.splitlines()`: a last line end does not open another line.
#[must_use]
pub fn splitlines(text: &str) -> Vec<&str> {
    let lines = split_lines_keeping_ends(text).into_iter();
    lines
        .map(|line| {
            let without_end = line.strip_suffix("\r\n");
            without_end
                .or_else(|| line.strip_suffix(is_line_end))
                .unwrap_or(line)
        })
        .collect()
}

/// `text.splitlines(keepends=True)`.
#[must_use]
pub(crate) fn split_lines_keeping_ends(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(is_line_end) {
        let (_, tail) = rest.split_at(end);
        let after = tail.strip_prefix("\r\n");
        let after = after.or_else(|| tail.strip_prefix(is_line_end));
        let length = rest.len() - after.map_or(0, str::len);
        let (line, tail) = rest.split_at(length);
        lines.push(line);
        rest = tail;
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// `text.title()`: the first letter of each word in title case, the others in lower case.
#[must_use]
pub fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_in_word = false;
    for letter in text.chars() {
        let is_cased = letter.is_lowercase() || letter.is_uppercase() || is_title_case(letter);
        if is_in_word {
            out.extend(letter.to_lowercase());
        } else {
            push_title_case(&mut out, letter);
        }
        is_in_word = is_cased;
    }
    out
}

const fn is_title_case(letter: char) -> bool {
    matches!(letter, '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}' | '\u{1f88}'..='\u{1f8f}'
        | '\u{1f98}'..='\u{1f9f}' | '\u{1fa8}'..='\u{1faf}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}')
}

/// Letters that stand for two have a title case of their own; so have some that upper case makes two of.
fn push_title_case(out: &mut String, letter: char) {
    match letter {
        '\u{1c4}'..='\u{1c6}' => out.push('\u{1c5}'),
        '\u{1c7}'..='\u{1c9}' => out.push('\u{1c8}'),
        '\u{1ca}'..='\u{1cc}' => out.push('\u{1cb}'),
        '\u{1f1}'..='\u{1f3}' => out.push('\u{1f2}'),
        _ if is_title_case(letter) => out.push(letter),
        _ => {
            let mut upper = letter.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
        }
    }
}

/// `text.center(width)`: an odd space stands on the left if the width is odd, else on the right.
#[must_use]
pub fn center(text: &str, width: usize) -> String {
    let length = text.chars().count();
    let missing = width.saturating_sub(length);
    let left = missing / 2 + (missing & width & 1);
    format!("{:left$}{text}{:right$}", "", "", right = missing - left)
}

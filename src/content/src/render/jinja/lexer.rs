//! Lexer of templates, with Jinja2's rules for white space.
//!
//! The rules are those of `jinja2/lexer.py`: which white space around a tag is part of the tag,
//! what `trim_blocks` and `lstrip_blocks` take away, raw blocks, comments, line statements, and
//! where a tag ends when its end mark also occurs inside of brackets.
//!
//! A little over 500 lines, because the rules of white space depend on each other.

use super::options::Syntax;

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// Text that is printed as it is.
    Data(String),
    /// `{%`
    BlockStart,
    /// `%}`
    BlockEnd,
    /// `{{`
    PrintStart,
    /// `}}`
    PrintEnd,
    Name(String),
    Text(String),
    Int(i128),
    Float(f64),
    /// An operator or bracket.
    Sign(&'static str),
}

/// A token and its line, from 1.
pub(crate) type Placed = (Token, usize);

/// Description of the unreadable text, and its line.
pub(crate) type LexError = (String, usize);

/// The signs, longest first.
const SIGNS: [&str; 28] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";", "!", "@",
];

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    syntax: &'a Syntax,
    tokens: Vec<Placed>,
    /// Next position of each start mark, as far as it was looked for: at its index in
    /// [`Lexer::next_start`]. Each part of the text is searched once for each mark.
    ahead: [Ahead; 5],
    /// Whether the last thing read ended a line, which is where `lstrip_blocks` may work.
    line_starting: bool,
}

/// The next place of a mark and its length.
#[derive(Clone, Copy, PartialEq)]
enum Ahead {
    Unknown,
    At(usize, usize),
    Nowhere,
}

/// The tokens of a template.
pub(crate) fn tokens(source: &str, syntax: &Syntax) -> Result<Vec<Placed>, LexError> {
    let mut text = source.replace("\r\n", "\n").replace('\r', "\n");
    if !syntax.keep_trailing_newline && text.ends_with('\n') {
        text.pop();
    }
    let mut lexer = Lexer {
        text: &text,
        at: 0,
        line: 1,
        syntax,
        tokens: Vec::new(),
        ahead: [Ahead::Unknown; 5],
        line_starting: true,
    };
    lexer.root()?;
    Ok(lexer.tokens)
}

#[derive(Clone, Copy, PartialEq)]
enum Start {
    Raw,
    Block,
    Print,
    Comment,
    LineBlock,
    LineComment,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn advance(&mut self, bytes: usize) {
        let passed = self.rest().get(..bytes).unwrap_or_default();
        self.line += passed.matches('\n').count();
        if let Some(last) = passed.chars().last() {
            self.line_starting = last == '\n';
        }
        self.at += bytes;
    }

    fn root(&mut self) -> Result<(), LexError> {
        while let Some((offset, start, length)) = self.next_start() {
            let data = self.rest().get(..offset).unwrap_or_default();
            let after = self.rest().get(offset + length..).unwrap_or_default();
            let sign = match start {
                Start::LineBlock | Start::LineComment | Start::Raw => None,
                _ => after
                    .chars()
                    .next()
                    .filter(|sign| matches!(sign, '-' | '+')),
            };
            let sign = match start {
                Start::Raw => self
                    .rest()
                    .get(offset + self.syntax.block_start.len()..)
                    .and_then(|rest| rest.chars().next())
                    .filter(|sign| matches!(sign, '-' | '+')),
                _ => sign,
            };
            let kept = self.stripped(data, sign, start);
            if !kept.is_empty() {
                self.tokens.push((Token::Data(kept.to_owned()), self.line));
            }
            self.advance(offset + length);
            if sign.is_some() && start != Start::Raw {
                self.advance(1);
            }
            match start {
                Start::Comment => self.comment()?,
                Start::Raw => self.raw()?,
                Start::LineComment => {
                    let end = self.rest().find('\n').unwrap_or(self.rest().len());
                    self.advance(end);
                }
                Start::Print => {
                    self.tokens.push((Token::PrintStart, self.line));
                    self.inside(Start::Print)?;
                }
                Start::Block | Start::LineBlock => {
                    self.tokens.push((Token::BlockStart, self.line));
                    self.inside(start)?;
                }
            }
        }
        if !self.rest().is_empty() {
            let data = self.rest().to_owned();
            self.tokens.push((Token::Data(data), self.line));
        }
        Ok(())
    }

    /// The text before a tag without the white space that belongs to the tag.
    fn stripped<'t>(&self, data: &'t str, sign: Option<char>, start: Start) -> &'t str {
        match sign {
            Some('-') => data.trim_end(),
            Some(_) => data,
            None if self.syntax.lstrip_blocks
                && matches!(start, Start::Block | Start::Comment | Start::Raw) =>
            {
                let line = data.rfind('\n').map_or(0, |at| at + 1);
                let blank = data.get(line..).is_some_and(|tail| tail.trim().is_empty());
                if blank && (line > 0 || self.line_starting) {
                    data.get(..line).unwrap_or_default()
                } else {
                    data
                }
            }
            None => data,
        }
    }

    /// The next tag: where it starts, what it is, how long its start mark is.
    fn next_start(&mut self) -> Option<(usize, Start, usize)> {
        let rest = self.rest();
        let syntax = self.syntax;
        let mut marks = [
            (0, syntax.comment_start.as_str(), Start::Comment),
            (1, syntax.block_start.as_str(), Start::Block),
            (2, syntax.print_start.as_str(), Start::Print),
        ];
        marks.sort_by_key(|(_, mark, _)| std::cmp::Reverse(mark.len()));
        let mut best: Option<(usize, Start, usize)> = None;
        for (index, mark, start) in marks {
            let find = |lexer: &Self| Some((lexer.rest().find(mark)?, mark.len()));
            let found = self.ahead(index, find);
            if let Some((at, length)) = found.filter(|(at, _)| best.is_none_or(|b| *at < b.0)) {
                best = Some((at, start, length));
            }
        }
        if let Some((at, Start::Block, _)) = best
            && let Some(length) = self.raw_start(rest.get(at..).unwrap_or_default())
        {
            best = Some((at, Start::Raw, length));
        }
        if let Some(prefix) = &syntax.line_statement {
            let found = self.ahead(3, |lexer| lexer.line_mark(prefix, false));
            if let Some((at, length)) = found.filter(|(at, _)| best.is_none_or(|b| *at <= b.0)) {
                best = Some((at, Start::LineBlock, length));
            }
        }
        if let Some(prefix) = &syntax.line_comment {
            let found = self.ahead(4, |lexer| lexer.line_mark(prefix, true));
            if let Some((at, length)) = found.filter(|(at, _)| best.is_none_or(|b| *at <= b.0)) {
                best = Some((at, Start::LineComment, length));
            }
        }
        best
    }

    /// How far off a mark is, which is looked for only if the one that is known was passed.
    fn ahead(
        &mut self,
        index: usize,
        find: impl Fn(&Self) -> Option<(usize, usize)>,
    ) -> Option<(usize, usize)> {
        let known = self.ahead.get(index).copied().unwrap_or(Ahead::Unknown);
        let next = match known {
            Ahead::At(at, _) if at >= self.at => known,
            Ahead::Nowhere => known,
            _ => match find(self) {
                Some((offset, length)) => Ahead::At(self.at + offset, length),
                None => Ahead::Nowhere,
            },
        };
        if let Some(slot) = self.ahead.get_mut(index) {
            *slot = next;
        }
        match next {
            Ahead::At(at, length) => Some((at - self.at, length)),
            _ => None,
        }
    }

    /// Start of a line statement or comment: white space at the start of a line and the prefix; a
    /// comment may also stand after text.
    fn line_mark(&self, prefix: &str, comment: bool) -> Option<(usize, usize)> {
        let rest = self.rest();
        let mut from = 0;
        while let Some(found) = rest.get(from..).and_then(|rest| rest.find(prefix)) {
            let at = from + found;
            let before = self.text.get(..self.at + at).unwrap_or_default();
            let line = before.rfind('\n').map_or(0, |at| at + 1);
            let blank = before.len() - before.trim_end_matches([' ', '\t', '\u{b}']).len();
            let starts = before.len() - blank <= line;
            if (starts || comment) && blank <= at {
                return Some((at - blank, blank + prefix.len()));
            }
            from = at + prefix.len().max(1);
        }
        None
    }

    /// The length of `{% raw %}` if the text starts with it.
    fn raw_start(&self, text: &str) -> Option<usize> {
        let rest = text.strip_prefix(self.syntax.block_start.as_str())?;
        let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        let rest = rest.trim_start().strip_prefix("raw")?.trim_start();
        let end = self.syntax.block_end.as_str();
        let rest = match rest
            .strip_prefix('-')
            .and_then(|rest| rest.strip_prefix(end))
        {
            Some(after) => after.trim_start(),
            None => rest.strip_prefix(end)?,
        };
        Some(text.len() - rest.len())
    }

    fn raw(&mut self) -> Result<(), LexError> {
        let rest = self.rest();
        let mut from = 0;
        while let Some(found) = rest
            .get(from..)
            .and_then(|r| r.find(&*self.syntax.block_start))
        {
            let at = from + found;
            let mark = self.syntax.block_start.len();
            let inner = rest.get(at + mark..).unwrap_or_default();
            let sign = inner
                .chars()
                .next()
                .filter(|sign| matches!(sign, '-' | '+'));
            let name = inner.get(usize::from(sign.is_some())..).unwrap_or_default();
            let closed = name
                .trim_start()
                .strip_prefix("endraw")
                .and_then(|tail| self.tag_end(tail.trim_start(), &self.syntax.block_end, true));
            if let Some(after) = closed {
                let data = rest.get(..at).unwrap_or_default();
                let kept = self.stripped(data, sign, Start::Raw);
                if !kept.is_empty() {
                    self.tokens.push((Token::Data(kept.to_owned()), self.line));
                }
                self.advance(rest.len() - after.len());
                return Ok(());
            }
            from = at + mark;
        }
        Err(("Missing end of raw directive".to_owned(), self.line))
    }

    fn comment(&mut self) -> Result<(), LexError> {
        let rest = self.rest();
        let end = self.syntax.comment_end.as_str();
        let Some(at) = rest.find(end) else {
            return Err(("Missing end of comment tag".to_owned(), self.line));
        };
        let signed = match rest.get(..at).and_then(|text| text.chars().last()) {
            Some('-' | '+') => at - 1,
            _ => at,
        };
        let after = rest
            .get(signed..)
            .and_then(|tail| self.tag_end(tail, end, true))
            .unwrap_or_default();
        self.advance(rest.len() - after.len());
        Ok(())
    }

    /// The text after an end mark, its sign and the white space that it strips.
    fn tag_end<'t>(&self, text: &'t str, end: &str, block: bool) -> Option<&'t str> {
        if let Some(after) = text
            .strip_prefix('-')
            .and_then(|text| text.strip_prefix(end))
        {
            return Some(after.trim_start());
        }
        if block && let Some(after) = text.strip_prefix('+').and_then(|t| t.strip_prefix(end)) {
            return Some(after);
        }
        let after = text.strip_prefix(end)?;
        if block && self.syntax.trim_blocks {
            return Some(after.strip_prefix('\n').unwrap_or(after));
        }
        Some(after)
    }

    /// The tokens of a tag up to and with its end mark.
    fn inside(&mut self, start: Start) -> Result<(), LexError> {
        let first = self.line;
        let mut open: Vec<&str> = Vec::new();
        loop {
            let rest = self.rest();
            if open.is_empty() {
                if start == Start::LineBlock {
                    let spaces = rest.len() - rest.trim_start_matches([' ', '\t']).len();
                    let tail = rest.get(spaces..).unwrap_or_default();
                    if tail.is_empty() || tail.starts_with('\n') {
                        self.tokens.push((Token::BlockEnd, self.line));
                        self.advance(spaces + usize::from(!tail.is_empty()));
                        return Ok(());
                    }
                } else {
                    let block = start == Start::Block;
                    let end = if block {
                        &self.syntax.block_end
                    } else {
                        &self.syntax.print_end
                    };
                    if let Some(after) = self.tag_end(rest, end, block) {
                        let token = if block {
                            Token::BlockEnd
                        } else {
                            Token::PrintEnd
                        };
                        self.tokens.push((token, self.line));
                        self.advance(rest.len() - after.len());
                        return Ok(());
                    }
                }
            }
            let Some(letter) = rest.chars().next() else {
                let what = if start == Start::Print {
                    "end of print statement"
                } else {
                    "end of statement block"
                };
                return Err((
                    format!("unexpected end of template, expected '{what}'."),
                    first,
                ));
            };
            if letter.is_whitespace() {
                self.advance(letter.len_utf8());
                continue;
            }
            let line = self.line;
            if letter.is_ascii_digit() {
                // After a dot, `0.1` is two indexes.
                let index = matches!(self.tokens.last(), Some((Token::Sign("."), _)));
                let (token, length) =
                    number(rest, index).map_err(|error| (error.to_string(), line))?;
                self.tokens.push((token, line));
                self.advance(length);
            } else if letter == '\'' || letter == '"' {
                let (text, length) = quoted(rest, letter).ok_or_else(|| {
                    (format!("unexpected char {:?} at {}", letter, self.at), line)
                })?;
                self.tokens.push((Token::Text(text), line));
                self.advance(length);
            } else if letter == '_' || letter.is_alphanumeric() {
                let end = rest
                    .find(|letter: char| letter != '_' && !letter.is_alphanumeric())
                    .unwrap_or(rest.len());
                let name = rest.get(..end).unwrap_or_default().to_owned();
                self.tokens.push((Token::Name(name), line));
                self.advance(end);
            } else {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign)).copied();
                let Some(sign) = sign.filter(|sign| !matches!(*sign, "!" | "@")) else {
                    return Err((format!("unexpected char '{letter}' at {}", self.at), line));
                };
                match sign {
                    "(" | "[" | "{" => open.push(sign),
                    ")" | "]" | "}" => {
                        let expected = match open.pop() {
                            Some("(") => ")",
                            Some("[") => "]",
                            Some(_) => "}",
                            None => return Err((format!("unexpected '{sign}'"), line)),
                        };
                        if expected != sign {
                            return Err((
                                format!("unexpected '{sign}', expected '{expected}'"),
                                line,
                            ));
                        }
                    }
                    _ => {}
                }
                self.tokens.push((Token::Sign(sign), line));
                self.advance(sign.len());
            }
        }
    }
}

/// Why the digits of a number have no value.
#[derive(Debug, thiserror::Error)]
enum NumberError {
    /// The digits are no floating-point number.
    #[error("'{0}' is not a number")]
    Float(String),
    /// The integer has more than 128 bits.
    #[error("the number '{0}' is too large")]
    TooLarge(String),
}

fn number(text: &str, index: bool) -> Result<(Token, usize), NumberError> {
    let digits = |text: &str, radix: u32| {
        let mut end = 0;
        for (at, letter) in text.char_indices() {
            if letter.is_digit(radix) {
                end = at + 1;
            } else if letter != '_' {
                break;
            }
        }
        end
    };
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        let head = text.get(..2).unwrap_or_default();
        if head.eq_ignore_ascii_case(prefix) {
            let tail = text.get(2..).unwrap_or_default();
            let length = digits(tail, radix);
            let clean = tail.get(..length).unwrap_or_default().replace('_', "");
            if let Ok(number) = i128::from_str_radix(&clean, radix) {
                return Ok((Token::Int(number), 2 + length));
            }
        }
    }
    let whole = digits(text, 10);
    let mut end = whole;
    let mut float = false;
    let after = text.get(whole..).unwrap_or_default();
    if let Some(tail) = after.strip_prefix('.').filter(|_| !index) {
        let length = digits(tail, 10);
        if length > 0 && tail.starts_with(|letter: char| letter.is_ascii_digit()) {
            end += 1 + length;
            float = true;
        }
    }
    let after = text.get(end..).unwrap_or_default();
    if after.starts_with(['e', 'E']) {
        let tail = after.get(1..).unwrap_or_default();
        let signed = tail.strip_prefix(['+', '-']).unwrap_or(tail);
        let length = digits(signed, 10);
        if length > 0 && signed.starts_with(|letter: char| letter.is_ascii_digit()) {
            end += after.len() - signed.len() + length;
            float = true;
        }
    }
    let clean = text.get(..end).unwrap_or_default().replace('_', "");
    if float {
        let number = clean.parse().map_err(|_| NumberError::Float(clean))?;
        return Ok((Token::Float(number), end));
    }
    let number = clean.parse().map_err(|_| NumberError::TooLarge(clean))?;
    Ok((Token::Int(number), end))
}

/// A text in quotes with its escapes resolved, and how many bytes it took.
fn quoted(source: &str, mark: char) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut letters = source.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == mark {
            return Some((out, at + 1));
        }
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        let (_, escape) = letters.next()?;
        let mut code = |most: usize, radix: u32, first: Option<u32>| {
            let mut value = first.unwrap_or(0);
            let mut count = 0;
            while count < most
                && let Some(digit) = letters
                    .peek()
                    .and_then(|(_, letter)| letter.to_digit(radix))
            {
                value = value * radix + digit;
                letters.next();
                count += 1;
            }
            char::from_u32(value)
        };
        match escape {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'v' => out.push('\u{b}'),
            '\n' => {}
            '\\' | '\'' | '"' => out.push(escape),
            'x' => out.push(code(2, 16, None)?),
            'u' => out.push(code(4, 16, None)?),
            'U' => out.push(code(8, 16, None)?),
            '0'..='7' => out.push(code(2, 8, escape.to_digit(8))?),
            _ => {
                out.push('\\');
                out.push(escape);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{Ahead, Lexer, Syntax};

    #[test]
    fn lexer_searches_each_part_of_the_text_once() {
        let text = "ab{{ 1 }}".repeat(1000) + "{% set a = 1 %}";
        let syntax = Syntax::default();
        let mut lexer = Lexer {
            text: &text,
            at: 0,
            line: 1,
            syntax: &syntax,
            tokens: Vec::new(),
            ahead: [Ahead::Unknown; 5],
            line_starting: true,
        };
        let searched = Cell::new(0);
        for mark in ["{#", "{%", "{{"] {
            lexer.at = 0;
            lexer.ahead = [Ahead::Unknown; 5];
            searched.set(0);
            while lexer.at < text.len() {
                let found = lexer.ahead(0, |lexer| {
                    let found = lexer.rest().find(mark);
                    searched.set(searched.get() + found.unwrap_or(lexer.rest().len()));
                    Some((found?, mark.len()))
                });
                assert_eq!(found.map(|(at, _)| at), lexer.rest().find(mark));
                lexer.at += 1;
            }
            assert!(searched.get() <= text.len(), "{mark}: {}", searched.get());
        }
    }
}

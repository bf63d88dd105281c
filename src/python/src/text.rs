//! What Python takes for white space, line ends, digits and printable characters.

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
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(end) = rest.find(is_line_end) else {
            lines.push(rest);
            break;
        };
        let (line, tail) = rest.split_at(end);
        lines.push(line);
        rest = tail
            .strip_prefix("\r\n")
            .or_else(|| tail.strip_prefix(is_line_end))
            .unwrap_or_default();
    }
    lines
}

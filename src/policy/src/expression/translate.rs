//! Python's pattern languages in the syntax of this regex engine.

use std::borrow::Cow;

/// A regular expression of Python in the syntax of this engine: inside a class of characters `[`,
/// `&&` and `~~` stand for themselves.
pub(super) fn from_python(text: &str) -> Cow<'_, str> {
    if !text.contains('[') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    // In a class, how many of its characters were seen; a `]` in the first place is a member.
    let mut class: Option<usize> = None;
    while let Some(c) = chars.next() {
        match (c, class) {
            ('\\', _) => {
                out.push(c);
                out.extend(chars.next());
                class = class.map(|members| members + 1);
                continue;
            }
            ('[', None) => {
                class = Some(0);
                out.push(c);
                out.extend(chars.next_if_eq(&'^'));
                continue;
            }
            (']', Some(members)) if members > 0 => class = None,
            ('[', Some(_)) => out.push('\\'),
            ('&' | '~', Some(_)) if chars.peek() == Some(&c) => out.push('\\'),
            _ => {}
        }
        class = class.map(|members| members + 1);
        out.push(c);
    }
    Cow::Owned(out)
}

/// Python's `fnmatch.translate`, in the syntax of this regex engine. A `[` that is never closed
/// stands for itself.
pub(super) fn glob_to_regex(pattern: &str) -> String {
    let chars: Vec<char> = pattern.chars().collect();
    let mut regex = String::from(r"(?s)\A");
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => match class_end(&chars, at) {
                Some(end) => {
                    push_class(&mut regex, chars.get(at..end).unwrap_or_default());
                    at = end + 1;
                }
                None => regex.push_str(r"\["),
            },
            other => push_literal(&mut regex, other),
        }
    }
    regex.push_str(r"\z");
    regex
}

/// Where the class that begins at `start` (behind its `[`) ends: the index of its `]`. A `]` in
/// the first place is a member of the class.
fn class_end(chars: &[char], start: usize) -> Option<usize> {
    let mut at = start;
    if chars.get(at) == Some(&'!') {
        at += 1;
    }
    if chars.get(at) == Some(&']') {
        at += 1;
    }
    let rest = chars.get(at..)?;
    rest.iter()
        .position(|c| *c == ']')
        .map(|offset| at + offset)
}

fn push_class(regex: &mut String, members: &[char]) {
    let (negated, members) = match members.split_first() {
        Some(('!', rest)) => (true, rest),
        _ => (false, members),
    };
    let mut body = String::new();
    let mut at = 0;
    while let Some(&low) = members.get(at) {
        match (members.get(at + 1), members.get(at + 2)) {
            (Some('-'), Some(&high)) => {
                // A range that runs backwards is empty in Python, an error here.
                if low <= high {
                    push_class_member(&mut body, low);
                    body.push('-');
                    push_class_member(&mut body, high);
                }
                at += 3;
            }
            _ => {
                push_class_member(&mut body, low);
                at += 1;
            }
        }
    }
    match (body.is_empty(), negated) {
        (true, false) => regex.push_str("(?!)"),
        (true, true) => regex.push('.'),
        (false, _) => {
            regex.push_str(if negated { "[^" } else { "[" });
            regex.push_str(&body);
            regex.push(']');
        }
    }
}

fn push_class_member(body: &mut String, c: char) {
    if !c.is_alphanumeric() && c.is_ascii() {
        body.push('\\');
    }
    body.push(c);
}

fn push_literal(regex: &mut String, c: char) {
    let mut buffer = [0; 4];
    regex.push_str(&fancy_regex::escape(c.encode_utf8(&mut buffer)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_characters_have_no_sets_inside() {
        let table = [
            ("a[bc]d", "a[bc]d"),
            ("[[ab]c]", r"[\[ab]c]"),
            ("[]a[]", r"[]a\[]"),
            ("[^][]", r"[^]\[]"),
            (r"[\][]x[", r"[\]\[]x["),
            ("[a&&b]&&", r"[a\&&b]&&"),
        ];
        for (text, expected) in table {
            assert_eq!(from_python(text), expected, "{text}");
        }
    }
}

//! Characters of untrusted text that are unsafe for a terminal or a log.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character is unsafe for a terminal: a control, bidirectional or invisible character.
/// Such characters are shown as their codes.
pub fn is_unsafe_for_terminal(c: char) -> bool {
    let is_invisible = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}');
    c.is_control() || is_invisible
}

/// The text on one line, each unsafe character as its code.
#[must_use]
pub fn escaped_for_terminal(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe_for_terminal) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_unsafe_for_terminal(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// A JSON document whose texts have no unsafe character: there alone such characters stand, and JSON
/// has an escape for each.
#[must_use]
pub fn escaped_json_for_terminal(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if !is_unsafe_for_terminal(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing into a text cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_stays_on_its_line() {
        assert_eq!(escaped_for_terminal("größe 日"), "größe 日");
        let escaped = escaped_for_terminal("a\n\u{1b}[31m\u{202e}");
        assert_eq!(escaped, "a\\n\\u{1b}[31m\\u{202e}");
    }

    #[test]
    fn escaped_json_is_the_same_document() {
        let escaped = escaped_json_for_terminal("[\"a\u{7f}\u{202e}\u{e0041}ü\"]");
        assert_eq!(escaped, "[\"a\\u007f\\u202e\\udb40\\udc41ü\"]");
    }

    #[test]
    fn control_and_invisible_characters_are_unsafe_letters_are_not() {
        let steering = "\u{0}\n\u{1b}\u{7f}\u{9b}\u{ad}\u{61c}\u{180e}\u{200b}\u{202e}\u{2066}\u{206a}\
            \u{feff}\u{fff9}\u{e0041}";
        for c in steering.chars() {
            assert!(is_unsafe_for_terminal(c), "{c:?}");
        }
        for c in "aZ 9~ß→日🦀\u{301}".chars() {
            assert!(!is_unsafe_for_terminal(c), "{c:?}");
        }
    }
}

//! Sanitizes text from outside for a terminal.
//!
//! Ids, tags, arguments and event data come from minions and users. Control, invisible and
//! bidirectional characters are shown as their code points; all text on the screen passes through
//! here.

use saltern_base::is_unsafe_for_terminal;

/// The text in one line, at most `most` characters wide, an ellipsis where something is left out.
pub fn plain(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut left = most;
    for c in text.chars() {
        let is_steering = is_unsafe_for_terminal(c);
        let width = if is_steering {
            c.escape_default().count()
        } else {
            1
        };
        if width > left {
            // The ellipsis needs a place, too.
            if left == 0 {
                out.pop();
            }
            out.push('…');
            return out;
        }
        left -= width;
        if is_steering {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The sanitized lines of a text, up to a number.
pub fn plain_lines(text: &str, most_lines: usize, most: usize) -> Vec<String> {
    let lines = text.lines().take(most_lines);
    lines.map(|line| plain(line, most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_code_points() {
        let cases = [
            ("web1", "web1"),
            ("größe → 3", "größe → 3"),
            ("\x1b]0;owned\x07", "\\u{1b}]0;owned\\u{7}"),
            ("a\nb\rc\td", "a\\nb\\rc\\td"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("safe\u{202e}exe.txt", "safe\\u{202e}exe.txt"),
            ("ze\u{200b}ro", "ze\\u{200b}ro"),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text, 100), expected, "{text:?}");
        }
    }

    #[test]
    fn long_text_is_cut_with_an_ellipsis() {
        assert_eq!(plain("abcdef", 6), "abcdef");
        assert_eq!(plain("abcdefg", 6), "abcde…");
        assert_eq!(plain("abc\x1bdef", 6), "abc…");
        assert_eq!(plain("a\nb\u{1b}", 100), "a\\nb\\u{1b}");
        assert_eq!(plain_lines("a\nb\x07\nc", 2, 10), ["a", "b\\u{7}"]);
    }
}

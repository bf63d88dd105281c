//! Texts as PostgreSQL keeps them: it takes every character but NUL.
//!
//! A NUL is written as two characters, and so is the first of the two where a text has it. What is read
//! is what was written; texts without either are kept as they are, and people can read them.

use std::borrow::Cow;

/// Of the private use area: no text has a meaning for it.
const ESCAPE: char = '\u{f8fe}';

/// The text as a column has it.
pub(super) fn stored(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return text.into();
    }
    let mut kept = String::with_capacity(text.len() + 8);
    for one in text.chars() {
        match one {
            '\0' => kept.extend([ESCAPE, '0']),
            ESCAPE => kept.extend([ESCAPE, '1']),
            one => kept.push(one),
        }
    }
    kept.into()
}

/// The text that a column stands for.
pub(super) fn original(kept: String) -> String {
    if !kept.contains(ESCAPE) {
        return kept;
    }
    let mut text = String::with_capacity(kept.len());
    let mut rest = kept.chars();
    while let Some(one) = rest.next() {
        match one {
            ESCAPE => text.push(match rest.next() {
                Some('0') => '\0',
                _ => ESCAPE,
            }),
            one => text.push(one),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were_and_have_no_nul() {
        for text in [
            "",
            "plain",
            "a\0b",
            "\0\0",
            "\u{f8fe}",
            "\u{f8fe}0\0\u{f8fe}1",
        ] {
            let kept = stored(text).into_owned();
            assert!(!kept.contains('\0'), "{kept:?}");
            assert_eq!(original(kept), text);
        }
    }
}

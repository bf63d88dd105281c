//! `shlex`: command lines and their words, by the rules of POSIX shells.

use std::str::Chars;

/// Why a text is no command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A quotation that does not end.
    #[error("No closing quotation")]
    Quotation,
    /// A backslash at the end.
    #[error("No escaped character")]
    Escape,
}

/// `shlex.split(text)`: words parted by white space; `'…'` stands as it is, `"…"` knows `\"` and
/// `\\`, and elsewhere a backslash takes its meaning from any character.
///
/// # Errors
/// When a quotation or an escape does not end.
pub fn split(text: &str) -> Result<Vec<String>, SplitError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\'' => single_quoted(&mut letters, word.get_or_insert_default())?,
            '"' => double_quoted(&mut letters, word.get_or_insert_default())?,
            '\\' => {
                let escaped = letters.next().ok_or(SplitError::Escape)?;
                word.get_or_insert_default().push(escaped);
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single_quoted(letters: &mut Chars<'_>, word: &mut String) -> Result<(), SplitError> {
    loop {
        match letters.next().ok_or(SplitError::Quotation)? {
            '\'' => return Ok(()),
            other => word.push(other),
        }
    }
}

fn double_quoted(letters: &mut Chars<'_>, word: &mut String) -> Result<(), SplitError> {
    loop {
        match letters.next().ok_or(SplitError::Quotation)? {
            '"' => return Ok(()),
            '\\' => match letters.next().ok_or(SplitError::Escape)? {
                escaped @ ('"' | '\\') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            other => word.push(other),
        }
    }
}

/// `shlex.quote(text)`: the text as one word of a shell.
#[must_use]
pub fn quote(text: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    match !text.is_empty() && text.chars().all(is_safe) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\"'\"'")),
    }
}

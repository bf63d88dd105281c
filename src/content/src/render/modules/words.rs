//! A command line as words, as Python's `shlex.split` reads it.

/// The words of a text: parted by white space, `'…'` as it stands, `"…"` with `\"` and `\\`, and
/// a backslash before any letter outside.
///
/// # Errors
/// Python's words for a quotation or an escape that does not end.
pub(super) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => word.push(letter),
                        None => return Err("No closing quotation".to_owned()),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('"') => break,
                        Some('\\') => match letters.next() {
                            Some(escaped @ ('"' | '\\')) => word.push(escaped),
                            Some(other) => word.extend(['\\', other]),
                            None => return Err("No closing quotation".to_owned()),
                        },
                        Some(letter) => word.push(letter),
                        None => return Err("No closing quotation".to_owned()),
                    }
                }
            }
            '\\' => match letters.next() {
                Some(letter) => word.get_or_insert_default().push(letter),
                None => return Err("No escaped character".to_owned()),
            },
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_parted_as_python_parts_them() {
        let table: [(&str, &[&str]); 7] = [
            ("a  b\tc\n", &["a", "b", "c"]),
            ("a 'b c' \"d e\"", &["a", "b c", "d e"]),
            ("a'b'\"c\"d", &["abcd"]),
            ("'' \"\"", &["", ""]),
            (r#""a\"b\\c\d""#, &[r#"a"b\c\d"#]),
            (r"a\ b '\n'", &["a b", r"\n"]),
            ("", &[]),
        ];
        for (text, words) in table {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(split(text), Ok(words), "{text}");
        }
        for text in ["'a", "\"a", "\"a\\", "a\\"] {
            assert!(split(text).is_err(), "{text}");
        }
    }
}

//! Values as Python writes them, where that shows in a return: in error texts, and where stock
//! turns an argument into text.

use saltern_wire::msgpack::Value;

/// `str(value)`.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Str(text) => text.clone(),
        other => repr(other),
    }
}

/// `repr(value)`.
pub(crate) fn repr(value: &Value) -> String {
    match value {
        Value::Nil => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Float(number) => float(*number),
        Value::Str(text) => quoted(text),
        Value::Bin(bytes) | Value::Ext(_, bytes) => {
            let shown: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("b'{shown}'")
        }
        Value::Array(items) => {
            format!(
                "[{}]",
                items.iter().map(repr).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Map(entries) => {
            let shown: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", repr(key), repr(value)))
                .collect();
            format!("{{{}}}", shown.join(", "))
        }
    }
}

/// `repr` of a list of texts.
pub(crate) fn repr_list(items: &[String]) -> String {
    let shown: Vec<String> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", shown.join(", "))
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut shown = String::with_capacity(text.len() + 2);
    shown.push(quote);
    for character in text.chars() {
        match character {
            '\\' => shown.push_str("\\\\"),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            character if character == quote => {
                shown.push('\\');
                shown.push(character);
            }
            control if control.is_control() => {
                shown.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            character => shown.push(character),
        }
    }
    shown.push(quote);
    shown
}

fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let magnitude = number.abs();
    if number != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let shown = format!("{number:e}");
        let (mantissa, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let shown = number.to_string();
    if shown.contains('.') {
        shown
    } else {
        format!("{shown}.0")
    }
}

/// `int(value)`, for arguments that stock converts so.
pub(crate) fn int(value: &Value) -> Result<i64, String> {
    match value {
        Value::Bool(flag) => Ok(i64::from(*flag)),
        Value::Float(number) if number.is_finite() => Ok(number.trunc() as i64),
        Value::Str(text) => text
            .trim()
            .parse()
            .map_err(|_| format!("invalid literal for int() with base 10: {}", quoted(text))),
        other => other.as_i64().ok_or_else(|| {
            "int() argument must be a string, a bytes-like object or a real number".to_owned()
        }),
    }
}

/// `shlex.split(text)` by the POSIX rules, without comments.
pub(crate) fn shlex_split(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\\' => {
                let next = characters.next().ok_or("No escaped character")?;
                word.get_or_insert_default().push(next);
            }
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next().ok_or("No closing quotation")? {
                        '\'' => break,
                        inner => word.push(inner),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next().ok_or("No closing quotation")? {
                        '"' => break,
                        '\\' => {
                            let next = characters.next().ok_or("No closing quotation")?;
                            if !matches!(next, '"' | '\\') {
                                word.push('\\');
                            }
                            word.push(next);
                        }
                        inner => word.push(inner),
                    }
                }
            }
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Splits `name=value` as stock's `parse_kwarg` does: a name that could be a Python name (or has
/// dots and dashes in it), one `=`, and no line break in the value.
pub(crate) fn keyword(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let mut characters = name.chars();
    let first = characters.next()?;
    let starts = first == '_' || first.is_alphabetic();
    let goes_on = characters.all(|c| c == '_' || c == '.' || c == '-' || c.is_alphanumeric());
    let one_line = !value.trim_end_matches('\n').contains('\n') && !value.ends_with("\n\n");
    (starts && goes_on && one_line && !value.starts_with('=')).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_split_as_shlex_splits_them() {
        let cases: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("echo  hello\tthere", &["echo", "hello", "there"]),
            ("a 'b c' d", &["a", "b c", "d"]),
            (r#"a "b \" \n" c"#, &["a", r#"b " \n"#, "c"]),
            (r"a\ b ''", &["a b", ""]),
            (r"'a\b'", &[r"a\b"]),
            ("a'b'c", &["abc"]),
        ];
        for (text, words) in cases {
            assert_eq!(shlex_split(text).expect(text), words, "{text}");
        }
        assert_eq!(shlex_split("'a"), Err("No closing quotation"));
        assert_eq!(shlex_split("a\\"), Err("No escaped character"));
    }

    #[test]
    fn keywords_differ_from_texts_with_an_equals_sign() {
        assert_eq!(keyword("a=b"), Some(("a", "b")));
        assert_eq!(keyword("a="), Some(("a", "")));
        assert_eq!(keyword("env-x.y=1=2"), Some(("env-x.y", "1=2")));
        for text in ["a==b", "1a=b", "a b=c", "=b", "a", "a=b\nc"] {
            assert_eq!(keyword(text), None, "{text:?}");
        }
    }

    #[test]
    fn values_read_as_python_writes_them() {
        let list = Value::from(vec![Value::from("it's"), Value::from(1_i64), Value::Nil]);
        assert_eq!(repr(&list), r#"["it's", 1, None]"#);
        assert_eq!(text(&Value::from(true)), "True");
        assert_eq!(text(&Value::from(1.0)), "1.0");
        assert_eq!(text(&Value::from(1e16)), "1e+16");
        assert_eq!(
            repr(&Value::map([("a", Value::from("b\n"))])),
            r"{'a': 'b\n'}"
        );
    }
}

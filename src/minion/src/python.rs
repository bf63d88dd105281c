//! Values as Python writes them, where that shows in a return: in error texts, and where stock
//! turns an argument into text.

use saltern_python::number::parse_int;
use saltern_python::repr::of_text;
use saltern_wire::msgpack::Value;

/// `str(value)`.
pub(crate) fn text(value: &Value) -> String {
    saltern_python::str(value).into_owned()
}

/// The exception that Python raises for `int(value)`. Its text is part of a return.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IntError {
    /// The text is no number.
    #[error("invalid literal for int() with base 10: {}", of_text(.0))]
    Literal(String),
    /// The value is of a type without a number.
    #[error("int() argument must be a string, a bytes-like object or a real number")]
    Type,
}

/// `int(value)`, for arguments that stock converts so.
///
/// # Errors
/// [`IntError`]
pub(crate) fn int(value: &Value) -> Result<i64, IntError> {
    match value {
        Value::Bool(flag) => Ok(i64::from(*flag)),
        Value::Float(number) if number.is_finite() => Ok(number.trunc() as i64),
        Value::Str(text) => {
            let number = parse_int(text, 10)
                .ok()
                .and_then(|number| number.try_into().ok());
            number.ok_or_else(|| IntError::Literal(text.clone()))
        }
        other => other.as_i64().ok_or(IntError::Type),
    }
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
    fn keywords_differ_from_texts_with_an_equals_sign() {
        assert_eq!(keyword("a=b"), Some(("a", "b")));
        assert_eq!(keyword("a="), Some(("a", "")));
        assert_eq!(keyword("env-x.y=1=2"), Some(("env-x.y", "1=2")));
        for text in ["a==b", "1a=b", "a b=c", "=b", "a", "a=b\nc"] {
            assert_eq!(keyword(text), None, "{text:?}");
        }
    }

    #[test]
    fn integers_are_read_as_python_reads_them() {
        assert_eq!(int(&Value::from(" 1_0 ")), Ok(10));
        let error = int(&Value::from("it's")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid literal for int() with base 10: \"it's\""
        );
    }
}

//! How Python would print a value; two of stock's replies contain such text.

use saltern_wire::msgpack::Value;

/// Python's `repr` for simple values; a container is only hinted at.
pub(crate) fn repr(value: &Value) -> String {
    match value {
        Value::Str(text) => format!("'{}'", text.escape_default()),
        Value::Bin(_) => "b'...'".to_owned(),
        Value::Array(_) => "[...]".to_owned(),
        Value::Map(_) => "{...}".to_owned(),
        Value::Ext(..) => "...".to_owned(),
        scalar => str(scalar).unwrap_or_default(),
    }
}

/// Python's `str` for scalars; nothing for containers and bytes.
pub(crate) fn str(value: &Value) -> Option<String> {
    match value {
        Value::Nil => Some("None".to_owned()),
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::Uint(number) => Some(number.to_string()),
        Value::Float(number) => Some(format!("{number:?}")),
        Value::Str(text) => Some(text.clone()),
        Value::Bin(_) | Value::Array(_) | Value::Map(_) | Value::Ext(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_print_as_in_python() {
        let table = [
            (Value::Nil, "None"),
            (Value::Bool(true), "True"),
            (Value::Int(5), "5"),
            (Value::Float(1.0), "1.0"),
            (Value::Float(2.5), "2.5"),
        ];
        for (value, text) in table {
            assert_eq!(repr(&value), text);
            assert_eq!(str(&value).as_deref(), Some(text));
        }
        assert_eq!(repr(&Value::from("a")), "'a'");
        assert_eq!(str(&Value::Array(Vec::new())), None);
    }
}

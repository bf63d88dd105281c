//! Scalars as names: arguments that stock takes for a text, whatever they are.

use saltern_wire::msgpack::Value;

/// Python's `str` for scalars; `None` for containers, bytes and times, which name nothing.
pub fn str(value: &Value) -> Option<String> {
    match value {
        Value::Bin(_) | Value::Array(_) | Value::Map(_) | Value::Ext(..) => None,
        scalar => Some(saltern_python::str(scalar).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn str_of_scalar_is_its_text_and_of_container_none() {
        assert_eq!(str(&Value::from("a'b")).as_deref(), Some("a'b"));
        assert_eq!(str(&Value::Float(1e16)).as_deref(), Some("1e+16"));
        assert_eq!(str(&Value::Array(Vec::new())), None);
    }
}

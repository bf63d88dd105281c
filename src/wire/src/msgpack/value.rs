//! Decoded MessagePack value.
//!
//! Maps keep their order and may hold keys of any type that Python can hash. Nothing here packs or
//! unpacks.

use bytes::Bytes;

use super::unique::unique;

/// One MessagePack value, owned.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// Python's `None`.
    #[default]
    Nil,
    /// A boolean.
    Bool(bool),
    /// Every integer that fits, whatever its encoding was.
    Int(i64),
    /// An integer above `i64::MAX`; smaller ones are always [`Value::Int`].
    Uint(u64),
    /// A float; 32-bit floats are widened when they are read.
    Float(f64),
    /// Text.
    Str(String),
    /// Bytes, also a text that is not valid UTF-8.
    Bin(Bytes),
    /// A list (Python tuples and sets become lists).
    Array(Vec<Value>),
    /// A dictionary in wire order. Of equal keys the last one counts, as in Python; what was
    /// decoded has none.
    Map(Vec<(Value, Value)>),
    /// An extension type and its payload.
    Ext(i8, Bytes),
}

impl Value {
    /// Map of these entries, in this order.
    pub fn map<K: Into<Value>, V: Into<Value>>(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(
            entries
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }

    /// The value stored under this text key (or the same bytes); `None` if this is no map.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_map()?
            .iter()
            .rev()
            .find(|(key, _)| key.as_bytes() == Some(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// Whether Python would call the value true: not nil, false, zero or empty.
    pub fn is_truthy(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(flag) => *flag,
            Self::Int(number) => *number != 0,
            Self::Uint(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::Bin(bytes) => !bytes.is_empty(),
            Self::Array(items) => !items.is_empty(),
            Self::Map(entries) => !entries.is_empty(),
            Self::Ext(..) => true,
        }
    }

    /// The text, if this is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The bytes of a text or of a binary value.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Str(text) => Some(text.as_bytes()),
            Self::Bin(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The integer, if it is one and fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The integer, if it is one and not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            Self::Uint(number) => Some(*number),
            _ => None,
        }
    }

    /// The number as a float; integers are converted, as Python would.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            Self::Int(number) => Some(*number as f64),
            Self::Uint(number) => Some(*number as f64),
            _ => None,
        }
    }

    /// The boolean, if it is one. Integers are not booleans.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The items, if this is a list.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The entries in wire order, if this is a map.
    pub fn as_map(&self) -> Option<&[(Value, Value)]> {
        match self {
            Self::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// Whether this is `None`.
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }
}

impl FromIterator<(Value, Value)> for Value {
    /// A map as a Python dictionary: of equal keys the last value counts, in the position of the
    /// first. Takes time in proportion to the entries.
    fn from_iter<I: IntoIterator<Item = (Value, Value)>>(entries: I) -> Self {
        Self::Map(unique(entries.into_iter().collect()))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Str(text.clone())
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Int(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Uint(number), Self::Int)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::from(number as u64)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Bin(bytes)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bin(Bytes::copy_from_slice(bytes))
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::Array(items)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nil, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_counts() {
        let value = Value::map([("id", 1), ("other", 2), ("id", 3)]);
        assert_eq!(value.get("id").and_then(Value::as_i64), Some(3));
        assert_eq!(value.get("none"), None);
    }

    #[test]
    fn a_byte_key_is_found_by_its_text() {
        let value = Value::map([(Bytes::from_static(b"id"), "m1")]);
        assert_eq!(value.get("id").and_then(Value::as_str), Some("m1"));
    }

    #[test]
    fn integers_are_normalised() {
        assert_eq!(Value::from(7_u64), Value::Int(7));
        assert_eq!(Value::from(u64::MAX), Value::Uint(u64::MAX));
        assert_eq!(Value::from(u64::MAX).as_i64(), None);
        assert_eq!(Value::Int(-1).as_u64(), None);
        assert_eq!(Value::Int(2).as_f64(), Some(2.0));
        assert_eq!(Value::from(None::<&str>), Value::Nil);
    }
}

//! `serde` for values of any type in typed structs: [`RawValue`], [`MapView`] and [`Value`] pass
//! through [`super::de`] and [`super::ser`] as packed bytes.
//!
//! `serde` has no word for "these bytes as they are, in shared memory". As in `serde_json`'s raw
//! values, a newtype struct of a reserved name stands for it. The reader leaves the value in
//! [`HANDED_OVER`], of its own thread, for the visitor that it calls next.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::de::ReadError;
use super::encode::{Dialect, Encoder};
use super::map_view::MapView;
use super::raw::RawValue;
use super::value::Value;

/// Name of the newtype struct that stands for a packed value.
pub(super) const PACKED: &str = "$saltern_wire::msgpack::packed";

/// Name of the newtype struct that stands for a packed value which is the same in both dialects.
pub(super) const VERBATIM: &str = "$saltern_wire::msgpack::verbatim";

thread_local! {
    static HANDED_OVER: Cell<Option<RawValue>> = const { Cell::new(None) };
}

/// Gives a packed value to the visitor of [`RawValue`].
pub(super) fn hand_over<'de, V: Visitor<'de>>(
    value: RawValue,
    visitor: V,
) -> Result<V::Value, ReadError> {
    HANDED_OVER.set(Some(value));
    let read = visitor.visit_unit();
    HANDED_OVER.set(None);
    read
}

struct PackedVisitor;

impl Visitor<'_> for PackedVisitor {
    type Value = RawValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("packed bytes")
    }

    fn visit_unit<E: de::Error>(self) -> Result<RawValue, E> {
        let missing = || E::invalid_type(de::Unexpected::Unit, &self);
        HANDED_OVER.take().ok_or_else(missing)
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_newtype_struct(PACKED, PackedVisitor)
    }
}

impl<'de> Deserialize<'de> for MapView {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let map = RawValue::deserialize(input)?.as_map();
        map.ok_or_else(|| de::Error::custom("not a map"))
    }
}

impl<'de> Deserialize<'de> for Value {
    /// As [`super::decode_wire`] does.
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Ok(RawValue::deserialize(input)?.decode())
    }
}

/// Bytes that are written as such: `serde` takes a slice for a list of numbers.
#[derive(Clone, Copy)]
pub struct Bin<'a>(pub &'a [u8]);

impl Serialize for Bin<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_bytes(self.0)
    }
}

/// A list of pairs as a map in its order, as a field: `#[serde(with = "saltern_wire::msgpack::as_map")]`.
pub mod as_map {
    use std::marker::PhantomData;

    use serde::de::MapAccess;

    use super::{Deserialize, Deserializer, Serialize, Serializer, Visitor, fmt};

    /// Writes a map.
    ///
    /// # Errors
    /// Those of the output.
    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        pairs: &[(K, V)],
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_map(pairs.iter().map(|(key, value)| (key, value)))
    }

    /// Reads a map.
    ///
    /// # Errors
    /// Another type.
    pub fn deserialize<'de, K, V, D>(input: D) -> Result<Vec<(K, V)>, D::Error>
    where
        K: Deserialize<'de>,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        input.deserialize_map(PairsVisitor(PhantomData))
    }

    struct PairsVisitor<K, V>(PhantomData<(K, V)>);

    impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<K, V> {
        type Value = Vec<(K, V)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
}

/// Bytes as a field: `#[serde(with = "saltern_wire::msgpack::as_bytes")]`.
pub mod as_bytes {
    use super::{Deserialize, Deserializer, RawValue, Serializer, de};

    /// Writes bytes.
    ///
    /// # Errors
    /// Those of the output.
    pub fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_bytes(bytes.as_ref())
    }

    /// Reads text or bytes, which share the memory of the input.
    ///
    /// # Errors
    /// Another type.
    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<bytes::Bytes, D::Error> {
        let bytes = RawValue::deserialize(input)?.as_shared_bytes();
        bytes.ok_or_else(|| de::Error::custom("neither text nor bytes"))
    }
}

impl Serialize for RawValue {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let name = if self.is_verbatim() { VERBATIM } else { PACKED };
        out.serialize_newtype_struct(name, &Bin(self.bytes()))
    }
}

impl Serialize for MapView {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(self.iter())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => out.serialize_none(),
            Self::Bool(flag) => out.serialize_bool(*flag),
            Self::Int(number) => out.serialize_i64(*number),
            Self::Uint(number) => out.serialize_u64(*number),
            Self::Float(number) => out.serialize_f64(*number),
            Self::Str(text) => out.serialize_str(text),
            Self::Bin(bytes) => out.serialize_bytes(bytes),
            Self::Array(items) => {
                let mut seq = out.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(item)?;
                }
                seq.end()
            }
            Self::Map(entries) => {
                let mut map = out.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
            Self::Ext(code, payload) => {
                let mut packed = Vec::with_capacity(payload.len() + 6);
                Encoder::new(&mut packed, Dialect::Bin).ext(*code, payload);
                out.serialize_newtype_struct(VERBATIM, &Bin(&packed))
            }
        }
    }
}

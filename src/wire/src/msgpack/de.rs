//! `serde` deserializer over packed bytes that were scanned before, in the wire dialect.
//!
//! [`RawValue::parse`] and [`MapView::parse`] apply the limits; what is read here is well-formed
//! and bounded, so reading fails only where a type asks for something else. Maps read into structs
//! as Python reads a dictionary: of equal keys the last one counts, keys that are no text name no
//! field, other keys are passed over without being decoded. `deny_unknown_fields` therefore has no
//! effect. Neither a list in place of a map nor a number in place of a field's or variant's name is
//! accepted, which `serde` would take as positions.
//!
//! A field that fails leaves the others readable, see [`lenient`].

use bytes::Bytes;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};

use super::ext;
use super::map_view::MapView;
use super::pass_through::{self, PACKED};
use super::raw::{RawValue, SCANNED};
use super::scan::{self, Traits};
use super::token::{Budget, Cursor, DecodeError, Limits, Token};

/// Why packed bytes are not a value of the wanted type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The bytes are no value within the limits.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The bytes are another value, or lack a field.
    #[error("unexpected packed value: {0}")]
    Mismatch(Box<str>),
}

impl de::Error for ReadError {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::Mismatch(text.to_string().into())
    }
}

impl ReadError {
    /// The same, of a field of this name.
    fn within(self, field: &str) -> Self {
        match self {
            Self::Mismatch(text) => Self::Mismatch(format!("{field}: {text}").into()),
            malformed => malformed,
        }
    }
}

/// Reads a value from exactly these bytes. Text and bytes fields may borrow from them.
///
/// # Errors
/// Malformed or trailing bytes, more than the limits, or another type.
pub fn from_slice<T: de::DeserializeOwned>(packed: &[u8], limits: &Limits) -> Result<T, ReadError> {
    RawValue::parse(Bytes::copy_from_slice(packed), limits)?.read()
}

/// Reads an optional field that counts as missing where it has another type: for
/// `#[serde(default, deserialize_with = "lenient")]`.
///
/// # Errors
/// None.
pub fn lenient<'de, T, D>(input: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(input).unwrap_or_default())
}

impl RawValue {
    /// Reads the value as this type; text and bytes may borrow.
    ///
    /// # Errors
    /// Another type, or a missing field.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, ReadError> {
        T::deserialize(Input::whole(self))
    }
}

impl MapView {
    /// Reads the map as this struct or map; text, bytes and packed values share its memory.
    ///
    /// # Errors
    /// Another type, or a missing field.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, ReadError> {
        T::deserialize(Entries(self))
    }
}

/// A position in scanned bytes.
struct Input<'de> {
    source: &'de Bytes,
    cursor: Cursor<'de>,
    /// The value at the start, where it is known as a whole.
    value: Option<&'de RawValue>,
}

impl<'de> Input<'de> {
    fn whole(value: &'de RawValue) -> Self {
        let source = value.bytes();
        Self {
            source,
            cursor: Cursor::new(source),
            value: Some(value),
        }
    }

    fn at(source: &'de Bytes, cursor: Cursor<'de>) -> Self {
        Self {
            source,
            cursor,
            value: None,
        }
    }

    /// The next value, of the same memory.
    fn take(&mut self) -> Result<RawValue, ReadError> {
        if let Some(whole) = self.value {
            return Ok(whole.clone());
        }
        let before = self.cursor;
        let traits = self.scan()?;
        let bytes = before.until(&self.cursor);
        Ok(RawValue::scanned(self.source.slice_ref(bytes), traits))
    }

    /// Passes over the next value. Without limits: these bytes were held to some before.
    fn scan(&mut self) -> Result<Traits, DecodeError> {
        scan::value(&mut self.cursor, &mut Budget::new(self.source, &SCANNED)?)
    }

    fn text_or_bytes<V: Visitor<'de>>(bytes: &'de [u8], visitor: V) -> Result<V::Value, ReadError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => visitor.visit_borrowed_str(text),
            Err(_) => visitor.visit_borrowed_bytes(bytes),
        }
    }

    /// The text that comes next; `None` for any other value.
    fn text(&mut self) -> Result<Option<&'de str>, ReadError> {
        let bytes = match self.cursor.token()? {
            Token::Raw(bytes) | Token::Str8(bytes) | Token::Bin(bytes) => bytes,
            Token::Ext(code, payload) if !ext::is_known(code, payload) => payload,
            _ => return Ok(None),
        };
        Ok(std::str::from_utf8(bytes).ok())
    }
}

impl<'de> Deserializer<'de> for &mut Input<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.cursor.token()? {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(flag) => visitor.visit_bool(flag),
            Token::Int(number) => visitor.visit_i64(number),
            Token::Uint(number) => visitor.visit_u64(number),
            Token::Float(number) => visitor.visit_f64(number),
            Token::Raw(bytes) | Token::Str8(bytes) | Token::Bin(bytes) => {
                Input::text_or_bytes(bytes, visitor)
            }
            Token::Ext(code, payload) if ext::is_known(code, payload) => Err(
                de::Error::invalid_type(Unexpected::Other("extension"), &visitor),
            ),
            Token::Ext(_, payload) => Input::text_or_bytes(payload, visitor),
            Token::Array(len) => visitor.visit_seq(Items {
                input: self,
                left: len,
            }),
            Token::Map(len) => visitor.visit_map(Pairs {
                input: self,
                left: len,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let mut ahead = self.cursor;
        match ahead.token()? {
            Token::Nil => {
                self.cursor = ahead;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match name {
            PACKED => pass_through::hand_over(self.take()?, visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let Token::Map(len) = self.cursor.token()? else {
            return Err(de::Error::invalid_type(
                Unexpected::Other("not a map"),
                &visitor,
            ));
        };
        let mut found: Vec<Option<Input<'de>>> = fields.iter().map(|_| None).collect();
        for _ in 0..len {
            let name = self.key()?;
            let at = name.and_then(|name| fields.iter().position(|field| *field == name));
            if let Some(place) = at.and_then(|at| found.get_mut(at)) {
                *place = Some(Input::at(self.source, self.cursor));
            }
            self.scan()?;
        }
        let found = fields.iter().zip(found);
        let found = found.filter_map(|(field, value)| Some((*field, value?)));
        visitor.visit_map(Fields { found, value: None })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let mut ahead = self.cursor;
        let has_content = ahead.token()? == Token::Map(1);
        if has_content {
            self.cursor = ahead;
        }
        let Some(name) = self.text()? else {
            return Err(de::Error::invalid_type(
                Unexpected::Other("no name"),
                &visitor,
            ));
        };
        visitor.visit_enum(Variant {
            name,
            content: has_content.then_some(self),
        })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        // A number would be taken for the position of a field.
        visitor.visit_str(self.key()?.unwrap_or_default())
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.scan()?;
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map
    }
}

impl<'de> Input<'de> {
    /// The text of a key, which is passed over in any case.
    fn key(&mut self) -> Result<Option<&'de str>, ReadError> {
        let name = Self::at(self.source, self.cursor).text()?;
        self.scan()?;
        Ok(name)
    }
}

/// The same by value, where an input holds one value.
macro_rules! by_reference {
    ($($name:ident($($argument:ident: $type:ty),*))*) => {
        $(fn $name<V: Visitor<'de>>(
            mut self,
            $($argument: $type,)*
            visitor: V,
        ) -> Result<V::Value, ReadError> {
            Deserializer::$name(&mut self, $($argument,)* visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Input<'de> {
    type Error = ReadError;

    by_reference! {
        deserialize_any()
        deserialize_option()
        deserialize_newtype_struct(name: &'static str)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier()
        deserialize_ignored_any()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map
    }
}

/// Reads what comes next of the items or keys that are left; `None` after the last.
fn next_of<'de, S: DeserializeSeed<'de>>(
    input: &mut Input<'de>,
    left: &mut u32,
    seed: S,
) -> Result<Option<S::Value>, ReadError> {
    let Some(fewer) = left.checked_sub(1) else {
        return Ok(None);
    };
    *left = fewer;
    input.value = None;
    seed.deserialize(input).map(Some)
}

/// The items of an array.
struct Items<'a, 'de> {
    input: &'a mut Input<'de>,
    left: u32,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        next_of(self.input, &mut self.left, seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left as usize)
    }
}

/// The entries of a map, in order.
struct Pairs<'a, 'de> {
    input: &'a mut Input<'de>,
    left: u32,
}

impl<'de> MapAccess<'de> for Pairs<'_, 'de> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        next_of(self.input, &mut self.left, seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        seed.deserialize(&mut *self.input)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left as usize)
    }
}

/// The fields of a struct that a map has, each once.
struct Fields<'de, I> {
    found: I,
    value: Option<(&'static str, Input<'de>)>,
}

impl<'de, I> MapAccess<'de> for Fields<'de, I>
where
    I: Iterator<Item = (&'static str, Input<'de>)>,
{
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        let Some((name, value)) = self.found.next() else {
            return Ok(None);
        };
        self.value = Some((name, value));
        let name: StrDeserializer<'_, ReadError> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let value = self.value.take();
        let (name, value) = value.expect("invariant: a value is asked for after its key");
        seed.deserialize(value).map_err(|error| error.within(name))
    }
}

/// An enum: its name, and the value that follows it in a map of one entry.
struct Variant<'a, 'de> {
    name: &'de str,
    content: Option<&'a mut Input<'de>>,
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ReadError> {
        let name: StrDeserializer<'_, ReadError> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> Variant<'_, 'de> {
    fn content(self) -> Result<Input<'de>, ReadError> {
        let Some(input) = self.content else {
            return Err(de::Error::invalid_type(
                Unexpected::UnitVariant,
                &"a variant's content",
            ));
        };
        let content = Input::at(input.source, input.cursor);
        input.scan()?;
        Ok(content)
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.content {
            None => Ok(()),
            Some(_) => Err(de::Error::invalid_type(Unexpected::Map, &"a name alone")),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        seed.deserialize(self.content()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.content()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.content()?.deserialize_struct("", fields, visitor)
    }
}

/// The entries of a map that was split before.
struct Entries<'de>(&'de MapView);

impl<'de> Deserializer<'de> for Entries<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let entries = self.0.iter();
        let inputs = entries.map(|(key, value)| (Input::whole(key), Input::whole(value)));
        visitor.visit_map(de::value::MapDeserializer::new(inputs))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let found = fields.iter().filter_map(|field| {
            let value = self.0.get(field)?;
            Some((*field, Input::whole(value)))
        });
        visitor.visit_map(Fields { found, value: None })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, ReadError> for Input<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

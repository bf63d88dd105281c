//! `serde` serializer in either dialect, in the bytes of [`Encoder`].
//!
//! A struct is a map with its fields' names, in their order; an enum is a text, or a map of one
//! entry. Numbers take their smallest form, floats 64 bits.

use bytes::Bytes;
use serde::ser::{self, Serialize, Serializer};

use super::encode::{Dialect, Encoder};
use super::pass_through::{PACKED, VERBATIM};
use super::raw::{RawValue, SCANNED};

/// Packs a value of a type whose `Serialize` does not fail, as derived ones do not.
///
/// # Panics
/// If it fails, or holds an integer beyond 64 bits.
pub fn pack<T: Serialize + ?Sized>(value: &T, dialect: Dialect) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer {
        out: &mut out,
        dialect,
        bytes: Meaning::Bytes,
    };
    value
        .serialize(&mut writer)
        .expect("invariant: types of our own can be packed");
    out
}

/// Why a value cannot be packed.
#[derive(Debug, thiserror::Error)]
#[error("value cannot be packed: {0}")]
struct WriteError(Box<str>);

impl ser::Error for WriteError {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self(text.to_string().into())
    }
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    dialect: Dialect,
    bytes: Meaning,
}

/// Kind of the next bytes.
#[derive(Clone, Copy)]
enum Meaning {
    Bytes,
    /// A packed value.
    Packed,
    /// A packed value that is the same in both dialects.
    Verbatim,
}

impl Writer<'_> {
    fn encoder(&mut self) -> Encoder<'_> {
        Encoder::new(self.out, self.dialect)
    }

    /// Appends a packed value, see [`RawValue::in_dialect`].
    fn packed(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let value = RawValue::parse(Bytes::copy_from_slice(bytes), &SCANNED);
        let value = value.map_err(ser::Error::custom)?;
        self.out.extend_from_slice(&value.in_dialect(self.dialect));
        Ok(())
    }

    /// A map of one entry, of which the value follows.
    fn variant(&mut self, name: &str) {
        self.encoder().map(1).str(name);
    }
}

/// Writes what a method of [`Encoder`] has for it.
macro_rules! plain {
    ($($name:ident($type:ty) => $method:ident)*) => {
        $(fn $name(self, value: $type) -> Result<(), WriteError> {
            self.encoder().$method(value.into());
            Ok(())
        })*
    };
}

impl<'w, 'a> Serializer for &'w mut Writer<'a> {
    type Ok = ();
    type Error = WriteError;
    type SerializeSeq = Compound<'w, 'a>;
    type SerializeTuple = Compound<'w, 'a>;
    type SerializeTupleStruct = Compound<'w, 'a>;
    type SerializeTupleVariant = Compound<'w, 'a>;
    type SerializeMap = Compound<'w, 'a>;
    type SerializeStruct = Compound<'w, 'a>;
    type SerializeStructVariant = Compound<'w, 'a>;

    plain! {
        serialize_bool(bool) => bool
        serialize_i8(i8) => int
        serialize_i16(i16) => int
        serialize_i32(i32) => int
        serialize_i64(i64) => int
        serialize_u8(u8) => uint
        serialize_u16(u16) => uint
        serialize_u32(u32) => uint
        serialize_u64(u64) => uint
        serialize_f32(f32) => f64
        serialize_f64(f64) => f64
        serialize_str(&str) => str
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), WriteError> {
        match std::mem::replace(&mut self.bytes, Meaning::Bytes) {
            Meaning::Bytes => self.encoder().bin(value),
            Meaning::Verbatim => self.encoder().raw(value),
            Meaning::Packed => return self.packed(value),
        };
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), WriteError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_none(self) -> Result<(), WriteError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), WriteError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), WriteError> {
        self.encoder().nil();
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), WriteError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
    ) -> Result<(), WriteError> {
        self.serialize_str(name)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), WriteError> {
        self.bytes = match name {
            PACKED => Meaning::Packed,
            VERBATIM => Meaning::Verbatim,
            _ => Meaning::Bytes,
        };
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<(), WriteError> {
        self.variant(name);
        value.serialize(self)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Compound<'w, 'a>, WriteError> {
        Ok(Compound::open(self, Shape::Array, len))
    }

    fn serialize_tuple(self, len: usize) -> Result<Compound<'w, 'a>, WriteError> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        len: usize,
    ) -> Result<Compound<'w, 'a>, WriteError> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        len: usize,
    ) -> Result<Compound<'w, 'a>, WriteError> {
        self.variant(name);
        self.serialize_seq(Some(len))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Compound<'w, 'a>, WriteError> {
        Ok(Compound::open(self, Shape::Map, len))
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Compound<'w, 'a>, WriteError> {
        self.serialize_map(Some(len))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        len: usize,
    ) -> Result<Compound<'w, 'a>, WriteError> {
        self.variant(name);
        self.serialize_map(Some(len))
    }
}

#[derive(Clone, Copy)]
enum Shape {
    Array,
    Map,
}

impl Shape {
    fn header(self, out: &mut Vec<u8>, dialect: Dialect, len: usize) {
        let mut encoder = Encoder::new(out, dialect);
        match self {
            Self::Array => encoder.array(len),
            Self::Map => encoder.map(len),
        };
    }
}

/// A list or a map that is being written. Where its length is not known before, as with
/// `#[serde(flatten)]`, its header is put in front at the end.
struct Compound<'w, 'a> {
    writer: &'w mut Writer<'a>,
    shape: Shape,
    /// Position of the header, if it is not written yet.
    header_at: Option<usize>,
    written: usize,
}

impl<'w, 'a> Compound<'w, 'a> {
    fn open(writer: &'w mut Writer<'a>, shape: Shape, len: Option<usize>) -> Self {
        let header_at = match len {
            Some(len) => {
                shape.header(writer.out, writer.dialect, len);
                None
            }
            None => Some(writer.out.len()),
        };
        Self {
            writer,
            shape,
            header_at,
            written: 0,
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        self.written += 1;
        value.serialize(&mut *self.writer)
    }

    fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), WriteError> {
        self.writer.encoder().str(name);
        self.item(value)
    }

    fn close(self) -> Result<(), WriteError> {
        if let Some(at) = self.header_at {
            let mut header = Vec::with_capacity(5);
            self.shape
                .header(&mut header, self.writer.dialect, self.written);
            self.writer.out.splice(at..at, header);
        }
        Ok(())
    }
}

/// The traits of lists and of structs, which differ in names alone.
macro_rules! compound {
    ($($trait:ident::$method:ident($($key:ident)?) => $write:ident)*) => {
        $(impl ser::$trait for Compound<'_, '_> {
            type Ok = ();
            type Error = WriteError;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: &'static str,)?
                value: &T,
            ) -> Result<(), WriteError> {
                self.$write($($key,)? value)
            }

            fn end(self) -> Result<(), WriteError> {
                self.close()
            }
        })*
    };
}

compound! {
    SerializeSeq::serialize_element() => item
    SerializeTuple::serialize_element() => item
    SerializeTupleStruct::serialize_field() => item
    SerializeTupleVariant::serialize_field() => item
    SerializeStruct::serialize_field(key) => field
    SerializeStructVariant::serialize_field(key) => field
}

impl ser::SerializeMap for Compound<'_, '_> {
    type Ok = ();
    type Error = WriteError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), WriteError> {
        key.serialize(&mut *self.writer)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        self.item(value)
    }

    fn end(self) -> Result<(), WriteError> {
        self.close()
    }
}

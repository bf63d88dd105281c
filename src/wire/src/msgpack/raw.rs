//! Packed value that is passed on without being decoded.

use std::borrow::Cow;

use bytes::Bytes;

use super::decode::{decode_exact, decode_wire};
use super::encode::Dialect;
use super::ext;
use super::map_view::MapView;
use super::scan::{self, Traits};
use super::ser::pack;
use super::token::{Budget, Cursor, DecodeError, Limits, Token};
use super::transcode::transcode;
use super::value::Value;

/// Limits for values that were scanned before, whatever the limits were then.
pub(super) const SCANNED: Limits = Limits {
    depth: u32::MAX,
    bytes: usize::MAX,
    items: usize::MAX,
};

/// Type of a packed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `None`.
    Nil,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A float.
    Float,
    /// Text or bytes in the old raw family, or str8.
    Str,
    /// Bytes with a bin type.
    Bin,
    /// A list.
    Array,
    /// A dictionary.
    Map,
    /// An extension type.
    Ext,
}

/// One packed value in the received bytes, checked once and shared from then on.
///
/// The bytes are exactly one well-formed value within the limits it was read with.
#[derive(Clone, Debug)]
pub struct RawValue {
    bytes: Bytes,
    traits: Traits,
}

impl RawValue {
    /// Checks that the bytes are exactly one value.
    ///
    /// # Errors
    /// Malformed or trailing bytes, or more than the limits.
    pub fn parse(bytes: Bytes, limits: &Limits) -> Result<Self, DecodeError> {
        let mut budget = Budget::new(&bytes, limits)?;
        let mut cursor = Cursor::new(&bytes);
        let traits = scan::value(&mut cursor, &mut budget)?;
        cursor.finish()?;
        Ok(Self { bytes, traits })
    }

    /// Packs a value of our own, or one that was decoded, as [`super::pack`] does.
    ///
    /// # Panics
    /// As [`super::pack`], and if a map in it has an array or a map as a key, which no decoded value
    /// has.
    pub fn pack<T: serde::Serialize + ?Sized>(value: &T, dialect: Dialect) -> Self {
        let bytes = Bytes::from(pack(value, dialect));
        Self::parse(bytes, &SCANNED).expect("invariant: map keys are neither arrays nor maps")
    }

    pub(super) fn scanned(bytes: Bytes, traits: Traits) -> Self {
        Self { bytes, traits }
    }

    /// The packed bytes as received.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The packed bytes as received.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Type of this value.
    pub fn kind(&self) -> Kind {
        match self.token() {
            Token::Nil => Kind::Nil,
            Token::Bool(_) => Kind::Bool,
            Token::Int(_) | Token::Uint(_) => Kind::Int,
            Token::Float(_) => Kind::Float,
            Token::Raw(_) | Token::Str8(_) => Kind::Str,
            Token::Bin(_) => Kind::Bin,
            Token::Array(_) => Kind::Array,
            Token::Map(_) => Kind::Map,
            Token::Ext(..) => Kind::Ext,
        }
    }

    /// Decodes the value as [`decode_wire`] does.
    pub fn decode(&self) -> Value {
        decode_wire(&self.bytes, &SCANNED).expect("invariant: a raw value was scanned")
    }

    /// Decodes the value as [`decode_exact`] does.
    pub fn decode_exact(&self) -> Value {
        decode_exact(&self.bytes, &SCANNED).expect("invariant: a raw value was scanned")
    }

    /// The text, whatever family it came in, if it is valid UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }

    /// The bytes of a text or of a binary value.
    #[inline]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self.token() {
            Token::Raw(bytes) | Token::Str8(bytes) | Token::Bin(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The bytes of a value that [`decode_wire`] reads as text or bytes: also the payload of an
    /// unknown ext.
    pub(super) fn as_read_bytes(&self) -> Option<&[u8]> {
        match self.token() {
            Token::Ext(code, payload) if !ext::is_known(code, payload) => Some(payload),
            _ => self.as_bytes(),
        }
    }

    /// The text that [`decode_wire`] reads: also that of an unknown ext.
    pub fn as_read_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_read_bytes()?).ok()
    }

    /// The same as [`RawValue::as_bytes`], sharing the memory.
    pub fn as_shared_bytes(&self) -> Option<Bytes> {
        self.as_bytes().map(|bytes| self.bytes.slice_ref(bytes))
    }

    /// The integer, if it is one and fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self.token() {
            Token::Int(number) => Some(number),
            _ => None,
        }
    }

    /// The integer, if it is one and not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self.token() {
            Token::Int(number) => u64::try_from(number).ok(),
            Token::Uint(number) => Some(number),
            _ => None,
        }
    }

    /// The number as a float; integers are converted.
    pub fn as_f64(&self) -> Option<f64> {
        match self.token() {
            Token::Float(number) => Some(number),
            Token::Int(number) => Some(number as f64),
            Token::Uint(number) => Some(number as f64),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self.token() {
            Token::Bool(flag) => Some(flag),
            _ => None,
        }
    }

    /// Whether this is `None`.
    pub fn is_nil(&self) -> bool {
        self.token() == Token::Nil
    }

    /// Whether this is a dictionary.
    pub fn is_map(&self) -> bool {
        matches!(self.token(), Token::Map(_))
    }

    /// The entries, if this is a dictionary.
    pub fn as_map(&self) -> Option<MapView> {
        MapView::parse(self.bytes.clone(), &SCANNED).ok()
    }

    /// The items, if this is a list; they share the memory.
    pub fn as_array(&self) -> Option<Vec<RawValue>> {
        let mut cursor = Cursor::new(&self.bytes);
        let Ok(Token::Array(len)) = cursor.token() else {
            return None;
        };
        let mut budget = Budget::new(&self.bytes, &SCANNED).ok()?;
        let mut items = Vec::with_capacity(budget.open_array(len).ok()?);
        for _ in 0..len {
            let start = self.bytes.len() - cursor.left();
            let traits = scan::value(&mut cursor, &mut budget).ok()?;
            let end = self.bytes.len() - cursor.left();
            items.push(Self::scanned(self.bytes.slice(start..end), traits));
        }
        Some(items)
    }

    /// The packed value in the bin dialect (events, files).
    ///
    /// These are the same bytes unless the guess that stock makes when it reads them (see
    /// [`decode_wire`]) changes something: a text that is not UTF-8 becomes bytes, bytes that are
    /// UTF-8 become text, an unknown ext becomes its payload. Unchanged, such texts would make a
    /// stock listener read every key of the event as bytes.
    pub fn to_bin_dialect(&self) -> Bytes {
        self.shared_in_dialect(Dialect::Bin)
    }

    /// The packed value in the raw dialect: the same bytes unless str8, bin types or an unknown
    /// ext occur inside.
    #[cfg(test)]
    pub(crate) fn to_raw_dialect(&self) -> Bytes {
        self.shared_in_dialect(Dialect::Raw)
    }

    fn shared_in_dialect(&self, dialect: Dialect) -> Bytes {
        match self.in_dialect(dialect) {
            Cow::Borrowed(_) => self.bytes.clone(),
            Cow::Owned(packed) => packed.into(),
        }
    }

    /// Whether these bytes are the value in both dialects.
    pub(super) fn is_verbatim(&self) -> bool {
        !self.traits.alters_in_bin && !self.traits.alters_in_raw
    }

    /// The received bytes, or the value packed anew where it reads differently.
    pub(super) fn in_dialect(&self, dialect: Dialect) -> Cow<'_, [u8]> {
        let alters = match dialect {
            Dialect::Bin => self.traits.alters_in_bin,
            Dialect::Raw => self.traits.alters_in_raw,
        };
        if !alters {
            return Cow::Borrowed(&self.bytes);
        }
        Cow::Owned(transcode(&self.bytes, dialect).expect("invariant: a raw value was scanned"))
    }

    #[inline]
    fn token(&self) -> Token<'_> {
        Cursor::new(&self.bytes)
            .token()
            .expect("invariant: a raw value was scanned")
    }
}

impl PartialEq for RawValue {
    /// Equal bytes; the same value packed differently is not equal.
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for RawValue {}

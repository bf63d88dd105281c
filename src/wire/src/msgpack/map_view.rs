//! View of a packed map, split into its entries but not decoded.

use std::borrow::Cow;

use bytes::Bytes;

use super::encode::{Dialect, Encoder};
use super::raw::RawValue;
use super::scan;
use super::token::{Budget, Cursor, DecodeError, Limits, Token};

/// Entries reserved on the announcement of a header alone.
const RESERVED_ENTRIES: usize = 64;

/// The top level of a packed map in wire order; keys and values share the received bytes.
///
/// Of equal keys the last one counts, as in Python.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapView {
    entries: Vec<(RawValue, RawValue)>,
}

impl MapView {
    /// Splits a packed map. Every value in it is checked once, none is decoded.
    ///
    /// # Errors
    /// Malformed or trailing bytes, no map, or more than the limits.
    pub fn parse(bytes: Bytes, limits: &Limits) -> Result<Self, DecodeError> {
        let mut budget = Budget::new(&bytes, limits)?;
        let mut cursor = Cursor::new(&bytes);
        let Token::Map(len) = cursor.token()? else {
            return Err(DecodeError::NotAMap);
        };
        let len = budget.open_map(len)?;
        let mut entries = Vec::with_capacity(len.min(RESERVED_ENTRIES));
        let position = |cursor: &Cursor<'_>| bytes.len() - cursor.left();
        let mut start = position(&cursor);
        for _ in 0..len {
            let of_key = scan::key(&mut cursor, &mut budget)?;
            let middle = position(&cursor);
            let of_value = scan::value(&mut cursor, &mut budget)?;
            let end = position(&cursor);
            entries.push((
                RawValue::scanned(bytes.slice(start..middle), of_key),
                RawValue::scanned(bytes.slice(middle..end), of_value),
            ));
            start = end;
        }
        cursor.finish()?;
        Ok(Self { entries })
    }

    /// The value stored under this text key.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.entries
            .iter()
            .rev()
            .find(|entry| is_named(entry, name))
            .map(|(_, value)| value)
    }

    /// The text stored under this key, if there is one and it is valid UTF-8.
    pub fn str(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Whether there is such a key.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Takes an entry out and returns its value, of equal keys the last.
    pub fn remove(&mut self, name: &str) -> Option<RawValue> {
        let named = self.entries.extract_if(.., |entry| is_named(entry, name));
        named.last().map(|(_, value)| value)
    }

    /// Sets a value: in place if there is such a key, else at the end, as a Python dictionary.
    /// Repeated keys become one.
    pub fn insert(&mut self, name: &str, value: RawValue) {
        let Some(first) = self.entries.iter().position(|entry| is_named(entry, name)) else {
            let key = RawValue::pack(name, Dialect::Raw);
            return self.entries.push((key, value));
        };
        let mut at = 0;
        self.entries.retain_mut(|entry| {
            let is_kept = at <= first || !is_named(entry, name);
            if at == first {
                entry.1 = value.clone();
            }
            at += 1;
            is_kept
        });
    }

    /// Keys and values in wire order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&RawValue, &RawValue)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Length of what [`MapView::pack`] returns, in bytes.
    pub fn packed_len(&self) -> usize {
        let header = match self.entries.len() {
            0..=0xf => 1,
            0x10..=0xffff => 3,
            _ => 5,
        };
        header + self.entries_len()
    }

    /// Packs the map again: every key and value as received, in wire order.
    pub fn pack(&self) -> Bytes {
        self.joined(|value| Cow::Borrowed(value.bytes()))
    }

    /// Packs the map for a reader that keeps text and bytes apart; see
    /// [`RawValue::to_bin_dialect`].
    pub fn pack_bin_dialect(&self) -> Bytes {
        self.joined(|value| value.in_dialect(Dialect::Bin))
    }

    fn entries_len(&self) -> usize {
        let size = |(key, value): &(RawValue, RawValue)| key.bytes().len() + value.bytes().len();
        self.entries.iter().map(size).sum()
    }

    fn joined<'v>(&'v self, packed: impl Fn(&'v RawValue) -> Cow<'v, [u8]>) -> Bytes {
        let mut out = Vec::with_capacity(5 + self.entries_len());
        // Neither the header of a map nor packed values depend on the dialect.
        let mut encoder = Encoder::new(&mut out, Dialect::Raw);
        encoder.map(self.entries.len());
        for (key, value) in &self.entries {
            encoder.raw(&packed(key)).raw(&packed(value));
        }
        out.into()
    }
}

fn is_named((key, _): &(RawValue, RawValue), name: &str) -> bool {
    match key.bytes().split_first() {
        // Nearly all keys are fixraw: one header byte, the rest is the text.
        Some((0xa0..=0xbf, text)) => text == name.as_bytes(),
        _ => key.as_read_bytes() == Some(name.as_bytes()),
    }
}

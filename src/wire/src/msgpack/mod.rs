//! MessagePack in both dialects of Salt, limits first.
//!
//! Salt packs in two ways (stock `salt/payload.py`). Over the wire text and bytes are one old
//! "raw" family, so a receiver guesses: what is valid UTF-8 is text ([`decode_wire`]). Events and
//! files keep the two apart ([`decode_exact`]). [`Encoder`] writes either dialect byte for byte as
//! `msgpack-python` does.
//!
//! Values that only pass through, above all a minion's `return`, are not decoded: [`MapView`]
//! splits a load into [`RawValue`]s that share the received bytes, after one validating pass.
//!
//! Loads, events and records are structs with `serde` derives: [`MapView::read`], [`RawValue::read`]
//! and [`from_slice`] read them, [`pack`] writes them. Fields of the types [`RawValue`], [`MapView`]
//! and [`Value`] take any value.
//!
//! This module knows no load and no field name, and it gives ext types no meaning beyond whether
//! stock can read them.
//!
//! Suggested reading order: `value`, `token` (one header at a time, the limits), `scan`, `decode`,
//! `unique`, `encode`, `transcode`, `raw`, `map_view`, then `de`, `ser` and `pass_through`.

mod de;
mod decode;
mod encode;
mod ext;
mod map_view;
mod object;
mod pass_through;
mod raw;
mod scan;
mod ser;
mod token;
mod transcode;
mod unique;
mod value;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod serde_tests;
#[cfg(test)]
pub(crate) mod vector_tests;

pub use de::{ReadError, from_slice, lenient};
pub use decode::{decode, decode_exact, decode_wire};
pub use encode::{Dialect, Encoder, encode};
pub use map_view::MapView;
pub use pass_through::{Bin, as_bytes, as_map};
pub use raw::{Kind, RawValue};
pub use ser::pack;
pub use token::{DecodeError, Limits};
pub use value::Value;

pub(crate) use token::{Budget, Cursor, Token};

/// Skips the next value; its contents are checked as [`RawValue::parse`] would.
pub(crate) fn skip(cursor: &mut Cursor<'_>, budget: &mut Budget) -> Result<(), DecodeError> {
    scan::value(cursor, budget).map(drop)
}

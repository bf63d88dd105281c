//! Whether a return that comes again is the one that is kept.

use bytes::Bytes;
use saltern_wire::msgpack::{Limits, MapView};

use crate::mirror::ReturnParts;

/// Whether two return loads are equal, apart from time stamps and trace context.
pub fn says_the_same(one: &Bytes, other: &Bytes) -> bool {
    let parts = |load: &Bytes| {
        let load = MapView::parse(load.clone(), &Limits::WIRE).ok()?;
        Some(ReturnParts::of(&load))
    };
    match (parts(one), parts(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

//! Events of the event bus.

use crate::{Packed, Tag};

/// One event: a tag and its data.
#[derive(Clone, Debug)]
pub struct Event {
    /// The event's name.
    pub tag: Tag,
    /// A packed map in the dialect with bin types; `_stamp` is among its keys already.
    pub data: Packed,
}

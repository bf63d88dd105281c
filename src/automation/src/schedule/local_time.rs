//! Conversion of local slots to instants, over changes of the clocks.
//!
//! A slot that the clocks skip comes at the instant of the change, one that they show twice comes
//! twice; `turn.rs` decides which jobs then run only once.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::timing::Timing;

/// Changes of the clocks that a search goes past: two a year, for two centuries.
const MAX_CHANGES: usize = 400;

/// Slot with its instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slot {
    pub(super) at: Timestamp,
    pub(super) local: DateTime,
}

/// The next turn of a timing after an instant, and its slot; an interval has none.
pub(super) fn turn_after(
    timing: &Timing,
    zone: &TimeZone,
    after: Timestamp,
) -> Option<(Timestamp, Option<Slot>)> {
    if let Timing::Every(interval) = timing {
        return Some((after.checked_add(*interval).ok()?, None));
    }
    let slot = slot_after(timing, zone, after)?;
    Some((slot.at, Some(slot)))
}

/// The first instant after another one at which the clock shows a later local time, or changes:
/// after a change that time may come elsewhen or never.
pub(super) fn shown_after(zone: &TimeZone, local: DateTime, after: Timestamp) -> Option<Timestamp> {
    let shown = zone.to_offset(after).to_timestamp(local).ok();
    let change = zone.following(after).next();
    let change = change.map(|change| change.timestamp());
    [shown, change]
        .into_iter()
        .flatten()
        .filter(|at| *at > after)
        .min()
}

/// The first slot of a timing after an instant.
fn slot_after(timing: &Timing, zone: &TimeZone, after: Timestamp) -> Option<Slot> {
    let mut from = after;
    let mut inclusive = false;
    for _ in 0..MAX_CHANGES {
        let offset = zone.to_offset(from);
        let local = timing.slot_after(offset.to_datetime(from), inclusive)?;
        let at = offset.to_timestamp(local).ok()?;
        let change = zone.following(from).next();
        let Some(change) = change.filter(|change| change.timestamp() <= at) else {
            return Some(Slot { at, local });
        };
        let at = change.timestamp();
        if local < change.offset().to_datetime(at) {
            return Some(Slot { at, local });
        }
        from = at;
        inclusive = true;
    }
    None
}

//! From slots on the wall's clock to moments, over the days on which the clocks change.
//!
//! A slot that the clocks skip comes at the moment of the change, one that they show twice comes
//! twice; who then runs only once is for `turn.rs` to decide.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::timing::Timing;

/// Changes of the clocks that a search goes past: two a year, for two centuries.
const MOST_CHANGES: usize = 400;

/// A slot and the moment at which it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slot {
    pub(super) at: Timestamp,
    pub(super) local: DateTime,
}

/// The next turn of a timing after a moment, and the slot that it is; an interval has none.
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

/// The first moment after another one at which the clock shows a later local time, or at which it
/// changes, so that it may never do so, or not then.
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

/// The first slot of a timing that comes after a moment.
fn slot_after(timing: &Timing, zone: &TimeZone, after: Timestamp) -> Option<Slot> {
    let mut from = after;
    let mut inclusive = false;
    for _ in 0..MOST_CHANGES {
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

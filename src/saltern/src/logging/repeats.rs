//! Log throttle per call site: at most [`MAX_LINES`] lines of one place within [`SPAN`] are logged;
//! the others are counted, and the next line of that place reports how many were suppressed.
//!
//! Lines at DEBUG and TRACE are never suppressed.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

/// How long the lines of a place are counted together.
const SPAN: Duration = Duration::from_secs(10);

/// Lines of one place within [`SPAN`]: more than a start of a site with many mistakes in its
/// configuration has, and fewer than anybody reads.
const MAX_LINES: u32 = 200;

/// Counters per call site; bounded by the number of places that log.
#[derive(Default)]
pub(super) struct Repeats(Mutex<HashMap<Identifier, CallSite>>);

struct CallSite {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Repeats {
    /// How many lines of this place were left out since the last one that was logged; `None` if
    /// this one is left out too.
    pub(super) fn admit(&self, metadata: &Metadata<'_>) -> Option<u64> {
        if *metadata.level() > Level::INFO {
            return Some(0);
        }
        let now = Instant::now();
        let mut places = self.0.lock();
        let place = places.entry(metadata.callsite()).or_insert(CallSite {
            since: now,
            lines: 0,
            left_out: 0,
        });
        if now.duration_since(place.since) >= SPAN {
            place.since = now;
            place.lines = 0;
        }
        if place.lines >= MAX_LINES {
            place.left_out += 1;
            return None;
        }
        place.lines += 1;
        Some(std::mem::take(&mut place.left_out))
    }
}

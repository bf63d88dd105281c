//! Rate limit of log lines about refused requests.
//!
//! Any peer that reaches the request port can make the master refuse requests. Each refusal is
//! worth a line to an operator, but they must not fill the disk. All refusals are counted; at most
//! `LINES` a second are logged.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use saltern_base::clock::Clock;
use saltern_base::metrics::{IntCounter, Registry, counter};

/// The most lines a second.
const LINES: u32 = 10;

/// The most bytes of a peer's text that are repeated in a line of the log or in an answer.
const EXCERPT: usize = 200;

/// The beginning of a peer's text, for a line of the log or an answer.
pub(crate) fn excerpt(text: &str) -> &str {
    text.get(..text.floor_char_boundary(EXCERPT))
        .unwrap_or_default()
}

/// Budget of log lines that unauthenticated peers can cause; one for the whole process.
pub struct RefusalLog {
    clock: Clock,
    second: AtomicI64,
    written: AtomicU32,
    suppressed: IntCounter,
}

impl RefusalLog {
    pub(crate) fn new(clock: Clock, registry: &Registry) -> Self {
        Self {
            clock,
            second: AtomicI64::new(i64::MIN),
            written: AtomicU32::new(0),
            suppressed: counter(
                registry,
                "saltern_log_lines_suppressed_total",
                "Log lines about requests of strangers that were not written, because there were \
                 too many in one second.",
            ),
        }
    }

    /// Whether one more line may be written now; counts it.
    pub(crate) fn may_be_written(&self) -> bool {
        let now = self.clock.unix();
        if self.second.swap(now, Ordering::Relaxed) != now {
            self.written.store(0, Ordering::Relaxed);
        }
        let allowed = self.written.fetch_add(1, Ordering::Relaxed) < LINES;
        if !allowed {
            self.suppressed.inc();
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn refusal_flood_is_limited_to_lines_per_second() {
        let clock = Clock::manual(UNIX_EPOCH);
        let refusal_log = RefusalLog::new(clock.clone(), &Registry::new());
        let written = |count: u32| (0..count).filter(|_| refusal_log.may_be_written()).count();
        assert_eq!(written(2_000), LINES as usize);
        assert_eq!(refusal_log.suppressed.get(), 2_000 - u64::from(LINES));
        clock.advance(Duration::from_secs(1));
        assert_eq!(written(3), 3);
    }
}

//! Monotonic time: how long this process has kept something. The time of day may jump, and decides nothing here.
//!
//! This crate knows no runtime, so tests step it themselves.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Time since its creation.
pub(crate) struct Uptime {
    #[expect(
        clippy::disallowed_types,
        reason = "this crate knows no runtime whose clock could be paused"
    )]
    started: std::time::Instant,
    /// Seconds by which a test has moved it.
    advanced: AtomicU64,
}

impl Uptime {
    #[expect(
        clippy::disallowed_types,
        reason = "this crate knows no runtime whose clock could be paused"
    )]
    pub(crate) fn new() -> Self {
        Self {
            started: std::time::Instant::now(),
            advanced: AtomicU64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed() + Duration::from_secs(self.advanced.load(Relaxed))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.advanced.fetch_add(by.as_secs(), Relaxed);
    }
}

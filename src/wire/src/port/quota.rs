//! Memory budgets and rate limits of connections.
//!
//! Both are plain accounts; the connection decides what follows from an empty one.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::limits::Rate;

/// Unit of a budget, in bytes.
const UNIT: usize = 1 << 10;

/// Bytes of large messages that a group of connections may hold.
#[derive(Clone)]
pub(super) struct Budget {
    units: Arc<Semaphore>,
    all: usize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).min(Semaphore::MAX_PERMITS);
        Self {
            units: Arc::new(Semaphore::new(units)),
            all: units,
        }
    }

    /// Bytes in use.
    pub(super) fn held(&self) -> usize {
        self.all.saturating_sub(self.units.available_permits()) * UNIT
    }

    /// Units that cover `bytes`.
    pub(super) fn units(bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
    }

    /// Takes `units`, if they are free.
    pub(super) fn try_take(&self, units: u32) -> Option<Share> {
        let permit = Arc::clone(&self.units).try_acquire_many_owned(units).ok()?;
        Some(Share(vec![permit]))
    }

    /// Waits for `units`. `None` only if the budget were closed, which never happens.
    pub(super) async fn take(&self, units: u32) -> Option<Share> {
        let permit = Arc::clone(&self.units)
            .acquire_many_owned(units)
            .await
            .ok()?;
        Some(Share(vec![permit]))
    }
}

/// A share of one budget or several, freed on drop. An empty one costs nothing.
#[derive(Default)]
pub(super) struct Share(Vec<OwnedSemaphorePermit>);

impl Share {
    pub(super) fn add(&mut self, more: Self) {
        if self.0.is_empty() {
            *self = more;
        } else {
            self.0.extend(more.0);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn units(&self) -> u32 {
        let units: usize = self.0.iter().map(OwnedSemaphorePermit::num_permits).sum();
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

/// Token bucket for traffic that carries no request.
pub(super) struct Bucket {
    rate: Rate,
    tokens: u32,
    filled: Instant,
}

impl Bucket {
    pub(super) fn new(rate: Rate, now: Instant) -> Self {
        Self {
            rate,
            tokens: rate.burst,
            filled: now,
        }
    }

    /// Takes one token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_millis();
        let fresh = passed.saturating_mul(u128::from(self.rate.per_second)) / 1000;
        if fresh > 0 {
            let fresh = u32::try_from(fresh).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(fresh).min(self.rate.burst);
            self.filled = now;
        }
        self.tokens
            .checked_sub(1)
            .map(|left| self.tokens = left)
            .is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_refills_with_time_up_to_its_burst() {
        let rate = Rate {
            burst: 3,
            per_second: 10,
        };
        let start = Instant::now();
        let mut bucket = Bucket::new(rate, start);
        let spent = |bucket: &mut Bucket, at| (0..10).filter(|_| bucket.take(at)).count();
        assert_eq!(spent(&mut bucket, start), 3);
        assert_eq!(spent(&mut bucket, start + Duration::from_millis(200)), 2);
        assert_eq!(spent(&mut bucket, start + Duration::from_secs(60)), 3);
    }
}

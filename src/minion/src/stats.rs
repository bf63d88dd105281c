//! Counters and latency histograms, shared by all minions of a swarm. Everything is atomic and of
//! fixed size, so that measuring does not slow down what is measured.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_channel::ChannelObserver;
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use crate::acknowledged::Acknowledged;
use crate::history::{History, What};

/// Steps within a power of two: a latency is off by at most a sixteenth.
const STEPS: usize = 16;
/// Powers of two of microseconds; the last holds everything from half an hour on.
const POWERS: usize = 32;

/// Latencies in buckets.
pub struct Latencies {
    buckets: [AtomicU64; STEPS * POWERS],
    longest: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; STEPS * POWERS],
            longest: AtomicU64::new(0),
        }
    }
}

impl Latencies {
    /// Counts one.
    pub fn record(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.longest.fetch_max(micros, Relaxed);
        if let Some(bucket) = self.buckets.get(bucket(micros)) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// The latency that `share` (0 to 1) of those counted do not exceed.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Duration {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (place, bucket) in self.buckets.iter().enumerate() {
            seen += bucket.load(Relaxed);
            if seen >= wanted.max(1) {
                return Duration::from_micros(upper_end(place)).min(self.longest());
            }
        }
        self.longest()
    }

    /// The longest of all.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Relaxed))
    }
}

fn bucket(micros: u64) -> usize {
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let power = micros.ilog2() as usize;
    let step = (micros >> (power - 4)) as usize - STEPS;
    ((power - 3) * STEPS + step).min(STEPS * POWERS - 1)
}

fn upper_end(place: usize) -> u64 {
    if place < STEPS {
        return place as u64;
    }
    let (power, step) = (place / STEPS + 3, place % STEPS);
    ((STEPS + step + 1) as u64) << (power - 4)
}

/// The channel of a minion, which counts into these.
pub(crate) type Channel = saltern_channel::Channel<Stats>;

/// Counters of a swarm.
#[derive(Default)]
pub struct Stats {
    /// Sign-ins that were accepted.
    pub sign_ins: AtomicU64,
    /// Sign-ins that were refused, or whose answer failed verification.
    pub sign_in_failures: AtomicU64,
    /// Sign-ins made because a reply or a publication could not be opened.
    pub signed_in_anew: AtomicU64,
    /// How long answered sign-ins took.
    pub sign_in_time: Latencies,
    /// Publications that were for the minion that got them.
    pub publications: AtomicU64,
    /// Returns that the master acknowledged.
    pub returns: AtomicU64,
    /// How long those took.
    pub return_time: Latencies,
    /// Requests that failed or timed out.
    pub errors: AtomicU64,
    /// Minions that are subscribed now.
    pub subscribed: AtomicU64,
    acknowledged: Option<Acknowledged>,
    history: Option<History>,
    last_publication: Mutex<Option<Instant>>,
    probes: Mutex<HashSet<String>>,
}

/// Most distinct probes that are remembered; a swarm lives for minutes.
const PROBES: usize = 1 << 16;

impl Stats {
    pub(crate) fn note_publication(&self) {
        self.publications.fetch_add(1, Relaxed);
        *self.last_publication.lock() = Some(Instant::now());
    }

    /// Counts a publication that asks what runs, once for all the minions that get it.
    pub(crate) fn note_probe(&self, jid: &str) {
        let mut probes = self.probes.lock();
        if probes.len() < PROBES && !probes.contains(jid) {
            probes.insert(jid.to_owned());
        }
    }

    /// How many publications asked for running jobs (`saltutil.find_job`, `saltutil.running`), from
    /// every sender.
    #[must_use]
    pub fn probes(&self) -> usize {
        self.probes.lock().len()
    }

    /// Counts, and also writes down every return that the master acknowledged.
    #[must_use]
    pub fn writing_to(acknowledged: Acknowledged) -> Self {
        Self {
            acknowledged: Some(acknowledged),
            ..Self::default()
        }
    }

    /// The same counters, with a history of what the minions do.
    #[must_use]
    pub fn with_history(self, history: History) -> Self {
        Self {
            history: Some(history),
            ..self
        }
    }

    /// Writes down what a minion did, if there is a history.
    pub(crate) fn note(&self, what: What, minion: &str, jid: Option<&str>) {
        if let Some(history) = &self.history {
            history.note(what, minion, jid);
        }
    }

    pub(crate) fn note_return(&self, took: Duration, fields: &[(&str, Value)]) {
        if let Some(acknowledged) = &self.acknowledged {
            acknowledged.note(fields);
        }
        if let Some(history) = &self.history {
            history.note_return(fields);
        }
        self.returns.fetch_add(1, Relaxed);
        self.return_time.record(took);
    }

    /// When the last minion got the last publication.
    #[must_use]
    pub fn last_publication(&self) -> Option<Instant> {
        *self.last_publication.lock()
    }
}

impl ChannelObserver for Stats {
    fn signed_in(&self, took: Duration, is_accepted: bool) {
        if is_accepted {
            self.sign_ins.fetch_add(1, Relaxed);
            self.sign_in_time.record(took);
        } else {
            self.sign_in_failures.fetch_add(1, Relaxed);
        }
    }

    fn session_lost(&self) {
        self.signed_in_anew.fetch_add(1, Relaxed);
    }

    fn failed(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    fn authenticated(&self, minion: &str) {
        self.note(What::Authenticated, minion, None);
    }

    fn serial_refused(&self, minion: &str) {
        self.note(What::Refused, minion, None);
    }
}

/// Counts a minion as subscribed for as long as it lives.
pub(crate) struct Subscribed(Arc<Stats>);

impl Subscribed {
    pub(crate) fn new(stats: &Arc<Stats>) -> Self {
        stats.subscribed.fetch_add(1, Relaxed);
        Self(Arc::clone(stats))
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.0.subscribed.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_sixteenth() {
        let latencies = Latencies::default();
        for micros in 1..=10_000 {
            latencies.record(Duration::from_micros(micros));
        }
        assert_eq!(latencies.count(), 10_000);
        assert_eq!(latencies.longest(), Duration::from_micros(10_000));
        for (share, exact) in [
            (0.001, 10.0),
            (0.5, 5_000.0),
            (0.99, 9_900.0),
            (1.0, 10_000.0),
        ] {
            let found = latencies.percentile(share).as_micros() as f64;
            assert!(
                (exact..=exact * 17.0 / 16.0).contains(&found),
                "{share}: {found}"
            );
        }
        latencies.record(Duration::from_secs(1 << 40));
        assert_eq!(latencies.count(), 10_001);
        assert_eq!(Latencies::default().percentile(0.5), Duration::ZERO);
    }
}

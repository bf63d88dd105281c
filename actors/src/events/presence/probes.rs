//! Identity probes, each sent down one connection, by their jids.
//!
//! A probe is a load like any other, so its answer comes as a return. It is known by its jid and
//! goes no further: it is no job.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::metrics::{IntCounter, Registry, counter};
use saltern_model::Jid;
use tokio::time::Instant;

/// Lifetime of a probe: a later answer counts as the return of an unknown job.
const PROBE_LIFETIME: Duration = Duration::from_secs(600);

/// Pending identity probes. Bounded by the number sent within [`PROBE_LIFETIME`].
pub(super) struct IdentityProbes {
    asked: Mutex<HashMap<Jid, IdentityProbe>>,
    /// Length of `asked`: most returns come while it is 0.
    open: AtomicUsize,
    sent: IntCounter,
    answers: IntCounter,
}

struct IdentityProbe {
    connection: u64,
    at: Instant,
}

impl IdentityProbes {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            asked: Mutex::default(),
            open: AtomicUsize::new(0),
            sent: counter(
                registry,
                "saltern_presence_probes_total",
                "Identity probes sent to connections of the publish port.",
            ),
            answers: counter(
                registry,
                "saltern_presence_probe_answers_total",
                "Answers of minions to identity probes.",
            ),
        }
    }

    /// Records a probe that is about to be sent.
    pub(super) fn ask(&self, jid: &Jid, connection: u64, now: Instant) {
        let mut asked = self.asked.lock();
        asked.retain(|_, question| now < question.at + PROBE_LIFETIME);
        let question = IdentityProbe {
            connection,
            at: now,
        };
        asked.insert(jid.clone(), question);
        self.open.store(asked.len(), Ordering::Release);
        self.sent.inc();
    }

    /// Withdraws a probe that was not sent; gives its connection.
    pub(super) fn take_back(&self, jid: &Jid) -> Option<u64> {
        let mut asked = self.asked.lock();
        let question = asked.remove(jid)?;
        self.open.store(asked.len(), Ordering::Release);
        Some(question.connection)
    }

    /// The connection of the probe with this jid, if it is one. The probe stays open: the
    /// connection may be that of a syndic, behind which several minions answer.
    pub(super) fn answered(&self, jid: &str, now: Instant) -> Option<u64> {
        if self.open.load(Ordering::Acquire) == 0 {
            return None;
        }
        let asked = self.asked.lock();
        let question = asked.get(jid)?;
        self.answers.inc();
        (now < question.at + PROBE_LIFETIME).then_some(question.connection)
    }
}

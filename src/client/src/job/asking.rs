//! How long minions are waited for under a stock master, as `LocalClient.get_iter_returns` of stock does
//! it: when the timeout passes, they are asked whether they run the job (`saltutil.find_job`), and are
//! waited for while any does.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::Step;

/// The rounds of questions about one job.
pub(super) struct Rounds {
    timeout: Duration,
    /// Until when each minion is waited for.
    until: HashMap<String, Instant>,
    /// When the timeout, or the time for answers to the last question, is over.
    end: Instant,
    /// Whether a minion reported the job as running; true at first, so that all are asked once.
    running: bool,
    /// The jid of the last question.
    asked: Option<String>,
    /// Masters below this one have until then to name their minions.
    syndics_until: Option<Instant>,
}

impl Rounds {
    /// `syndics` is how long masters below this one may take to name minions of theirs.
    pub(super) fn new(begun: Instant, timeout: Duration, syndics: Option<Duration>) -> Self {
        Self {
            timeout,
            until: HashMap::new(),
            end: begun + timeout,
            running: true,
            asked: None,
            syndics_until: syndics.map(|wait| begun + wait),
        }
    }

    /// The jid of the last question.
    pub(super) fn asked(&self) -> Option<&str> {
        self.asked.as_deref()
    }

    /// A minion is to answer.
    pub(super) fn await_minion(&mut self, id: &str) {
        self.until
            .insert(id.to_owned(), Instant::now() + self.timeout);
    }

    /// A minion says that it runs the job.
    pub(super) fn runs_it(&mut self, id: &str) {
        self.await_minion(id);
        self.running = true;
    }

    /// A question was published; without a jid it reached nobody.
    pub(super) fn begin(&mut self, asked: Option<String>, gather: Duration) {
        let wait = asked.as_ref().map_or(Duration::ZERO, |_| gather);
        self.end = Instant::now() + wait;
        self.running = false;
        self.asked = asked;
    }

    pub(super) fn step(&self, awaited: &BTreeSet<String>, is_complete: bool, now: Instant) -> Step {
        let syndics = self.syndics_until.filter(|until| *until > now);
        if is_complete && syndics.is_none() {
            return Step::Close;
        }
        if now < self.end {
            return Step::Wait(syndics.map_or(self.end, |until| until.min(self.end)));
        }
        if self.running {
            return Step::Ask;
        }
        let deadlines = awaited.iter().filter_map(|id| self.until.get(id).copied());
        match deadlines.max().filter(|last| *last > now).max(syndics) {
            Some(last) => Step::Wait(last),
            None => Step::Close,
        }
    }
}

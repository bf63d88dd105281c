//! Schedule of the probes: which minions are asked what they run, and when.
//!
//! A probe is one `saltutil.running` by list target: its answer covers all jobs of a minion at
//! once, where `saltutil.find_job` takes one jid. Requests within `MERGED` share a probe, no
//! minion is asked again before its first probe is answered or given up, and the rate is limited:
//! further requests are merged into the next probe. Knows minions, not jobs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use saltern_model::{Jid, MinionId};

use super::moment::Moment;

/// Requests within this time share one probe.
const MERGED: Duration = Duration::from_millis(100);

/// Minions named in one probe at most: without a filter every minion receives it. With one probe a
/// second, the default, 20,000 minions are asked within ten seconds.
pub(super) const MAX_NAMED: usize = 2_000;

/// Scheduler of the probes.
pub(super) struct Rounds {
    wanted: HashSet<MinionId>,
    /// The same in order of waiting: the oldest request is sent first.
    queue: VecDeque<MinionId>,
    /// Minions with a pending probe, and its jid.
    asked: HashMap<MinionId, Jid>,
    probes: HashMap<Jid, Probe>,
    /// The minimum interval between two probes.
    spacing: Duration,
    /// When the next probe may leave.
    free_at: Moment,
    flush_is_set: bool,
}

struct Probe {
    sent: Moment,
    pending: HashSet<MinionId>,
}

impl Rounds {
    /// Scheduler with at most `rate` probes a second.
    pub(super) fn new(rate: u32) -> Self {
        Self {
            wanted: HashSet::new(),
            queue: VecDeque::new(),
            asked: HashMap::new(),
            probes: HashMap::new(),
            spacing: Duration::from_secs(1) / rate.max(1),
            free_at: Moment::default(),
            flush_is_set: false,
        }
    }

    /// Requests a probe of a minion; whether that is new: it may be requested or asked already.
    pub(super) fn want(&mut self, minion: &MinionId) -> bool {
        let is_new = !self.asked.contains_key(minion) && self.wanted.insert(minion.clone());
        if is_new {
            self.queue.push_back(minion.clone());
        }
        is_new
    }

    /// When the next probe leaves, if one is requested and no timer is set for it; and whether the
    /// rate limit delays it. The caller sets that timer.
    pub(super) fn next_flush(&mut self, now: Moment) -> Option<(Moment, bool)> {
        if self.wanted.is_empty() || self.flush_is_set {
            return None;
        }
        self.flush_is_set = true;
        let merged = now.after(MERGED);
        Some((merged.max(self.free_at), self.free_at > merged))
    }

    /// The minions of the probe that leaves now, without those for which it has become needless.
    /// The caller gives it its jid with [`Rounds::sent`].
    pub(super) fn take(&mut self, is_of_use: impl Fn(&MinionId) -> bool) -> Vec<MinionId> {
        self.flush_is_set = false;
        let mut named = Vec::new();
        while named.len() < MAX_NAMED
            && let Some(minion) = self.queue.pop_front()
        {
            self.wanted.remove(&minion);
            if is_of_use(&minion) {
                named.push(minion);
            }
        }
        named
    }

    pub(super) fn sent(&mut self, probe: &Jid, minions: &[MinionId], now: Moment) {
        self.free_at = self.free_at.max(now).after(self.spacing);
        for minion in minions {
            self.asked.insert(minion.clone(), probe.clone());
        }
        let pending = minions.iter().cloned().collect();
        let probe_sent = Probe { sent: now, pending };
        self.probes.insert(probe.clone(), probe_sent);
    }

    /// Whether no answer of this minion to this probe has come, and it is not given up.
    pub(super) fn awaits(&self, probe: &Jid, minion: &MinionId) -> bool {
        let known = self.probes.get(probe);
        known.is_some_and(|known| known.pending.contains(minion))
    }

    /// Records an answer; gives when the minion was asked, unless that is long ago.
    pub(super) fn answered(&mut self, probe: &Jid, minion: &MinionId) -> Option<Moment> {
        if self.asked.get(minion).is_some_and(|asked| asked == probe) {
            self.asked.remove(minion);
        }
        let known = self.probes.get_mut(probe)?;
        known.pending.remove(minion);
        Some(known.sent)
    }

    /// Ends the wait for answers; gives the minions that have not answered, sorted. Late answers
    /// still count.
    pub(super) fn over(&mut self, probe: &Jid) -> Vec<MinionId> {
        let Some(known) = self.probes.get_mut(probe) else {
            return Vec::new();
        };
        let mut missed: Vec<MinionId> = std::mem::take(&mut known.pending).into_iter().collect();
        missed.sort_unstable();
        for minion in &missed {
            if self.asked.get(minion).is_some_and(|asked| asked == probe) {
                self.asked.remove(minion);
            }
        }
        missed
    }

    /// Whether an answer to this probe may still come.
    pub(super) fn knows(&self, probe: &Jid) -> bool {
        self.probes.contains_key(probe)
    }

    pub(super) fn forget(&mut self, probe: &Jid) {
        self.probes.remove(probe);
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.asked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minion(number: usize) -> MinionId {
        MinionId::parse(&format!("m{number:04}")).unwrap()
    }

    fn jid(number: u32) -> Jid {
        Jid::parse(&format!("{number:020}")).unwrap()
    }

    #[test]
    fn requests_are_merged_once_and_rate_limited() {
        let mut rounds = Rounds::new(2);
        let start = Moment::at(Duration::from_secs(100));
        for number in 0..MAX_NAMED + 10 {
            assert!(rounds.want(&minion(number)));
        }
        assert!(!rounds.want(&minion(3)));
        let (first, capped) = rounds.next_flush(start).unwrap();
        assert!(!capped && first == start.after(MERGED));
        assert_eq!(rounds.next_flush(start), None);
        let named = rounds.take(|id| *id != minion(0));
        assert_eq!((named.len(), &named[0]), (MAX_NAMED, &minion(1)));
        rounds.sent(&jid(1), &named, first);
        // The rest has to wait, and no minion is asked twice meanwhile.
        assert!(!rounds.want(&minion(7)));
        let (second, capped) = rounds.next_flush(first).unwrap();
        assert!(capped && second == first.after(Duration::from_millis(500)));
        let rest = rounds.take(|_| true);
        assert_eq!(rest.len(), 9);
        rounds.sent(&jid(2), &rest, second);
        assert_eq!(rounds.in_flight(), MAX_NAMED + 9);
    }

    #[test]
    fn oldest_request_is_probed_first() {
        let mut rounds = Rounds::new(1);
        rounds.want(&minion(9_999));
        for number in 0..MAX_NAMED {
            rounds.want(&minion(number));
        }
        assert_eq!(rounds.take(|_| true)[0], minion(9_999));
        assert_eq!(rounds.take(|_| true), [minion(MAX_NAMED - 1)]);
        assert!(rounds.want(&minion(9_999)));
    }

    #[test]
    fn answered_minion_may_be_probed_again_and_silent_ones_are_named() {
        let mut rounds = Rounds::new(1);
        let now = Moment::at(Duration::from_secs(1));
        let minions = [minion(1), minion(2)];
        rounds.sent(&jid(1), &minions, now);
        assert_eq!(rounds.answered(&jid(1), &minion(1)), Some(now));
        assert!(rounds.want(&minion(1)) && !rounds.want(&minion(2)));
        assert_eq!(rounds.over(&jid(1)), [minion(2)]);
        assert!(rounds.over(&jid(1)).is_empty() && rounds.want(&minion(2)));
        // A late answer is still known by its probe, for a while.
        assert_eq!(rounds.answered(&jid(1), &minion(2)), Some(now));
        rounds.forget(&jid(1));
        assert_eq!(rounds.answered(&jid(1), &minion(2)), None);
    }
}

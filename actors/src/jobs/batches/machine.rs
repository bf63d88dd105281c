//! State machine of a batch: a pure function of events and time. No clock, no I/O.
//!
//! Invariants, each a property at the end of this file:
//! - no more minions run, and rest after running (`batch_wait`), than the size of the batch says;
//! - each minion is sent its part once, in the order of the plan, and ends as done, failed or
//!   abandoned;
//! - after a halt, and during a pause, no minion is sent anything;
//! - the same state is rebuilt from the store, whatever the moment of a restart.
//!
//! The steps are those of stock 3008 (`progress_batch` in `salt/utils/batch_state.py`), but for two
//! things that the master knows better here: a minion that may still be running the job keeps its
//! place, and one that returns after it was given up counts as done.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use saltern_model::MinionId;

/// A moment, as the time since an origin that the caller keeps.
pub(crate) type Moment = Duration;

/// Why a batch is halted when a minion's return code is not 0.
pub(crate) const FAILHARD: &str = "failhard";

/// Why a minion was given up: it did not return in time.
pub(crate) const TIMEOUT: &str = "timeout";

/// Why a minion was given up: it is not among the accepted ones any more.
pub(crate) const NOT_ACCEPTED: &str = "not accepted";

/// Parameters of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Minions at a time; at least one.
    pub(crate) size: usize,
    /// How long a slot stays empty after a minion is done (`batch_wait`).
    pub(crate) wait: Duration,
    /// Timeout of a silent minion.
    pub(crate) patience: Duration,
    /// The first return code above 0 halts the batch.
    pub(crate) failhard: bool,
}

/// The reason that a text, written by us or by stock, stands for.
pub(crate) fn reason(text: &str) -> &'static str {
    match text {
        NOT_ACCEPTED => NOT_ACCEPTED,
        // Stock's word for a minion that said itself that it failed.
        "failed" => "failed",
        _ => TIMEOUT,
    }
}

/// State of one batch.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    rules: Rules,
    total: usize,
    /// In the order of the plan. May hold minions that are done already; they are passed over.
    pending: VecDeque<MinionId>,
    /// Every minion that is not in `pending` alone.
    known: HashMap<MinionId, Fate>,
    /// Deadlines of active minions, earliest first; one that differs from its minion's current
    /// deadline is void.
    deadlines: VecDeque<(Moment, MinionId)>,
    /// When resting slots are free again, earliest first.
    resting: VecDeque<Moment>,
    counts: Counts,
    is_paused: bool,
    halted: Option<String>,
}

/// Record of a batch that began before a restart.
#[derive(Debug, Default)]
pub(crate) struct Past<'a> {
    /// Minions that were sent their part.
    pub(crate) sent: &'a [MinionId],
    /// Minions that were given up, and why.
    pub(crate) failed: &'a [(MinionId, &'static str)],
    /// Minions that returned, with the return code, and how long ago.
    pub(crate) returned: &'a [(MinionId, i64, Duration)],
}

/// Number of minions in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Were sent their part and have not returned.
    pub(crate) active: usize,
    /// Have returned.
    pub(crate) done: usize,
    /// Were given up.
    pub(crate) failed: usize,
}

/// State of one minion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was sent its part; the moment is that of the last sign of it.
    Active(Moment),
    /// It returned, with this code.
    Done(i64),
    /// It was given up.
    Failed(&'static str),
}

impl Machine {
    /// A batch that has not begun.
    pub(crate) fn new(rules: Rules, minions: &[MinionId]) -> Self {
        let mut seen = HashSet::new();
        let pending: VecDeque<MinionId> = minions
            .iter()
            .filter(|minion| seen.insert(*minion))
            .cloned()
            .collect();
        Self {
            rules,
            total: pending.len(),
            pending,
            known: HashMap::new(),
            deadlines: VecDeque::new(),
            resting: VecDeque::new(),
            counts: Counts::default(),
            is_paused: false,
            halted: None,
        }
    }

    /// Restores a batch that began before. Slots rest on after a return until `wait` is over;
    /// minions that were given up leave no rest, as their time is not known.
    pub(crate) fn recall(&mut self, past: &Past<'_>, now: Moment) {
        let sent: HashSet<&MinionId> = past.sent.iter().collect();
        for minion in std::mem::take(&mut self.pending) {
            if sent.contains(&minion) {
                self.activate(minion, now);
            } else {
                self.pending.push_back(minion);
            }
        }
        for (minion, reason) in past.failed {
            self.fail(minion, reason);
        }
        for (minion, retcode, ago) in past.returned {
            let held_place = self.settle(minion, *retcode) == Some(true);
            let rests_for = self.rules.wait.saturating_sub(*ago);
            if held_place && !rests_for.is_zero() {
                self.resting.push_back(now + rests_for);
            }
        }
        self.resting.make_contiguous().sort_unstable();
    }

    /// A minion cannot be sent its part: its slot is free at once.
    pub(crate) fn drop_out(&mut self, minion: &MinionId) {
        self.fail(minion, NOT_ACCEPTED);
    }

    /// Records a return; whether it changes anything.
    pub(crate) fn returned(&mut self, minion: &MinionId, retcode: i64, now: Moment) -> bool {
        let settled = self.settle(minion, retcode);
        if settled == Some(true) {
            self.rest(now);
        }
        settled.is_some()
    }

    fn fail(&mut self, minion: &MinionId, reason: &'static str) {
        if let Some(fate @ Fate::Active(_)) = self.known.get_mut(minion) {
            *fate = Fate::Failed(reason);
            self.counts.active -= 1;
            self.counts.failed += 1;
        }
    }

    /// Counts a return, and gives whether its minion held a slot; `None` when it changes nothing.
    fn settle(&mut self, minion: &MinionId, retcode: i64) -> Option<bool> {
        let held_place = match self.known.get(minion) {
            Some(Fate::Done(_)) => return None,
            Some(Fate::Active(_)) => {
                self.counts.active -= 1;
                true
            }
            Some(Fate::Failed(_)) => {
                self.counts.failed -= 1;
                false
            }
            // A minion that returned unasked, because the job reached it otherwise, need not be
            // sent its part.
            None if self.pending.contains(minion) => false,
            None => return None,
        };
        self.known.insert(minion.clone(), Fate::Done(retcode));
        self.counts.done += 1;
        if self.rules.failhard && retcode > 0 {
            self.halt(FAILHARD);
        }
        Some(held_place)
    }

    /// A minion may still be running the job: its timeout restarts.
    pub(crate) fn is_awaited(&mut self, minion: &MinionId, now: Moment) {
        if let Some(Fate::Active(since)) = self.known.get_mut(minion)
            && *since != now
        {
            *since = now;
            let deadline = now + self.rules.patience;
            self.deadlines.push_back((deadline, minion.clone()));
        }
    }

    /// Minions past their deadline.
    pub(crate) fn late(&self, now: Moment) -> Vec<MinionId> {
        let due = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        let due = due.filter(|(at, minion)| self.is_due(*at, minion));
        due.map(|(_, minion)| minion.clone()).collect()
    }

    /// Sends nothing more, or goes on. Minions that were sent their part are awaited as ever; a batch
    /// of which none is left to send ends during its pause.
    pub(crate) fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Ends the batch before its time. The first reason stays.
    pub(crate) fn halt(&mut self, reason: &str) {
        self.halted.get_or_insert_with(|| reason.to_owned());
    }

    /// Fills free slots; the minions to send their part now.
    pub(crate) fn advance(&mut self, now: Moment) -> Vec<MinionId> {
        let mut send = Vec::new();
        self.drop_void_deadlines();
        while self.resting.front().is_some_and(|until| *until <= now) {
            self.resting.pop_front();
        }
        while self.halted.is_none() && !self.is_paused && self.free() > 0 {
            let Some(next) = self.pending.pop_front() else {
                break;
            };
            if !self.known.contains_key(&next) {
                self.activate(next.clone(), now);
                send.push(next);
            }
        }
        send
    }

    fn free(&self) -> usize {
        let taken = self.counts.active + self.resting.len();
        self.rules.size.saturating_sub(taken)
    }

    fn activate(&mut self, minion: MinionId, now: Moment) {
        let deadline = now + self.rules.patience;
        self.deadlines.push_back((deadline, minion.clone()));
        self.known.insert(minion, Fate::Active(now));
        self.counts.active += 1;
    }

    fn rest(&mut self, now: Moment) {
        if !self.rules.wait.is_zero() {
            self.resting.push_back(now + self.rules.wait);
        }
    }

    /// Gives up every minion past its deadline.
    pub(crate) fn time_out(&mut self, now: Moment) -> Vec<MinionId> {
        let mut late = Vec::new();
        while let Some((deadline, minion)) = self.deadlines.pop_front() {
            if !self.is_due(deadline, &minion) {
                continue;
            }
            if deadline > now {
                self.deadlines.push_front((deadline, minion));
                break;
            }
            self.fail(&minion, TIMEOUT);
            self.rest(now);
            late.push(minion);
        }
        late
    }

    /// A void deadline that is over would wake the batch again and again.
    fn drop_void_deadlines(&mut self) {
        while let Some((at, minion)) = self.deadlines.front()
            && !self.is_due(*at, minion)
        {
            self.deadlines.pop_front();
        }
    }

    /// Whether a deadline still stands.
    fn is_due(&self, deadline: Moment, minion: &MinionId) -> bool {
        matches!(self.known.get(minion),
            Some(Fate::Active(since)) if *since + self.rules.patience == deadline)
    }

    /// When [`Machine::advance`] must be called next if nothing happens before.
    pub(crate) fn wakes_at(&self) -> Option<Moment> {
        if self.is_over() {
            return None;
        }
        let patience = self.deadlines.front().map(|(deadline, _)| *deadline);
        let place = self.resting.front().copied();
        match (patience, place) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Whether nothing is left to send or to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.halted.is_some() || (self.counts.active == 0 && self.pending().next().is_none())
    }

    /// Why it ended early.
    pub(crate) fn halted(&self) -> Option<&str> {
        self.halted.as_deref()
    }

    /// Number of minions.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Number of minions in each state.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// How many are still to be sent their part.
    pub(crate) fn pending_count(&self) -> usize {
        let counts = self.counts;
        self.total
            .saturating_sub(counts.active + counts.done + counts.failed)
    }

    /// Minions still to be sent their part.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &MinionId> {
        let pending = self.pending.iter();
        pending.filter(|minion| !self.known.contains_key(*minion))
    }

    /// Minions that were sent their part, and their state; unordered.
    pub(crate) fn fates(&self) -> impl Iterator<Item = (&MinionId, Fate)> {
        self.known.iter().map(|(minion, fate)| (minion, *fate))
    }

    /// When resting slots are free again.
    pub(crate) fn resting(&self) -> impl Iterator<Item = Moment> {
        self.resting.iter().copied()
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;

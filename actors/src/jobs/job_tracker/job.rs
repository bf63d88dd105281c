//! State of one job in the tracker: the state of each minion, and the counts.
//!
//! Holds no rule about timing; those are the machine's.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use saltern_model::{Jid, MinionId, Packed};
use saltern_store::jobs::JobState;
pub(super) use saltern_store::jobs::LostReason as Reason;
use saltern_store::jobs::SyndicSays;

use super::moment::Moment;

/// State of a minion within a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MinionState {
    /// No sign of it yet. Once the load has left, this is called delivered.
    Expected,
    /// It said that it runs the job.
    Running,
    /// It answered that it does not; its return may be on its way.
    Ending {
        /// Since when it has been answering so.
        since: Moment,
    },
    /// Its return is in the store.
    Returned {
        /// 0 when all went well.
        retcode: i64,
    },
    /// It cannot be reached, and so may not have got the job.
    Unreachable(Reason),
    /// Its state cannot be known.
    Unknown(Reason),
}

impl MinionState {
    const KINDS: usize = 6;

    /// The state of a minion that was given up for this reason.
    pub(super) fn lost(reason: Reason) -> Self {
        match reason.is_unreachable() {
            true => Self::Unreachable(reason),
            false => Self::Unknown(reason),
        }
    }

    fn kind(&self) -> usize {
        match self {
            Self::Expected => 0,
            Self::Running => 1,
            Self::Ending { .. } => 2,
            Self::Returned { .. } => 3,
            Self::Unreachable(_) => 4,
            Self::Unknown(_) => 5,
        }
    }

    /// Given up: not awaited, and not returned.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unknown(_))
    }

    pub(super) fn has_returned(&self) -> bool {
        matches!(self, Self::Returned { .. })
    }

    pub(super) fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Unreachable(reason) | Self::Unknown(reason) => Some(reason),
            _ => None,
        }
    }

    /// Its name on the bus.
    pub(super) fn name(&self, has_left: bool) -> &'static str {
        match self {
            Self::Expected if !has_left => "expected",
            Self::Expected | Self::Ending { .. } => "delivered",
            Self::Running => "running",
            Self::Returned { .. } => "returned",
            Self::Unreachable(_) => "unreachable",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// The last statement of a minion about a job.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) at: Moment,
    /// The job as the minion describes it while it runs; `None` when it does not run it.
    pub(super) running: Option<Packed>,
}

/// One minion of a job.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    state: MinionState,
    pub(super) said: Option<Box<Said>>,
    /// It is in the machine's list of probes.
    pub(super) is_listed: bool,
    /// The first probe since its last statement about the job.
    pub(super) asked_since: Option<Moment>,
    /// It sent a signal to its process of this job.
    pub(super) was_signalled: bool,
    /// Verdict of a syndic on it, for people.
    pub(super) below: Option<Box<SyndicSays>>,
}

impl Entry {
    pub(super) fn state(&self) -> &MinionState {
        &self.state
    }

    /// Whether it may still run the job: no evidence speaks against it.
    pub(super) fn may_run(&self) -> bool {
        use MinionState::{Expected, Running, Unknown};
        let silent = [Reason::NoAnswer, Reason::CannotSay];
        match &self.state {
            Expected | Running => true,
            Unknown(reason) => silent.contains(reason),
            _ => false,
        }
    }
}

/// A client's question about the job that is still being answered.
#[derive(Clone, Debug)]
pub(super) struct ClientQuestion {
    /// The question's jid.
    pub(super) question: Jid,
    /// Minions that have not answered.
    pub(super) pending: Vec<MinionId>,
}

/// Number of minions in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    kinds: [usize; MinionState::KINDS],
    pub(super) failed: usize,
}

impl Counts {
    pub(super) fn total(&self) -> usize {
        self.kinds.iter().sum()
    }

    pub(super) fn running(&self) -> usize {
        self.kinds[1]
    }

    pub(super) fn ending(&self) -> usize {
        self.kinds[2]
    }

    pub(super) fn returned(&self) -> usize {
        self.kinds[3]
    }

    pub(super) fn unreachable(&self) -> usize {
        self.kinds[4]
    }

    pub(super) fn unknown(&self) -> usize {
        self.kinds[5]
    }

    /// Minions of which a return or an answer is awaited.
    pub(super) fn awaited(&self) -> usize {
        self.kinds[0] + self.kinds[1] + self.kinds[2]
    }

    pub(super) fn count(&mut self, state: &MinionState, add: bool) {
        let failed = matches!(state, MinionState::Returned { retcode } if *retcode != 0);
        let kind = &mut self.kinds[state.kind()];
        if add {
            *kind += 1;
            self.failed += usize::from(failed);
        } else {
            *kind -= 1;
            self.failed -= usize::from(failed);
        }
    }
}

/// One job with its minions.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) fun: Arc<str>,
    /// In microseconds since 1970; only passed on.
    pub(super) created: i64,
    pub(super) state: JobState,
    minions: IndexMap<MinionId, Entry>,
    counts: Counts,
    /// When it, or its last part, was stored.
    pub(super) begun: Moment,
    /// When the load of it, or of its last part, went to the publish port.
    pub(super) left: Option<Moment>,
    /// Taken over from an earlier master or tracker, and it is not known whether it left.
    pub(super) may_have_left: bool,
    /// The last event that ends a silence.
    pub(super) heard: Moment,
    /// The last round of probes; initially its beginning.
    pub(super) asked: Moment,
    /// How long a silence must last before its minions are probed.
    pub(super) silence: Duration,
    /// Silences that have led to probes.
    pub(super) rounds: u32,
    /// The time for which its timer is set.
    pub(super) look_at: Option<Moment>,
    /// Since when no minion is awaited any more.
    pub(super) settled: Option<Moment>,
    pub(super) progress_is_due: bool,
    pub(super) asks: Vec<ClientQuestion>,
    /// The syndics of a job that began without minions, if none of them could receive it, and why.
    pub(super) unheard: Vec<(MinionId, Arc<str>)>,
    /// Minions below syndics were refused. None joins any more: their earlier returns are not
    /// known here, and they would be awaited in vain.
    pub(super) is_full: bool,
    /// It ended earlier and was read from the store again. Minions below syndics join it without reopening it.
    pub(super) is_reloaded: bool,
    /// A further part of it is being stored: what is known of the earlier one's departure does not
    /// hold for it.
    pub(super) part_is_under_way: bool,
    /// No syndic is expected to report further minions. Not stored: a job that is resumed waits for them.
    pub(super) expects_all: bool,
}

impl Job {
    pub(super) fn new(fun: Arc<str>, created: i64, now: Moment) -> Self {
        Self {
            fun,
            created,
            state: JobState::Open,
            minions: IndexMap::new(),
            counts: Counts::default(),
            begun: now,
            left: None,
            may_have_left: false,
            heard: now,
            asked: now,
            silence: Duration::ZERO,
            rounds: 0,
            look_at: None,
            settled: None,
            progress_is_due: false,
            asks: Vec::new(),
            unheard: Vec::new(),
            is_full: false,
            is_reloaded: false,
            part_is_under_way: false,
            expects_all: true,
        }
    }

    /// Adds minions that are not expected yet.
    pub(super) fn expect(&mut self, minions: Vec<MinionId>) {
        self.minions.reserve(minions.len());
        for minion in minions {
            let state = MinionState::Expected;
            if let indexmap::map::Entry::Vacant(vacant) = self.minions.entry(minion) {
                self.counts.count(&state, true);
                vacant.insert(Entry {
                    state,
                    said: None,
                    is_listed: false,
                    asked_since: None,
                    was_signalled: false,
                    below: None,
                });
            }
        }
    }

    /// The job's weight against the memory bound.
    pub(super) fn weight(&self) -> usize {
        self.minions.len() + 1
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether it has no minion because no syndic could receive it.
    pub(super) fn reached_nobody(&self) -> bool {
        self.minions.is_empty() && !self.unheard.is_empty()
    }

    /// Whether all its minions have returned.
    pub(super) fn is_complete(&self) -> bool {
        self.counts.returned() == self.counts.total() && !self.reached_nobody()
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == JobState::Open
    }

    pub(super) fn entry(&self, minion: &MinionId) -> Option<&Entry> {
        self.minions.get(minion)
    }

    pub(super) fn entry_mut(&mut self, minion: &MinionId) -> Option<&mut Entry> {
        self.minions.get_mut(minion)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&MinionId, &Entry)> {
        self.minions.iter()
    }

    /// Drops the descriptions of running processes: they are not reported any more.
    pub(super) fn forget_what_was_said(&mut self) {
        for entry in self.minions.values_mut() {
            entry.said = None;
        }
    }

    /// The minions that have not returned.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&MinionId, &Entry)> {
        self.entries()
            .filter(|(_, entry)| !entry.state.has_returned())
    }

    /// Sets the state of a minion; gives the previous one, or `None` when the job does not have it
    /// or it was in that state already. A return is final.
    pub(super) fn put(&mut self, minion: &MinionId, state: MinionState) -> Option<MinionState> {
        let entry = self.minions.get_mut(minion)?;
        if entry.state.has_returned() || entry.state == state {
            return None;
        }
        self.counts.count(&state, true);
        let before = std::mem::replace(&mut entry.state, state);
        self.counts.count(&before, false);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_is_final_and_counts_match_minions() {
        let minions: Vec<MinionId> = ["a", "b", "a"]
            .iter()
            .map(|id| MinionId::parse(id).unwrap())
            .collect();
        let mut job = Job::new("test.ping".into(), 0, Moment::default());
        job.expect(minions.clone());
        assert_eq!((job.counts().total(), job.weight()), (2, 3));
        let returned = |retcode| MinionState::Returned { retcode };
        let before = job.put(&minions[0], MinionState::Unknown(Reason::NoAnswer));
        assert_eq!(before, Some(MinionState::Expected));
        assert_eq!((job.counts().unknown(), job.counts().awaited()), (1, 1));
        assert!(job.put(&minions[0], returned(2)).is_some());
        assert_eq!(job.put(&minions[0], returned(0)), None);
        assert_eq!(job.put(&minions[0], MinionState::Running), None);
        job.expect(minions);
        assert_eq!((job.counts().returned(), job.counts().failed), (1, 1));
        assert_eq!(job.missing().count(), 1);
    }
}

//! By when minions are judged that were awaited when this master took over.
//!
//! After a takeover, or a restart, minions have time to reconnect before they are probed, and time to answer.
//! Masters that are lost within this time, one after the other, would put the verdict off without a bound. So the first
//! one notes by when it is due, and those behind it keep to that: the one thing about a job that is a time of day, as
//! these masters have no other clock in common. A minion that says that it runs the job is not judged by it.

use std::collections::HashMap;
use std::time::Duration;

use saltern_model::{Jid, MinionId};

use super::job::{MinionState, Reason};
use super::machine::{Machine, Turn, change};
use super::moment::{Moment, Timer};

/// Time beyond that for reconnecting and for an answer: probes are merged, and their rate is limited.
const SLACK: Duration = Duration::from_secs(2);

/// Time that a minion has after each takeover; in the middle of it, it is probed. A master that is lost within this time
/// judges nobody.
const MIN_TIME: Duration = Duration::from_secs(4);

/// By when one minion of a job is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    /// Microseconds since 1970.
    pub(super) by: i64,
    /// When this master gives the minion up; `None` for a deadline of its own, by which it has probed the minion, and
    /// once it has.
    pub(super) at: Option<Moment>,
    /// It was over when this master took over.
    was_over: bool,
}

impl Machine {
    /// Sets by when the awaited minions of a resumed job are judged: as masters before this one have noted, or after
    /// the silence with which it begins and the time of an answer. `now` is in microseconds since 1970.
    pub(super) fn set_deadlines(
        &mut self,
        jid: &Jid,
        (noted, now): (Vec<(MinionId, i64)>, i64),
        turn: &mut Turn<'_>,
    ) {
        let gather = self.rules.gather;
        let Some(job) = self.jobs.get_mut(jid) else {
            return;
        };
        let noted: HashMap<MinionId, i64> = noted.into_iter().collect();
        let own = micros(job.silence + gather + SLACK).saturating_add(now);
        let awaited = job.missing();
        let awaited = awaited.filter(|(_, entry)| *entry.state() == MinionState::Expected);
        let awaited: Vec<MinionId> = awaited.map(|(minion, _)| minion.clone()).collect();
        let mut first: Option<Duration> = None;
        let mut has_own = false;
        for minion in awaited {
            // One of a clock that was ahead of this one is not later than a new one.
            let earlier = noted.get(&minion).copied().filter(|by| *by < own);
            let left = earlier.map(|by| {
                let left = u64::try_from(by.saturating_sub(now)).unwrap_or(0);
                Duration::from_micros(left).max(MIN_TIME)
            });
            let deadline = Deadline {
                by: earlier.unwrap_or(own),
                at: left.map(|left| turn.now.after(left)),
                was_over: earlier.is_some_and(|by| by <= now),
            };
            first = left.into_iter().chain(first).min();
            has_own |= left.is_none();
            job.deadlines.insert(minion, deadline);
        }
        if let Some(left) = first {
            job.silence = job.silence.min(left / 2);
            let probed = turn.now.after(job.silence);
            self.look_by(jid, probed);
            let timer = Timer::Judge(jid.clone());
            self.timers.set(turn.now.after(left), timer);
        }
        if has_own {
            self.keep(jid, turn);
        }
    }

    /// Gives up the minions of a job whose time is over. One that has answered that it does not run the job has the
    /// time of one more answer, unless an earlier master was to give it that.
    pub(super) fn judge(&mut self, jid: &Jid, turn: &mut Turn<'_>) {
        let now = turn.now;
        let Some(job) = self.jobs.get_mut(jid).filter(|job| job.is_open()) else {
            return;
        };
        let mut lost = Vec::new();
        for (minion, entry) in job.entries() {
            let deadline = job.deadlines.get(minion);
            let Some(deadline) = deadline.filter(|one| one.at.is_some_and(|at| at <= now)) else {
                continue;
            };
            let reason = match entry.state() {
                MinionState::Expected => Some(Reason::NotHeard),
                MinionState::Ending { .. } if deadline.was_over => Some(Reason::NotRunning),
                _ => None,
            };
            lost.push((minion.clone(), reason));
        }
        let mut changes = Vec::new();
        for (minion, reason) in lost {
            if let Some(deadline) = job.deadlines.get_mut(&minion) {
                deadline.at = None;
            }
            let after = reason.map(MinionState::lost);
            changes.extend(after.and_then(|after| change(job, &minion, after)));
        }
        let next = job.deadlines.values().filter_map(|one| one.at).min();
        if let Some(next) = next {
            self.timers.set(next, Timer::Judge(jid.clone()));
        }
        self.conclude(jid, changes, turn);
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

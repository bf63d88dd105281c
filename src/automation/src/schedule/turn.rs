//! State of one job: its next turn, and the result of its last.
//!
//! The rules, which hold for every clock that stands, jumps or goes back:
//! - However many turns were missed, a job runs once, and its next turn is computed from now.
//! - An interval is time that has passed: a clock that is set back leaves the rest of it as it was.
//! - A slot runs once. After a clock was set back, or went back at the end of summer time, it comes
//!   a second time, and runs again only if at least half the time between it and the slot before
//!   it has passed: a job of every five minutes goes on, a daily one does not run twice. So no job
//!   waits longer for a turn than one and a half times what lies between its slots.

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::job::Job;
use super::local_time::{Slot, shown_after, turn_after};
use super::timing::Timing;
use super::{Due, Skip};

/// Inputs of a tick.
pub(super) struct Look<'l> {
    pub(super) now: Timestamp,
    pub(super) zone: &'l TimeZone,
    /// The delay after which a slot is missed.
    pub(super) grace: SignedDuration,
    /// Draws a number between two bounds, inclusive.
    pub(super) draw: &'l mut dyn FnMut(u64, u64) -> u64,
}

/// Difference of a schedule from the one before it, beside its jobs.
pub(super) struct Change {
    pub(super) is_same_zone: bool,
    /// The time of the last tick.
    pub(super) seen: Option<Timestamp>,
}

/// State of one job: its next turn and its runs under way.
#[derive(Debug)]
pub(super) struct Turn {
    next: Next,
    on_start: bool,
    /// A run that makes up for those of `skip_during_range`.
    extra: Option<Timestamp>,
    last_slot: Option<Slot>,
    /// Counts the runs under way: each holds a copy.
    running: Arc<()>,
}

#[derive(Clone, Debug, PartialEq)]
enum Next {
    /// To be computed; a slot that has just passed counts.
    Open,
    /// To be computed from now.
    Anew,
    /// With its delay. The slot is without, and an interval has none.
    At(Timestamp, Option<Slot>),
    /// Due, and waiting until its range may have begun.
    Held(Timestamp),
    Never,
}

/// Proof that a run is under way, until it is dropped.
#[derive(Debug)]
pub struct Running(#[expect(dead_code, reason = "it is counted, not read")] Arc<()>);

/// Cause of a job's turn.
#[derive(Clone, Copy, PartialEq)]
enum Cause {
    Start,
    Extra,
    Time(Timestamp, Option<Slot>),
}

impl Turn {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            next: Next::Open,
            on_start: job.run_on_start,
            extra: None,
            last_slot: None,
            running: Arc::default(),
        }
    }

    /// State of a job that is new to a running master.
    pub(super) fn without_start(self) -> Self {
        Self {
            next: Next::Anew,
            on_start: false,
            ..self
        }
    }

    /// State of the job after it was edited.
    pub(super) fn of_edited(self, old: &Job, new: &Job, change: &Change) -> Self {
        let is_same_time = old.timing == new.timing;
        let is_turn = is_same_time && old.splay == new.splay && change.is_same_zone && old.enabled;
        let next = match self.next {
            Next::Held(_) if is_turn && old.conditions != new.conditions => {
                Next::Held(Timestamp::MIN)
            }
            next if is_turn => next,
            // Its splay is drawn already.
            Next::At(at, Some(slot))
                if is_same_time
                    && old.enabled
                    && change.seen.is_some_and(|seen| slot.at <= seen) =>
            {
                Next::At(at, Some(slot))
            }
            _ => Next::Anew,
        };
        Self {
            next,
            on_start: self.on_start && new.run_on_start,
            extra: self
                .extra
                .filter(|_| new.run_after_skip_range && old.enabled),
            // With another timing it would keep the first slot from running.
            last_slot: self.last_slot.filter(|_| is_same_time),
            running: self.running,
        }
    }

    /// The time of the next tick that may matter.
    pub(super) fn wake(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        if !job.enabled {
            return None;
        }
        let next = match self.next {
            Next::Open | Next::Anew => Some(now),
            Next::At(at, _) | Next::Held(at) => Some(at),
            Next::Never => None,
        };
        let start = self.on_start.then_some(now);
        [next, start, self.extra].into_iter().flatten().min()
    }

    /// Adjusts to a clock that was set back from what it showed last. A slot that had come by then
    /// and waits for its splay still counts as come.
    pub(super) fn set_back(&mut self, from: Timestamp, by: SignedDuration, job: &Job) {
        let earlier = |at: Timestamp| at.checked_sub(by).unwrap_or(Timestamp::MIN);
        if let Some(slot) = &mut self.last_slot {
            slot.at = earlier(slot.at);
        }
        self.next = match (&self.next, &job.timing) {
            (Next::At(at, None), _) => Next::At(earlier(*at), None),
            (Next::At(at, Some(slot)), _) if slot.at <= from => {
                let at_slot = earlier(slot.at);
                Next::At(
                    earlier(*at),
                    Some(Slot {
                        at: at_slot,
                        ..*slot
                    }),
                )
            }
            (Next::Held(_), Timing::Every(_)) => Next::Held(Timestamp::MIN),
            (Next::Anew, _) => Next::Anew,
            _ => Next::Open,
        };
    }

    /// Takes the turn if it has come. `skip` is called for a turn without a run.
    pub(super) fn take(
        &mut self,
        job: &Arc<Job>,
        look: &mut Look<'_>,
        skip: &mut dyn FnMut(Skip),
    ) -> Option<Due> {
        if !job.enabled {
            return None;
        }
        match self.next {
            Next::Open => self.next = first(job, look),
            Next::Anew => self.next = after(job, look),
            Next::At(..) | Next::Held(_) | Next::Never => (),
        }
        let cause = self.cause(look.now)?;
        let local = look.zone.to_datetime(look.now);
        let refused = match cause {
            Cause::Start => None,
            _ => job.conditions.refuse(local),
        };
        let late = match cause {
            Cause::Time(at, _) => look.now.duration_since(at),
            _ => SignedDuration::ZERO,
        };
        let why = match cause {
            Cause::Time(_, Some(slot)) if self.has_run(job, slot) => Some(Skip::Repeated),
            Cause::Time(_, Some(_)) if job.timing.can_be_missed() && late > look.grace => {
                Some(Skip::Missed)
            }
            _ => refused.filter(|why| !(why.is_range() && job.skip_function.is_some())),
        };
        if why == Some(Skip::InSkipRange) && job.run_after_skip_range {
            let change = job.conditions.skip_changes(local);
            self.extra = change.and_then(|change| shown_after(look.zone, change, look.now));
        }
        if why == Some(Skip::NotInRange) && matches!(job.timing, Timing::Every(_)) {
            // Stock leaves it due, so that it runs as soon as its range begins.
            let change = job.conditions.range_changes(local);
            let change = change.and_then(|change| shown_after(look.zone, change, look.now));
            self.next = change.map_or(Next::Never, Next::Held);
            skip(Skip::NotInRange);
            return None;
        }
        if cause != Cause::Extra || matches!(job.timing, Timing::Every(_)) {
            self.next = after(job, look);
        }
        if let Some(why) = why {
            skip(why);
            return None;
        }
        let is_full = |most| Arc::strong_count(&self.running) > most;
        if job.most_running.is_some_and(is_full) {
            skip(Skip::MaxRunning);
            return None;
        }
        if let Cause::Time(_, Some(slot)) = cause {
            self.last_slot = Some(slot);
        }
        Some(Due {
            function: refused
                .and(job.skip_function.as_ref())
                .unwrap_or(&job.function)
                .clone(),
            job: job.clone(),
            late: late.unsigned_abs(),
            running: Running(self.running.clone()),
        })
    }

    /// The cause that is due, if any.
    fn cause(&mut self, now: Timestamp) -> Option<Cause> {
        if std::mem::take(&mut self.on_start) {
            return Some(Cause::Start);
        }
        if self.extra.is_some_and(|extra| extra <= now) {
            self.extra = None;
            return Some(Cause::Extra);
        }
        match self.next {
            Next::At(at, slot) if at <= now => Some(Cause::Time(at, slot)),
            Next::Held(at) if at <= now => Some(Cause::Time(now, None)),
            _ => None,
        }
    }

    /// Whether a slot that ran already comes again, by the rule of the module.
    fn has_run(&self, job: &Job, slot: Slot) -> bool {
        let Some(last) = &self.last_slot else {
            return false;
        };
        match job.timing.slot_before(slot.local) {
            None => last.local == slot.local,
            Some(before) => {
                let between = slot.local.duration_since(before);
                slot.at.duration_since(last.at) < between / 2
            }
        }
    }
}

/// The first turn of a job: stock runs a slot that has just passed, as it does not know whether it
/// ran.
fn first(job: &Job, look: &mut Look<'_>) -> Next {
    match job.timing.can_be_missed() {
        true => next_from(job, look, look.now.checked_sub(look.grace)),
        false => after(job, look),
    }
}

/// The next turn of a job.
fn after(job: &Job, look: &mut Look<'_>) -> Next {
    next_from(job, look, Ok(look.now))
}

fn next_from(job: &Job, look: &mut Look<'_>, from: Result<Timestamp, jiff::Error>) -> Next {
    let from = from.unwrap_or(look.now);
    let delay = match job.splay {
        Some(splay) => SignedDuration::from_secs((look.draw)(splay.from, splay.to) as i64),
        None => SignedDuration::ZERO,
    };
    let turn = turn_after(&job.timing, look.zone, from);
    let turn = turn.and_then(|(at, slot)| Some(Next::At(at.checked_add(delay).ok()?, slot)));
    turn.unwrap_or(Next::Never)
}

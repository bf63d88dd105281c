//! State machine of all jobs: a pure function of events and time.
//!
//! No I/O, no clock, no randomness but from the seed that is passed in; the caller carries out the
//! effects. Probes are in `questions`.
//!
//! Invariants, checked after each step of `simulation`:
//!
//! 1. A return is final: no event changes that, and no return counts twice.
//! 2. A minion is failed only by the return code of its own return; silence makes it unknown or
//!    unreachable, each with its reason, and a return amends either.
//! 3. A job is complete exactly when all its minions have returned and, of a batch, no part
//!    follows, and syndics had time to report theirs, unless all are known from the start. Without minions it is complete only if a
//!    syndic could receive it, or there is none. Expired and killed jobs are amended by late returns
//!    as long as they are remembered, up to complete. A job that minions below a syndic join after
//!    its end is open again.
//! 4. Every open job has a timer ahead, so that it ends without any further event; and its end is
//!    announced once.
//! 5. No minion is asked twice at a time, and probes leave no faster than their rate.
//! 6. Minions are listed for probes only while they miss a return of an open job.
//! 7. Memory is bounded: jobs by the weight of their minions, questions of clients and signals by
//!    their number, probes by their rate. The statements of minions about a job go with their
//!    return and with its end.
//! 8. A machine that is rebuilt from the store and the notes reports the same of every minion as
//!    the one before it. Exceptions: minions that were running or ending are expected, and of jobs
//!    that go on, changes of the last second may be missing.
//!
//! Longer than 500 lines because all that changes a job stands in one place, where the invariants can be
//! checked by reading.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};
use saltern_base::planted_bug::PlantedBug;
use saltern_model::{Jid, MinionId, Packed};
use saltern_requests::{SignalTargets, SyndicVerdict};
use saltern_store::jobs::{JobNotes, JobState};

use super::account::{account_of, outdated_verdicts};
use super::job::{Job, MinionState, Reason};
use super::jobs::Jobs;
use super::learned::Learned;
use super::moment::{Moment, Timer, Timers};
use super::news::{Change, Ending, JobNews, Overview};
use super::notes::{self, notes_of};
use super::rounds::Rounds;
use super::syndic_verdicts::SyndicVerdicts;
use crate::messages::{JobBegun, MinionReturned};
use saltern_model::control::Account;

/// Minimum interval between two progress events of a job.
const PROGRESS: Duration = Duration::from_millis(250);

/// Longest reconnect delay of stock minions by default (`recon_max`).
const RECONNECTING: Duration = Duration::from_secs(10);

/// Write delay for changes of a job that goes on: each write contains the notes on all its missing
/// minions.
const PROGRESS_WRITE_DELAY: Duration = Duration::from_secs(1);

/// Retry delay after the store refused a write.
pub(super) const KEPT_AGAIN: Duration = Duration::from_secs(5);

/// Poll interval of jobs that are held open.
const HELD: Duration = Duration::from_millis(500);

/// How long after its beginning an ended job can be reopened by minions below syndics. Syndics
/// report theirs within seconds, unless they were away.
const OPENED_AGAIN: Duration = Duration::from_secs(600);

/// Jobs with signals to other jobs that are remembered at most.
const MAX_SIGNALS: usize = 1_000;

/// Parameters of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The silence of a job after which its minions are first probed.
    pub(super) timeout: Duration,
    /// Timeout of an answer.
    pub(super) gather: Duration,
    /// Longest time between two rounds of probes about one job.
    pub(super) interval: Duration,
    /// How long a job stays open that awaits no minion.
    pub(super) patience: Duration,
    /// How long a job without minions waits for syndics to report some.
    pub(super) leaves_wait: Duration,
    /// Probes a second at most.
    pub(super) probe_rate: u32,
    /// The weight of the open jobs, and of the ended ones that are remembered.
    pub(super) most: (usize, usize),
}

/// Facts that the machine reads from the rest of the master.
pub(crate) trait JobEnvironment {
    /// Why a minion certainly receives nothing at this moment; `None` when it may.
    fn absence(&self, minion: &MinionId) -> Option<Arc<str>>;
    /// Whether it can be asked what it runs: a resource of a minion (3008) cannot.
    fn is_asked(&self, minion: &MinionId) -> bool;
    /// Those among these minions that are below this syndic.
    fn below(&self, syndic: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId>;
    /// Those among these minions that are certainly not below this syndic any more.
    fn moved(&self, syndic: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId>;
    /// A new jid.
    fn mint(&self) -> Jid;
    /// The syndics with why they receive nothing at this moment; empty when one of them may, and
    /// where there are none.
    fn unreachable_syndics(&self) -> Vec<(MinionId, Arc<str>)>;
    /// Whether further parts of a job may follow, so that it does not end with those it has.
    fn is_held(&self, jid: &Jid) -> bool;
}

/// Input of the machine.
#[derive(Clone, Debug)]
pub(super) enum JobEvent {
    /// A job, or a part of one, is in the store and about to leave.
    Begun(JobBegun),
    /// An open job was found in the store.
    Resumed(Resumed),
    /// The load of a job went to the publish port.
    Left(Jid),
    /// The load, or the part of it for these minions, will never be sent.
    NotSent(Jid, Vec<MinionId>),
    /// Minions below a syndic have the job too; that is in the store.
    Joined(Jid, Vec<MinionId>),
    /// A return is in the store.
    Returned(MinionReturned),
    /// A minion has answered a probe.
    Answered(Answered),
    /// A syndic says why minions below it have not returned.
    SaidBelow(SyndicVerdict),
    /// A client asks about a job that [`Machine::can_answer`].
    Asked(Asked),
    /// Jobs made before this time (microseconds since 1970) are waited for no longer.
    EndOlderThan(i64),
    /// The states of these jobs could not be written.
    Refused(Vec<Jid>),
    /// The master stops: what is to be written is written now.
    KeepAll,
    /// Time passes.
    Tick,
}

/// See [`JobEvent::Resumed`].
#[derive(Clone, Debug)]
pub(super) struct Resumed {
    pub(super) job: JobBegun,
    pub(super) departure: Departure,
    /// The minions that returned, each with its code.
    pub(super) returned: Vec<(MinionId, i64)>,
    pub(super) notes: JobNotes,
}

/// Whether a job that was found in the store had left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// It had.
    Left,
    /// Not known, and it is young: it is sent again.
    Again,
    /// Not known, and it is too old to be sent.
    Never,
}

/// See [`JobEvent::Answered`].
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) probe: Jid,
    pub(super) minion: MinionId,
    /// The jobs that it runs, each as it describes it; `None` when it cannot tell.
    pub(super) running: Option<Vec<(Jid, Packed)>>,
    /// It came by the second way of a minion whose first is open, and counts only as far as it confirms that all runs
    /// that the minion was asked about.
    pub(super) confirms_only: bool,
}

/// See [`JobEvent::Asked`].
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) question: Jid,
    pub(super) about: Jid,
    pub(super) minions: Vec<MinionId>,
}

/// Effect for the shell to carry out.
#[derive(Clone, Debug)]
pub(super) enum TrackerEffect {
    /// Write the state of a job.
    Keep {
        jid: Jid,
        state: JobState,
        notes: JobNotes,
    },
    /// Announce it on the bus.
    Report(JobNews),
    /// Probe these minions.
    Probe { probe: Jid, minions: Vec<MinionId> },
    /// Answer a client in the name of a minion: the job as it describes it, or nothing.
    PendingReply {
        question: Jid,
        about: Jid,
        minion: MinionId,
        running: Option<Packed>,
    },
    /// Send the load of a job again.
    SendAgain(Jid),
    /// Count it in the metrics.
    Count(Counted),
}

/// See [`TrackerEffect::Count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// A round of probes about a job.
    Round,
    /// A minion was to be probed and had a probe pending already.
    Merged,
    /// A probe was delayed by the rate limit.
    Capped,
    /// This many minions below syndics are not awaited.
    LeavesRefused(usize),
    /// A verdict of a syndic was kept, or not, as the word says.
    SaidBelow(&'static str),
}

/// State machine of all jobs.
pub(super) struct Machine {
    pub(super) rules: Rules,
    pub(super) jobs: Jobs,
    /// Minions to probe, with the jobs that they are probed about.
    pub(super) listed: HashMap<MinionId, Vec<Jid>>,
    pub(super) timers: Timers,
    pub(super) rounds: Rounds,
    /// Questions of clients that are being answered.
    pub(super) asks: usize,
    pub(super) learned: Learned,
    /// Jobs that send signals, and the processes that they signal.
    signals: IndexMap<Jid, SignalTargets>,
    pub(super) verdicts: SyndicVerdicts,
    /// Jobs whose state is to be written; always a subset of the remembered ones.
    pub(super) unkept: IndexSet<Jid>,
    keep_is_set: bool,
    pub(super) chance: Chance,
}

/// One step: its time, its environment, and its effects.
pub(super) struct Turn<'a> {
    pub(super) now: Moment,
    pub(super) world: &'a dyn JobEnvironment,
    pub(super) effects: Vec<TrackerEffect>,
}

impl Machine {
    pub(super) fn new(rules: Rules, seed: u64) -> Self {
        Self {
            jobs: Jobs::new(rules.most.0, rules.most.1),
            listed: HashMap::new(),
            timers: Timers::default(),
            rounds: Rounds::new(rules.probe_rate),
            asks: 0,
            learned: Learned::default(),
            signals: IndexMap::new(),
            verdicts: SyndicVerdicts::default(),
            unkept: IndexSet::new(),
            keep_is_set: false,
            chance: Chance(seed),
            rules,
        }
    }

    /// The effects of an event, and of the time that has passed until it.
    pub(super) fn step(
        &mut self,
        now: Moment,
        event: JobEvent,
        world: &dyn JobEnvironment,
    ) -> Vec<TrackerEffect> {
        let mut turn = Turn {
            now,
            world,
            effects: Vec::new(),
        };
        while let Some((at, timer)) = self.timers.due(now) {
            self.wake(at, timer, &mut turn);
        }
        match event {
            JobEvent::Begun(begun) => self.begun(begun, &mut turn),
            JobEvent::Resumed(resumed) => self.resumed(resumed, &mut turn),
            JobEvent::Left(jid) => self.left(&jid, now),
            JobEvent::NotSent(jid, minions) => self.not_sent(&jid, &minions, &mut turn),
            JobEvent::Joined(jid, minions) => {
                self.join(&jid, &minions, &mut turn);
                self.correct_reloaded(&jid, &mut turn);
            }
            JobEvent::Returned(returned) => self.returned(&returned, &mut turn),
            JobEvent::Answered(answered) => self.answered(&answered, &mut turn),
            JobEvent::SaidBelow(said) => self.said_below(said, &mut turn),
            JobEvent::Asked(asked) => self.asked(asked, &mut turn),
            JobEvent::EndOlderThan(time) => self.end_older_than(time, &mut turn),
            JobEvent::Refused(jids) => {
                for jid in jids {
                    self.keep_after(&jid, KEPT_AGAIN, now);
                }
            }
            JobEvent::KeepAll => self.keep_all(&mut turn),
            JobEvent::Tick => {}
        }
        self.set_flush(&mut turn);
        turn.effects
    }

    /// When the next timer is due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.timers.next()
    }

    /// Whether the job is remembered and does not have this minion.
    pub(super) fn lacks(&self, jid: &Jid, minion: &MinionId) -> bool {
        let job = self.jobs.get(jid);
        job.is_some_and(|job| job.entry(minion).is_none())
    }

    /// Whether this is the jid of a probe that may still be answered.
    pub(super) fn is_probe(&self, jid: &Jid) -> bool {
        self.rounds.knows(jid)
    }

    /// Whether this job sends signals to the processes of another one.
    pub(super) fn is_signal(&self, jid: &Jid) -> bool {
        self.signals.contains_key(jid)
    }

    /// Whether a minion of a job has neither returned nor been given up.
    pub(super) fn is_awaited(&self, jid: &Jid, minion: &MinionId) -> bool {
        let entry = self.jobs.get(jid).and_then(|job| job.entry(minion));
        entry.is_some_and(|entry| !entry.state().is_lost() && !entry.state().has_returned())
    }

    /// Whether an ended job that is not complete expects this minion and misses no other return.
    pub(super) fn is_completed_by(&self, jid: &Jid, minion: &MinionId) -> bool {
        let job = self.jobs.get(jid);
        job.is_some_and(|job| {
            job.state.is_incomplete_end()
                && job.entry(minion).is_some()
                && job.missing().all(|(missing, _)| missing == minion)
        })
    }

    /// Whether the job is open, or ended not long ago.
    pub(super) fn is_remembered(&self, jid: &Jid) -> bool {
        self.jobs.get(jid).is_some()
    }

    /// Whether the job is open, and the load of it, or of its last part, went to the publish port.
    pub(super) fn has_left(&self, jid: &Jid) -> bool {
        let job = self.jobs.get(jid).filter(|job| job.is_open());
        job.is_some_and(|job| job.left.is_some() && !job.part_is_under_way)
    }

    /// Whether a further part of this job is being stored.
    pub(super) fn is_part_under_way(&self, jid: &Jid) -> bool {
        self.jobs.get(jid).is_some_and(|job| job.part_is_under_way)
    }

    /// Records that a further part of this job is being stored, if the job is remembered, or that the
    /// store has refused it.
    pub(super) fn set_part_under_way(&mut self, jid: &Jid, is_under_way: bool) {
        if let Some(job) = self.jobs.get_mut(jid) {
            job.part_is_under_way = is_under_way;
        }
    }

    /// Number of open jobs.
    pub(super) fn open_count(&self) -> usize {
        self.jobs.open_count()
    }

    /// Account of an open job.
    pub(super) fn account(
        &self,
        jid: &Jid,
        now: Moment,
        world: &dyn JobEnvironment,
    ) -> Option<Account> {
        let job = self.jobs.get(jid).filter(|job| job.is_open())?;
        Some(account_of(job, now, &outdated_verdicts(job, world)))
    }

    /// The youngest open jobs, at most `most`, oldest first.
    pub(super) fn overviews(&self, most: usize) -> Vec<Overview> {
        let youngest = self.jobs.open().rev().take(most);
        let mut overviews: Vec<Overview> =
            youngest.map(|(jid, job)| Overview::of(jid, job)).collect();
        overviews.reverse();
        overviews
    }

    fn wake(&mut self, at: Moment, timer: Timer, turn: &mut Turn<'_>) {
        match timer {
            Timer::Look(jid) => self.look(at, &jid, turn),
            Timer::Again(jid) => self.send_again(jid, turn),
            Timer::Keep => {
                self.keep_is_set = false;
                self.keep_all(turn);
            }
            Timer::Progress(jid) => self.report_progress(&jid, turn),
            Timer::Flush => self.flush(turn),
            Timer::ProbeOver(probe) => self.missed(&probe, turn),
            Timer::ProbeForgotten(probe) => self.rounds.forget(&probe),
            Timer::AskLate(question, about) => self.ask_is_late(&question, &about, turn),
            Timer::AskOver(question, about) => self.ask_over(&question, &about),
            Timer::Below(jid, syndic) => self.below_is_due(jid, syndic, turn),
        }
    }

    fn begun(&mut self, begun: JobBegun, turn: &mut Turn<'_>) {
        let (jid, now) = (begun.jid.clone(), turn.now);
        let unheard = match begun.minions.is_empty() {
            true => turn.world.unreachable_syndics(),
            false => Vec::new(),
        };
        self.open(begun, self.rules.timeout, now);
        if let Some(job) = self.jobs.get_mut(&jid) {
            job.unheard = unheard;
        }
        self.keep_bound(turn);
        self.conclude(&jid, Vec::new(), turn);
    }

    fn open(&mut self, begun: JobBegun, silence: Duration, now: Moment) {
        let jid = begun.jid;
        if let Some(victims) = begun.signals {
            if self.signals.len() >= MAX_SIGNALS {
                self.signals.shift_remove_index(0);
            }
            self.signals.insert(jid.clone(), victims);
        }
        let new = || Job::new(begun.fun, begun.created, now);
        self.jobs.put(&jid, new, |job| {
            job.expect(begun.minions);
            job.expects_all &= begun.expects_all;
            job.begin(silence, now);
        });
        self.look_by(&jid, now.after(silence));
    }

    fn resumed(&mut self, resumed: Resumed, turn: &mut Turn<'_>) {
        let jid = resumed.job.jid.clone();
        // Minions that are up reconnect first; one that is probed before does not get it.
        let silence = match resumed.departure {
            Departure::Again => self.rules.timeout + RECONNECTING,
            Departure::Left | Departure::Never => self.rules.timeout.max(RECONNECTING),
        };
        self.open(resumed.job, silence, turn.now);
        let Some(job) = self.jobs.get_mut(&jid) else {
            return;
        };
        for (minion, retcode) in resumed.returned {
            if PlantedBug::ReturnsForgotten.is_planted() {
                break;
            }
            job.put(&minion, MinionState::Returned { retcode });
        }
        notes::restore(resumed.notes, job);
        job.left = (resumed.departure == Departure::Left).then_some(turn.now);
        job.may_have_left = true;
        match resumed.departure {
            Departure::Left => self.conclude(&jid, Vec::new(), turn),
            Departure::Again => {
                self.conclude(&jid, Vec::new(), turn);
                let again = turn.now.after(RECONNECTING);
                self.timers.set(again, Timer::Again(jid));
            }
            Departure::Never => {
                let missing = job.missing().map(|(minion, _)| minion.clone());
                let missing: Vec<MinionId> = missing.collect();
                self.not_sent(&jid, &missing, turn);
            }
        }
        // Minions below syndics that were refused for want of room are in the store too.
        self.keep_bound(turn);
    }

    /// Remembers a job that has ended in this state, so that a late return amends it.
    pub(super) fn reload_ended(&mut self, ended: Resumed, state: JobState, now: Moment) {
        let JobBegun {
            jid,
            fun,
            created,
            minions,
            ..
        } = ended.job;
        if self.is_remembered(&jid) {
            return;
        }
        self.jobs.put(
            &jid,
            || Job::new(fun, created, now),
            |job| {
                job.expect(minions);
                for (minion, retcode) in ended.returned {
                    job.put(&minion, MinionState::Returned { retcode });
                }
                notes::restore(ended.notes, job);
                job.left = Some(now);
                job.may_have_left = true;
                job.expects_all = false;
                job.is_reloaded = true;
            },
        );
        self.jobs.end(&jid, state);
    }

    fn send_again(&mut self, jid: Jid, turn: &mut Turn<'_>) {
        let is_wanted =
            |job: &Job| job.is_open() && job.left.is_none() && job.missing().next().is_some();
        if self.jobs.get(&jid).is_some_and(is_wanted) {
            turn.effects.push(TrackerEffect::SendAgain(jid));
        }
    }

    fn left(&mut self, jid: &Jid, now: Moment) {
        if let Some(job) = self.jobs.get_mut(jid) {
            job.left = Some(now);
            job.heard = now;
        }
    }

    fn not_sent(&mut self, jid: &Jid, minions: &[MinionId], turn: &mut Turn<'_>) {
        let Some(job) = self.jobs.get_mut(jid).filter(|job| job.is_open()) else {
            return;
        };
        let lost = match job.may_have_left {
            true => MinionState::Unknown(Reason::PerhapsNotSent),
            false => MinionState::Unreachable(Reason::NotSent),
        };
        let mut changes = Vec::new();
        for minion in minions {
            let entry = job.entry(minion);
            if entry.is_some_and(|entry| *entry.state() == MinionState::Expected) {
                changes.extend(change(job, minion, lost.clone()));
            }
        }
        self.conclude(jid, changes, turn);
    }

    /// Adds minions below a syndic to a job. An ended job is reopened, unless it is older than
    /// `OPENED_AGAIN`.
    fn join(&mut self, jid: &Jid, minions: &[MinionId], turn: &mut Turn<'_>) {
        let new = minions.iter().filter(|minion| self.lacks(jid, minion));
        let mut new: Vec<MinionId> = new.cloned().collect();
        let Some(job) = self.jobs.get(jid).filter(|_| !new.is_empty()) else {
            return;
        };
        let was_open = job.is_open();
        if job.is_reloaded && !was_open {
            return self.join_reloaded(jid, new, turn);
        }
        let room = self.jobs.room_for_leaves();
        let room = match was_open {
            _ if job.is_full => 0,
            true => room,
            false if turn.now >= job.begun.after(OPENED_AGAIN) => 0,
            false => room.saturating_sub(job.weight()),
        };
        if new.len() > room {
            let refused = Counted::LeavesRefused(new.len() - room);
            turn.effects.push(TrackerEffect::Count(refused));
            new.truncate(room);
            if let Some(job) = self.jobs.get_mut(jid) {
                job.is_full = true;
            }
        }
        if new.is_empty() {
            return;
        }
        let now = turn.now;
        self.jobs.grow(jid, |job| {
            job.expect(new);
            job.expects_all = false;
            if !was_open {
                job.heard = now;
            }
            job.settled = None;
        });
        self.look_by(jid, now.after(self.rules.timeout));
        if let Some(job) = self.jobs.get(jid).filter(|_| !was_open) {
            turn.effects.push(TrackerEffect::Keep {
                jid: jid.clone(),
                state: JobState::Open,
                notes: notes_of(job),
            });
        }
        self.progress_soon(jid, now);
    }

    /// Adds minions below a syndic to a job that was reloaded: it began too long ago to be reopened, and
    /// is complete only with their returns. One that gets too heavy is forgotten, so its state in the
    /// store stays.
    fn join_reloaded(&mut self, jid: &Jid, new: Vec<MinionId>, turn: &mut Turn<'_>) {
        let weight = self.jobs.get(jid).map_or(0, Job::weight);
        if weight + new.len() > self.rules.most.1 {
            let refused = Counted::LeavesRefused(new.len());
            turn.effects.push(TrackerEffect::Count(refused));
            self.unkept.swap_remove(jid);
            return self.jobs.forget_ended(jid);
        }
        self.jobs.grow_ended(jid, |job| {
            job.expect(new.clone());
            for minion in &new {
                job.put(minion, MinionState::lost(Reason::PerhapsNotSent));
            }
        });
        self.keep(jid, turn);
    }

    /// Corrects the state of a reloaded job whose last known return came before minions joined it.
    fn correct_reloaded(&mut self, jid: &Jid, turn: &mut Turn<'_>) {
        let is_wrong =
            |job: &Job| job.is_reloaded && job.state == JobState::Complete && !job.is_complete();
        if self.jobs.get(jid).is_some_and(is_wrong) {
            self.end(jid, JobState::Expired, turn);
        }
    }

    /// Ends the oldest jobs while the memory bound is exceeded.
    fn keep_bound(&mut self, turn: &mut Turn<'_>) {
        for oldest in self.jobs.too_many() {
            self.give_up(&oldest, turn);
        }
    }

    fn returned(&mut self, returned: &MinionReturned, turn: &mut Turn<'_>) {
        let (jid, minion) = (&returned.jid, &returned.minion);
        if returned.forwarded && self.lacks(jid, minion) {
            self.join(jid, std::slice::from_ref(minion), turn);
        }
        if returned.signalled
            && let Some(victims) = self.signals.get(jid).cloned()
        {
            for victim in self.victims(victims, jid, minion) {
                self.signalled(&victim, minion, turn);
            }
        }
        let Some(job) = self.jobs.get_mut(jid) else {
            return;
        };
        if PlantedBug::LateReturnIgnored.is_planted() && !job.is_open() {
            return;
        }
        let retcode = returned.retcode;
        let Some(before) = job.put(minion, MinionState::Returned { retcode }) else {
            return;
        };
        if let Some(entry) = job.entry_mut(minion) {
            entry.said = None;
            entry.below = None;
        }
        job.heard = turn.now;
        let changes = if before.is_lost() || !job.is_open() {
            let after = MinionState::Returned { retcode };
            vec![Change::new(job, minion, before, after)]
        } else {
            Vec::new()
        };
        if !job.asks.is_empty() {
            answer_asks(job, jid, minion, None, &mut turn.effects);
        }
        self.unlist(jid, minion);
        self.conclude(jid, changes, turn);
        self.progress_soon(jid, turn.now);
    }

    /// The open jobs of a minion whose processes `killer` signalled there.
    fn victims(&self, victims: SignalTargets, killer: &Jid, minion: &MinionId) -> Vec<Jid> {
        let SignalTargets::Job(victim) = victims else {
            let open = self.jobs.open();
            let is_its = |(jid, job): &(&Jid, &Job)| *jid != killer && job.entry(minion).is_some();
            return open.filter(is_its).map(|(jid, _)| jid.clone()).collect();
        };
        vec![victim]
    }

    /// Handles a signal that a minion sent to its process of this job: the process may be gone.
    fn signalled(&mut self, victim: &Jid, minion: &MinionId, turn: &mut Turn<'_>) {
        let Some(job) = self.jobs.get_mut(victim).filter(|job| job.is_open()) else {
            return;
        };
        let Some(entry) = job.entry_mut(minion) else {
            return;
        };
        if !entry.state().has_returned() {
            entry.was_signalled = true;
            self.ask(victim, minion, turn);
            self.keep(victim, turn);
        }
    }

    fn end_older_than(&mut self, time: i64, turn: &mut Turn<'_>) {
        let open = self.jobs.open();
        let old: Vec<Jid> = open
            .filter(|(_, job)| job.created < time)
            .map(|(jid, _)| jid.clone())
            .collect();
        for jid in old {
            self.give_up(&jid, turn);
        }
    }

    /// Ends a job that expired. One that misses no minion was only held open.
    fn give_up(&mut self, jid: &Jid, turn: &mut Turn<'_>) {
        let is_complete = self.jobs.get(jid).is_some_and(Job::is_complete);
        let state = match is_complete {
            true => JobState::Complete,
            false => JobState::Expired,
        };
        self.end(jid, state, turn);
    }

    fn report_progress(&mut self, jid: &Jid, turn: &mut Turn<'_>) {
        if let Some(job) = self.jobs.get_mut(jid) {
            job.progress_is_due = false;
            if job.is_open() {
                let overview = Overview::of(jid, job);
                turn.effects
                    .push(TrackerEffect::Report(JobNews::Progress(overview)));
            }
        }
    }

    pub(super) fn progress_soon(&mut self, jid: &Jid, now: Moment) {
        if let Some(job) = self.jobs.get_mut(jid)
            && job.is_open()
            && !job.progress_is_due
        {
            job.progress_is_due = true;
            self.timers
                .set(now.after(PROGRESS), Timer::Progress(jid.clone()));
        }
    }

    /// Announces the changes of a job, and ends it if nothing is awaited.
    pub(super) fn conclude(&mut self, jid: &Jid, changes: Vec<Change>, turn: &mut Turn<'_>) {
        let Some(job) = self.jobs.get_mut(jid) else {
            return;
        };
        let (counts, has_changed) = (*job.counts(), !changes.is_empty());
        if has_changed {
            let jid = jid.clone();
            let verdict = JobNews::Verdict { jid, changes };
            turn.effects.push(TrackerEffect::Report(verdict));
        }
        let held_until = match turn.world.is_held(jid) {
            true => turn.now.after(HELD),
            false if job.expects_all => turn.now,
            false => job.begun.after(self.rules.leaves_wait),
        };
        if job.is_open() && counts.awaited() == 0 && turn.now < held_until {
            job.settled = None;
            self.look_by(jid, held_until);
            if has_changed {
                self.keep(jid, turn);
            }
            return;
        }
        if job.is_complete() && job.state != JobState::Complete {
            return self.end(jid, JobState::Complete, turn);
        }
        if job.is_open() && counts.awaited() == 0 {
            if job.reached_nobody() {
                return self.end(jid, JobState::Expired, turn);
            }
            if job.was_killed() {
                return self.end(jid, JobState::Killed, turn);
            }
            if job.settled.is_none() {
                job.settled = Some(turn.now);
                let patience = self.rules.patience;
                self.look_by(jid, turn.now.after(patience));
            }
        } else {
            job.settled = None;
        }
        if has_changed {
            self.keep(jid, turn);
        }
    }

    pub(super) fn keep(&mut self, jid: &Jid, turn: &mut Turn<'_>) {
        self.keep_after(jid, PROGRESS_WRITE_DELAY, turn.now);
    }

    fn keep_after(&mut self, jid: &Jid, time: Duration, now: Moment) {
        if !self.is_remembered(jid) {
            return;
        }
        self.unkept.insert(jid.clone());
        if !std::mem::replace(&mut self.keep_is_set, true) {
            self.timers.set(now.after(time), Timer::Keep);
        }
    }

    fn keep_all(&mut self, turn: &mut Turn<'_>) {
        for jid in std::mem::take(&mut self.unkept) {
            if let Some(job) = self.jobs.get(&jid) {
                turn.effects.push(TrackerEffect::Keep {
                    state: job.state,
                    notes: notes_of(job),
                    jid,
                });
            }
        }
    }

    /// Ends the job in this state, or corrects the state in which it ended.
    pub(super) fn end(&mut self, jid: &Jid, state: JobState, turn: &mut Turn<'_>) {
        let Some(job) = self.jobs.get_mut(jid) else {
            return;
        };
        if job.is_open() && state == JobState::Complete {
            let (fun, took) = (job.fun.clone(), job.heard.since(job.begun));
            self.learned.learn(&fun, took);
        }
        self.asks -= std::mem::take(&mut job.asks).len();
        job.forget_what_was_said();
        job.look_at = None;
        let listed = job.missing().filter(|(_, entry)| entry.is_listed);
        let listed: Vec<MinionId> = listed.map(|(minion, _)| minion.clone()).collect();
        for minion in listed {
            self.unlist(jid, &minion);
        }
        let Some(job) = self.jobs.get(jid) else {
            return;
        };
        self.unkept.swap_remove(jid);
        turn.effects.push(TrackerEffect::Keep {
            jid: jid.clone(),
            state,
            notes: notes_of(job),
        });
        let ending = Ending::of(jid, job, state, turn.now);
        turn.effects
            .push(TrackerEffect::Report(JobNews::Finished(ending)));
        self.jobs.end(jid, state);
    }
}

/// Sets the state of a minion; gives the change if it is to be announced: given up, back, or late.
pub(super) fn change(job: &mut Job, minion: &MinionId, after: MinionState) -> Option<Change> {
    let before = job.put(minion, after.clone())?;
    let matters = before.is_lost() || after.is_lost() || !job.is_open();
    matters.then(|| Change::new(job, minion, before, after))
}

/// Gives the same answer to every client that asked about this minion.
pub(super) fn answer_asks(
    job: &mut Job,
    about: &Jid,
    minion: &MinionId,
    running: Option<&Packed>,
    effects: &mut Vec<TrackerEffect>,
) {
    for ask in &mut job.asks {
        let Some(place) = ask.pending.iter().position(|pending| pending == minion) else {
            continue;
        };
        ask.pending.swap_remove(place);
        effects.push(TrackerEffect::PendingReply {
            question: ask.question.clone(),
            about: about.clone(),
            minion: minion.clone(),
            running: running.cloned(),
        });
    }
}

/// Deterministic random numbers (SplitMix64).
pub(super) struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The time with a random change of at most a tenth.
    pub(super) fn about(&mut self, time: Duration) -> Duration {
        let thousandths = 900 + u32::try_from(self.next() % 200).unwrap_or(0);
        time / 1_000 * thousandths
    }

    #[cfg(test)]
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[cfg(test)]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

//! Simulation of a small site around the machine, with every fault: loads, probes, answers and
//! returns that are late, lost, doubled and out of order, minions that die, freeze, go away and
//! come back, syndics that report their minions late, clients that ask and kill, timers that fire
//! late, a clock of the day that jumps, and masters that die and are rebuilt from what an engine of
//! the job database holds, which is asked for nothing but what the seam has.
//!
//! Every run follows from its seed. A seed that fails is printed; `SALTERN_SEED=<number>` runs it
//! alone. After each step the invariants are checked that stand at the head of `machine`.
//!
//! Longer than 500 lines because the site, what can go wrong in it and what is checked mean nothing
//! without each other.

#[path = "../../../../src/store/tests/conformance/memory.rs"]
mod memory;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use saltern_config::load_master;
use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_requests::SignalTargets;
use saltern_sql::{ClusterOptions, open_cluster};
use saltern_stock::databases::{Kind, PASSWORD, Server};
use saltern_store::jobs::{Batch, Engine, JobState, Write, wait};
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};

use super::job::{Counts, MinionState};
use super::machine::{
    Answered, Asked, Chance, Departure, JobEnvironment, JobEvent, Machine, Resumed, Rules,
    TrackerEffect,
};
use super::moment::Moment;
use super::news::JobNews;
use super::{JobNotes, resumed};
use crate::messages::{JobBegun, MinionReturned};

/// Runs, unless `SALTERN_SIMULATION_SEEDS` is set.
const SEEDS: u64 = 5_000;

/// Steps after which a run counts as endless.
const MAX_STEPS: usize = 5_000;

const SECOND: u64 = 1_000_000;

/// Jobs of one run, at most.
const MAX_JOBS: u32 = 3;

/// Scheduled event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Publish(usize),
    Leave(usize),
    /// A load reaches a minion.
    Start(usize, usize),
    /// A minion is done with a job.
    Done(usize, usize),
    /// A return is committed.
    Return(usize, usize),
    /// A syndic reports that a minion below it has a job.
    Join(usize, usize),
    Probe(Jid, usize),
    PendingReply(Jid, usize, Vec<usize>),
    ClientAsks(usize),
    /// A minion reports that it has sent a signal to its process of a job.
    Signal(usize, usize),
    /// A minion's connection is lost or made.
    Connect(usize, bool),
    /// A minion freezes, or goes on.
    Freeze(usize, bool),
    Crash,
    /// The clock of the day jumps ahead, and maintenance looks at it.
    DayJumps,
    /// All waiting ends, though some jobs never end by themselves.
    DayEnds,
}

struct SimJob {
    minions: Vec<usize>,
    /// Minions below a syndic: not expected when the job begins.
    leaves: BTreeSet<usize>,
    created: i64,
    is_stored: bool,
    row: Row,
}

/// Row of a job as the store has to hold it.
#[derive(Clone)]
struct Row {
    state: JobState,
    has_left: bool,
    notes: Bytes,
    /// Leaves that are expected.
    joined: BTreeSet<usize>,
    returned: BTreeMap<usize, i64>,
}

#[derive(Default)]
struct SimMinion {
    is_frozen: bool,
    running: BTreeSet<usize>,
    /// Jids that it had, which it does not run again (`minion_jid_queue_hwm`).
    had: BTreeSet<usize>,
    /// Messages that it missed while it was frozen, and gets then.
    waiting: Vec<Event>,
}

struct Site {
    present: Vec<Cell<bool>>,
    ids: Vec<MinionId>,
    minted: Cell<u32>,
}

impl JobEnvironment for Site {
    fn absence(&self, minion: &MinionId) -> Option<Arc<str>> {
        let place = self.ids.iter().position(|id| id == minion)?;
        (!self.present[place].get()).then(|| "no connection".into())
    }

    fn mint(&self) -> Jid {
        self.minted.set(self.minted.get() + 1);
        jid(1_000_000 + self.minted.get())
    }

    fn is_asked(&self, _: &MinionId) -> bool {
        true
    }

    fn below(&self, _: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId> {
        minions
    }

    fn moved(&self, _: &MinionId, _: Vec<MinionId>) -> Vec<MinionId> {
        Vec::new()
    }

    fn unreachable_syndics(&self) -> Vec<(MinionId, Arc<str>)> {
        Vec::new()
    }

    fn is_held(&self, _: &Jid) -> bool {
        false
    }
}

fn jid(number: u32) -> Jid {
    Jid::parse(&format!("{number:020}")).unwrap()
}

struct Simulation<'a> {
    engine: &'a Engine,
    /// Changes that are committed together, at the latest when the master dies.
    unwritten: Vec<Write>,
    chance: Chance,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    queued: u64,
    site: Site,
    minions: Vec<SimMinion>,
    jobs: Vec<SimJob>,
    machine: Machine,
    rules: Rules,
    /// Minions that were reported lost, by this machine or one before it.
    reported_lost: BTreeSet<(Jid, MinionId)>,
    probes: HashMap<Jid, (u64, BTreeSet<MinionId>)>,
    last_probe: Option<u64>,
    reports_all: bool,
}

impl<'a> Simulation<'a> {
    fn new(seed: u64, engine: &'a Engine) -> Self {
        let mut chance = Chance::new(seed);
        let small = chance.below(4) == 0;
        let rules = Rules {
            timeout: Duration::from_secs(1 + chance.below(5)),
            gather: Duration::from_secs(2 + chance.below(9)),
            interval: Duration::from_secs(20),
            patience: Duration::from_secs(30),
            leaves_wait: Duration::from_secs([0, 5][usize::from(chance.below(2) == 0)]),
            probe_rate: 1 + u32::try_from(chance.below(3)).unwrap(),
            most: if small { (7, 4) } else { (1_000, 1_000) },
        };
        let count = 1 + usize::try_from(chance.below(3)).unwrap();
        let ids = (0..count).map(|n| MinionId::parse(&format!("m{n}")).unwrap());
        let mut simulation = Self {
            engine,
            // The run before has used the same jids.
            unwritten: (0..MAX_JOBS)
                .map(|number| Write::DeleteJob { jid: jid(number) })
                .collect(),
            site: Site {
                ids: ids.collect(),
                present: (0..count).map(|_| Cell::new(true)).collect(),
                minted: Cell::new(0),
            },
            minions: (0..count).map(|_| SimMinion::default()).collect(),
            machine: Machine::new(rules.clone(), seed),
            reports_all: !small,
            rules,
            chance,
            now: 0,
            queue: BinaryHeap::new(),
            queued: 0,
            jobs: Vec::new(),
            reported_lost: BTreeSet::new(),
            probes: HashMap::new(),
            last_probe: None,
        };
        simulation.plan();
        simulation
    }

    fn plan(&mut self) {
        let minions = self.minions.len();
        for number in 0..1 + self.index(3) {
            let members: Vec<usize> = (0..minions).filter(|_| self.index(4) > 0).collect();
            let has_syndic = !self.rules.leaves_wait.is_zero();
            let leaves = (0..minions).filter(|_| has_syndic && self.index(2) == 0);
            let leaves = leaves.collect();
            self.jobs.push(SimJob {
                created: i64::try_from(number).unwrap(),
                minions: if members.is_empty() { vec![0] } else { members },
                leaves,
                is_stored: false,
                row: Row {
                    state: JobState::Open,
                    has_left: false,
                    notes: Bytes::new(),
                    joined: BTreeSet::new(),
                    returned: BTreeMap::new(),
                },
            });
            self.within(40, Event::Publish(number));
            if self.index(2) == 0 {
                self.within(60, Event::ClientAsks(number));
            }
            if self.index(4) == 0 {
                let minion = self.index(minions);
                self.within(60, Event::Signal(number, minion));
            }
        }
        for minion in 0..minions {
            if self.index(4) == 0 {
                self.within(40, Event::Connect(minion, false));
            }
            if self.index(4) == 0 {
                self.within(40, Event::Freeze(minion, true));
            }
        }
        for _ in 0..self.index(3) {
            self.within(80, Event::Crash);
        }
        if self.index(8) == 0 {
            self.within(60, Event::DayJumps);
        }
        self.at(200 * SECOND, Event::DayEnds);
    }

    fn index(&mut self, below: usize) -> usize {
        usize::try_from(self.chance.below(u64::try_from(below).unwrap())).unwrap()
    }

    fn within(&mut self, seconds: u64, event: Event) {
        let time = self.chance.below(seconds * SECOND);
        self.at(self.now + time, event);
    }

    fn at(&mut self, time: u64, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse((time, self.queued, event)));
    }

    fn run(&mut self) {
        for _ in 0..MAX_STEPS {
            let event_at = self.queue.peek().map(|Reverse((at, ..))| *at);
            let due = self.machine.next_due();
            let due = due.map(|due| u64::try_from(due.since_start().as_micros()).unwrap());
            match (event_at, due) {
                (Some(at), due) if due.is_none_or(|due| at <= due) => {
                    let Some(Reverse((_, _, event))) = self.queue.pop() else {
                        return;
                    };
                    self.now = self.now.max(at);
                    self.happen(event);
                }
                (_, Some(due)) => {
                    // Timers fire late rather than early.
                    let late = [0, 0, 1_000, 3 * SECOND][self.index(4)];
                    self.now = self.now.max(due) + late;
                    self.step(JobEvent::Tick);
                }
                (_, None) => {
                    self.commit();
                    return self.check_end();
                }
            }
        }
        panic!("it does not end");
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Publish(job) => self.publish(job),
            Event::Leave(job) => self.leave(job),
            Event::Start(job, minion) => self.start(job, minion),
            Event::Done(job, minion) => {
                if self.minions[minion].running.remove(&job) {
                    for _ in 0..1 + self.index(4) / 3 {
                        self.within(15, Event::Return(job, minion));
                    }
                }
            }
            Event::Return(job, minion) => self.take_return(job, minion),
            Event::Join(job, minion) => {
                self.jobs[job].row.joined.insert(minion);
                let id = self.site.ids[minion].clone();
                self.expect(job, &id);
                self.step(JobEvent::Joined(self.jid(job), vec![id]));
            }
            Event::Probe(probe, minion) => self.probe(probe, minion),
            Event::PendingReply(probe, minion, running) => self.answer(probe, minion, &running),
            Event::ClientAsks(job) => self.client_asks(job),
            Event::Signal(job, minion) => self.signal(job, minion),
            Event::Connect(minion, is_there) => {
                self.site.present[minion].set(is_there);
                if !is_there {
                    self.within(60, Event::Connect(minion, true));
                }
            }
            Event::Freeze(minion, true) => {
                self.minions[minion].is_frozen = true;
                // Some stay so.
                if self.index(4) > 0 {
                    self.within(90, Event::Freeze(minion, false));
                }
            }
            Event::Freeze(minion, false) => {
                self.minions[minion].is_frozen = false;
                for event in std::mem::take(&mut self.minions[minion].waiting) {
                    self.within(2, event);
                }
            }
            Event::Crash => self.crash(),
            Event::DayJumps => self.step(JobEvent::EndOlderThan(2)),
            Event::DayEnds => self.step(JobEvent::EndOlderThan(i64::MAX)),
        }
    }

    fn commit(&mut self) {
        let writes = std::mem::take(&mut self.unwritten);
        wait(self.engine.log.append(Arc::new(Batch::of(writes)))).unwrap();
    }

    fn expect(&mut self, job: usize, minion: &MinionId) {
        self.unwritten.push(Write::Expected {
            jid: self.jid(job),
            minions: vec![minion.clone()],
        });
    }

    fn publish(&mut self, job: usize) {
        let begun = self.begun(job);
        self.jobs[job].is_stored = true;
        self.unwritten.push(Write::JobPart(JobRecord {
            jid: begun.jid.clone(),
            created: begun.created,
            user: "root".to_owned(),
            fun: begun.fun.to_string(),
            tgt: "*".to_owned(),
            tgt_type: "glob".to_owned(),
            load: Packed::new(&b"\x80"[..]),
            minions: begun.minions.clone(),
            nocache: false,
        }));
        self.step(JobEvent::Begun(begun));
        // It may be lost on its way to the publisher with the master.
        self.within(1, Event::Leave(job));
    }

    /// The job with those who are expected so far.
    fn begun(&self, job: usize) -> JobBegun {
        let sim = &self.jobs[job];
        let is_known = |id: &&usize| !sim.leaves.contains(*id) || sim.row.joined.contains(*id);
        let minions = sim.minions.iter().filter(is_known);
        JobBegun {
            jid: self.jid(job),
            fun: "test.ping".into(),
            created: self.jobs[job].created,
            minions: minions
                .map(|minion| self.site.ids[*minion].clone())
                .collect(),
            nocache: false,
            signals: None,
            // Wrongly, where minions below syndics join.
            expects_all: job.is_multiple_of(2),
        }
    }

    fn jid(&self, job: usize) -> Jid {
        jid(u32::try_from(job).unwrap())
    }

    fn leave(&mut self, job: usize) {
        self.step(JobEvent::Left(self.jid(job)));
        let is_recorded = self.index(8) > 0;
        self.jobs[job].row.has_left |= is_recorded;
        if is_recorded {
            let jid = self.jid(job);
            self.unwritten.push(Write::Published { jid, at: 1 });
        }
        for minion in self.jobs[job].minions.clone() {
            if self.site.present[minion].get() {
                self.within(2, Event::Start(job, minion));
                if self.jobs[job].leaves.contains(&minion) {
                    // In time, or long after.
                    let latest = [2, 90][self.index(2)];
                    self.within(latest, Event::Join(job, minion));
                }
            }
        }
    }

    fn start(&mut self, job: usize, minion: usize) {
        let known = &mut self.minions[minion];
        if known.is_frozen {
            return known.waiting.push(Event::Start(job, minion));
        }
        if known.had.insert(job) {
            known.running.insert(job);
            // Some never end by themselves.
            if self.index(10) > 0 {
                let longest = [1, 5, 60][self.index(3)];
                self.within(longest, Event::Done(job, minion));
            }
        }
    }

    fn take_return(&mut self, job: usize, minion: usize) {
        if !self.site.present[minion].get() {
            // It tries again.
            return self.within(30, Event::Return(job, minion));
        }
        let retcode = i64::try_from(minion % 2).unwrap();
        let jid = self.jid(job);
        let id = self.site.ids[minion].clone();
        let is_new = self.jobs[job]
            .row
            .returned
            .insert(minion, retcode)
            .is_none();
        let is_known = self.machine.jobs.get(&jid).is_some();
        let forwarded = self.jobs[job].leaves.contains(&minion);
        self.unwritten.push(Write::Return(ReturnRecord {
            jid: jid.clone(),
            minion: id.clone(),
            received: 1,
            fun: "test.ping".to_owned(),
            retcode,
            success: retcode == 0,
            load: Packed::new(&b"\x80"[..]),
        }));
        if forwarded && is_known {
            self.jobs[job].row.joined.insert(minion);
            self.expect(job, &id);
        }
        let effects = self.step_with(JobEvent::Returned(MinionReturned {
            jid: jid.clone(),
            minion: id.clone(),
            retcode,
            signalled: false,
            forwarded,
        }));
        let late = effects.iter().any(|effect| {
            matches!(effect, TrackerEffect::Report(JobNews::Verdict { jid: of, changes })
                if *of == jid && changes.iter().any(|c| c.minion == id && c.verdict() == "late"))
        });
        if is_new && is_known && self.reported_lost.contains(&(jid, id)) {
            assert!(late, "a late return was not announced");
        }
        assert!(is_new || !late, "a doubled return was announced");
        self.take(effects);
    }

    fn probe(&mut self, probe: Jid, minion: usize) {
        let known = &mut self.minions[minion];
        if known.is_frozen {
            return known.waiting.push(Event::Probe(probe, minion));
        }
        let running = known.running.iter().copied().collect();
        if self.index(10) > 0 {
            let longest = [1, 3, 20][self.index(3)];
            self.within(longest, Event::PendingReply(probe, minion, running));
        }
    }

    fn answer(&mut self, probe: Jid, minion: usize, running: &[usize]) {
        let running = running.iter().map(|job| {
            let description = Packed::new(&b"\x80"[..]);
            (self.jid(*job), description)
        });
        let running = running.collect();
        let minion = self.site.ids[minion].clone();
        if let Some((_, pending)) = self.probes.get_mut(&probe) {
            pending.remove(&minion);
        }
        let can_say = self.index(20) > 0;
        self.step(JobEvent::Answered(Answered {
            probe,
            minion,
            running: can_say.then_some(running),
            confirms_only: false,
        }));
    }

    fn client_asks(&mut self, job: usize) {
        let (about, minions) = (self.jid(job), self.begun(job).minions);
        if self.machine.can_answer(&about, &minions) {
            let question = self.site.mint();
            self.step(JobEvent::Asked(Asked {
                question,
                about,
                minions,
            }));
        }
    }

    fn signal(&mut self, job: usize, minion: usize) {
        let (jid, victim) = (self.site.mint(), self.jid(job));
        let id = self.site.ids[minion].clone();
        let begun = JobBegun {
            jid: jid.clone(),
            fun: "saltutil.kill_job".into(),
            created: 0,
            minions: vec![id.clone()],
            nocache: false,
            signals: Some(SignalTargets::Job(victim)),
            expects_all: false,
        };
        self.step(JobEvent::Begun(begun));
        let signalled = self.minions[minion].running.remove(&job);
        self.step(JobEvent::Returned(MinionReturned {
            jid,
            minion: id,
            retcode: 0,
            signalled,
            forwarded: false,
        }));
    }

    /// The master dies and comes back with what its store holds.
    fn crash(&mut self) {
        // Messages between its actors are lost.
        self.queue
            .retain(|Reverse((_, _, event))| !matches!(event, Event::Leave(_) | Event::Probe(..)));
        let before = std::mem::replace(
            &mut self.machine,
            Machine::new(self.rules.clone(), self.now),
        );
        // Writes that were queued are lost.
        self.reported_lost
            .retain(|(jid, _)| !before.unkept.contains(jid));
        self.probes.clear();
        self.last_probe = None;
        self.commit();
        let open = self.engine.queries.open_jobs().unwrap();
        let is_open = |job: &&SimJob| job.is_stored && job.row.state == JobState::Open;
        assert_eq!(open.len(), self.jobs.iter().filter(is_open).count());
        for open in open {
            let job: usize = open.job.record.jid.as_str().parse().unwrap();
            let unpublished = match self.index(2) == 0 {
                true => Departure::Again,
                false => Departure::Never,
            };
            let resumed = resumed(open, unpublished);
            self.check_stored(job, &resumed);
            let departure = resumed.departure;
            self.step(JobEvent::Resumed(resumed));
            self.check_resumed(job, departure, &before);
        }
    }

    /// Compares what the engine holds of an open job with what was written.
    fn check_stored(&self, job: usize, resumed: &Resumed) {
        let row = &self.jobs[job].row;
        assert_eq!(row.state, JobState::Open);
        let named = |place: usize| self.site.ids[place].clone();
        let returned = row.returned.iter();
        let returned: Vec<_> = returned.map(|(id, code)| (named(*id), *code)).collect();
        assert_eq!(resumed.returned, returned);
        let mut expected = self.begun(job).minions;
        expected.sort_unstable();
        assert_eq!(resumed.job.minions, expected);
        assert_eq!(resumed.notes.pack(), JobNotes::unpack(&row.notes).pack());
    }

    /// Invariant 8.
    fn check_resumed(&self, job: usize, departure: Departure, before: &Machine) {
        let jid = self.jid(job);
        if before.unkept.contains(&jid) {
            return;
        }
        let (Some(before), Some(after)) = (before.jobs.get(&jid), self.machine.jobs.get(&jid))
        else {
            return;
        };
        for (minion, entry) in before.entries() {
            let resumed = after.entry(minion).unwrap();
            if !entry.state().has_returned() {
                assert_eq!(entry.was_signalled, resumed.was_signalled);
            }
            match entry.state() {
                state if state.is_lost() || state.has_returned() => {
                    assert_eq!(state, resumed.state());
                }
                _ if departure == Departure::Never => assert!(resumed.state().is_lost()),
                _ => assert_eq!(*resumed.state(), MinionState::Expected),
            }
        }
    }

    fn step(&mut self, event: JobEvent) {
        let effects = self.step_with(event);
        self.take(effects);
    }

    fn step_with(&mut self, event: JobEvent) -> Vec<TrackerEffect> {
        let now = Moment::at(Duration::from_micros(self.now));
        self.machine.step(now, event, &self.site)
    }

    fn take(&mut self, effects: Vec<TrackerEffect>) {
        for effect in effects {
            self.take_one(effect);
        }
        self.check();
    }

    fn take_one(&mut self, effect: TrackerEffect) {
        match effect {
            TrackerEffect::Keep { jid, state, notes } => {
                let number: usize = jid.as_str().parse().unwrap();
                if let Some(job) = self.jobs.get_mut(number) {
                    job.row.state = state;
                    job.row.notes = notes.pack();
                    self.unwritten.push(Write::JobState {
                        jid,
                        state,
                        at: 1,
                        notes: Some(notes.pack()),
                    });
                }
            }
            TrackerEffect::Report(news) => self.hear(news),
            TrackerEffect::Probe { probe, minions } => self.send_probe(&probe, &minions),
            TrackerEffect::SendAgain(jid) => {
                let job = jid.as_str().parse().unwrap();
                self.within(1, Event::Leave(job));
            }
            TrackerEffect::PendingReply {
                minion, running, ..
            } => assert!(
                self.site.ids.contains(&minion) && running.is_none_or(|r| !r.bytes().is_empty())
            ),
            TrackerEffect::Count(_) => {}
        }
    }

    fn hear(&mut self, news: JobNews) {
        match news {
            JobNews::Verdict { jid, changes } => {
                for change in changes {
                    let key = (jid.clone(), change.minion.clone());
                    if change.after.is_lost() {
                        self.reported_lost.insert(key);
                    } else if change.before.is_lost() {
                        self.reported_lost.remove(&key);
                    }
                }
            }
            JobNews::Finished(ending) => {
                let number: usize = ending.jid.as_str().parse().unwrap();
                let Some(job) = self.jobs.get(number) else {
                    return;
                };
                let expected = self.begun(number).minions.len();
                let count = ending.returned.len() + ending.missing.len();
                // Where there is little room, not all minions below syndics are awaited.
                assert!(count == expected || !self.reports_all && count < expected);
                let is_complete = ending.state == JobState::Complete;
                assert_eq!(is_complete, ending.missing.is_empty());
                let returned = job.row.returned.len();
                let listed = ending.returned.len();
                assert!(listed == returned || !self.reports_all && listed < returned);
            }
            JobNews::Progress(_) | JobNews::State(_) | JobNews::Below { .. } => {}
        }
    }

    /// Invariant 5.
    fn send_probe(&mut self, probe: &Jid, minions: &[MinionId]) {
        let spacing = SECOND / u64::from(self.rules.probe_rate);
        let last = self.last_probe.replace(self.now);
        assert!(
            last.is_none_or(|last| self.now - last >= spacing),
            "too many probes"
        );
        let gather = u64::try_from(self.rules.gather.as_micros()).unwrap();
        for minion in minions {
            let twice = self
                .probes
                .values()
                .any(|(sent, pending)| self.now < sent + gather && pending.contains(minion));
            assert!(!twice, "{minion} is asked twice");
            let place = self.site.ids.iter().position(|id| id == minion).unwrap();
            if self.site.present[place].get() && self.index(10) > 0 {
                self.within(2, Event::Probe(probe.clone(), place));
            }
        }
        let pending = minions.iter().cloned().collect();
        self.probes.insert(probe.clone(), (self.now, pending));
    }

    fn check(&self) {
        let mut listed = 0;
        for (number, sim) in self.jobs.iter().enumerate() {
            let jid = self.jid(number);
            let Some(job) = self.machine.jobs.get(&jid) else {
                continue;
            };
            let mut recount = Counts::default();
            for (minion, entry) in job.entries() {
                recount.count(entry.state(), true);
                let place = self.site.ids.iter().position(|id| id == minion).unwrap();
                // Invariants 1 and 2.
                match (sim.row.returned.get(&place), entry.state()) {
                    (Some(code), MinionState::Returned { retcode }) => assert_eq!(code, retcode),
                    (None, state) => assert!(!state.has_returned()),
                    (Some(_), state) => panic!("{minion} has returned and is {state:?}"),
                }
                // Invariant 7.
                assert!(entry.said.is_none() || job.is_open() && !entry.state().has_returned());
                if entry.is_listed {
                    // Invariant 6.
                    assert!(job.is_open() && !entry.state().has_returned());
                    assert!(self.machine.listed[minion].contains(&jid));
                    listed += 1;
                }
            }
            assert_eq!(recount, *job.counts());
            // Invariants 3 and 4.
            let all_returned = recount.returned() == recount.total();
            let now = Moment::at(Duration::from_micros(self.now));
            let may_grow = job.is_open() && now < job.begun.after(self.rules.leaves_wait);
            assert!(may_grow || (job.state == JobState::Complete) == all_returned);
            assert!(
                !job.is_open() || job.look_at.is_some(),
                "{jid} has no timer"
            );
            assert_eq!(job.state, sim.row.state);
        }
        let of_jobs = self.machine.listed.values().flatten();
        let of_jobs = of_jobs.filter(|jid| jid.as_str() < jid_limit().as_str());
        assert_eq!(of_jobs.count(), listed);
        self.check_bounds();
    }

    /// Invariant 7.
    fn check_bounds(&self) {
        let (open, ended) = self.machine.jobs.weights();
        // The youngest ended job is remembered whatever its weight.
        let is_bounded = ended <= self.rules.most.1 || self.machine.jobs.ended_count() == 1;
        assert!(open <= self.rules.most.0 && is_bounded);
        let open_jobs = self.machine.jobs.open();
        let (mut weight, mut asks) = (0, 0);
        for (_, job) in open_jobs {
            weight += job.weight();
            asks += job.asks.len();
        }
        assert_eq!((weight, asks), (open, self.machine.asks));
        assert!(self.machine.timers.len() < 500, "timers pile up");
    }

    /// At the end: no event is scheduled, and no timer is set.
    fn check_end(&self) {
        assert_eq!(self.machine.jobs.open_count(), 0);
        assert!(self.machine.listed.is_empty() && self.machine.rounds.in_flight() == 0);
        for (number, job) in self.jobs.iter().enumerate() {
            assert!(job.row.state != JobState::Open, "job {number} has no end");
            let expected = self.begun(number).minions.len();
            let all_returned = job.row.returned.len() == expected;
            // A job that was evicted cannot be amended.
            if self.reports_all && self.machine.jobs.get(&self.jid(number)).is_some() {
                assert_eq!(job.row.state == JobState::Complete, all_returned);
            }
            let queries = &self.engine.queries;
            let stored = queries.load(&self.jid(number)).unwrap().unwrap();
            assert_eq!(stored.state, job.row.state);
            let returned = queries.returned_minions(&self.jid(number)).unwrap();
            assert_eq!(returned.len(), job.row.returned.len());
        }
    }
}

fn jid_limit() -> Jid {
    jid(1_000_000)
}

/// A SQLite database, in memory where there is such a directory: the disk is not what is tested.
fn sqlite() -> (tempfile::TempDir, Engine) {
    let memory = std::path::Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
    let dir = dir.unwrap();
    let opened = JobDatabase::open(&dir.path().join("jobs"), DatabaseLimits::default());
    (dir, opened.and_then(JobDatabase::into_engine).unwrap())
}

#[test]
fn simulated_faults_keep_the_invariants_and_end_every_job() {
    simulate(sqlite, 10);
}

#[test]
fn simulated_faults_keep_the_invariants_over_an_engine_in_memory() {
    simulate(|| ((), memory::Memory::default().process()), 1);
}

#[test]
fn simulated_faults_keep_the_invariants_over_postgresql() {
    // Short, because the path of a socket must fit into 107 bytes.
    let dir = tempfile::Builder::new().prefix("sql-").tempdir_in("/tmp");
    let dir = dir.unwrap();
    let server = Server::start(Kind::Postgres, &dir.path().join("server"));
    let config = dir.path().join("master");
    let (host, prefix) = (server.host(), "returner.pgjsonb");
    let text = format!(
        "{prefix}.host: {host}\n{prefix}.user: salt\n{prefix}.pass: {PASSWORD}\n\
         {prefix}.db: salt\nmaster_job_cache: pgjsonb\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = load_master(&config).unwrap().config;
    let store = config.returners.sql_store("pgjsonb").unwrap();
    let clusters = AtomicU64::new(0);
    let open = || {
        let number = clusters.fetch_add(1, Ordering::Relaxed);
        let options = ClusterOptions {
            name: format!("cluster_{number}"),
            patience: Duration::from_secs(300),
            idle_limit: Duration::from_secs(300),
        };
        ((), open_cluster(store.clone(), options).unwrap())
    };
    simulate(open, 100);
}

/// Runs one of so many seeds over an engine; each thread has a database, which all of its seeds
/// share. What an engine costs decides how many.
fn simulate<T>(open: impl Fn() -> (T, Engine) + Sync, one_of: u64) {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    if let Some(seed) = given("SALTERN_SEED") {
        let (_dir, engine) = open();
        return Simulation::new(seed, &engine).run();
    }
    let seeds = given("SALTERN_SIMULATION_SEEDS").unwrap_or(SEEDS) / one_of;
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let (_dir, engine) = open();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let run = std::panic::AssertUnwindSafe(|| Simulation::new(seed, &engine).run());
                    let ran = std::panic::catch_unwind(run);
                    assert!(ran.is_ok(), "run it alone with SALTERN_SEED={seed}");
                }
            });
        }
    });
}

//! Tracks each open job: which minions were expected, which run it, which returned, which are lost
//! and why. Decides when minions are probed, and announces on the bus what becomes of jobs.
//!
//! This is the shell; the rules are in `machine`, a pure function of events and time. Here events
//! are passed to it and its effects are carried out: written, fired, published. What is accepted
//! goes to the store before any reply is sent. Returns count once the store has confirmed them, so
//! a failed commit leaves nothing behind here. A restart resumes the open jobs from the store and
//! the notes beside them.
//!
//! Longer than 500 lines because each message has its handler here, nearly all of them a few lines.

mod account;
mod deps;
mod job;
mod jobs;
mod known;
mod learned;
mod machine;
mod metrics;
mod moment;
mod news;
mod notes;
mod questions;
mod quota;
mod rounds;
mod syndic_replay;
mod syndic_verdicts;
mod traces;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Recipient, ResponseActFuture, SpawnHandle};
use bytes::Bytes;
use indexmap::IndexMap;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::planted_bug::PlantedBug;
use saltern_model::control::Account;
use saltern_model::{Event, Jid, MinionId, ReturnRecord};
use saltern_requests::{JobRelation, ProbeAnswer, ReceivedReturn, StartJob, SyndicMinions, probe};
use saltern_store::StoreError;
use saltern_store::jobs::{JobNotes, JobQueries, JobState, OpenJob, Write};
use saltern_supervise::Child;
use saltern_wire::msgpack::{Limits, MapView, RawValue};
use tokio::time::Instant;

use self::deps::{LiveEnvironment, find_job_return};
use self::known::KnownJobs;
use self::machine::{
    Answered, Asked, Departure, JobEvent, KEPT_AGAIN, Machine, Resumed, TrackerEffect,
};
use self::moment::Moment;
use self::news::JobNews;
use self::quota::{LookupSource, ReportQuota};
use self::syndic_replay::SyndicReplay;
use self::traces::JobTraces;
use crate::events::batch_feed::BatchFeed;
use crate::jobs::job_completions::JobCompletions;
use crate::messages::{
    AwaitedMinions, BeginJob, Beginning, CloseOlderThan, Departed, Explain, ExplainTo, Fire,
    FollowUp, Greet, JobBegun, JobDeparture, MinionReturned, Persist, Publish, Stored, TakeAnswer,
    TakeReturn, TakeSyndicMinions, TakeVerdicts,
};
use crate::shared::answer::PendingReply;
use crate::shared::send::{Outbox, SendsThroughOutbox};

pub(crate) use self::deps::TrackerDeps;
pub(crate) use self::metrics::TrackerMetrics;
pub(crate) use self::quota::QuotaLimits;

/// Seed of a tracker.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) store: Recipient<Persist>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) publisher: Recipient<Publish>,
    pub(crate) reader: Arc<dyn JobQueries>,
    /// Notified of the returns of batches.
    pub(crate) batches: Arc<BatchFeed>,
    /// Notified of the ends of followed jobs.
    pub(crate) ends: Arc<JobCompletions>,
    pub(crate) deps: Arc<dyn TrackerDeps>,
    pub(crate) report_quota: QuotaLimits,
    pub(crate) metrics: TrackerMetrics,
}

/// Job states per transaction.
const KEPT_AT_ONCE: usize = 1_000;

/// Maximum age of a job that is sent again after a restart because it may never have left. Its
/// client may still be waiting, and minions that had it remember it.
const SENT_AGAIN_WITHIN: Duration = Duration::from_secs(60);

/// Delay after which departures are written alone, without a commit to join.
const DEPARTURES_WRITTEN: Duration = Duration::from_millis(100);

/// Youngest open jobs whose state a new subscriber gets.
const MAX_STATES: usize = 256;

/// Refused reports are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Actor that tracks open jobs.
pub(crate) struct JobTracker {
    seed: Seed,
    outbox: Outbox,
    machine: Machine,
    known: KnownJobs,
    /// Jids of which the store has no ended job that a return may complete.
    not_reloadable: KnownJobs,
    quota: ReportQuota,
    /// Throttle of the log of refused reports.
    over_quota: LogThrottle,
    traces: JobTraces,
    started: Instant,
    /// Departures of jobs, to be written.
    departures: Vec<JobDeparture>,
    /// Departures that the store refused, to be written again: of open jobs, each once.
    refused_departures: IndexMap<Jid, i64>,
    /// Replay for listeners that connect soon after the start.
    syndic_replay: Option<SyndicReplay>,
    /// When the machine is to be woken.
    wake: Option<(Moment, SpawnHandle)>,
}

impl Child for JobTracker {
    type Seed = Seed;

    const NAME: &'static str = "job_tracker";
    const MAILBOX: usize = 4096;

    fn build(seed: &Seed) -> Self {
        let micros = seed.deps.micros();
        Self {
            machine: Machine::new(seed.deps.rules(), micros.unsigned_abs()),
            seed: seed.clone(),
            outbox: Outbox::default(),
            known: KnownJobs::default(),
            not_reloadable: KnownJobs::default(),
            quota: ReportQuota::new(seed.report_quota),
            over_quota: LogThrottle::new(LOG_INTERVAL),
            traces: JobTraces::default(),
            started: Instant::now(),
            departures: Vec::new(),
            refused_departures: IndexMap::new(),
            syndic_replay: SyndicReplay::at_start(&*seed.reader, &*seed.deps),
            wake: None,
        }
    }

    fn drain(&mut self, context: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        self.step(JobEvent::KeepAll, context);
        self.take_refused_departures();
        self.write_departures(context);
        None
    }
}

impl Actor for JobTracker {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        // Batches resumes them later; until then their jobs must not end.
        match self.seed.reader.open_batches() {
            Ok(batches) => batches
                .iter()
                .for_each(|batch| self.seed.batches.follow(&batch.jid)),
            Err(error) => tracing::error!(%error, "open batches cannot be read"),
        }
        match self.seed.reader.open_jobs() {
            Ok(jobs) => self.take_up(jobs, context),
            Err(error) => tracing::error!(%error, "open jobs cannot be taken up"),
        }
    }
}

impl SendsThroughOutbox for JobTracker {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

/// Result of the look-up of an ended job that a return may complete.
enum EndedJob {
    /// It is there, and ended in this state.
    Found(Box<Resumed>, JobState),
    /// It is there and does not expect this minion.
    NotExpecting,
    /// There is none, or one that is too heavy to be remembered.
    None,
}

/// An open job as the store holds it; `unpublished` is what becomes of a load that never left.
fn resumed(open: OpenJob, unpublished: Departure) -> Resumed {
    let OpenJob { job, returned } = open;
    let record = job.record;
    let departure = match job.published {
        Some(_) => Departure::Left,
        // A return proves that the load had left.
        None if !returned.is_empty() => Departure::Left,
        None => unpublished,
    };
    let notes = job.notes.map(|notes| JobNotes::unpack(&notes));
    Resumed {
        job: JobBegun {
            jid: record.jid,
            fun: record.fun.into(),
            created: record.created,
            minions: record.minions,
            nocache: record.nocache,
            signals: None,
            // Not in the store.
            expects_all: false,
        },
        departure,
        returned,
        notes: notes.unwrap_or_default(),
    }
}

impl JobTracker {
    fn take_up(&mut self, jobs: Vec<OpenJob>, context: &mut Context<Self>) {
        let now = self.seed.deps.micros();
        let youngest = now - i64::try_from(SENT_AGAIN_WITHIN.as_micros()).unwrap_or(0);
        if PlantedBug::OpenJobsForgotten.is_planted() {
            return;
        }
        for open in jobs {
            self.known.learn(&open.job.record.jid);
            let unpublished = match open.job.record.created >= youngest {
                true => Departure::Again,
                false => Departure::Never,
            };
            self.step(JobEvent::Resumed(resumed(open, unpublished)), context);
        }
        // Most of them have no effects.
        self.count_open();
    }

    /// Passes an event to the machine and carries out its effects.
    fn step(&mut self, event: JobEvent, context: &mut Context<Self>) {
        let now = self.now();
        let around = environment(&self.seed);
        let effects = self.machine.step(now, event, &around);
        if !effects.is_empty() {
            self.carry_out(effects, context);
        }
        self.set_wake(now, context);
    }

    fn now(&self) -> Moment {
        if PlantedBug::DeadlinesByTimeOfDay.is_planted() {
            let micros = u64::try_from(self.seed.deps.micros());
            return Moment::at(Duration::from_micros(micros.unwrap_or_default()));
        }
        Moment::at(self.started.elapsed())
    }

    fn set_wake(&mut self, now: Moment, context: &mut Context<Self>) {
        let Some(due) = self.machine.next_due() else {
            return;
        };
        if self.wake.as_ref().is_some_and(|(set, _)| *set <= due) {
            return;
        }
        if let Some((_, earlier)) = self.wake.take() {
            context.cancel_future(earlier);
        }
        // A little late rather than a little early.
        let wait = due.since(now) + Duration::from_millis(1);
        let handle = context.run_later(wait, |tracker, context| {
            tracker.wake = None;
            tracker.step(JobEvent::Tick, context);
        });
        self.wake = Some((due, handle));
    }

    fn carry_out(&mut self, effects: Vec<TrackerEffect>, context: &mut Context<Self>) {
        let (mut keeps, mut events) = (Vec::new(), Vec::new());
        let at = self.seed.deps.micros();
        let stamp = self.seed.deps.stamp();
        for effect in effects {
            self.seed.metrics.count(&effect);
            match effect {
                TrackerEffect::Keep { jid, state, notes } => keeps.push((jid, state, notes.pack())),
                TrackerEffect::Report(news) => {
                    if let JobNews::Finished(ending) = &news {
                        self.seed.ends.notify(&ending.jid);
                        self.traces.end(&ending.jid);
                    }
                    events.push(self.news_event(&news, &stamp));
                }
                TrackerEffect::Probe { probe, minions } => self.send_probe(probe, minions, context),
                TrackerEffect::PendingReply {
                    question,
                    about,
                    minion,
                    running,
                } => {
                    let running = running.as_ref();
                    events.push(find_job_return(&question, &about, &minion, running, &stamp));
                }
                TrackerEffect::SendAgain(jid) => self.send_again(&jid, context),
                TrackerEffect::Count(_) => {}
            }
        }
        for part in keeps.chunks(KEPT_AT_ONCE) {
            self.write_states(part, at, context);
        }
        if !events.is_empty() {
            self.outbox.push(context, &self.seed.bus, Fire(events));
        }
        self.count_open();
    }

    fn write_states(
        &mut self,
        keeps: &[(Jid, JobState, Bytes)],
        at: i64,
        context: &mut Context<Self>,
    ) {
        let writes = keeps.iter().map(|(jid, state, notes)| {
            let write = Write::JobState {
                jid: jid.clone(),
                state: *state,
                at,
                notes: Some(notes.clone()),
            };
            (write, FollowUp::ReportFailure(jid.clone()))
        });
        self.persist(writes.collect(), None, context);
    }

    fn news_event(&self, news: &JobNews, stamp: &str) -> Event {
        if let JobNews::Finished(ending) = news
            && ending.state == JobState::Expired
        {
            let missing = ending.missing.len();
            tracing::info!(jid = %ending.jid, missing, "a job has expired: its missing returns are no longer awaited");
        }
        news.event(stamp)
    }

    fn count_open(&self) {
        let open = i64::try_from(self.machine.open_count()).unwrap_or(i64::MAX);
        self.seed.metrics.open.set(open);
    }

    fn send_probe(&mut self, probe: Jid, minions: Vec<MinionId>, context: &mut Context<Self>) {
        let publish = Publish {
            publication: self.seed.deps.probe(&probe, minions),
            jid: probe,
            is_job: false,
            minions: Vec::new(),
        };
        self.outbox.push(context, &self.seed.publisher, publish);
    }

    fn send_again(&mut self, jid: &Jid, context: &mut Context<Self>) {
        let stored = self.seed.reader.load(jid);
        let job =
            stored.inspect_err(|error| tracing::error!(%jid, %error, "a job is not sent again"));
        // A load that cannot be read is not reported: its minions are probed.
        let Some(job) = job.ok().flatten() else {
            return;
        };
        let again = self.seed.deps.again(&job.record);
        let minions = job.record.minions;
        let Some(publication) = again else {
            // Reported like a load that cannot be sent: by a message, because a step is under way.
            context.notify(Departed {
                jid: jid.clone(),
                minions,
                has_left: false,
            });
            return;
        };
        tracing::info!(%jid, "a job that may never have left is sent again");
        let publish = Publish {
            jid: jid.clone(),
            is_job: true,
            minions,
            publication,
        };
        self.outbox.push(context, &self.seed.publisher, publish);
    }

    /// Sends writes to the store, with the departures that wait.
    fn persist(
        &mut self,
        mut writes: Vec<(Write, FollowUp)>,
        answer: Option<PendingReply>,
        context: &mut Context<Self>,
    ) {
        if !self.departures.is_empty() {
            // In front: a further part of a job has not left because an earlier one has.
            let departures = self.departures.drain(..);
            let departures = departures.map(|departure| {
                let write = Write::Published {
                    jid: departure.jid.clone(),
                    at: departure.at,
                };
                (write, FollowUp::ReportLostDeparture(departure))
            });
            writes.splice(..0, departures);
        }
        let persist = Persist { writes, answer };
        self.outbox.push(context, &self.seed.store, persist);
    }

    fn write_departures(&mut self, context: &mut Context<Self>) {
        if !self.departures.is_empty() {
            self.persist(Vec::new(), None, context);
        }
    }

    /// Remembers departures that the store refused. Of jobs that are over they need not be known.
    fn departures_refused(&mut self, lost: Vec<JobDeparture>, context: &mut Context<Self>) {
        let was_empty = self.refused_departures.is_empty();
        for JobDeparture { jid, at } in lost {
            if self.machine.has_left(&jid) {
                self.refused_departures.entry(jid).or_insert(at);
            }
        }
        if was_empty && !self.refused_departures.is_empty() {
            context.run_later(KEPT_AGAIN, |tracker, context| {
                tracker.take_refused_departures();
                tracker.write_departures(context);
            });
        }
    }

    /// Puts the refused departures among those to be written, but of jobs that are over or of which a
    /// further part has begun meanwhile: that one has not left because an earlier one has.
    fn take_refused_departures(&mut self) {
        let refused = std::mem::take(&mut self.refused_departures).into_iter();
        let left = refused.filter(|(jid, _)| self.machine.has_left(jid));
        self.departures
            .extend(left.map(|(jid, at)| JobDeparture { jid, at }));
    }

    fn begin(&mut self, start: StartJob, answer: PendingReply, context: &mut Context<Self>) {
        let StartJob {
            job,
            announce,
            publication,
            about,
            expects_all,
            publisher,
            audit,
        } = start;
        if let Some(JobRelation::Running(about)) = &about
            && self.machine.can_answer(about, &job.minions)
        {
            self.outbox.push(context, &self.seed.bus, Fire(announce));
            self.outbox.then(context, move || answer.done());
            self.seed.metrics.polls.inc();
            let asked = Asked {
                question: job.jid,
                about: about.clone(),
                minions: job.minions,
            };
            return self.step(JobEvent::Asked(asked), context);
        }
        let signals = match about {
            Some(JobRelation::Signal(victims)) => Some(victims),
            Some(JobRelation::Running(_)) | None => None,
        };
        self.traces.begin(&job.jid, publication.trace.as_ref());
        let begun = Beginning {
            job: JobBegun {
                jid: job.jid.clone(),
                fun: job.fun.as_str().into(),
                created: job.created,
                minions: job.minions.clone(),
                nocache: job.nocache,
                signals,
                expects_all,
            },
            announce,
            load: job.load.clone(),
            publication,
        };
        let (jid, part) = (job.jid.clone(), job.jid.clone());
        let (is_waited_for, created) = (!job.nocache, job.created);
        // Always as a part: 3008 publishes every part of a batch under one jid, and the earlier
        // ones may have been before a restart.
        let begin = FollowUp::Begin(Box::new(begun));
        let mut writes = vec![(Write::JobPart(job), begin)];
        if let Some(row) = audit {
            // In the transaction of its job: there is none without its row.
            writes.push((Write::Audit(row), FollowUp::Nothing));
        }
        if let Some(minion) = publisher {
            let jid = jid.clone();
            let write = Write::PublishedFor { jid, minion };
            writes.push((write, FollowUp::Nothing));
        }
        if !is_waited_for {
            let write = Write::JobState {
                jid,
                state: JobState::Complete,
                at: created,
                notes: None,
            };
            writes.push((write, FollowUp::Nothing));
        }
        self.persist(writes, Some(answer), context);
        // What is refused from now on is about an earlier part.
        self.refused_departures.swap_remove(&part);
        self.not_reloadable.forget(&part);
        self.machine.set_part_under_way(&part, true);
    }

    fn keep(
        &mut self,
        returned: ReceivedReturn,
        answer: PendingReply,
        context: &mut Context<Self>,
    ) {
        if !self.has_room_for(&returned) {
            self.seed.metrics.over_quota.inc();
            // Not acknowledged: its minion retries, and gives up in the end.
            return answer.failed();
        }
        let event = self.event_of(&returned);
        let ReceivedReturn {
            record,
            job,
            reporter,
            standalone,
            forwarded,
            events,
            ..
        } = returned;
        let jid = &record.jid;
        if !standalone {
            let minion = reporter.clone().filter(|_| !forwarded);
            let of_job = || LookupSource::Job(jid.clone());
            self.reload_ended(&record, minion.map_or_else(of_job, LookupSource::Minion));
        }
        // A job that comes with its return is closed: no client waits for it. If one does, it is
        // open.
        let is_there = self.known.contains(jid) || self.machine.is_remembered(jid);
        let mut writes = Vec::new();
        if standalone || !is_there {
            let write = Write::ClosedJob { job, reporter };
            writes.push((write, FollowUp::Nothing));
        }
        if forwarded && self.machine.lacks(jid, &record.minion) {
            let write = Write::Expected {
                jid: jid.clone(),
                minions: vec![record.minion.clone()],
            };
            writes.push((write, FollowUp::Nothing));
        }
        if self.machine.is_completed_by(jid, &record.minion) {
            // In the transaction of its last return: after it, nobody else looks at this job.
            let write = Write::JobState {
                jid: jid.clone(),
                state: JobState::Complete,
                at: self.seed.deps.micros(),
                notes: Some(JobNotes::default().pack()),
            };
            writes.push((write, FollowUp::Nothing));
        }
        let follow_up = FollowUp::Return {
            returned: event,
            events,
        };
        writes.push((Write::Return(record), follow_up));
        self.persist(writes, Some(answer), context);
    }

    /// Remembers the ended job of a return, if the database has one that misses it: the return may be the
    /// job's last. A master that was restarted knows only the open ones.
    fn reload_ended(&mut self, record: &ReturnRecord, source: LookupSource) {
        let jid = &record.jid;
        if self.machine.is_remembered(jid) || self.not_reloadable.contains(jid) {
            return;
        }
        let moment = self.now();
        if !self.quota.take_reload(source, moment) {
            return;
        }
        match self.find_ended(jid, &record.minion) {
            Ok(EndedJob::Found(ended, state)) => self.machine.reload_ended(*ended, state, moment),
            Ok(EndedJob::None) => self.not_reloadable.learn(jid),
            Ok(EndedJob::NotExpecting) => {}
            Err(error) => tracing::error!(%jid, %error, "the job of a return cannot be looked up"),
        }
    }

    /// Looks up an ended job that misses the return of this minion: first in one statement that reads
    /// neither the minions nor the returns into memory.
    fn find_ended(&self, jid: &Jid, minion: &MinionId) -> Result<EndedJob, StoreError> {
        let reader = &self.seed.reader;
        let most = self.machine.rules.most.1;
        match reader.incomplete(jid, minion)? {
            Some(job) if job.minions >= most => return Ok(EndedJob::None),
            Some(job) if !job.expects => return Ok(EndedJob::NotExpecting),
            Some(_) => {}
            None => return Ok(EndedJob::None),
        }
        let stored = reader.load(jid)?;
        let Some(job) = stored.filter(|job| job.state.is_incomplete_end()) else {
            return Ok(EndedJob::None);
        };
        let heads = reader.return_heads(jid)?.into_iter();
        let returned = heads.map(|head| (head.minion, head.retcode)).collect();
        let state = job.state;
        let ended = resumed(OpenJob { job, returned }, Departure::Never);
        Ok(EndedJob::Found(Box::new(ended), state))
    }

    /// Whether a job expects this return, or the quota of its minion has room for it.
    fn has_room_for(&mut self, returned: &ReceivedReturn) -> bool {
        let record = &returned.record;
        let Some(reporter) = returned.reporter.as_ref().filter(|_| !returned.forwarded) else {
            return true;
        };
        if self.machine.is_awaited(&record.jid, &record.minion) {
            return true;
        }
        let bytes = record.load.bytes().len() + returned.job.load.bytes().len();
        let now = self.seed.deps.micros();
        if self.quota.take(reporter, bytes, now) {
            return true;
        }
        let moment = self.now();
        // No look-up is spent on a return that brings its own job.
        if !returned.standalone
            && self.quota.take_lookup(reporter, moment)
            && self.was_published_for(&returned.record)
        {
            return true;
        }
        if let Some(times) = self.over_quota.record() {
            tracing::warn!(minion = %reporter, jid = %record.jid, times,
                "a return that no job expects is refused: the minion has spent its quota of the day \
                 (saltern_max_reports, saltern_max_report_bytes)");
        }
        false
    }

    /// Whether the database has the job, and the job expects this minion: one that ended long ago.
    fn was_published_for(&self, record: &ReturnRecord) -> bool {
        let reader = &self.seed.reader;
        matches!(
            reader.is_published_for(&record.jid, &record.minion),
            Ok(true)
        )
    }

    fn event_of(&self, returned: &ReceivedReturn) -> MinionReturned {
        let record = &returned.record;
        MinionReturned {
            jid: record.jid.clone(),
            minion: record.minion.clone(),
            retcode: record.retcode,
            signalled: self.machine.is_signal(&record.jid) && says_signalled(returned),
            forwarded: returned.forwarded,
        }
    }

    /// Handles a probe answer of a minion below a syndic. On its way the probe loses the mark by
    /// which answers are known (`syndic_cmd` in `salt/minion.py`), so it is known by its jid.
    fn take_forwarded_answer(&mut self, returned: &ReceivedReturn, context: &mut Context<Self>) {
        let record = &returned.record;
        let load = MapView::parse(record.load.bytes().clone(), &Limits::WIRE).ok();
        let answer = load.and_then(|load| probe::answer(&load, record.minion.clone()));
        if let Some(answer) = answer {
            self.take_answer(answer, returned.confirms_only, context);
        }
    }

    /// Whether this is an answer, through a syndic, to a probe that is forgotten: it came late, or
    /// the master has started since. The load of a probe is never stored, that of a job always is.
    fn is_stray_answer(&self, returned: &ReceivedReturn) -> bool {
        let (jid, fun) = (&returned.record.jid, &returned.record.fun);
        probe::may_answer(fun)
            && !self.known.contains(jid)
            && !self.machine.is_remembered(jid)
            && matches!(self.seed.reader.has(jid), Ok(false))
    }

    fn take_answer(
        &mut self,
        answer: ProbeAnswer,
        confirms_only: bool,
        context: &mut Context<Self>,
    ) {
        let answered = Answered {
            probe: answer.probe,
            minion: answer.minion,
            running: answer.running,
            confirms_only,
        };
        self.step(JobEvent::Answered(answered), context);
    }

    /// The return for Batches, if it is one of a batch.
    fn of_batch(&self, returned: &MinionReturned) -> Option<MinionReturned> {
        let is_followed = self.seed.batches.follows(&returned.jid);
        is_followed.then(|| returned.clone())
    }

    /// Ends a job, or a part of one, that is in the store although its client was refused: its minions
    /// are reported as not sent to. Those that have it from an earlier part are awaited as before.
    fn end_unsent(&mut self, mut job: JobBegun, context: &mut Context<Self>) {
        let jid = job.jid.clone();
        self.known.learn(&jid);
        if self.machine.is_remembered(&jid) {
            job.minions
                .retain(|minion| self.machine.lacks(&jid, minion));
            if job.minions.is_empty() {
                // The publication has opened its row: the state is written again.
                return self.step(JobEvent::Refused(vec![jid]), context);
            }
        }
        let minions = job.minions.clone();
        self.step(JobEvent::Begun(job), context);
        self.step(JobEvent::NotSent(jid, minions), context);
        self.count_open();
    }

    fn returned(&mut self, returned: MinionReturned, context: &mut Context<Self>) {
        self.traces.returned(&returned);
        self.step(JobEvent::Returned(returned), context);
    }
}

/// Whether `saltutil.signal_job` reports a process that got the signal; for all jobs, a list of
/// such reports.
fn says_signalled(returned: &ReceivedReturn) -> bool {
    let load = returned.record.load.bytes().clone();
    MapView::parse(load, &Limits::WIRE).is_ok_and(|load| {
        let Some(said) = load.get("return") else {
            return false;
        };
        let is_sent = |said: &RawValue| said.as_str().is_some_and(|s| s.starts_with("Signal "));
        let of_all = said.as_array();
        is_sent(said) || of_all.is_some_and(|of_all| of_all.iter().any(is_sent))
    })
}

impl Handler<BeginJob> for JobTracker {
    type Result = ();

    fn handle(&mut self, message: BeginJob, context: &mut Self::Context) {
        self.begin(*message.start, message.answer, context);
    }
}

impl Handler<TakeReturn> for JobTracker {
    type Result = ();

    fn handle(&mut self, message: TakeReturn, context: &mut Self::Context) {
        let TakeReturn { returned, answer } = message;
        if returned.forwarded && self.machine.is_probe(&returned.record.jid) {
            self.take_forwarded_answer(&returned, context);
            self.outbox.then(context, move || answer.done());
            return;
        }
        // One that may only confirm is nothing else, also when a job of its jid came meanwhile.
        if returned.forwarded && (returned.confirms_only || self.is_stray_answer(&returned)) {
            self.seed.metrics.strays.inc();
            self.outbox.then(context, move || answer.done());
            return;
        }
        if returned.keep {
            self.keep(*returned, answer, context);
            return;
        }
        let event = self.event_of(&returned);
        self.outbox
            .push(context, &self.seed.bus, Fire(returned.events));
        self.outbox.then(context, move || answer.done());
        let of_batch = self.of_batch(&event);
        self.returned(event, context);
        self.seed.batches.send(of_batch.into_iter().collect());
    }
}

impl Handler<TakeSyndicMinions> for JobTracker {
    type Result = ();

    fn handle(&mut self, message: TakeSyndicMinions, context: &mut Self::Context) {
        let TakeSyndicMinions { leaves, answer } = message;
        let writes = leaves.into_iter().map(|leaves| {
            let write = Write::Expected {
                jid: leaves.jid.clone(),
                minions: leaves.minions.clone(),
            };
            (write, FollowUp::Expect(leaves))
        });
        self.persist(writes.collect(), Some(answer), context);
    }
}

impl Handler<TakeAnswer> for JobTracker {
    type Result = ();

    fn handle(&mut self, TakeAnswer(answer): TakeAnswer, context: &mut Self::Context) {
        self.take_answer(answer, false, context);
    }
}

/// The rest of the master, as the machine sees it.
fn environment(seed: &Seed) -> LiveEnvironment<'_> {
    LiveEnvironment {
        deps: &*seed.deps,
        batches: &seed.batches,
    }
}

impl Handler<TakeVerdicts> for JobTracker {
    type Result = ();

    fn handle(&mut self, TakeVerdicts(verdicts): TakeVerdicts, context: &mut Self::Context) {
        for verdict in verdicts {
            self.step(JobEvent::SaidBelow(verdict), context);
        }
    }
}

impl Handler<Stored> for JobTracker {
    type Result = ();

    fn handle(&mut self, stored: Stored, context: &mut Self::Context) {
        let Stored {
            jobs,
            leaves,
            returns,
            repeated,
            refused,
            lost_departures,
            unbegun,
            unsent,
        } = stored;
        if !refused.is_empty() {
            self.step(JobEvent::Refused(refused), context);
        }
        for jid in unbegun {
            self.machine.set_part_under_way(&jid, false);
        }
        self.departures_refused(lost_departures, context);
        for job in jobs {
            self.known.learn(&job.jid);
            if !job.nocache {
                self.step(JobEvent::Begun(job), context);
                self.count_open();
            }
        }
        for SyndicMinions { jid, minions, .. } in leaves {
            self.step(JobEvent::Joined(jid, minions), context);
            self.count_open();
        }
        let mut of_batches = Vec::new();
        let metrics = &self.seed.metrics;
        metrics.duplicates.inc_by(repeated);
        metrics.returns.inc_by(returns.len() as u64 - repeated);
        for returned in returns {
            self.known.learn(&returned.jid);
            of_batches.extend(self.of_batch(&returned));
            self.returned(returned, context);
        }
        self.seed.batches.send(of_batches);
        for job in unsent {
            self.end_unsent(job, context);
        }
    }
}

impl Handler<Departed> for JobTracker {
    type Result = ();

    fn handle(&mut self, departed: Departed, context: &mut Self::Context) {
        let Departed {
            jid,
            minions,
            has_left,
        } = departed;
        if !has_left {
            return self.step(JobEvent::NotSent(jid, minions), context);
        }
        if self.departures.is_empty() {
            context.run_later(DEPARTURES_WRITTEN, Self::write_departures);
        }
        let is_of_last_part = !self.machine.is_part_under_way(&jid);
        if is_of_last_part && !PlantedBug::DepartureNotRecorded.is_planted() {
            self.departures.push(JobDeparture {
                jid: jid.clone(),
                at: self.seed.deps.micros(),
            });
        }
        self.step(JobEvent::Left(jid), context);
    }
}

impl Handler<Greet> for JobTracker {
    type Result = ();

    fn handle(&mut self, Greet(newcomer): Greet, context: &mut Self::Context) {
        let stamp = self.seed.deps.stamp();
        let states = self.machine.overviews(MAX_STATES).into_iter();
        newcomer.send(
            states
                .map(|overview| JobNews::State(overview).event(&stamp))
                .collect(),
        );
        self.syndic_replay(newcomer, context);
    }
}

impl Handler<Explain> for JobTracker {
    type Result = Option<Account>;

    fn handle(&mut self, Explain(jid): Explain, _: &mut Self::Context) -> Self::Result {
        let around = environment(&self.seed);
        self.machine.account(&jid, self.now(), &around)
    }
}

impl Handler<ExplainTo> for JobTracker {
    type Result = ();

    fn handle(&mut self, ExplainTo { jid, answer }: ExplainTo, _: &mut Self::Context) {
        // Whoever gave up waiting needs none.
        let around = environment(&self.seed);
        let _ = answer.try_send(self.machine.account(&jid, self.now(), &around));
    }
}

impl Handler<AwaitedMinions> for JobTracker {
    type Result = Vec<MinionId>;

    fn handle(&mut self, question: AwaitedMinions, _: &mut Self::Context) -> Vec<MinionId> {
        let AwaitedMinions { jid, mut minions } = question;
        minions.retain(|minion| self.machine.is_awaited(&jid, minion));
        minions
    }
}

impl Handler<CloseOlderThan> for JobTracker {
    type Result = ();

    fn handle(&mut self, CloseOlderThan(moment): CloseOlderThan, context: &mut Self::Context) {
        self.step(JobEvent::EndOlderThan(moment), context);
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

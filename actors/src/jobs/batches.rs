//! Drives batches: sends each part of a job when a slot is free, until every minion had its turn,
//! whether or not the client still waits.
//!
//! A pure state machine for each batch (`machine`) decides what to do and when; this actor carries
//! it out. A part is published like a client's job, by way of the JobTracker, under the jid of the
//! batch. A stored part counts as sent, a stored return as done. So a restart, of the actor or of
//! the master, finds every batch where it was: no minion is forgotten. A part is sent twice only
//! when it is not known whether it left; stock's minions and ours skip a jid that they have had.
//!
//! Stock 3008's own batches are driven too: its command line leaves the state in a file and says
//! so on the bus. Those that a command line drives itself are only shown to others. The states of
//! all are kept in stock's files for `salt-run batch.*`; nothing here depends on them.
//!
//! Longer than 500 lines because each message has its handler here, nearly all of them a few lines.

mod batch;
mod ending;
mod events;
mod machine;
mod pausing;
mod shown;
mod taking_up;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Recipient};
use saltern_base::metrics::{
    IntCounter, IntCounterVec, IntGauge, Registry, counter, counter_vec, gauge,
};
use saltern_model::{Event, Jid, MinionId};
use saltern_requests::{BatchPlan, PartRefused, Services, audit, batch_part};
use saltern_store::BatchFiles;
use saltern_store::jobs::{JobQueries, Write};
use saltern_supervise::Child;
use saltern_wire::msgpack::RawValue;
use tokio::time::Instant;

use crate::events::batch_feed::BatchFeed;
use crate::messages::{
    AwaitedMinions, BatchCall, BatchCalled, BatchReturns, BeginBatch, BeginJob, Fire, FollowUp,
    Persist,
};
use crate::shared::answer::PendingReply;
use crate::shared::send::{Outbox, SendsThroughOutbox};
use batch::{Batch, Now, Phase};
use events::BatchNews;
use machine::{NOT_ACCEPTED, TIMEOUT};

/// Seed of the batches.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) begin_job: Recipient<BeginJob>,
    pub(crate) tracker: Recipient<AwaitedMinions>,
    pub(crate) store: Recipient<Persist>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) reader: Arc<dyn JobQueries>,
    pub(crate) files: BatchFiles,
    /// Until then minions reconnect after a start of the master: publications may be lost.
    pub(crate) gathered: Instant,
    /// Whether states are written for stock's tools (`local_cache_mirror`).
    pub(crate) shows_states: bool,
    pub(crate) feed: Arc<BatchFeed>,
    pub(crate) metrics: BatchMetrics,
}

/// Metrics of the batches.
#[derive(Clone)]
pub(crate) struct BatchMetrics {
    open: IntGauge,
    running: IntGauge,
    parts: IntCounter,
    finished: IntCounterVec,
}

impl BatchMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            open: gauge(
                registry,
                "saltern_batches_open",
                "Batches that the master drives.",
            ),
            running: gauge(
                registry,
                "saltern_batch_minions_running",
                "Minions that were sent their part of a batch and have not returned.",
            ),
            parts: counter(
                registry,
                "saltern_batch_parts_total",
                "Parts of batches that were stored to be published.",
            ),
            finished: counter_vec(
                registry,
                "saltern_batches_finished_total",
                "Batches that are over, by verdict.",
                &["verdict"],
            ),
        }
    }
}

/// Open batches at most. More are refused; those of stock's command line wait in their files.
const MAX_BATCHES: usize = 1_000;

/// Poll interval of the list in which stock's command line leaves its batches, in case its event
/// was lost: stock's `batch_manager_loop_interval`.
const LIST_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum interval between two writes of a state file.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// Actor that drives all open batches.
pub(crate) struct Batches {
    seed: Seed,
    outbox: Outbox,
    batches: HashMap<Jid, Batch>,
    /// Batches on the list that a command line drives.
    foreign: HashSet<Jid>,
    /// Callers that wait for the durable end of a batch; at most one for each runner thread.
    stopping: HashMap<Jid, Vec<SyncSender<bool>>>,
    origin: Instant,
}

impl Child for Batches {
    type Seed = Seed;

    const NAME: &'static str = "batches";
    const MAILBOX: usize = 1024;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
            batches: HashMap::new(),
            foreign: HashSet::new(),
            stopping: HashMap::new(),
            origin: Instant::now(),
        }
    }
}

impl Actor for Batches {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.seed.metrics.running.set(0);
        self.take_up(context);
        self.look_at_list(Sent::Perhaps, context);
        context.run_interval(LIST_INTERVAL, |batches, context| {
            batches.look_at_list(Sent::Certainly, context);
        });
        context.run_interval(SHOW_INTERVAL, |batches, _| batches.show_what_is_behind());
    }
}

impl SendsThroughOutbox for Batches {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Batches {
    fn now(&self) -> Now {
        Now {
            moment: self.origin.elapsed(),
            unix: self.seed.services.clock.unix_micros(),
        }
    }

    fn count_open(&self) {
        self.seed.metrics.open.set(self.batches.len() as i64);
    }

    fn event(&self, plan: &BatchPlan, news: &BatchNews) -> Event {
        let services = &self.seed.services;
        events::event(plan, news, services.config.salt_compat, &services.clock)
    }

    /// Stores changes together; `then` gets whether that worked.
    fn persist(
        &mut self,
        writes: Vec<(Write, FollowUp)>,
        context: &mut Context<Self>,
        then: impl FnOnce(&mut Self, bool, &mut Context<Self>) + 'static,
    ) {
        let persist = Persist {
            writes,
            answer: Some(ask(context, then)),
        };
        self.outbox.push(context, &self.seed.store, persist);
    }

    /// Takes the next step of a batch. `has_news` when something has happened to it.
    fn go_on(&mut self, jid: &Jid, has_news: bool, context: &mut Context<Self>) {
        let Some(mut batch) = self.batches.remove(jid) else {
            return;
        };
        let (mut has_news, mut is_sending) = (has_news, false);
        let now = self.now();
        if batch.phase == Phase::Running && !batch.is_asking {
            has_news |= self.hear_late_ones(&mut batch, now);
            self.ask_about_late_ones(&mut batch, now, context);
        }
        while batch.phase == Phase::Running {
            let send = batch.machine.advance(now.moment);
            if send.is_empty() {
                break;
            }
            has_news = true;
            is_sending |= self.send(&mut batch, &send, context);
        }
        if has_news {
            batch.last_progress = now.unix;
            self.show(&mut batch, now);
        }
        if has_news && !is_sending {
            self.fire_progress(&batch, context);
        }
        self.count_running(&mut batch);
        if batch.phase == Phase::Running && batch.machine.is_over() {
            self.end(&mut batch, context);
        }
        set_timer(&mut batch, now, context);
        self.batches.insert(jid.clone(), batch);
    }

    /// Looks up returns of late minions: a stored return counts, whatever became of its message.
    fn hear_late_ones(&self, batch: &mut Batch, now: Now) -> bool {
        let mut was_wrong = false;
        for minion in batch.machine.late(now.moment) {
            match self.seed.reader.return_of(&batch.plan.jid, &minion) {
                Ok(Some(stored)) => {
                    was_wrong |= batch.machine.returned(&minion, stored.retcode, now.moment);
                }
                Ok(None) => {}
                Err(error) => tracing::error!(%minion, %error, "a return cannot be looked up"),
            }
        }
        was_wrong
    }

    /// Asks the tracker before giving up late minions: they may still be running the job.
    fn ask_about_late_ones(&self, batch: &mut Batch, now: Now, context: &mut Context<Self>) {
        let late = batch.machine.late(now.moment);
        if late.is_empty() {
            return;
        }
        batch.is_asking = true;
        let jid = batch.plan.jid.clone();
        let question = self.seed.tracker.send(AwaitedMinions {
            jid: jid.clone(),
            minions: late,
        });
        let question = actix::fut::wrap_future::<_, Self>(question);
        context.spawn(question.map(move |awaited, batches, context| {
            // A tracker that does not answer knows nothing better.
            batches.hear_who_is_awaited(&jid, &awaited.unwrap_or_default(), context);
        }));
    }

    fn hear_who_is_awaited(
        &mut self,
        jid: &Jid,
        awaited: &[MinionId],
        context: &mut Context<Self>,
    ) {
        let now = self.now();
        let Some(batch) = self.batches.get_mut(jid) else {
            return;
        };
        batch.is_asking = false;
        for minion in awaited {
            batch.machine.is_awaited(minion, now.moment);
        }
        let timed_out = batch.machine.time_out(now.moment);
        let has_news = !timed_out.is_empty();
        self.give_up(jid, timed_out, TIMEOUT, context);
        self.go_on(jid, has_news, context);
    }

    /// Announces progress; as in stock, after the beginning of a part was announced.
    fn fire_progress(&mut self, batch: &Batch, context: &mut Context<Self>) {
        let news = BatchNews::progress(&batch.machine, batch.last_progress);
        let event = self.event(&batch.plan, &news);
        self.outbox.push(context, &self.seed.bus, Fire(vec![event]));
    }

    fn count_running(&self, batch: &mut Batch) {
        let active = batch.machine.counts().active as i64;
        self.seed.metrics.running.add(active - batch.counted);
        batch.counted = active;
    }

    fn give_up(
        &mut self,
        jid: &Jid,
        minions: Vec<MinionId>,
        reason: &'static str,
        context: &mut Context<Self>,
    ) {
        if minions.is_empty() {
            return;
        }
        let write = Write::BatchFailed {
            jid: jid.clone(),
            minions,
            reason,
        };
        // If this is lost, a restart waits for them once more, which does no harm.
        let persist = Persist {
            writes: vec![(write, FollowUp::Nothing)],
            answer: None,
        };
        self.outbox.push(context, &self.seed.store, persist);
    }

    /// Sends minions their part; `false` when nothing is on its way to them.
    fn send(
        &mut self,
        batch: &mut Batch,
        minions: &[MinionId],
        context: &mut Context<Self>,
    ) -> bool {
        let jid = batch.plan.jid.clone();
        let part = match batch_part(&batch.plan, minions, &self.seed.services) {
            Ok(part) => part,
            Err(PartRefused::Never(reason)) => {
                tracing::error!(%jid, reason, "a batch cannot go on");
                batch.machine.halt(reason);
                return false;
            }
            Err(error @ PartRefused::NotNow) => {
                tracing::error!(%jid, %error, "a part of a batch cannot be sent now");
                let pause = batch.pause();
                self.wait(batch, pause, context);
                return false;
            }
        };
        for minion in &part.gone {
            batch.machine.drop_out(minion);
        }
        self.give_up(&jid, part.gone, NOT_ACCEPTED, context);
        let Some(start) = part.start else {
            return false;
        };
        let answer = ask(context, move |batches: &mut Self, is_stored, context| {
            if !is_stored {
                tracing::error!(%jid, "a part of a batch was not stored, so it is not sent yet");
                batches.stall(&jid, context);
            } else if let Some(mut batch) = batches.batches.remove(&jid) {
                batch.worked();
                batches.seed.metrics.parts.inc();
                batches.fire_progress(&batch, context);
                batches.batches.insert(jid, batch);
            }
        });
        let start = Box::new(start);
        self.outbox
            .push(context, &self.seed.begin_job, BeginJob { start, answer });
        true
    }
}

/// Whether parts that the store has as sent have certainly been handed to the publish port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// By this process, or before its batch was handed over.
    Certainly,
    /// The process that stored them may have ended first.
    Perhaps,
}

/// Reply to this actor itself: `then` gets whether it was done.
fn ask(
    context: &mut Context<Batches>,
    then: impl FnOnce(&mut Batches, bool, &mut Context<Batches>) + 'static,
) -> PendingReply {
    let (answer, end) = PendingReply::inside();
    let end = actix::fut::wrap_future::<_, Batches>(end);
    context.spawn(end.map(move |is_done, batches, context| then(batches, is_done, context)));
    answer
}

fn set_timer(batch: &mut Batch, now: Now, context: &mut Context<Batches>) {
    if let Some(timer) = batch.timer.take() {
        context.cancel_future(timer);
    }
    // The minions in question are due already; the tracker's answer wakes the batch.
    let may_wake = batch.phase == Phase::Running && !batch.is_asking;
    if let Some(wakes_at) = batch.machine.wakes_at().filter(|_| may_wake) {
        let jid = batch.plan.jid.clone();
        let pause = wakes_at.saturating_sub(now.moment);
        let timer = context.run_later(pause, move |batches, context| {
            batches.go_on(&jid, false, context);
        });
        batch.timer = Some(timer);
    }
}

impl Handler<BeginBatch> for Batches {
    type Result = ();

    fn handle(&mut self, BeginBatch { plan, answer }: BeginBatch, context: &mut Self::Context) {
        if self.batches.len() >= MAX_BATCHES {
            tracing::error!(most = MAX_BATCHES, "a batch was refused: too many are open");
            if let Some(row) = plan.audit {
                let row = audit::refused(*row, "too many batches are open");
                let persist = Persist::row(Box::new(row));
                self.outbox.push(context, &self.seed.store, persist);
            }
            answer.failed();
            return;
        }
        let (jid, now) = (plan.jid.clone(), self.now());
        tracing::info!(
            %jid, user = %plan.user, minions = plan.minions.len(), size = plan.size,
            "a batch begins"
        );
        let new = self.event(&plan, &BatchNews::new(&plan));
        let state = plan.pack(&Batch::new((*plan).clone()).snapshot(now));
        self.store_plan(
            *plan,
            state,
            Sent::Certainly,
            context,
            move |batches, is_stored, context| {
                if is_stored {
                    batches.set_listed(&jid, true);
                    answer.done();
                    batches
                        .outbox
                        .push(context, &batches.seed.bus, Fire(vec![new]));
                } else {
                    answer.failed();
                }
            },
        );
    }
}

impl Handler<BatchReturns> for Batches {
    type Result = ();

    fn handle(&mut self, BatchReturns(returns): BatchReturns, context: &mut Self::Context) {
        let now = self.now();
        let mut changed: Vec<Jid> = Vec::new();
        for returned in returns {
            let Some(batch) = self.batches.get_mut(&returned.jid) else {
                continue;
            };
            let machine = &mut batch.machine;
            if machine.returned(&returned.minion, returned.retcode, now.moment)
                && !changed.contains(&returned.jid)
            {
                changed.push(returned.jid);
            }
        }
        for jid in changed {
            self.go_on(&jid, true, context);
        }
    }
}

impl Handler<BatchCalled> for Batches {
    type Result = ();

    fn handle(&mut self, called: BatchCalled, context: &mut Self::Context) {
        let BatchCalled {
            jid,
            call,
            data,
            done,
        } = called;
        match call {
            BatchCall::Pause => self.pause(&jid, true, done, context),
            BatchCall::Resume => self.pause(&jid, false, done, context),
            BatchCall::Stop => {
                let reason = data.str("reason").filter(|reason| !reason.is_empty());
                let kills = data.get("kill").and_then(RawValue::as_bool) == Some(true);
                if let Some(done) = done {
                    self.stopping.entry(jid.clone()).or_default().push(done);
                }
                self.stop(&jid, reason.unwrap_or("stop"), kills, context);
            }
            BatchCall::New | BatchCall::Progress | BatchCall::Over => {
                if !self.show_foreign(&jid, call, &data) && call == BatchCall::New {
                    self.adopt(&jid, Sent::Certainly, context);
                }
            }
            BatchCall::Recover => {
                self.adopt(&jid, Sent::Certainly, context);
                self.go_on(&jid, false, context);
            }
        }
    }
}

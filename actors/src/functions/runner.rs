//! Runs the master's functions (`jobs.*` and the like) for users and minions, so that no worker
//! has to: they may take long.
//!
//! The calls wait in a [`RunQueue`] that outlives the actors; an idle runner takes the next one.
//! Functions that Python runs may take hours: they have queues and threads of their own, which
//! only wait for processes, so that they delay no native one; those of minions are fewer. The end
//! of a call is stored first and then announced. A call that is lost, because its function panics
//! or the master stops, is announced as lost: its client waits for nothing else.

use std::collections::VecDeque;
use std::sync::Arc;

use actix::dev::SendError;
use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, Recipient, ResponseActFuture, WrapFuture,
};
use parking_lot::Mutex;
use saltern_base::metrics::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, SECONDS,
    counter_vec, gauge_vec, histogram_vec,
};
use saltern_model::Event;
use saltern_requests::Run;
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::content::renderer::Look;
use crate::messages::{Fire, Persist, TakeReturn};
use crate::shared::answer::PendingReply;
use crate::shared::priority::give_way;
use crate::shared::send::{Outbox, SendsThroughOutbox};

/// Concurrent calls of users, and of minions.
pub(crate) const THREADS: u32 = 2;

/// Waiting calls at most. Users of this machine make few, more is a runaway script; minions have
/// bounds of their own before this one (`peer_calls.rs`).
pub(crate) const MAX_WAITING: usize = 256;

/// Below the workers, like the renderers.
const NICENESS: i32 = 5;

/// Metrics of calls, by kind of client.
pub(crate) struct RunMetrics {
    depth: IntGaugeVec,
    shed: IntCounterVec,
    taking: HistogramVec,
}

impl RunMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            depth: gauge_vec(
                registry,
                "saltern_runs_waiting",
                "Calls of runner functions that wait.",
                &["asker"],
            ),
            shed: counter_vec(
                registry,
                "saltern_runs_shed_total",
                "Calls of runner functions refused because too many were waiting.",
                &["asker"],
            ),
            taking: histogram_vec(
                registry,
                "saltern_run_seconds",
                "Time that a runner function takes; waiting is not in it.",
                &["asker"],
                SECONDS,
            ),
        }
    }
}

/// Waiting calls, and idle runners: there are never both for long.
#[derive(Default)]
struct WaitingCalls {
    calls: VecDeque<Run>,
    idle: Vec<Recipient<Look>>,
}

/// Bounded queue of calls for the runners.
pub(crate) struct RunQueue {
    /// The queue of functions that Python runs, if it is another one.
    python: Option<Arc<RunQueue>>,
    lines: Mutex<WaitingCalls>,
    most: usize,
    depth: IntGauge,
    shed: IntCounter,
    taking: Histogram,
}

impl RunQueue {
    /// Queue of at most `most` calls, of what Python runs or of one kind of client (`users`,
    /// `minions`, `reactor`).
    pub(crate) fn new(asker: &'static str, most: usize, metrics: &RunMetrics) -> Arc<Self> {
        Arc::new(Self::of(asker, most, metrics, None))
    }

    /// Queue of one kind of client, which passes on what Python runs.
    pub(crate) fn before(
        python: &Arc<Self>,
        asker: &'static str,
        most: usize,
        metrics: &RunMetrics,
    ) -> Arc<Self> {
        Arc::new(Self::of(asker, most, metrics, Some(python.clone())))
    }

    fn of(
        asker: &'static str,
        most: usize,
        metrics: &RunMetrics,
        python: Option<Arc<Self>>,
    ) -> Self {
        Self {
            python,
            most,
            lines: Mutex::default(),
            depth: metrics.depth.with_label_values(&[asker]),
            shed: metrics.shed.with_label_values(&[asker]),
            taking: metrics.taking.with_label_values(&[asker]),
        }
    }

    /// Adds a call, or gives it back if there is no room.
    pub(crate) fn push(&self, run: Run) -> Result<(), Run> {
        if let Some(python) = self.python.as_ref().filter(|_| run.is_python()) {
            return python.push(run);
        }
        {
            let mut lines = self.lines.lock();
            if lines.calls.len() >= self.most {
                self.shed.inc();
                return Err(run);
            }
            lines.calls.push_back(run);
            self.depth.inc();
        }
        self.wake_one();
        Ok(())
    }

    /// Notifies one idle runner. A busy one looks afterwards anyway; waking all for each call
    /// would cost more than many a call does.
    fn wake_one(&self) {
        loop {
            let Some(runner) = self.lines.lock().idle.pop() else {
                return;
            };
            match runner.try_send(Look) {
                // A full mailbox holds a later look, which sees this call too.
                Ok(()) | Err(SendError::Full(_)) => return,
                Err(SendError::Closed(_)) => {}
            }
        }
    }

    /// Whether there is room for a call at this moment.
    pub(crate) fn has_room(&self, is_python: bool) -> bool {
        match self.python.as_ref().filter(|_| is_python) {
            Some(python) => python.has_room(false),
            None => self.lines.lock().calls.len() < self.most,
        }
    }

    pub(crate) fn pop(&self) -> Option<Run> {
        let run = self.lines.lock().calls.pop_front()?;
        self.depth.dec();
        Some(run)
    }

    /// The next call; without one, this runner is registered as idle.
    fn pop_or_rest(&self, runner: Recipient<Look>) -> Option<Run> {
        let mut lines = self.lines.lock();
        let run = lines.calls.pop_front();
        if run.is_some() {
            self.depth.dec();
            // It was woken by its start, and not as an idle one.
            lines.idle.retain(|idle| *idle != runner);
        } else if !lines.idle.contains(&runner) {
            lines.idle.push(runner);
        }
        run
    }

    /// Removes a runner that has died from the idle ones; its last notification is passed to
    /// another one.
    fn leave(&self, runner: &Recipient<Look>) {
        let is_awaited = {
            let mut lines = self.lines.lock();
            lines.idle.retain(|idle| idle != runner);
            !lines.calls.is_empty()
        };
        if is_awaited {
            self.wake_one();
        }
    }
}

/// Seed of a runner.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) queue: Arc<RunQueue>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) take_return: Recipient<TakeReturn>,
    /// For rows of the audit trail.
    pub(crate) store: Recipient<Persist>,
}

/// Actor that runs functions.
pub(crate) struct Runner {
    seed: Seed,
    outbox: Outbox,
    /// Its own address, once it has started.
    me: Option<Recipient<Look>>,
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(me) = &self.me {
            self.seed.queue.leave(me);
        }
    }
}

impl Child for Runner {
    type Seed = Seed;

    const NAME: &'static str = "runner";
    const MAILBOX: usize = 4;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
            me: None,
        }
    }

    /// Waiting calls are given up.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        while let Some(run) = self.seed.queue.pop() {
            let (lost, _) = run.into_parts();
            drop(CallInFlight::new(lost, &self.seed.bus));
        }
        None
    }
}

impl Actor for Runner {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        give_way(NICENESS);
        self.me = Some(context.address().recipient());
        context.notify(Look);
    }
}

impl SendsThroughOutbox for Runner {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

/// A call whose end has not been announced; dropped, it is announced as lost.
struct CallInFlight {
    bus: Recipient<Fire>,
    lost: Option<Event>,
}

impl CallInFlight {
    fn new(lost: Event, bus: &Recipient<Fire>) -> Self {
        Self {
            bus: bus.clone(),
            lost: Some(lost),
        }
    }

    fn reported(mut self) {
        self.lost = None;
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            tracing::error!(tag = %lost.tag, "a call of a runner function was lost");
            let _ = self.bus.try_send(Fire(vec![lost]));
        }
    }
}

impl Handler<Look> for Runner {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Self::Context) {
        let me = context.address().recipient();
        let Some(mut run) = self.seed.queue.pop_or_rest(me) else {
            return;
        };
        // Before the work: whatever becomes of it, the next one is taken.
        context.notify(Look);
        if let Some(row) = run.take_audit() {
            let persist = Persist::row(row);
            self.outbox.push(context, &self.seed.store, persist);
        }
        let (lost, work) = run.into_parts();
        let under_way = CallInFlight::new(lost, &self.seed.bus);
        let began = Instant::now();
        let ran = {
            let (outbox, bus) = (&mut self.outbox, &self.seed.bus);
            work(&mut |event| outbox.push(context, bus, Fire(vec![event])))
        };
        self.seed
            .queue
            .taking
            .observe(began.elapsed().as_secs_f64());
        let Some(returned) = ran.store else {
            let end = Fire(ran.end.into_iter().collect());
            self.outbox.push(context, &self.seed.bus, end);
            under_way.reported();
            return;
        };
        let (answer, stored) = PendingReply::inside();
        let message = TakeReturn {
            returned: Box::new(returned),
            answer,
        };
        self.outbox.push(context, &self.seed.take_return, message);
        let announced = stored.into_actor(self).map(move |_, runner, context| {
            let bus = runner.seed.bus.clone();
            let end = Fire(ran.end.into_iter().collect());
            runner.outbox.push(context, &bus, end);
            under_way.reported();
        });
        context.spawn(announced);
    }
}

#[cfg(test)]
mod tests;

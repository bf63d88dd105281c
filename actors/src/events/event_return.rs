//! Returns the events of the bus through a returner (`event_return`), one actor for each returner.
//!
//! A returner may be slow, fail or hang: it costs only its own bounded queue. Events that overflow
//! it are counted and announced to the returner as a gap, where it belongs in the order. Calls are
//! made one after the other by a thread beside the actor. A batch whose call failed is counted and
//! not retried, because part of it may have been stored. One that never reached the returner waits
//! until there is a Python to run it.
//!
//! The queue and the bus subscription outlive the actor. When the master stops, this actor ends
//! last but the bus itself: the final events of all others are still returned, within the stop
//! timeout.

mod database;
mod filter;
mod python;
mod queue;
mod sql;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, Recipient,
    ResponseActFuture, SpawnHandle, WrapFuture,
};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::{
    HistogramVec, IntCounterVec, IntGaugeVec, Registry, SECONDS, counter_vec, gauge_vec,
    histogram_vec,
};
use saltern_config::{MasterConfig, ReturnerOptions};
use saltern_supervise::Child;
use saltern_wire::ipc::{PullDecoder, split_body};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::codec::Decoder as _;

use crate::events::bus::{Bus, Subscription};
use crate::messages::Fire;
pub(crate) use database::EventTable;
use filter::Filter;
pub(crate) use python::PythonReturner;
pub(crate) use queue::PackedEvent;
use queue::{Due, Queue, QueueOptions};
pub(crate) use sql::SqlReturner;

/// Frames taken from the bus at once.
const FRAMES: usize = 256;

/// Retry delay of a batch that could not be run.
const RETRY: Duration = Duration::from_secs(5);

/// Persistent problems are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Seed of an event return.
#[derive(Clone)]
pub(crate) struct Seed {
    returner: Arc<Returner>,
    bus: Recipient<Fire>,
    metrics: EventReturnMetrics,
}

/// A returner with its queue; outlives its actor.
struct Returner {
    name: String,
    sink: Box<dyn Sink>,
    filter: Filter,
    bus: Arc<Bus>,
    /// The bus subscription, until the master stops.
    subscription: Mutex<Option<Arc<Subscription>>>,
    state: Mutex<State>,
    /// Notified when a stopping master has nothing left to return.
    idle: Arc<Notify>,
    failures: LogThrottle,
    drops: LogThrottle,
}

struct State {
    queue: Queue,
    /// A call is in progress.
    in_flight: bool,
    /// Events dropped since the last gap was announced to the returner.
    missed: u64,
    /// The master is stopping.
    is_last: bool,
    /// Back-off: no call before.
    paused_until: Option<Instant>,
}

/// Metrics of all returners.
#[derive(Clone)]
pub(crate) struct EventReturnMetrics {
    events: IntCounterVec,
    waiting: IntGaugeVec,
    seconds: HistogramVec,
}

impl EventReturnMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            events: counter_vec(
                registry,
                "saltern_event_return_events_total",
                "Events for returners, by returner and what became of them: returned, failed, or \
                 dropped because too many waited.",
                &["returner", "result"],
            ),
            waiting: gauge_vec(
                registry,
                "saltern_event_return_waiting",
                "Events that wait for a returner.",
                &["returner"],
            ),
            seconds: histogram_vec(
                registry,
                "saltern_event_return_seconds",
                "Time of one call of a returner with events.",
                &["returner"],
                SECONDS,
            ),
        }
    }

    fn count(&self, returner: &str, result: &str, events: u64) {
        let counter = self.events.with_label_values(&[returner, result]);
        counter.inc_by(events);
    }
}

impl Seed {
    /// State of the returner `name`, subscribed to the bus from now on.
    pub(crate) fn new(
        name: &str,
        sink: Box<dyn Sink>,
        config: &MasterConfig,
        bus: (&Arc<Bus>, Recipient<Fire>),
        metrics: EventReturnMetrics,
    ) -> Self {
        let subscription = bus.0.subscribe();
        Self::with_options(
            name,
            sink,
            (config, &config.returners),
            (bus, subscription),
            metrics,
        )
    }

    /// The same for the history of the API: every event that is not there already, and none waits
    /// for others.
    pub(crate) fn of_all_events(
        name: &str,
        sink: Box<dyn Sink>,
        config: &MasterConfig,
        bus: (&Arc<Bus>, Recipient<Fire>),
        metrics: EventReturnMetrics,
    ) -> Self {
        let all = ReturnerOptions::default();
        let subscription = bus.0.subscribe_to_unkept();
        Self::with_options(name, sink, (config, &all), (bus, subscription), metrics)
    }

    fn with_options(
        name: &str,
        sink: Box<dyn Sink>,
        (config, options): (&MasterConfig, &ReturnerOptions),
        ((bus, fire), subscription): ((&Arc<Bus>, Recipient<Fire>), Subscription),
        metrics: EventReturnMetrics,
    ) -> Self {
        let queue = Queue::new(QueueOptions {
            together: options.queue,
            patience: options.patience,
            most: config.saltern_event_queue_length,
            most_bytes: config.saltern_subscriber_queue_size,
        });
        let returner = Returner {
            name: name.to_owned(),
            sink,
            filter: Filter::new(options),
            bus: bus.clone(),
            subscription: Mutex::new(Some(Arc::new(subscription))),
            state: Mutex::new(State {
                queue,
                in_flight: false,
                missed: 0,
                is_last: false,
                paused_until: None,
            }),
            idle: Arc::default(),
            failures: LogThrottle::new(LOG_INTERVAL),
            drops: LogThrottle::new(LOG_INTERVAL),
        };
        Self {
            returner: Arc::new(returner),
            bus: fire,
            metrics,
        }
    }
}

/// Actor that feeds one returner.
pub(crate) struct EventReturn {
    seed: Seed,
    /// Task that takes events from the bus.
    listening: Option<SpawnHandle>,
    /// Timer of the next due batch.
    timer: Option<SpawnHandle>,
}

impl Child for EventReturn {
    type Seed = Seed;

    const NAME: &'static str = "event_return";
    const MAILBOX: usize = 4;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            listening: None,
            timer: None,
        }
    }

    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        let bus = self.seed.bus.clone();
        // When this has been handled, everything that was fired before is on the bus.
        let fired = async move { bus.send(Fire(Vec::new())).await };
        let finished = fired.into_actor(self).then(|_, actor, context| {
            actor.finish(context);
            let idle = actor.seed.returner.idle.clone();
            async move { idle.notified().await }.into_actor(actor)
        });
        Some(Box::pin(finished))
    }
}

impl Actor for EventReturn {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.listen(context);
        let is_first = {
            let mut state = self.seed.returner.state.lock();
            !std::mem::replace(&mut state.in_flight, true)
        };
        if is_first {
            // Checked now, not with the first event: whether there is such a returner at all.
            self.give(Vec::new(), context);
        }
    }
}

/// A call has ended.
#[derive(Message)]
#[rtype(result = "()")]
struct Landed {
    events: u64,
    end: End,
    took: Duration,
}

/// Destination of events.
pub(crate) trait Sink: Send + Sync {
    /// Returns a batch; an empty one checks whether it could. Blocks.
    fn give(&self, batch: Vec<PackedEvent>) -> End;

    /// Starts a call on a thread.
    fn start(&self, call: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let thread = thread::Builder::new().name("event-return".to_owned());
        thread.spawn(call).map(drop)
    }
}

/// Result of a call.
pub(crate) enum End {
    /// The returner has the batch.
    Returned,
    /// It failed, or may have; why.
    Failed(String),
    /// It was not run; why, with the batch.
    NotTried(String, Vec<PackedEvent>),
}

impl Handler<Landed> for EventReturn {
    type Result = ();

    fn handle(&mut self, landed: Landed, context: &mut Self::Context) {
        let Seed {
            returner, metrics, ..
        } = &self.seed;
        let name = returner.name.as_str();
        let seconds = metrics.seconds.with_label_values(&[name]);
        seconds.observe(landed.took.as_secs_f64());
        let now = Instant::now();
        let mut state = returner.state.lock();
        state.in_flight = false;
        match landed.end {
            End::Returned => metrics.count(name, "returned", landed.events),
            End::Failed(error) => {
                metrics.count(name, "failed", landed.events);
                returner.complain(&error, landed.events);
            }
            End::NotTried(error, batch) => {
                returner.complain(&error, landed.events);
                if state.is_last {
                    metrics.count(name, "failed", landed.events);
                } else {
                    state.queue.put_back(batch, now);
                }
                state.paused_until = Some(now + RETRY);
            }
        }
        drop(state);
        self.look(context);
    }
}

impl EventReturn {
    fn listen(&mut self, context: &mut Context<Self>) {
        let Some(subscription) = self.seed.returner.subscription.lock().clone() else {
            return;
        };
        let taken = async move {
            // Under load, other actors of this thread get their turn.
            tokio::task::yield_now().await;
            subscription.take(FRAMES).await
        };
        let kept = taken.into_actor(self).map(|taken, actor, context| {
            actor.keep(taken);
            actor.look(context);
            actor.listen(context);
        });
        self.listening = Some(context.spawn(kept));
    }

    /// Queues the events that are to be returned.
    fn keep(&self, (frames, missed): (Vec<Bytes>, u64)) {
        let Seed {
            returner, metrics, ..
        } = &self.seed;
        let now = Instant::now();
        let mut state = returner.state.lock();
        let mut dropped = 0;
        for frame in frames {
            let event = opened(frame).filter(|(tag, _)| returner.filter.lets_through(tag));
            if let Some(event) = event
                && !state.push(event, &returner.bus, now)
            {
                dropped += 1;
            }
        }
        // Behind those that were taken: dropped by the bus's own queue.
        state.missed += missed;
        dropped += missed;
        if dropped > 0 {
            metrics.count(&returner.name, "dropped", dropped);
            if let Some(times) = returner.drops.record() {
                let (name, waiting) = (&returner.name, state.queue.len());
                tracing::warn!(
                    returner = name,
                    waiting,
                    dropped,
                    times,
                    "event_return: the returner is too slow; events are not returned"
                );
            }
        }
    }

    /// Starts the next call, or sets the timer for it.
    fn look(&mut self, context: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            context.cancel_future(timer);
        }
        let returner = self.seed.returner.clone();
        let mut state = returner.state.lock();
        let waiting = self
            .seed
            .metrics
            .waiting
            .with_label_values(&[&returner.name]);
        waiting.set(i64::try_from(state.queue.len()).unwrap_or(i64::MAX));
        if state.in_flight {
            return;
        }
        let now = Instant::now();
        let paused_until = state.paused_until.filter(|end| *end > now);
        if state.is_last && (state.queue.is_empty() || paused_until.is_some()) {
            // A batch that cannot be run now will not be before the end.
            let lost = state.queue.len() as u64;
            self.seed.metrics.count(&returner.name, "failed", lost);
            returner.idle.notify_one();
            return;
        }
        let due = match paused_until {
            Some(end) => Due::At(end),
            None => state.queue.due(now),
        };
        match due {
            Due::Now => {
                let batch = state.queue.take();
                state.in_flight = true;
                drop(state);
                self.give(batch, context);
            }
            Due::At(end) => {
                let later = end.saturating_duration_since(now);
                let look = |actor: &mut Self, context: &mut Context<Self>| actor.look(context);
                self.timer = Some(context.run_later(later, look));
            }
            Due::Later => {}
        }
    }

    /// Has a thread return a batch.
    fn give(&self, batch: Vec<PackedEvent>, context: &Context<Self>) {
        let returner = self.seed.returner.clone();
        let flight = Flight {
            address: context.address(),
            events: batch.len() as u64,
            began: Instant::now(),
            end: None,
        };
        let kept = Arc::new(Mutex::new(Some((flight, batch))));
        let (held, called) = (kept.clone(), returner.clone());
        let started = returner.sink.start(Box::new(move || {
            let taken = held.lock().take();
            if let Some((mut flight, batch)) = taken {
                flight.end = Some(called.sink.give(batch));
            }
        }));
        if let Err(error) = started {
            let kept = kept.lock().take();
            if let Some((mut flight, batch)) = kept {
                flight.end = Some(End::NotTried(format!("no thread: {error}"), batch));
            }
        }
    }

    /// The master stops: what is on the bus by now is the last.
    fn finish(&mut self, context: &mut Context<Self>) {
        if let Some(listening) = self.listening.take() {
            context.cancel_future(listening);
        }
        let subscription = self.seed.returner.subscription.lock().take();
        if let Some(subscription) = subscription {
            while let Some(taken) = subscription.take_now(FRAMES) {
                self.keep(taken);
            }
        }
        {
            let mut state = self.seed.returner.state.lock();
            state.is_last = true;
            state.queue.finish();
        }
        self.look(context);
    }
}

impl Returner {
    fn complain(&self, error: &str, events: u64) {
        if let Some(times) = self.failures.record() {
            let returner = self.name.as_str();
            tracing::error!(
                returner,
                error,
                events,
                times,
                "event_return: events cannot be returned"
            );
        }
    }
}

impl State {
    /// Queues an event, and before it the announcement of a gap; `false` when there is no room.
    fn push(&mut self, event: PackedEvent, bus: &Bus, now: Instant) -> bool {
        if self.missed > 0 {
            let gap = opened(bus.gap(self.missed));
            if gap.is_some_and(|gap| self.queue.push(gap, now)) {
                self.missed = 0;
            }
        }
        let is_in = self.missed == 0 && self.queue.push(event, now);
        self.missed += u64::from(!is_in);
        is_in
    }
}

/// Notifies the actor of the end of a call, also if the thread panics.
struct Flight {
    address: Addr<EventReturn>,
    events: u64,
    began: Instant,
    end: Option<End>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let end = self.end.take();
        // Bounded: one call at a time.
        self.address.do_send(Landed {
            events: self.events,
            end: end.unwrap_or_else(|| End::Failed("the call was not made".to_owned())),
            took: self.began.elapsed(),
        });
    }
}

/// The tag and the packed data of a frame of the bus.
fn opened(frame: Bytes) -> Option<PackedEvent> {
    let mut frame = BytesMut::from(frame);
    let body = PullDecoder::default().decode(&mut frame).ok()??;
    let (tag, data) = split_body(&body).ok()?;
    Some((tag.to_owned(), body.slice_ref(data)))
}

#[cfg(test)]
mod tests;

//! Actor of one outbox: sends committed returns up, in their order, at least once.
//!
//! A job that a master above published is returned to that master alone, by the outbox of that
//! master. All other returns (`salt` on this master, `salt-call`, schedules of minions) go to any
//! master that is connected, in the order of `syndic_failover`, by one outbox for all.
//!
//! The cursor moves when the master above has answered. A request without an answer is sent again,
//! after a restart too; the master above stores a return once for each jid and minion.

mod queue;
#[cfg(test)]
mod simulation;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Recipient, WrapFuture};
use parking_lot::Mutex;
use saltern_base::log_throttle::LogThrottle;
use saltern_config::SyndicFailover;
use saltern_model::Tag;
use saltern_requests::Services;
use saltern_store::StoreError;
use saltern_supervise::Child;
use saltern_wire::msgpack::Value;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::metrics::SyndicMetrics;
use super::uplink::{MAX_GATHER, SyndicIdentity, retry_timer};
use super::upper::{Upper, UpperChannel};
use crate::messages::{Fire, RowsCommitted};
pub(crate) use queue::{Batch, Dropped, Next, OutboxQueue, OutboxSettings, Recipients};

/// The longest that an outbox is not looked at, when nothing is committed.
const POLL: Duration = Duration::from_secs(5);

/// Pauses after a request that had no answer: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// Persistent problems are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Seed of an outbox.
#[derive(Clone)]
pub(crate) struct Seed {
    /// The master that the outbox is for, as a label; "any" for the one for all.
    pub(crate) name: String,
    /// Only the actor's task locks it.
    pub(crate) queue: Arc<tokio::sync::Mutex<OutboxQueue>>,
    /// The masters that it may send to.
    pub(crate) uppers: Vec<Arc<Upper>>,
    pub(crate) failover: SyndicFailover,
    pub(crate) identity: Arc<SyndicIdentity>,
    pub(crate) gather: Duration,
    /// Notified by commits and by connections.
    pub(crate) wake: Arc<Notify>,
    pub(crate) services: Arc<Services>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) metrics: SyndicMetrics,
    /// For people; outlives the actor.
    pub(crate) counts: Arc<Mutex<OutboxCounts>>,
    pub(crate) problems: Arc<LogThrottle>,
}

/// Counts since the start of this process, and what waits now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutboxCounts {
    pub(crate) acknowledged: u64,
    pub(crate) dropped: u64,
    pub(crate) lag_rows: u64,
    pub(crate) lag_seconds: u64,
}

/// Throttle of the log lines of one outbox.
pub(crate) fn problems() -> Arc<LogThrottle> {
    Arc::new(LogThrottle::new(LOG_INTERVAL))
}

/// Actor of one outbox.
pub(crate) struct SyndicOutbox {
    seed: Seed,
}

impl Child for SyndicOutbox {
    type Seed = Seed;

    const NAME: &'static str = "syndic_outbox";
    const MAILBOX: usize = 4;

    fn build(seed: &Seed) -> Self {
        Self { seed: seed.clone() }
    }
}

impl Actor for SyndicOutbox {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let seed = self.seed.clone();
        context.spawn(async move { seed.forward_for_ever().await }.into_actor(self));
    }
}

impl Handler<RowsCommitted> for SyndicOutbox {
    type Result = ();

    fn handle(&mut self, _: RowsCommitted, _: &mut Self::Context) {
        self.seed.wake.notify_one();
    }
}

/// Outcome of one attempt.
enum Attempt {
    /// There is nothing to send.
    Idle,
    /// Something was sent, or dropped.
    Moved,
    /// No master is connected.
    NotConnected,
    /// No answer, or the database cannot be read.
    Failed,
}

impl Seed {
    async fn forward_for_ever(&self) {
        let mut queue = self.queue.lock().await;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.attempt(&mut queue).await {
                Attempt::Moved => pause = FIRST_PAUSE,
                Attempt::Failed => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Attempt::Idle | Attempt::NotConnected => {
                    // Whichever comes first; both lead to the next attempt.
                    let _ = timeout(POLL, self.wake.notified()).await;
                    tokio::time::sleep(self.gather.min(MAX_GATHER)).await;
                }
            }
        }
    }

    async fn attempt(&self, queue: &mut OutboxQueue) -> Attempt {
        let now = self.services.clock.unix_micros();
        let next = queue.next(now);
        self.measure(queue, now);
        match next {
            Ok(Next::Idle) => match queue.save_if_due() {
                Ok(()) => Attempt::Idle,
                Err(error) => self.failed(&error),
            },
            Ok(Next::Dropped(dropped)) => self.report(&dropped).await,
            Ok(Next::Batch(batch)) => self.send(queue, batch).await,
            Err(error) => self.failed(&error),
        }
    }

    async fn send(&self, queue: &mut OutboxQueue, batch: Batch) -> Attempt {
        let Some((upper, channel)) = self.channel() else {
            return Attempt::NotConnected;
        };
        let (returns, config) = (batch.returns, self.identity.config());
        let load = batch.load(config.id.as_str());
        let fields = [("cmd", Value::from("_syndic_return")), ("load", load)];
        match channel.send(&fields, retry_timer(config)).await {
            Ok(Value::Nil) => {
                let counter = &self.metrics.returns;
                counter.with_label_values(&[&self.name]).inc_by(returns);
                self.counts.lock().acknowledged += returns;
                match queue.acknowledged(batch) {
                    Ok(()) => Attempt::Moved,
                    Err(error) => self.failed(&error),
                }
            }
            Ok(_) => {
                tracing::debug!(upper = upper.name(), returns, "returns were refused");
                match queue.refused(batch) {
                    Ok(Some(dropped)) => self.report(&dropped).await,
                    Ok(None) => Attempt::Failed,
                    Err(error) => self.failed(&error),
                }
            }
            Err(error) => {
                if let Some(times) = self.problems.record() {
                    let upper = upper.name();
                    tracing::info!(upper, %error, times, "returns did not go up; they are sent again");
                }
                Attempt::Failed
            }
        }
    }

    /// A connected master, in the order of `syndic_failover`.
    fn channel(&self) -> Option<(&Upper, UpperChannel)> {
        let count = self.uppers.len().max(1);
        let first = match self.failover {
            SyndicFailover::Ordered => 0,
            SyndicFailover::Random => {
                let mut random = [0; 8];
                getrandom::fill(&mut random).expect("invariant: the system has random bytes");
                u64::from_ne_bytes(random) as usize % count
            }
        };
        let uppers = self.uppers.iter().cycle().skip(first).take(count);
        let mut connected = uppers.filter_map(|upper| Some((&**upper, upper.channel()?)));
        connected.next()
    }

    fn failed(&self, error: &StoreError) -> Attempt {
        if let Some(times) = self.problems.record() {
            let outbox = self.name.as_str();
            tracing::error!(outbox, %error, times, "the outbox of the syndic cannot go on");
        }
        Attempt::Failed
    }

    /// Names what was dropped: in the log, in the metrics, and by an event.
    async fn report(&self, dropped: &Dropped) -> Attempt {
        let Dropped {
            reason,
            returns,
            jids,
        } = dropped;
        let outbox = self.name.as_str();
        let counter = &self.metrics.dropped;
        counter
            .with_label_values(&[outbox, reason])
            .inc_by(*returns);
        self.counts.lock().dropped += returns;
        let named: Vec<&str> = jids.iter().map(saltern_model::Jid::as_str).collect();
        let named = named.join(", ");
        tracing::warn!(
            outbox,
            reason,
            returns,
            jids = named,
            "returns do not go up any more"
        );
        let data = vec![
            (Value::from("master"), Value::from(outbox)),
            (Value::from("reason"), Value::from(*reason)),
            (
                Value::from("returns"),
                Value::from(i64::try_from(*returns).unwrap_or(i64::MAX)),
            ),
            (
                Value::from("jids"),
                Value::Array(jids.iter().map(|jid| jid.as_str().into()).collect()),
            ),
        ];
        let tag = Tag::parse("saltern/syndic/dropped").expect("invariant: it is a tag");
        let event = saltern_requests::event(&self.services, tag, data);
        // Without a bus there is no subscriber.
        let _ = self.bus.send(Fire(vec![event])).await;
        Attempt::Moved
    }

    fn measure(&self, queue: &OutboxQueue, now: i64) {
        let (rows, seconds) = (queue.lag(), queue.lag_seconds(now));
        let label = [self.name.as_str()];
        let set = |gauge: &prometheus::IntGaugeVec, value: u64| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            gauge.with_label_values(&label).set(value);
        };
        set(&self.metrics.lag, rows);
        set(&self.metrics.lag_seconds, seconds);
        let mut counts = self.counts.lock();
        (counts.lag_rows, counts.lag_seconds) = (rows, seconds);
    }
}

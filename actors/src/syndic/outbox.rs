//! Actor of one outbox: sends committed returns up, in their order, at least once.
//!
//! A job that a master above published is returned to that master alone, by the outbox of that
//! master. All other returns (`salt` on this master, `salt-call`, schedules of minions) go to any
//! master that is connected, in the order of `syndic_failover`, by one outbox for all.
//!
//! To a master of ours that agreed to it (`saltern_syndic_frames`), returns go in numbered frames, several of
//! them at the same time; to any other as `_syndic_return`, one request after the other.
//!
//! The cursor moves when the master above has answered, and is saved at intervals and when the actor stops. A
//! request without an answer is sent again, after a restart too; the master above stores a return once for each jid and minion.
//!
//! Longer than 500 lines: both ways by which returns go up share the queue, the pauses and what is reported.

mod backoff;
mod frames;
mod gathering;
mod queue;
mod refusals;
#[cfg(test)]
mod simulation;

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Recipient, WrapFuture};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use saltern_base::chain;
use saltern_base::log_throttle::LogThrottle;
use saltern_channel::RequestError;
use saltern_config::SyndicFailover;
use saltern_model::{Jid, Tag};
use saltern_requests::Services;
use saltern_store::StoreError;
use saltern_supervise::Child;
use saltern_wire::msgpack::Value;
use tokio::sync::{MutexGuard, Notify};
use tokio::time::{Instant, timeout, timeout_at};

use super::metrics::SyndicMetrics;
use super::uplink::{self, Connection, MAX_GATHER, SyndicIdentity, retry_timer};
use super::upper::{Upper, UpperChannel, is_too_large, request_size};
use crate::messages::{Fire, RowsCommitted};
pub(crate) use backoff::MasterBackoff;
use frames::{FrameAnswer, FrameSession, FrameWindow, SentFrame};
use gathering::Gathering;
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
    /// Number of its stream of frames.
    pub(crate) stream: i64,
    /// The masters that it may send to.
    pub(crate) uppers: Vec<Arc<Upper>>,
    pub(crate) failover: SyndicFailover,
    /// Those of them that did not take what was sent.
    pub(crate) backoff: Arc<Mutex<MasterBackoff>>,
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
    /// All own returns that were received before have gone up, or are given up; in microseconds since 1970. `None`
    /// before the first look.
    pub(crate) waits_since: Option<i64>,
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

/// The queue while its actor runs. When that stops, as in an orderly stop of the master, the cursor is saved: what
/// was stored above since it was saved last does not go up once more. What is on its way then has no answer any
/// more, and the next actor reads it again.
struct SavedOnStop<'a>(MutexGuard<'a, OutboxQueue>);

impl Deref for SavedOnStop<'_> {
    type Target = OutboxQueue;

    fn deref(&self) -> &OutboxQueue {
        &self.0
    }
}

impl DerefMut for SavedOnStop<'_> {
    fn deref_mut(&mut self) -> &mut OutboxQueue {
        &mut self.0
    }
}

impl Drop for SavedOnStop<'_> {
    fn drop(&mut self) {
        self.0.rewind();
        if let Err(error) = self.0.save_if_moved() {
            tracing::error!(%error, "the cursor of an outbox cannot be saved; some returns go up once more");
        }
    }
}

/// Jobs whose early returns are too far back, by the master above that published them.
type LostJobs = Vec<(Arc<Upper>, HashSet<Jid>)>;

/// Takes the cursor back, once for all jobs of the masters above that minions had returned before these published them.
/// After an error all of them wait for the next attempt. Gives the jobs of which it cannot reach all, by master.
fn go_back(uppers: &[Arc<Upper>], queue: &mut OutboxQueue) -> Result<LostJobs, StoreError> {
    let mut lost = Vec::new();
    for upper in uppers {
        let (upper_name, jids) = (upper.name(), upper.early.due());
        let jobs = jids.len();
        tracing::debug!(
            upper = upper_name,
            jobs,
            "jobs were returned before they were published"
        );
        let of_upper = queue.go_back_to(&jids)?;
        if let Err(error) = upper.early.went_back(&jids) {
            let upper = upper_name;
            tracing::error!(
                upper,
                error = chain(&error),
                "the next start goes back for jobs once more"
            );
        }
        if !of_upper.is_empty() {
            lost.push((upper.clone(), of_upper));
        }
    }
    Ok(lost)
}

impl Seed {
    async fn forward_for_ever(&self) {
        let mut queue = SavedOnStop(self.queue.lock().await);
        let mut session = FrameSession::default();
        let mut gathering = Gathering::new(self.gather.min(MAX_GATHER));
        let mut pause = FIRST_PAUSE;
        loop {
            match self.attempt(&mut queue, &mut session).await {
                Attempt::Moved => {
                    pause = FIRST_PAUSE;
                    gathering.moved(Instant::now());
                }
                Attempt::Failed => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Attempt::NotConnected => {
                    if let Err(error) = queue.save_if_due(self.now()) {
                        self.failed(&error);
                    }
                    self.wait_for_connection().await;
                }
                Attempt::Idle => {
                    if queue.may_rest() {
                        gathering.moved(Instant::now());
                    }
                    let save_in = queue.save_in(self.now()).unwrap_or(POLL);
                    // Whichever comes first; both lead to the next attempt.
                    let _ = timeout(save_in.min(POLL), self.wake.notified()).await;
                    // Frames gather what comes while their lanes are busy.
                    if queue.framed().is_none() || queue.may_rest() {
                        tokio::time::sleep(gathering.wait(Instant::now())).await;
                    }
                }
            }
        }
    }

    /// Waits for a connection, or until it is time to look for what is dropped by policy. Commits are no
    /// reason: all that waits up to a batch would be read anew for each of them.
    async fn wait_for_connection(&self) {
        let until = Instant::now() + POLL;
        while self.uppers.iter().all(|upper| upper.channel().is_none()) {
            if timeout_at(until, self.wake.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Whether the cursor is to be taken back.
    fn has_to_go_back(&self, queue: &OutboxQueue) -> bool {
        let mut uppers = self.uppers.iter();
        queue.is_for_one() && uppers.any(|upper| upper.early.are_due())
    }

    /// Early returns of these jobs do not go up, or some of them: they are too far back.
    fn early_returns_lost(&self, lost: &[(Arc<Upper>, HashSet<Jid>)]) {
        for (upper, jids) in lost {
            let (upper, jobs) = (upper.name(), jids.len());
            let counter = &self.metrics.early_jobs_dropped;
            counter.with_label_values(&[upper]).inc_by(jobs as u64);
            let named = jids.iter().take(queue::MAX_NAMED).map(Jid::as_str);
            let named: Vec<&str> = named.collect();
            tracing::warn!(
                upper,
                jobs,
                jids = named.join(", "),
                "returns from before the publication of these jobs are too far back to go up"
            );
        }
    }

    async fn attempt(&self, queue: &mut OutboxQueue, session: &mut FrameSession) -> Attempt {
        if self.has_to_go_back(queue) {
            match go_back(&self.uppers, queue) {
                Ok(lost) => self.early_returns_lost(&lost),
                Err(error) => return self.failed(&error),
            }
        }
        if self.uppers.iter().all(|upper| upper.stands_by()) {
            let left = queue.leave_to_another(self.now());
            self.measure(queue, self.now());
            return match left {
                Ok(()) => Attempt::NotConnected,
                Err(error) => self.failed(&error),
            };
        }
        let connected = self.channel(session.kept());
        let agreed = connected.as_ref().and_then(|(upper, channel)| {
            let is_on = self.services.config.syndic.frames;
            let agreed = channel.session().and_then(|known| known.frames.clone());
            let agreed = session.usable(upper.name(), agreed.filter(|_| is_on))?;
            Some((*upper, channel, agreed))
        });
        let bytes = agreed.as_ref().map(|(_, _, agreed)| agreed.bytes);
        if connected.is_some() && queue.framed() != bytes {
            queue.frame(bytes);
        }
        if let Some((upper, channel, agreed)) = agreed {
            session.agree(upper.name(), (channel, &agreed), self.new_session());
            if session.take_begun() {
                queue.forget_loads();
            }
            return self.send_frames(queue, session).await;
        }
        match self.next(queue) {
            Ok(Next::Idle) => match queue.save_if_due(self.now()) {
                Ok(()) => Attempt::Idle,
                Err(error) => self.failed(&error),
            },
            Ok(Next::Dropped(dropped)) => self.report(&dropped).await,
            Ok(Next::Batch(batch)) => match connected {
                Some(connected) => self.send(queue, batch, connected).await,
                None => {
                    queue.lost();
                    Attempt::NotConnected
                }
            },
            Err(error) => self.failed(&error),
        }
    }

    /// The next thing to do; measures what waits.
    fn next(&self, queue: &mut OutboxQueue) -> Result<Next, StoreError> {
        let now = self.now();
        let next = queue.next(now);
        self.measure(queue, now);
        next
    }

    /// Microseconds since 1970.
    fn now(&self) -> i64 {
        self.services.clock.unix_micros()
    }

    /// A number above that of any session before, unless the clock was set back; then the master above
    /// names the one to be above.
    fn new_session(&self) -> u64 {
        u64::try_from(self.now()).unwrap_or(0)
    }

    /// Sends frames until there is nothing more to send or one of them fails; then waits for the
    /// answers to those that are under way.
    async fn send_frames(&self, queue: &mut OutboxQueue, session: &mut FrameSession) -> Attempt {
        let (mut window, mut under_way) = (FrameWindow::default(), FuturesUnordered::new());
        let (mut failed, mut has_moved) = (None, false);
        loop {
            let goes_on = failed.is_none() && !self.has_to_go_back(queue);
            if goes_on {
                failed = self.fill(queue, session, &mut window).await;
            }
            while failed.is_none()
                && let Some(sent) = window.ready()
            {
                under_way.push(self.send_frame(session, sent));
            }
            if under_way.is_empty() {
                break;
            }
            let may_fill = goes_on && failed.is_none() && queue.has_room_for_batch();
            tokio::select! {
                Some((sent, answer)) = under_way.next() => {
                    let result = self.settle((queue, session, &mut window), &sent, answer).await;
                    has_moved |= result.is_none();
                    failed = failed.or(result);
                }
                () = self.wake.notified(), if may_fill => {}
            }
        }
        queue.rewind();
        session.go_back(&window);
        session.went(failed.is_none());
        if let Some(channel) = session.take_unknown()
            && let Err(error) = uplink::announce(&channel, &self.services, Connection::New).await
        {
            return self.lost(&error);
        }
        match failed {
            Some(failed) => failed,
            None if has_moved => Attempt::Moved,
            None => match queue.save_if_due(self.now()) {
                Ok(()) => Attempt::Idle,
                Err(error) => self.failed(&error),
            },
        }
    }

    /// Reads batches into the window, while there is room; how that fails.
    async fn fill(
        &self,
        queue: &mut OutboxQueue,
        session: &mut FrameSession,
        window: &mut FrameWindow,
    ) -> Option<Attempt> {
        while queue.has_room_for_batch() {
            match self.next(queue) {
                Ok(Next::Idle) => break,
                Ok(Next::Dropped(dropped)) => {
                    self.report(&dropped).await;
                }
                Ok(Next::Batch(batch)) => {
                    let (number, frames) = queue.sent(batch);
                    window.push(number, frames, session);
                }
                Err(error) => return Some(self.failed(&error)),
            }
        }
        None
    }

    /// Sends a frame by its lane, unless it is too large.
    fn send_frame(
        &self,
        session: &FrameSession,
        sent: SentFrame,
    ) -> impl Future<Output = (SentFrame, Result<FrameAnswer, RequestError>)> + use<> {
        let config = self.identity.config();
        let fields = session.fields(&sent, self.stream, config.id.as_str());
        let (channel, limit) = (session.channel(sent.frame.lane), retry_timer(config));
        let max_bytes = session.max_bytes();
        let is_large = !sent.frame.is_below(max_bytes) && request_size(&fields) > max_bytes;
        async move {
            let answer = match channel {
                _ if is_large => Ok(FrameAnswer::TooLarge),
                Some(channel) => {
                    let answer = channel.send(&fields, limit).await;
                    answer.map(|answer| FrameAnswer::read(&answer, &sent))
                }
                None => Err(RequestError::Timeout(Duration::ZERO)),
            };
            (sent, answer)
        }
    }

    /// Takes over the answer to a frame; how it failed, if it did.
    async fn settle(
        &self,
        (queue, session, window): (&mut OutboxQueue, &mut FrameSession, &mut FrameWindow),
        sent: &SentFrame,
        answer: Result<FrameAnswer, RequestError>,
    ) -> Option<Attempt> {
        let count = |result: &str| {
            let counter = &self.metrics.frames;
            counter.with_label_values(&[&self.name, result]).inc();
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                count("lost");
                self.backs_off(session.upper());
                return Some(self.lost(&error));
            }
        };
        count(answer.label());
        session.learn(&answer, self.new_session());
        match answer {
            FrameAnswer::Stored(returns) => {
                self.backoff.lock().stored(session.upper());
                self.stored((queue, window), sent, returns).await
            }
            FrameAnswer::NotStored => {
                self.backs_off(session.upper());
                Some(self.lost(&"the master above could not store them"))
            }
            FrameAnswer::BeginAnew(..) => Some(Attempt::Failed),
            FrameAnswer::Refused(reason) => {
                self.warn("a frame of returns was refused", &reason);
                Some(self.refused(queue, sent, "refused").await)
            }
            FrameAnswer::TooLarge => Some(self.refused(queue, sent, "size").await),
            FrameAnswer::NotSyndic(reason) => {
                self.backs_off(session.upper());
                self.warn(
                    "returns wait: the master above knows no such syndic",
                    &reason,
                );
                Some(Attempt::Failed)
            }
            FrameAnswer::NotAgreed(reason) => {
                self.warn("the master above takes no frames any more", &reason);
                Some(Attempt::Failed)
            }
        }
    }

    fn warn(&self, problem: &str, reason: &str) {
        if let Some(times) = self.problems.record() {
            let outbox = self.name.as_str();
            tracing::warn!(outbox, reason, times, "{problem}");
        }
    }

    /// A frame does not go up as it is, for this reason.
    async fn refused(
        &self,
        queue: &mut OutboxQueue,
        sent: &SentFrame,
        reason: &'static str,
    ) -> Attempt {
        let outcome = queue.frame_refused(sent.batch, reason);
        self.outcome_of_refusal(outcome, reason).await
    }

    /// A frame is stored above, with so many of its returns.
    async fn stored(
        &self,
        (queue, window): (&mut OutboxQueue, &mut FrameWindow),
        sent: &SentFrame,
        returns: u64,
    ) -> Option<Attempt> {
        self.acknowledged(returns);
        let refused = sent.frame.returns - returns;
        if refused > 0 {
            let dropped = Dropped {
                reason: "refused",
                returns: refused,
                jids: sent.jids(queue::MAX_NAMED),
            };
            self.report(&dropped).await;
        }
        if !window.stored(sent) {
            return None;
        }
        let passed = queue.stored(sent.batch, self.now());
        passed.err().map(|error| self.failed(&error))
    }

    fn acknowledged(&self, returns: u64) {
        let counter = &self.metrics.returns;
        counter.with_label_values(&[&self.name]).inc_by(returns);
        self.counts.lock().acknowledged += returns;
    }

    /// Returns did not go up, for this reason.
    fn lost(&self, error: &dyn std::fmt::Display) -> Attempt {
        if let Some(times) = self.problems.record() {
            let outbox = self.name.as_str();
            tracing::info!(outbox, %error, times, "returns did not go up; they are sent again");
        }
        Attempt::Failed
    }

    async fn send(
        &self,
        queue: &mut OutboxQueue,
        batch: Batch,
        (upper, channel): (&Upper, UpperChannel),
    ) -> Attempt {
        let (returns, config) = (batch.returns, self.identity.config());
        let load = batch.load(config.id.as_str());
        let fields = [("cmd", Value::from("_syndic_return")), ("load", load)];
        if is_too_large(&channel, &fields) {
            return self.not_taken(queue, batch, ("size", upper)).await;
        }
        match channel.send(&fields, retry_timer(config)).await {
            Ok(Value::Nil) => {
                self.acknowledged(returns);
                self.backoff.lock().stored(upper.name());
                match queue.acknowledged(batch, upper.name()) {
                    Ok(()) => Attempt::Moved,
                    Err(error) => self.failed(&error),
                }
            }
            Ok(_) => {
                tracing::debug!(upper = upper.name(), returns, "returns were refused");
                self.backs_off(upper.name());
                self.not_taken(queue, batch, ("refused", upper)).await
            }
            Err(error) => {
                queue.lost();
                self.backs_off(upper.name());
                self.lost(&error)
            }
        }
    }

    /// A batch does not go up as it is, for this reason.
    async fn not_taken(
        &self,
        queue: &mut OutboxQueue,
        batch: Batch,
        (reason, upper): (&'static str, &Upper),
    ) -> Attempt {
        let outcome = queue.refused(batch, reason, upper.name());
        self.outcome_of_refusal(outcome, reason).await
    }

    /// This master above did not take what was sent: another one that is connected has the next attempts.
    fn backs_off(&self, upper: &str) {
        self.backoff.lock().failed(upper, Instant::now());
    }

    async fn outcome_of_refusal(
        &self,
        outcome: Result<Option<Dropped>, StoreError>,
        reason: &str,
    ) -> Attempt {
        match outcome {
            Ok(Some(dropped)) => self.report(&dropped).await,
            // A smaller batch needs no pause.
            Ok(None) if reason == "size" => Attempt::Moved,
            Ok(None) => Attempt::Failed,
            Err(error) => self.failed(&error),
        }
    }

    /// A connected master, in the order of `syndic_failover`; with `random` the one that is kept, while it
    /// is connected. One that did not take what was sent is passed over, while another one is connected.
    fn channel(&self, kept: Option<&str>) -> Option<(&Upper, UpperChannel)> {
        let count = self.uppers.len().max(1);
        let now = Instant::now();
        let first = match self.failover {
            SyndicFailover::Ordered => 0,
            SyndicFailover::Random => {
                let mut random = [0; 8];
                getrandom::fill(&mut random).expect("invariant: the system has random bytes");
                u64::from_ne_bytes(random) as usize % count
            }
        };
        let is_kept = |upper: &&Arc<Upper>| {
            self.failover == SyndicFailover::Random && kept == Some(upper.name())
        };
        let uppers = self.uppers.iter().cycle().skip(first).take(count);
        let connected = self
            .uppers
            .iter()
            .filter(is_kept)
            .chain(uppers)
            .filter_map(|upper| Some((upper.name(), (&**upper, upper.channel()?))));
        self.backoff.lock().first(connected, now)
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
        let named: Vec<&str> = jids.iter().map(Jid::as_str).collect();
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
        counts.waits_since = queue.waits_since();
    }
}

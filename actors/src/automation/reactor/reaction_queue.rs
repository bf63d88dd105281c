//! Reaction queue, kept beside the actor: its rules, the waiting events, and the results of
//! reactions. It survives a panic of the actor.
//!
//! Events arrive on the bus's own thread: the compiled rules match the tag, and a match is queued
//! or counted. Nothing here renders or waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use actix::Recipient;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use saltern_automation::reactor::{self, LimitError, Order, ReactorOptions, Reading, Rules, USER};
use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_config::MasterConfig;
use saltern_model::query::{DeadLettersPage, ReactorReport, ReactorRule};
use saltern_model::{Compat, Event, Jid, Packed, Tag, stamp};
use saltern_requests::Services;
use saltern_runners::NotReplayed;
use saltern_store::{DeadLetters, StoreError};
use saltern_wire::msgpack::{Dialect, Limits, MapView, Value, pack};
use serde::Serialize;
use tokio::sync::{Notify, oneshot};

use super::dead_letter::{self, ReplayError};
use super::dropped::{Dropped, DroppedNews, Reason};
use super::event_queues::{Asker, EventQueues, InFlightEvent, Item, Kind, Taken, Why};
use super::failures::Failures;
use super::metrics::ReactorMetrics;
use super::reaction_log::ReactionLog;
use super::watch::{Subject, SubjectData};
use crate::content::renderer::Look;
use crate::events::bus::Tap;

/// Total bytes of the events and arguments of calls, besides the queue.
const MAX_HELD_BYTES: usize = 64 << 20;

/// How long whoever replays a dead letter waits for its start.
const REPLAY_WAIT: Duration = Duration::from_secs(5);

/// Why the queue cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// `saltern_reactor_limits` cannot be used.
    #[error(transparent)]
    Limits(#[from] LimitError),
    /// Dead letters cannot be kept.
    #[error(transparent)]
    DeadLetters(#[from] StoreError),
}

/// Data of `saltern/reactor/dropped`.
#[derive(Serialize)]
struct DroppedData {
    reasons: DroppedNews,
}

/// Data of `saltern/reactor/failed` and `…/lost`.
#[derive(Serialize)]
struct ReactionReport<'a> {
    /// None for failures that are not named.
    #[serde(flatten)]
    subject: Option<SubjectData<'a>>,
    reason: &'a str,
    /// How many failures this report stands for.
    times: u64,
    /// The name of the dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    letter: Option<String>,
}

/// Data of an event of the reactor's own.
#[derive(Serialize)]
struct OwnEvent<'a, T> {
    #[serde(flatten)]
    data: &'a T,
    user: &'static str,
    _stamp: String,
}

/// Queue of events to react to, with rules and results.
pub(crate) struct ReactionQueue {
    rules: RwLock<Rules>,
    /// `reactor.set_leader`: whether events lead to reactions. A reload does not change it, or two
    /// masters would react.
    is_leader: AtomicBool,
    event_queues: Mutex<EventQueues>,
    /// Notified of new events.
    reactor: Recipient<Look>,
    /// Events of the reactor's own that have not been fired yet; bounded by
    /// [`Failures`].
    news: Mutex<Vec<Event>>,
    letters: DeadLetters,
    log: ReactionLog,
    dropped: Dropped,
    /// Jobs that are not known to be stored yet.
    jobs: AtomicUsize,
    job_ended: Notify,
    /// Bytes held by calls that have not ended.
    held: AtomicUsize,
    failures: Failures,
    compat: Compat,
    clock: Clock,
    pub(super) metrics: ReactorMetrics,
}

impl ReactionQueue {
    /// The queue of a configuration; `None` where no reactor is asked for.
    ///
    /// # Errors
    /// When `saltern_reactor_limits` cannot be used, or dead letters cannot be kept.
    pub(crate) fn open(
        config: &MasterConfig,
        clock: &Clock,
        reactor: Recipient<Look>,
        registry: &Registry,
    ) -> Result<Option<Arc<Self>>, OpenError> {
        let limits = reactor::limits(config)?;
        let Some(options) = ReactorOptions::read(config) else {
            return Ok(None);
        };
        Ok(Some(Arc::new(Self {
            rules: RwLock::new(Rules::read(config)),
            is_leader: AtomicBool::new(true),
            event_queues: Mutex::new(EventQueues::new(limits, options.most_waiting)),
            reactor,
            news: Mutex::default(),
            letters: DeadLetters::open(config, clock.clone())?,
            log: ReactionLog::open(config),
            dropped: Dropped::default(),
            jobs: AtomicUsize::new(0),
            job_ended: Notify::new(),
            held: AtomicUsize::new(0),
            failures: Failures::new(),
            compat: config.salt_compat,
            clock: clock.clone(),
            metrics: ReactorMetrics::new(registry),
        })))
    }

    /// Takes the rules of a reloaded configuration; those that were added by calls are dropped, as
    /// after a restart. If their file cannot be read, the rules stay as they are.
    pub(crate) fn follow(&self, config: &MasterConfig) {
        let reading = Reading::of(config);
        self.rules.write().take(reading);
    }

    fn wake(&self) {
        // A full mailbox holds a look that is still to come, which sees this event too.
        let _ = self.reactor.try_send(Look);
    }

    /// The next event to react to. It is in progress for as long as the place lives.
    pub(super) fn pop(self: &Arc<Self>) -> Option<(Item, InFlightEvent)> {
        let (taken, count) = {
            let mut event_queues = self.event_queues.lock();
            (event_queues.pop(), event_queues.count())
        };
        self.metrics.waiting.set(count_of(count));
        let (item, line) = taken?;
        let queue = Arc::clone(self);
        Some((item, InFlightEvent { queue, line }))
    }

    /// Records that a reaction ended, and did not fail.
    pub(super) fn ended_well(&self, subject: &Subject, jid: Option<Jid>, outcome: &str) {
        self.metrics.ended(subject.kind(), outcome);
        self.log_end(subject, jid, (outcome, None));
    }

    fn log_end(&self, subject: &Subject, jid: Option<Jid>, end: (&str, Option<&str>)) {
        self.log.ended(subject, jid, end, self.clock.unix_micros());
    }

    /// The reactions of an event of this queue have ended.
    pub(super) fn ended(&self, line: usize) {
        let must_notify = self.event_queues.lock().ended(line);
        if must_notify {
            self.wake();
        }
    }

    /// The files of the rules that match this tag; the event is counted for them.
    pub(super) fn matched(&self, tag: &str) -> Vec<String> {
        let rules = self.rules.read();
        self.log
            .matched(rules.matching(tag), self.clock.unix_micros());
        rules.references(tag)
    }

    /// Executes an order; gives the event that answers it.
    pub(super) fn obey(&self, order: Order, data: &Value, services: &Services) -> Option<Event> {
        let mut rules = self.rules.write();
        reactor::answer(order, data, &mut rules, &self.is_leader, services)
    }

    /// Whether the log has something that is not in its file.
    pub(super) fn has_news_of_log(&self) -> bool {
        self.log.has_news()
    }

    /// Writes the log into its file. Blocks.
    pub(crate) fn save_log(&self) {
        self.log.save();
    }

    /// Reads a rule file again if it has changed.
    pub(super) fn refresh_rules(&self) {
        let file = self.rules.read().file();
        let Some(file) = file else {
            return;
        };
        if let Some(reading) = file.changed() {
            self.rules.write().take_of(&file, reading);
        }
    }

    /// Counts events or calls that were dropped.
    pub(super) fn dropped(&self, reason: Reason, number: u64) {
        self.dropped.count(reason, number);
        self.metrics.dropped(reason, number);
    }

    /// `saltern/reactor/dropped`, when the counts have changed.
    pub(super) fn dropped_event(&self) -> Option<Event> {
        let news = self.dropped.news()?;
        tracing::warn!(dropped = ?news, "the reactor dropped events");
        Some(self.event("dropped", &DroppedData { reasons: news }))
    }

    /// Counts a job that is being stored, for as long as this lives.
    pub(super) fn begin_job(self: &Arc<Self>) -> JobBegun {
        self.jobs.fetch_add(1, Ordering::SeqCst);
        JobBegun(Arc::clone(self))
    }

    /// Reserves bytes for a call until it ends; `None` if there is no room. The only call always
    /// has room.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let more = |held: usize| {
            let sum = held.checked_add(bytes)?;
            (held == 0 || sum <= MAX_HELD_BYTES).then_some(sum)
        };
        let held = self
            .held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        held.ok().map(|_| Held {
            queue: Arc::clone(self),
            bytes,
        })
    }

    /// Resolves when no job is being stored.
    pub(super) async fn jobs_ended(&self) {
        loop {
            let ended = self.job_ended.notified();
            if self.jobs.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Accepts no more events. What waits is dropped, counted, and announced with the last event.
    pub(super) fn close(&self) {
        let waiting = self.event_queues.lock().close();
        self.metrics.waiting.set(0);
        if waiting > 0 {
            self.dropped(Reason::Stop, u64::try_from(waiting).unwrap_or(u64::MAX));
            tracing::warn!(
                events = waiting,
                "the reactor stops; waiting events are dropped"
            );
        }
        let dropped = self.dropped_event();
        self.news.lock().extend(dropped);
    }

    /// Reports the failure of a reaction, or of a whole file.
    pub(super) fn failed(&self, subject: &Subject, reason: String) {
        self.failed_as(subject, None, reason);
    }

    /// Reports the failure of a reaction that has a jid.
    pub(super) fn failed_as(&self, subject: &Subject, jid: Option<Jid>, reason: String) {
        self.metrics.ended(subject.kind(), "failed");
        self.log_end(subject, jid, ("failed", Some(&reason)));
        if let Some(times) = self.failures.record() {
            self.report("failed", subject, reason, times);
        }
    }

    /// Reports the loss of a reaction, or of a whole event: it is not known how far it came.
    pub(super) fn lost(&self, subject: &Subject) {
        self.metrics.ended(subject.kind(), "lost");
        let reason = "it was lost on the way, and was not tried again".to_owned();
        self.log_end(subject, None, ("lost", Some(&reason)));
        // Each one: bounded by the reactions in progress.
        self.report("lost", subject, reason, 1);
    }

    /// `saltern/reactor/failed` for failures that were too many to be reported one by one.
    pub(super) fn unreported_event(&self) -> Option<Event> {
        let times = self.failures.rest()?;
        tracing::error!(times, "further reactions failed");
        let report = ReactionReport {
            subject: None,
            reason: "too many failed to name each",
            times,
            letter: None,
        };
        Some(self.event("failed", &report))
    }

    fn report(&self, what: &'static str, subject: &Subject, reason: String, times: u64) {
        let (tag, sls, id) = (&subject.event.tag, &subject.sls, &subject.id);
        tracing::error!(%tag, sls, id, times, reason, "a reaction {what}");
        let dead_letter =
            dead_letter::dead_letter(what, subject, &reason, self.clock.unix_micros());
        let dead_letter = self.letters.put(&dead_letter);
        let dead_letter = dead_letter.inspect_err(|error| {
            self.metrics.letters_gone.inc();
            tracing::warn!(%error, "a failed reaction is not kept, and cannot be replayed");
        });
        let dead_letter = dead_letter.ok().map(|kept| {
            self.metrics.letters_gone.inc_by(kept.evicted);
            kept.name
        });
        let report = ReactionReport {
            subject: Some(subject.data()),
            reason: &reason,
            times,
            letter: dead_letter,
        };
        let event = self.event(what, &report);
        self.news.lock().push(event);
        self.wake();
    }

    /// Takes the reactor's own events, which are to be fired.
    pub(super) fn take_news(&self) -> Vec<Event> {
        std::mem::take(&mut self.news.lock())
    }

    /// Replays a dead letter; the receiver gets whether it was begun. Then the dead letter is
    /// gone; if it fails again, there is a new one.
    ///
    /// # Errors
    /// [`ReplayError`], when it cannot be queued.
    pub(crate) fn replay(
        &self,
        name: &str,
    ) -> Result<oneshot::Receiver<Result<(), ReplayError>>, ReplayError> {
        let (sender, answer) = oneshot::channel();
        let asker: Asker = Box::new(move |begun| {
            // The client may have gone.
            let _ = sender.send(begun);
        });
        self.queue_replay(name, asker)?;
        Ok(answer)
    }

    fn queue_replay(&self, name: &str, asker: Asker) -> Result<(), ReplayError> {
        let dead_letter = self.letters.get(name)?;
        let dead_letter = dead_letter.ok_or_else(|| ReplayError::Missing(name.to_owned()))?;
        let read = dead_letter::read(name, dead_letter);
        let (event, again) = read.ok_or(ReplayError::Malformed)?;
        let kind = Kind::ReplaySelection(again);
        let taken = self.event_queues.lock().push(&event, kind, Some(asker));
        match taken {
            Taken::Waits(must_notify) => {
                if must_notify {
                    self.wake();
                }
                Ok(())
            }
            Taken::Dropped(_) => Err(ReplayError::QueueFull),
        }
    }

    /// Removes the dead letter of a replay.
    ///
    /// # Errors
    /// When it is gone already, or cannot be removed: nothing must be begun then.
    pub(super) fn remove_letter(&self, name: &str) -> Result<(), ReplayError> {
        match self.letters.remove(name)? {
            true => Ok(()),
            false => Err(ReplayError::Gone(name.to_owned())),
        }
    }

    /// An event of the reactor's own, marked as such, so that it leads to no reaction.
    fn event(&self, what: &'static str, data: &impl Serialize) -> Event {
        let own = OwnEvent {
            data,
            user: USER,
            _stamp: stamp(self.compat, self.clock.unix_micros()),
        };
        Event {
            tag: Tag::reactor(what),
            data: Packed::new(pack(&own, Dialect::Bin)),
        }
    }
}

impl saltern_runners::Reactor for ReactionQueue {
    fn list(&self) -> Value {
        self.rules.read().list()
    }

    fn add(&self, tags: &str, references: &Value) -> Value {
        self.rules.write().add(tags, references)
    }

    fn delete(&self, tags: &str) -> Value {
        self.rules.write().delete(tags)
    }

    fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    fn set_leader(&self, is_leader: bool) {
        self.is_leader.store(is_leader, Ordering::Relaxed);
    }

    fn report(&self) -> ReactorReport {
        let (files, latest) = self.log.report();
        let rules = self.rules.read();
        let rules = rules.written().map(|(tags, references)| {
            let counted = self.log.of_rule(&tags);
            ReactorRule {
                tags,
                references: references.to_vec(),
                events: counted.map_or(0, |(events, _)| events),
                last: counted.map(|(_, last)| last),
            }
        });
        ReactorReport {
            is_leader: self.is_leader(),
            rules: rules.collect(),
            files,
            latest,
            waiting: self.event_queues.lock().count(),
            dropped: self.dropped.total(),
        }
    }

    fn dead_letters(&self, before: Option<&str>, limit: usize) -> DeadLettersPage {
        let (names, total) = self.letters.names(before, limit);
        let next = names.last().filter(|_| names.len() == limit).cloned();
        let letters = names.into_iter().filter_map(|name| {
            // One that is gone, or cannot be read, is left out.
            let letter = self.letters.get(&name).ok().flatten()?;
            Some(dead_letter::row(name, letter))
        });
        DeadLettersPage {
            letters: letters.collect(),
            total,
            next,
        }
    }

    fn replay(&self, letter: &str) -> Result<(), NotReplayed> {
        let refused = |error: ReplayError| NotReplayed::Refused(chain(&error));
        let (sender, answer) = sync_channel(1);
        let asker: Asker = Box::new(move |begun| {
            // Nobody may wait any more.
            let _ = sender.send(begun);
        });
        self.queue_replay(letter, asker).map_err(refused)?;
        match answer.recv_timeout(REPLAY_WAIT) {
            Ok(begun) => begun.map_err(refused),
            Err(RecvTimeoutError::Timeout) => Err(NotReplayed::Waits),
            Err(RecvTimeoutError::Disconnected) => Err(NotReplayed::Refused(
                "the reactor ended before it was begun".to_owned(),
            )),
        }
    }
}

impl Tap for ReactionQueue {
    fn hear(&self, event: &Event) {
        let tag = event.tag.as_str();
        let kind = match reactor::order_of(tag) {
            Some(None) => return,
            Some(Some(_)) => Kind::Order,
            None => {
                let is_leader = self.is_leader.load(Ordering::Relaxed);
                let is_meant = is_leader && self.rules.read().is_meant(tag);
                if !is_meant || is_own(tag, event.data.bytes()) {
                    return;
                }
                Kind::Event
            }
        };
        self.metrics.events.inc();
        let (taken, count) = {
            let mut event_queues = self.event_queues.lock();
            (event_queues.push(event, kind, None), event_queues.count())
        };
        self.metrics.waiting.set(count_of(count));
        match taken {
            Taken::Waits(true) => self.wake(),
            Taken::Waits(false) => {}
            Taken::Dropped(Why::Queue) => self.dropped(Reason::Queue, 1),
            Taken::Dropped(Why::Rate) => self.dropped(Reason::Rate, 1),
        }
    }
}

/// Whether the reactor fired the event. Only such tags can be its own; others are checked before a
/// reaction.
fn is_own(tag: &str, data: &Bytes) -> bool {
    let may_be = [
        "salt/run/",
        "salt/wheel/",
        "saltern/run/",
        "saltern/reactor/",
    ];
    may_be.iter().any(|start| tag.starts_with(start))
        && MapView::parse(data.clone(), &Limits::WIRE)
            .is_ok_and(|data| data.str("user") == Some(USER))
}

fn count_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// See [`ReactionQueue::hold`].
pub(super) struct Held {
    queue: Arc<ReactionQueue>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.queue.held.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// See [`ReactionQueue::begin_job`].
pub(super) struct JobBegun(Arc<ReactionQueue>);

impl Drop for JobBegun {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::SeqCst);
        self.0.job_ended.notify_waiters();
    }
}

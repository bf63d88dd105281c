//! Fetches git remotes, of the file server and of pillars, whenever their `update_interval` has
//! passed.
//!
//! Each fetch has a thread of its own, because a remote that does not answer blocks it until git's
//! timeout. That must delay neither the other remotes nor the end of the master. At most
//! [`THREADS`] run at once; the others wait in turn, each remote once. Requests are served from
//! what was fetched before. At the end of the actor running fetches are killed.
//!
//! When all remotes of the file server that were due together have been fetched, this is announced
//! on the bus (`fileserver_events`), whether or not anything has changed (`update` in
//! `salt/utils/gitfs.py`).

mod stock_clones;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread;

use actix::{
    Actor, Addr, AsyncContext, Context, Handler, Message, Recipient, ResponseActFuture, WrapFuture,
};
use saltern_base::metrics::{HistogramVec, Registry, SECONDS, histogram_vec};
use saltern_model::Tag;
use saltern_requests::events::FileUpdate;
use saltern_requests::{Cancel, Fetch, Fetched, Services, master_event};
use saltern_supervise::Child;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::messages::MaintenanceTask;
use crate::messages::{FetchRemotes, Fire};
use crate::shared::send::{Outbox, SendsThroughOutbox};
use crate::upkeep::disk_checks::file_events;
use crate::upkeep::maintenance_tasks::{MaintenanceTasks, Running, TaskError};
use stock_clones::StockClones;

/// Concurrent fetches.
const THREADS: usize = 4;

/// Seed of the actor.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) maintenance_tasks: Arc<MaintenanceTasks>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) metrics: RemotesMetrics,
}

/// Metrics of the fetches.
#[derive(Clone)]
pub(crate) struct RemotesMetrics(HistogramVec);

impl RemotesMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self(histogram_vec(
            registry,
            "saltern_remotes_seconds",
            "Time of one fetch of a git remote, by what the remote is for.",
            &["what"],
            SECONDS,
        ))
    }
}

/// Actor that fetches the remotes.
pub(crate) struct Remotes {
    seed: Seed,
    outbox: Outbox,
    waiting: VecDeque<Due>,
    /// Remotes that were due together, until all are fetched; by number. No more than there are
    /// remotes, for each is in one round at a time.
    rounds: HashMap<u64, Round>,
    last_round: u64,
    /// The failure of the last round.
    last_failure: Option<TaskError>,
    /// Running threads.
    running: usize,
    /// Kills the fetches; `None` if the system has no pipe for it, or when the master stops.
    cancel: Option<Arc<Cancel>>,
    /// Notified when the last thread has ended.
    idle: Arc<Notify>,
    /// Updater of stock's own clones, for its `salt-run`.
    stock_clones: StockClones,
}

/// A fetch that waits for a thread.
struct Due {
    purpose: Purpose,
    round: u64,
    fetch: Fetch,
}

/// Use of a remote.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Files,
    Pillar,
}

impl Purpose {
    fn label(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Pillar => "pillar",
        }
    }
}

/// Remotes that were due together.
struct Round {
    running: Running,
    /// Remotes that are not fetched yet.
    left: usize,
    failed: usize,
    /// Of the file server: remotes that are not fetched yet, and whether anything has changed.
    files_left: usize,
    files_changed: bool,
}

impl SendsThroughOutbox for Remotes {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Child for Remotes {
    type Seed = Seed;

    const NAME: &'static str = "remotes";
    const MAILBOX: usize = 2 + THREADS;

    fn build(seed: &Seed) -> Self {
        let cancel = Cancel::new().inspect_err(|error| {
            tracing::error!(%error, "git remotes are not fetched");
        });
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
            waiting: VecDeque::new(),
            rounds: HashMap::new(),
            last_round: 0,
            last_failure: None,
            running: 0,
            cancel: cancel.ok().map(Arc::new),
            idle: Arc::default(),
            stock_clones: StockClones::default(),
        }
    }

    /// Running fetches are killed: the next fetch cleans up after them.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        self.give_up();
        if self.running == 0 {
            return None;
        }
        let idle = Arc::clone(&self.idle);
        Some(Box::pin(
            async move { idle.notified().await }.into_actor(self),
        ))
    }
}

impl Actor for Remotes {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.notify(FetchRemotes);
    }
}

impl Drop for Remotes {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Handler<FetchRemotes> for Remotes {
    type Result = ();

    fn handle(&mut self, _: FetchRemotes, context: &mut Self::Context) {
        if self.cancel.is_none() {
            return;
        }
        let services = &self.seed.services;
        let files = services.content.files.due_remotes();
        let pillars = services.content.pillars.due_remotes();
        let running = self.seed.maintenance_tasks.begin(MaintenanceTask::Remotes);
        let left = files.len() + pillars.len();
        if left == 0 {
            // A remote that failed has not been retried.
            running.ended(self.last_failure.clone().map_or(Ok(()), Err));
            return;
        }
        self.last_round += 1;
        let round = Round {
            running,
            left,
            failed: 0,
            files_left: files.len(),
            files_changed: false,
        };
        self.rounds.insert(self.last_round, round);
        let files = files.into_iter().map(|fetch| (Purpose::Files, fetch));
        let pillars = pillars.into_iter().map(|fetch| (Purpose::Pillar, fetch));
        let round = self.last_round;
        let due = files.chain(pillars).map(|(purpose, fetch)| Due {
            purpose,
            round,
            fetch,
        });
        self.waiting.extend(due);
        self.start_waiting(&context.address());
    }
}

/// A thread has ended.
#[derive(Message)]
#[rtype(result = "()")]
struct ThreadEnded {
    purpose: Purpose,
    round: u64,
    fetched: Fetched,
}

impl Handler<ThreadEnded> for Remotes {
    type Result = ();

    fn handle(&mut self, ended: ThreadEnded, context: &mut Self::Context) {
        self.running = self.running.saturating_sub(1);
        self.count(&ended, context);
        self.start_waiting(&context.address());
        if self.running == 0 {
            self.idle.notify_one();
        }
    }
}

/// Notifies the actor of the end of a thread, also if that panics.
struct NotifiesEnd {
    to: Addr<Remotes>,
    purpose: Purpose,
    round: u64,
    fetched: Fetched,
}

impl Drop for NotifiesEnd {
    fn drop(&mut self) {
        // Bounded: each thread sends one, and the number of threads is bounded.
        self.to.do_send(ThreadEnded {
            purpose: self.purpose,
            round: self.round,
            fetched: self.fetched,
        });
    }
}

impl Remotes {
    /// Counts a fetch in its round. A fetch begun before an actor's restart is in no round.
    fn count(&mut self, ended: &ThreadEnded, context: &mut Context<Self>) {
        let Some(round) = self.rounds.get_mut(&ended.round) else {
            return;
        };
        round.left = round.left.saturating_sub(1);
        round.failed += usize::from(ended.fetched == Fetched::Failed);
        if ended.purpose == Purpose::Files {
            round.files_left = round.files_left.saturating_sub(1);
            round.files_changed |= ended.fetched.is_change();
        }
        let files_are_done = ended.purpose == Purpose::Files && round.files_left == 0;
        let (changed, failed, is_over) = (round.files_changed, round.failed, round.left == 0);
        if is_over && let Some(round) = self.rounds.remove(&ended.round) {
            self.last_failure = (failed > 0).then_some(TaskError::Remotes(failed));
            round
                .running
                .ended(self.last_failure.clone().map_or(Ok(()), Err));
        }
        if files_are_done && (changed || !self.stock_clones.were_updated()) {
            self.stock_clones.update(&self.seed.services);
        }
        if files_are_done && file_events::are_wanted(&self.seed.services.config) {
            let update = FileUpdate {
                changed,
                files: None,
                backend: "gitfs",
            };
            let event = master_event(&self.seed.services, Tag::file_update("gitfs"), &update);
            self.outbox.push(context, &self.seed.bus, Fire(vec![event]));
        }
    }

    fn give_up(&mut self) {
        self.waiting.clear();
        if let Some(cancel) = self.cancel.take() {
            cancel.cancel();
        }
    }

    fn start_waiting(&mut self, address: &Addr<Self>) {
        let Some(cancel) = &self.cancel else { return };
        while self.running < THREADS
            && let Some(due) = self.waiting.pop_front()
        {
            let cancel = Arc::clone(cancel);
            let end = NotifiesEnd {
                to: address.clone(),
                purpose: due.purpose,
                round: due.round,
                // Initially failed: also when no thread can be had, or it panics.
                fetched: Fetched::Failed,
            };
            let metrics = self.seed.metrics.clone();
            // Also where no thread can be had: then the message comes at once.
            self.running += 1;
            let started = thread::Builder::new()
                .name("fetch".to_owned())
                .spawn(move || {
                    // The whole value: it sends when it is dropped.
                    let mut end = end;
                    end.fetched = fetch(due, &cancel, &metrics);
                });
            if let Err(error) = started {
                tracing::error!(%error, "no thread for fetching a git remote");
            }
        }
    }
}

fn fetch(due: Due, cancel: &Cancel, metrics: &RemotesMetrics) -> Fetched {
    let what = due.purpose.label();
    let began = Instant::now();
    let fetched = due.fetch.run(Some(cancel));
    if fetched.is_change() {
        tracing::info!(what, "a git remote brought something new");
    }
    let took = began.elapsed().as_secs_f64();
    metrics.0.with_label_values(&[what]).observe(took);
    fetched
}

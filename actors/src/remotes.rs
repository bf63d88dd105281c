//! Fetches git remotes, of the file server and of pillars, whenever their `update_interval` has
//! passed.
//!
//! Each fetch has a thread of its own, because a remote that does not answer holds it for as long
//! as git may wait, and neither the other remotes nor the end of the master shall wait for that.
//! At most [`THREADS`] run at once; the others wait in turn, each remote once. Requests are served
//! from what was fetched before. At the end of the actor what still runs is ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, ResponseActFuture, WrapFuture};
use saltern_base::metrics::{HistogramVec, Registry, SECONDS, histogram_vec};
use saltern_requests::{Cancel, Fetch, Services};
use saltern_supervise::Child;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::messages::FetchRemotes;

/// How many remotes are fetched at once.
const THREADS: usize = 4;

/// What the actor is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) metrics: RemotesMetrics,
}

/// What is measured.
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

/// See the module.
pub(crate) struct Remotes {
    seed: Seed,
    waiting: VecDeque<Due>,
    /// How many threads there are.
    running: usize,
    /// Ends them; `None` if the system has no pipe for it, or when the master stops.
    cancel: Option<Arc<Cancel>>,
    /// Told when the last thread has ended.
    idle: Arc<Notify>,
}

/// A fetch that waits for a thread.
struct Due {
    what: &'static str,
    fetch: Fetch,
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
            waiting: VecDeque::new(),
            running: 0,
            cancel: cancel.ok().map(Arc::new),
            idle: Arc::default(),
        }
    }

    /// What runs is ended: it leaves nothing behind that the next fetch does not find again.
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
        let files = services.files.due_remotes().into_iter();
        let pillars = services.pillars.due_remotes().into_iter();
        let files = files.map(|fetch| Due {
            what: "files",
            fetch,
        });
        self.waiting.extend(files);
        self.waiting.extend(pillars.map(|fetch| Due {
            what: "pillar",
            fetch,
        }));
        self.start_waiting(&context.address());
    }
}

/// A thread has ended.
#[derive(Message)]
#[rtype(result = "()")]
struct ThreadEnded;

impl Handler<ThreadEnded> for Remotes {
    type Result = ();

    fn handle(&mut self, _: ThreadEnded, context: &mut Self::Context) {
        self.running = self.running.saturating_sub(1);
        self.start_waiting(&context.address());
        if self.running == 0 {
            self.idle.notify_one();
        }
    }
}

/// Tells the actor of the end of a thread, also if that panics.
struct TellsEnd(Addr<Remotes>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        // Bounded: each thread sends one, and there are only so many.
        self.0.do_send(ThreadEnded);
    }
}

impl Remotes {
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
            let (end, cancel) = (TellsEnd(address.clone()), Arc::clone(cancel));
            let metrics = self.seed.metrics.clone();
            // Also where no thread can be had: then the message comes at once.
            self.running += 1;
            let started = thread::Builder::new()
                .name("fetch".to_owned())
                .spawn(move || {
                    let _end = end;
                    fetch(due, &cancel, &metrics);
                });
            if let Err(error) = started {
                tracing::error!(%error, "no thread for fetching a git remote");
            }
        }
    }
}

fn fetch(due: Due, cancel: &Cancel, metrics: &RemotesMetrics) {
    let what = due.what;
    let began = Instant::now();
    if due.fetch.run(Some(cancel)) {
        tracing::info!(what, "a git remote brought something new");
    }
    let took = began.elapsed().as_secs_f64();
    metrics.0.with_label_values(&[what]).observe(took);
}

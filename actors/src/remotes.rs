//! Fetches git remotes, of the file server and of pillars, whenever their `update_interval` has
//! passed.
//!
//! On a thread of its own, because a remote that does not answer holds it for as long as git may
//! run, and nobody else shall wait for that. Requests are served from what was fetched before.

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler};
use saltern_base::metrics::{HistogramVec, Registry, SECONDS, histogram_vec};
use saltern_requests::Services;
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::messages::FetchRemotes;

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
            "Time of one round over the git remotes, by what they are for; most find none due.",
            &["what"],
            SECONDS,
        ))
    }
}

/// See the module.
pub(crate) struct Remotes {
    seed: Seed,
}

impl Child for Remotes {
    type Seed = Seed;

    const NAME: &'static str = "remotes";
    const MAILBOX: usize = 2;

    fn build(seed: &Seed) -> Self {
        Self { seed: seed.clone() }
    }
}

impl Actor for Remotes {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.notify(FetchRemotes);
    }
}

impl Handler<FetchRemotes> for Remotes {
    type Result = ();

    fn handle(&mut self, _: FetchRemotes, _: &mut Self::Context) {
        let services = &self.seed.services;
        self.timed("files", || services.files.refresh_remotes());
        self.timed("pillar", || services.pillars.refresh_remotes());
    }
}

impl Remotes {
    fn timed(&self, what: &str, fetch: impl FnOnce() -> bool) {
        let began = Instant::now();
        if fetch() {
            tracing::info!(what, "git remotes brought something new");
        }
        let took = began.elapsed().as_secs_f64();
        self.seed.metrics.0.with_label_values(&[what]).observe(took);
    }
}

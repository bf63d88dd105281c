//! Looks over what lies on disk and is kept in memory too: cached minion data, lists of files, keys.
//! Tokens that have expired are removed on the way.
//!
//! Other programs change all three (`salt-key`, `salt-run cache.clear_*`, whoever edits states),
//! and a look at everything costs a `stat` for each file. That is done here, on a thread of low
//! priority, once each round of maintenance, so that no request has to. Requests notice most changes
//! themselves; what is found here is what nobody asked for.
//!
//! A minion whose key has vanished is forgotten, as stock's `salt-key` does it; 3008's leaves the
//! mine behind, which the next owner of the name would answer with. See `former`.

mod former;

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler};
use saltern_base::metrics::{
    HistogramVec, IntCounter, IntGauge, Registry, SECONDS, counter, gauge, histogram_vec,
};
use saltern_requests::Services;
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::messages::LookOver;
use crate::priority::give_way;
use former::Former;

/// Behind everything else: nobody waits for it.
const NICENESS: i32 = 10;

/// What upkeep is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) metrics: UpkeepMetrics,
}

/// What upkeep measures.
#[derive(Clone)]
pub(crate) struct UpkeepMetrics {
    taking: HistogramVec,
    changed: IntCounter,
    known: IntGauge,
    forgotten: IntCounter,
    failed: IntCounter,
}

impl UpkeepMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            taking: histogram_vec(
                registry,
                "saltern_upkeep_seconds",
                "Time of one look over the disk, by what was looked at.",
                &["what"],
                SECONDS,
            ),
            changed: counter(
                registry,
                "saltern_minion_data_changed_outside_total",
                "Minions whose cached grains or pillar another program changed.",
            ),
            known: gauge(
                registry,
                "saltern_minion_data_minions",
                "Minions with cached grains.",
            ),
            forgotten: counter(
                registry,
                "saltern_minions_forgotten_total",
                "Minions whose data was removed because their key was gone.",
            ),
            failed: counter(
                registry,
                "saltern_upkeep_failures_total",
                "Looks over the disk that failed; the log says why.",
            ),
        }
    }
}

/// See the module.
pub(crate) struct Upkeep {
    seed: Seed,
    former: Former,
}

impl Child for Upkeep {
    type Seed = Seed;

    const NAME: &'static str = "upkeep";
    const MAILBOX: usize = 2;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            former: Former::default(),
        }
    }
}

impl Actor for Upkeep {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        give_way(NICENESS);
        // So that the first target after a start finds everything read.
        context.notify(LookOver);
    }
}

impl Handler<LookOver> for Upkeep {
    type Result = ();

    fn handle(&mut self, _: LookOver, _: &mut Self::Context) {
        self.timed("keys", Self::forget_former_minions);
        self.timed("minion_data", |upkeep| upkeep.look_over_minion_data());
        self.timed("tokens", |upkeep| {
            if let Err(error) = upkeep.seed.services.tokens.sweep() {
                upkeep.seed.metrics.failed.inc();
                tracing::error!(%error, "the tokens cannot be listed");
            }
        });
        self.timed("files", |upkeep| {
            let files = &upkeep.seed.services.files;
            if let Err(error) = files.refresh_lists() {
                upkeep.seed.metrics.failed.inc();
                tracing::error!(%error, "the files cannot be listed");
            }
        });
    }
}

impl Upkeep {
    fn timed(&mut self, what: &str, duty: impl FnOnce(&mut Self)) {
        let began = Instant::now();
        duty(self);
        let taking = &self.seed.metrics.taking;
        let took = began.elapsed().as_secs_f64();
        taking.with_label_values(&[what]).observe(took);
    }

    fn look_over_minion_data(&self) {
        let (services, metrics) = (&self.seed.services, &self.seed.metrics);
        let data = &services.minion_data;
        match data
            .refresh()
            .and_then(|changed| Ok((changed, data.known()?)))
        {
            Ok((changed, known)) => {
                metrics.changed.inc_by(changed as u64);
                metrics.known.set(known.len() as i64);
            }
            Err(error) => {
                metrics.failed.inc();
                tracing::error!(%error, "the cached minion data cannot be looked over");
            }
        }
        services.targeting.refresh();
    }

    fn forget_former_minions(&mut self) {
        let metrics = &self.seed.metrics;
        match self.former.forget(&self.seed.services) {
            Ok(forgotten) => metrics.forgotten.inc_by(forgotten as u64),
            Err(error) => {
                metrics.failed.inc();
                tracing::error!(%error, "the minions without a key cannot be told");
            }
        }
    }
}

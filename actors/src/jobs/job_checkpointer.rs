//! Checkpoints the job database while the store goes on committing.
//!
//! On a thread of its own, because it waits for the disk. It leaves a small rest to the store,
//! which must finish the checkpoint itself (`saltern_store::Housekeeping`).

use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};
use saltern_base::metrics::{Histogram, Registry, SECONDS, histogram};
use saltern_store::Housekeeping;
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::messages::{Checkpoint, CheckpointDone};

/// Seed of a checkpointer.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) housekeeping: Arc<dyn Housekeeping>,
    pub(crate) store: Recipient<CheckpointDone>,
    pub(crate) metrics: CheckpointMetrics,
}

/// Metrics of the checkpointer.
#[derive(Clone)]
pub(crate) struct CheckpointMetrics(Histogram);

impl CheckpointMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self(histogram(
            registry,
            "saltern_store_checkpoint_seconds",
            "Time of one checkpoint pass of the job database's write-ahead log.",
            SECONDS,
        ))
    }
}

/// Passes in a row: each leaves only what was committed while it ran.
const PASSES: usize = 4;

/// Actor that checkpoints the job database.
pub(crate) struct JobCheckpointer {
    seed: Seed,
}

impl Child for JobCheckpointer {
    type Seed = Seed;

    const NAME: &'static str = "job_checkpointer";
    /// Growth of the log during a checkpoint is seen by the next commit.
    const MAILBOX: usize = 1;

    fn build(seed: &Seed) -> Self {
        Self { seed: seed.clone() }
    }
}

impl Actor for JobCheckpointer {
    type Context = Context<Self>;
}

impl Handler<Checkpoint> for JobCheckpointer {
    type Result = ();

    fn handle(&mut self, _: Checkpoint, _: &mut Self::Context) {
        for _ in 0..PASSES {
            let began = Instant::now();
            let folded = self.seed.housekeeping.checkpoint();
            self.seed.metrics.0.observe(began.elapsed().as_secs_f64());
            match folded {
                Ok(false) => {}
                Ok(true) => break,
                Err(error) => {
                    tracing::error!(%error, "the log of the job database grows");
                    break;
                }
            }
        }
        // At most one for each message that the store sent.
        self.seed.store.do_send(CheckpointDone);
    }
}

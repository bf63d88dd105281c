//! Reads stock's job cache into the job database, once: the jobs that the master before this one
//! published, or those of a database that was lost.
//!
//! In the background, a slice at a time, because a site may have hundreds of thousands of files:
//! reading is done here, on a thread of low priority, and every slice is a short transaction of the
//! JobStore. It may be interrupted at any time; the next start begins anew, and what is there
//! already stays as it is.

use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient,
};
use parking_lot::Mutex;
use saltern_base::chain;
use saltern_store::{CachedJob, Imported, JobCacheReader};
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::messages::ImportJobs;
use crate::priority::give_way;

/// Behind everything else: nobody waits for it.
const NICENESS: i32 = 10;

/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// After a slice it rests as long as the slice took, times this: returns come first.
const REST: u32 = 1;

/// What an import is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    /// Only this actor locks it.
    pub(crate) jobs: Arc<Mutex<JobCacheReader>>,
    pub(crate) store: Recipient<ImportJobs>,
}

/// The reader of stock's job cache.
pub(crate) struct JobImport {
    seed: Seed,
    total: Imported,
}

/// Read the next slice and hand it on; a slice that could not be stored is handed on once more.
#[derive(Message)]
#[rtype(result = "()")]
struct Step(Option<Vec<CachedJob>>);

impl Child for JobImport {
    type Seed = Seed;

    const NAME: &'static str = "job_import";
    const MAILBOX: usize = 2;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            total: Imported::default(),
        }
    }
}

impl Actor for JobImport {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        give_way(NICENESS);
        context.notify(Step(None));
    }
}

impl Handler<Step> for JobImport {
    type Result = ();

    fn handle(&mut self, Step(again): Step, context: &mut Self::Context) {
        let began = Instant::now();
        let slice = match again {
            Some(slice) => slice,
            None => match self.seed.jobs.lock().next_slice() {
                // Nothing more: said to the store by a slice without jobs.
                Ok(slice) => slice.unwrap_or_default(),
                Err(error) => {
                    tracing::error!(error = chain(&error), "stock's job cache cannot be read");
                    context.notify_later(Step(None), RETRY);
                    return;
                }
            },
        };
        let stored = self.seed.store.send(ImportJobs(slice.clone()));
        let stored = actix::fut::wrap_future::<_, Self>(stored);
        context.spawn(stored.map(move |stored, import: &mut Self, context| {
            let stored = match stored {
                Ok(stored) => stored.map_err(|error| chain(&error)),
                Err(error) => Err(error.to_string()),
            };
            match stored {
                Ok(_) if slice.is_empty() => {
                    import.ended();
                    context.stop();
                }
                Ok(imported) => {
                    import.total.jobs += imported.jobs;
                    import.total.returns += imported.returns;
                    context.notify_later(Step(None), began.elapsed() * REST);
                }
                Err(error) => {
                    tracing::error!(error, "jobs of stock's job cache cannot be stored");
                    context.notify_later(Step(Some(slice)), RETRY);
                }
            }
        }));
    }
}

impl JobImport {
    fn ended(&self) {
        let Imported { jobs, returns } = self.total;
        let unreadable = self.seed.jobs.lock().unreadable();
        if unreadable > 0 {
            tracing::warn!(
                unreadable,
                "jobs or returns of stock's job cache cannot be read"
            );
        }
        tracing::info!(
            jobs,
            returns,
            "stock's job cache has been read into the job database"
        );
    }
}

//! One-time import of stock's job cache into the job database: the jobs of a previous master, or
//! those of a database that was lost.
//!
//! It runs in the background, a slice at a time, because a site may have hundreds of thousands of
//! files: reading is done here, on a thread of low priority, and every slice is a short transaction
//! of the JobStore. It may be interrupted at any time: the next start begins anew, and existing
//! rows are kept. A directory that cannot be listed delays no other one: it is skipped and retried,
//! a few times now and once more by the next start.

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
use crate::shared::priority::give_way;

/// Lowest priority: no request waits for it.
const NICENESS: i32 = 10;

/// Delay before a retry after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// After a slice it rests as long as the slice took, times this: returns come first.
const REST: u32 = 1;

/// Seed of an import.
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
            None => match self.next_slice() {
                Next::Slice(slice) => slice,
                Next::Later => {
                    context.notify_later(Step(None), RETRY);
                    return;
                }
                Next::Incomplete => {
                    context.stop();
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

/// The next step.
enum Next {
    /// Hand this on; without jobs it says to the store that there is nothing more.
    Slice(Vec<CachedJob>),
    /// Wait, and read what could not be listed.
    Later,
    /// Leave the rest to the next start.
    Incomplete,
}

impl JobImport {
    fn next_slice(&self) -> Next {
        let mut jobs = self.seed.jobs.lock();
        if let Some(slice) = jobs.next_slice() {
            return Next::Slice(slice);
        }
        let directories = jobs.unlisted();
        if directories == 0 {
            return Next::Slice(Vec::new());
        }
        if jobs.try_again() {
            return Next::Later;
        }
        let Imported { jobs, returns } = self.total;
        tracing::error!(
            directories,
            jobs,
            returns,
            "directories of stock's job cache cannot be listed: their jobs are not in the job \
             database, and the next start tries again"
        );
        Next::Incomplete
    }

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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use saltern_base::metrics::Registry;
    use saltern_config::load_master;
    use saltern_store::StoreError;
    use saltern_supervise::{ChildSpec, Restart};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;
    use crate::shared::testing::{in_system, tree};

    /// Accepts every slice and reports its number of jobs.
    struct Store(UnboundedSender<usize>);

    impl Actor for Store {
        type Context = Context<Self>;
    }

    impl Handler<ImportJobs> for Store {
        type Result = Result<Imported, StoreError>;

        fn handle(&mut self, ImportJobs(slice): ImportJobs, _: &mut Self::Context) -> Self::Result {
            let _ = self.0.send(slice.len());
            Ok(Imported::default())
        }
    }

    /// A job cache with one job, and a part that nobody can list.
    struct Site {
        _directory: tempfile::TempDir,
        jobs: PathBuf,
        slices: UnboundedReceiver<usize>,
    }

    fn import() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().display();
        let config = directory.path().join("master");
        fs::write(
            &config,
            format!("root_dir: {root}\ncachedir: {root}/cache\n"),
        )
        .unwrap();
        let jobs = directory.path().join("cache/jobs");
        let job = jobs.join("02/job");
        fs::create_dir_all(&job).unwrap();
        fs::write(job.join("jid"), "20260102030405060708").unwrap();
        fs::write(job.join(".load.p"), b"\x80").unwrap();
        symlink("05", jobs.join("05")).unwrap();
        let config = load_master(&config).unwrap().config;
        let (sender, slices) = unbounded_channel();
        let seed = Seed {
            jobs: Arc::new(Mutex::new(JobCacheReader::new(&config, None))),
            store: Store(sender).start().recipient(),
        };
        let tree = tree(&Registry::new());
        let spec = ChildSpec::permanent().with_restart(Restart::Transient);
        let _: actix::Addr<JobImport> = tree.root().start_child(spec, seed, 0);
        Site {
            _directory: directory,
            jobs,
            slices,
        }
    }

    #[test]
    fn unlisted_part_is_retried_and_the_import_completes() {
        in_system(async {
            let mut site = import();
            assert_eq!(site.slices.recv().await, Some(1));
            fs::remove_file(site.jobs.join("05")).unwrap();
            tokio::time::pause();
            assert_eq!(site.slices.recv().await, Some(0), "all is read");
        });
    }

    #[test]
    fn import_without_an_unlisted_part_ends_incomplete() {
        // Longer than a test may take by the clock that is paused.
        actix::System::new().block_on(async {
            let mut site = import();
            assert_eq!(site.slices.recv().await, Some(1));
            tokio::time::pause();
            // The actor, which has the other end, is gone.
            assert_eq!(site.slices.recv().await, None);
        });
    }
}

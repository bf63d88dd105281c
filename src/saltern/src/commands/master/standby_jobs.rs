//! Stock's job-cache files on a member that stands by, where it relays: stock's `salt` looks for its job
//! there as soon as it has the answer to its request.
//!
//! So they are written here as the active member writes them, from the job database, and an answer to a
//! program of this machine waits until the jobs that are stored by then have theirs. The cursor is that
//! of the mirror of the active member, which goes on from it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_config::MasterConfig;
use saltern_sql::open_reader;
use saltern_store::{Mirror, StoreError};
use saltern_wire::member::BeforeAnswers;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::commands::chain;

/// Answers that wait for files; others do not wait.
const MAX_WAITING: usize = 64;

/// How long an answer waits: a database that is away keeps none for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval at which files are written for nobody in particular.
const INTERVAL: Duration = Duration::from_secs(1);

/// Rows between two looks at whether it is to end.
const STEP: usize = 50;

/// Interval at which a part of the files is looked through for old ones.
const CLEAN_INTERVAL: Duration = Duration::from_secs(15);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Writes the files until it is stopped.
pub(super) struct StandbyJobs {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Lets answers wait for files.
struct Asking(SyncSender<oneshot::Sender<()>>);

impl BeforeAnswers for Asking {
    fn prepare(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let (written, waiting) = oneshot::channel();
            if self.0.try_send(written).is_ok() {
                // Without them in time stock's command says that there is no such job.
                let _ = timeout(PATIENCE, waiting).await;
            }
        })
    }
}

impl StandbyJobs {
    /// Begins on a thread of its own; nothing waits where there can be none.
    pub(super) fn start(config: &Arc<MasterConfig>) -> Option<(Self, Arc<dyn BeforeAnswers>)> {
        let (asking, asked) = sync_channel(MAX_WAITING);
        let stop = Arc::<AtomicBool>::default();
        let writer = Writer {
            config: Arc::clone(config),
            stop: Arc::clone(&stop),
            mirror: None,
            cleaned: (Instant::now(), 0),
            failures: LogThrottle::new(LOG_INTERVAL),
        };
        let thread = thread::Builder::new().name("standby-jobs".to_owned());
        match thread.spawn(move || writer.run(&asked)) {
            Ok(thread) => Some((Self { stop, thread }, Arc::new(Asking(asking)))),
            Err(error) => {
                tracing::warn!(%error, "no job-cache files are written while this master stands by");
                None
            }
        }
    }

    /// Ends it: the mirror of an active master has the same files.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tracing::error!("the thread of job-cache files has panicked");
        }
    }
}

struct Writer {
    config: Arc<MasterConfig>,
    stop: Arc<AtomicBool>,
    mirror: Option<Mirror>,
    /// When the last part was cleaned, and the next one.
    cleaned: (Instant, u8),
    failures: LogThrottle,
}

impl Writer {
    fn run(mut self, asked: &Receiver<oneshot::Sender<()>>) {
        while !self.is_stopped() {
            let first = match asked.recv_timeout(INTERVAL) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let waiting: Vec<_> = first.into_iter().chain(asked.try_iter()).collect();
            if let Err(error) = self.catch_up()
                && let Some(times) = self.failures.record()
            {
                let error = chain(&error);
                tracing::warn!(error, times, "job-cache files are not written");
            }
            for one in waiting {
                // It may have given up.
                let _ = one.send(());
            }
        }
        if let Some(mut mirror) = self.mirror
            && let Err(error) = mirror.save()
        {
            tracing::warn!(error = chain(&error), "the mirror's cursor cannot be saved");
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Writes the files of all jobs that are stored by now.
    fn catch_up(&mut self) -> Result<(), StoreError> {
        let stop = Arc::clone(&self.stop);
        let config = Arc::clone(&self.config);
        let mirror = match &mut self.mirror {
            Some(mirror) => mirror,
            none => none.insert(Mirror::open(&config, open_reader(&config)?)?),
        };
        while mirror.step(STEP)? > 0 && !stop.load(Ordering::Relaxed) {}
        let (last, part) = self.cleaned;
        if let Some(keep) = config.keep_jobs
            && last.elapsed() >= CLEAN_INTERVAL
        {
            self.cleaned = (Instant::now(), part.wrapping_add(1));
            let now = Clock::system().unix();
            mirror.files().clean_part(part, keep, now)?;
        }
        Ok(())
    }
}

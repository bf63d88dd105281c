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
use saltern_config::{LocalCacheMirror, MasterConfig};
use saltern_sql::open_reader;
use saltern_store::{Mirror, StoreError};
use saltern_wire::member::BeforeAnswers;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::commands::chain;

/// Answers that wait for files; others do not wait.
const MAX_WAITING: usize = 64;

/// Interval at which files are written for nobody in particular.
const INTERVAL: Duration = Duration::from_secs(1);

/// Rows read at once.
const STEP: usize = 50;

/// Interval at which the cursor is made durable; rows behind it are written once more after the end.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Interval at which a part of the files is looked through for old ones.
const CLEAN_INTERVAL: Duration = Duration::from_secs(15);

/// Time in which the thread ends. One that waits for the database or the disk takes longer, and must not
/// keep a master that has the lease.
const END: Duration = Duration::from_secs(1);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Writes the files until it is stopped.
pub(super) struct StandbyJobs {
    stop: Arc<AtomicBool>,
    /// Disconnected by the end of the thread.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

/// Lets answers wait for files.
struct Asking {
    asking: SyncSender<oneshot::Sender<()>>,
    /// Whether files are written as jobs come. Nobody waits for all the jobs of a first start, nor for a
    /// database that is away.
    is_current: Arc<AtomicBool>,
}

impl BeforeAnswers for Asking {
    fn prepare(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let (written, waiting) = oneshot::channel();
            if self.is_current.load(Ordering::Relaxed) && self.asking.try_send(written).is_ok() {
                // It is dropped when the thread ends.
                let _ = waiting.await;
            }
        })
    }
}

impl StandbyJobs {
    /// Begins on a thread of its own. `None` where there are no such files, which are then neither waited
    /// for nor removed.
    pub(super) fn start(config: &Arc<MasterConfig>) -> Option<(Self, Arc<dyn BeforeAnswers>)> {
        if config.local_cache_mirror == LocalCacheMirror::Off {
            return None;
        }
        let (asking, asked) = sync_channel(MAX_WAITING);
        let stop = Arc::<AtomicBool>::default();
        let is_current = Arc::<AtomicBool>::default();
        let writer = Writer::new(config, &stop, &is_current);
        match Self::spawn(stop, move || writer.run(&asked)) {
            Ok(jobs) => Some((jobs, Arc::new(Asking { asking, is_current }))),
            Err(error) => {
                tracing::warn!(%error, "no job-cache files are written while this master stands by");
                None
            }
        }
    }

    fn spawn(
        stop: Arc<AtomicBool>,
        write: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (running, ended) = sync_channel(0);
        let thread = thread::Builder::new().name("standby-jobs".to_owned());
        let thread = thread.spawn(move || {
            let _running: SyncSender<()> = running;
            write();
        })?;
        Ok(Self {
            stop,
            ended,
            thread,
        })
    }

    /// Ends it, within `END`: what it still writes afterwards is at most one row, which the mirror of an
    /// active master writes, too, with the same content.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        match self.ended.recv_timeout(END) {
            Err(RecvTimeoutError::Disconnected) => {
                if self.thread.join().is_err() {
                    tracing::error!("the thread of job-cache files has panicked");
                }
            }
            _ => tracing::info!("the job-cache files of this standby are not waited for"),
        }
    }
}

struct Writer {
    config: Arc<MasterConfig>,
    stop: Arc<AtomicBool>,
    is_current: Arc<AtomicBool>,
    mirror: Option<Mirror>,
    /// When the cursor was saved.
    saved: Instant,
    /// When the last part was cleaned, and the next one.
    cleaned: (Instant, u8),
    failures: LogThrottle,
}

impl Writer {
    fn new(
        config: &Arc<MasterConfig>,
        stop: &Arc<AtomicBool>,
        is_current: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            config: Arc::clone(config),
            stop: Arc::clone(stop),
            is_current: Arc::clone(is_current),
            mirror: None,
            saved: Instant::now(),
            cleaned: (Instant::now(), 0),
            failures: LogThrottle::new(LOG_INTERVAL),
        }
    }

    fn run(mut self, asked: &Receiver<oneshot::Sender<()>>) {
        while !self.is_stopped() {
            let first = match asked.recv_timeout(INTERVAL) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let waiting: Vec<_> = first.into_iter().chain(asked.try_iter()).collect();
            let written = self.catch_up();
            self.is_current.store(written.is_ok(), Ordering::Relaxed);
            for one in waiting {
                // It may have given up.
                let _ = one.send(());
            }
            let failed = written.and_then(|()| self.maintain()).err();
            if let Some(error) = failed
                && !self.is_stopped()
                && let Some(times) = self.failures.record()
            {
                let error = chain(&error);
                tracing::warn!(error, times, "job-cache files are not written");
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Writes the files of all jobs that are stored by now; those that are stored meanwhile have their
    /// turn afterwards.
    fn catch_up(&mut self) -> Result<(), StoreError> {
        let stop = Arc::clone(&self.stop);
        let goes_on = || !stop.load(Ordering::Relaxed);
        let mirror = match &mut self.mirror {
            Some(mirror) => mirror,
            none => none.insert(Mirror::open(&self.config, open_reader(&self.config)?)?),
        };
        let end = mirror.end()?;
        while goes_on() && !mirror.has_reached(end) && mirror.step_while(STEP, goes_on)? > 0 {}
        Ok(())
    }

    /// Makes the cursor durable and removes old files, each at its interval.
    fn maintain(&mut self) -> Result<(), StoreError> {
        if self.is_stopped() {
            return Ok(());
        }
        if self.saved.elapsed() >= SAVE_INTERVAL
            && let Some(mirror) = &mut self.mirror
        {
            self.saved = Instant::now();
            mirror.save()?;
        }
        let (last, part) = self.cleaned;
        if last.elapsed() >= CLEAN_INTERVAL {
            self.cleaned = (Instant::now(), part.wrapping_add(1));
            self.clean(part)?;
        }
        Ok(())
    }

    /// Removes old files of one part; with the first one those of publishers, which have no parts.
    fn clean(&self, part: u8) -> Result<(), StoreError> {
        let (Some(keep), Some(mirror)) = (self.config.keep_jobs, &self.mirror) else {
            return Ok(());
        };
        let now = Clock::system().unix();
        if part == 0 {
            mirror.files().clean_publishers(keep, now)?;
        }
        mirror.files().clean_part(part, keep, now)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::mpsc::channel;
    use std::task::{Context, Waker};
    use std::time::SystemTime;

    use saltern_config::load_master;
    use tempfile::TempDir;

    use super::*;

    fn config(place: &TempDir, options: &str) -> Arc<MasterConfig> {
        let text = format!("root_dir: {}\n{options}\n", place.path().display());
        fs::write(place.path().join("master"), text).expect("written");
        let loaded = load_master(place.path()).expect("a configuration");
        Arc::new(loaded.config)
    }

    fn is_done(waiting: &mut Pin<Box<dyn Future<Output = ()> + Send + '_>>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        waiting.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn nothing_is_written_waited_for_or_removed_without_a_mirror() {
        let place = tempfile::tempdir().expect("a directory");
        let config = config(&place, "local_cache_mirror: 'off'");
        assert!(StandbyJobs::start(&config).is_none());
    }

    #[test]
    fn answers_wait_only_while_files_are_written_as_jobs_come() {
        let (asking, asked) = sync_channel(1);
        let is_current = Arc::<AtomicBool>::default();
        let before = Asking {
            asking,
            is_current: Arc::clone(&is_current),
        };
        assert!(is_done(&mut before.prepare()));
        assert!(asked.try_recv().is_err());
        is_current.store(true, Ordering::Relaxed);
        let mut waiting = before.prepare();
        assert!(!is_done(&mut waiting));
        assert!(is_done(&mut before.prepare()), "without room for it");
        let written = asked.try_recv().expect("asked");
        written.send(()).expect("it waits");
        assert!(is_done(&mut waiting));
    }

    #[test]
    fn end_does_not_wait_for_a_thread_that_hangs() {
        let (release, hangs) = channel::<()>();
        let stop = Arc::<AtomicBool>::default();
        let ended = Arc::<AtomicBool>::default();
        let (stopped, has_ended) = (Arc::clone(&stop), Arc::clone(&ended));
        let jobs = StandbyJobs::spawn(stop, move || {
            // Until it is released.
            let _ = hangs.recv();
            has_ended.store(true, Ordering::Relaxed);
        });
        jobs.expect("a thread").stop();
        assert!(stopped.load(Ordering::Relaxed));
        assert!(!ended.load(Ordering::Relaxed));
        drop(release);
    }

    #[test]
    fn old_files_of_publishers_are_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let config = config(&place, "keep_jobs_seconds: 3600");
        let database = config.saltern_job_database.parent().expect("below one");
        fs::create_dir_all(database).expect("made");
        let engine = saltern_store::open_engine(&config, 0, &|| true);
        engine.expect("a job database");
        let publishers = config.cachedir.join("publish_auth");
        fs::create_dir_all(&publishers).expect("made");
        for name in ["old", "new"] {
            let file = File::create(publishers.join(name)).expect("made");
            if name == "old" {
                file.set_modified(SystemTime::UNIX_EPOCH).expect("set");
            }
        }
        let mut writer = Writer::new(&config, &Arc::default(), &Arc::default());
        writer.catch_up().expect("caught up");
        writer.clean(1).expect("cleaned");
        assert!(publishers.join("old").exists());
        writer.clean(0).expect("cleaned");
        assert!(!publishers.join("old").exists());
        assert!(publishers.join("new").exists());
    }
}

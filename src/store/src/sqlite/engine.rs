//! SQLite behind the seam: a thread commits, so nobody else waits for the disk.
//!
//! The thread takes one task after the other, and holds the writer's lock for each. Whoever asks for
//! something while the lock is held gets [`StoreError::Displaced`]: its caller has one task in flight,
//! so a database that is locked then is being written to its place.

use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use futures_channel::oneshot;
use parking_lot::Mutex;
use saltern_base::chain;

use super::checkpoint::Checkpointer;
use super::{JobDatabase, Scrubber, note_incident};
use crate::error::{Result, StoreError};
use crate::jobs::{
    AuditHead, Batch, Committed, Condition, Engine, FreeSpace, Housekeeping, Imported, JobLog,
    Pending, Removed, Retention, Scrub, ScrubSlice, Size,
};
use crate::mirror::CachedJob;

/// Tasks that wait for the thread. A caller has one in flight, and a recovery.
const MAX_TASKS: usize = 16;

/// Frames that the writer may be left with at the end of a checkpoint: a few milliseconds.
const LITTLE: u64 = 500;

/// Measures the free space.
type RoomOf = Box<dyn Fn(&JobDatabase) -> Result<FreeSpace> + Send + Sync>;

type Task = Box<dyn FnOnce(&Mutex<JobDatabase>) + Send>;

/// The writer of a SQLite database and what it needs from time to time.
pub struct SqliteEngine {
    database: Arc<Mutex<JobDatabase>>,
    path: PathBuf,
    checkpointer: Checkpointer,
    scrubber: Scrubber,
    room_of: RoomOf,
    /// The log was long after the last task.
    checkpoint_is_due: Arc<AtomicBool>,
    /// Only empty when it ends.
    tasks: Option<SyncSender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl JobDatabase {
    /// The database as an engine behind the seam.
    pub fn into_engine(self) -> Result<Engine> {
        SqliteEngine::new(Arc::new(Mutex::new(self)))?.shared()
    }
}

impl SqliteEngine {
    /// Starts the thread.
    pub fn new(database: Arc<Mutex<JobDatabase>>) -> Result<Self> {
        let (path, checkpointer, scrubber) = {
            let database = database.lock();
            let path = database.path().to_owned();
            (path, database.checkpointer()?, database.scrubber()?)
        };
        let (tasks, waiting) = sync_channel(MAX_TASKS);
        let thread = {
            let database = database.clone();
            let thread = std::thread::Builder::new().name("commit".to_owned());
            let spawned = thread.spawn(move || run(&database, &waiting));
            spawned.map_err(|error| StoreError::io("start a thread for", &path, error))?
        };
        Ok(Self {
            database,
            path,
            checkpointer,
            scrubber,
            room_of: Box::new(JobDatabase::room),
            checkpoint_is_due: Arc::default(),
            tasks: Some(tasks),
            thread: Some(thread),
        })
    }

    /// The same with another measure of the free space.
    #[must_use]
    pub fn with_room(
        mut self,
        room_of: impl Fn(&JobDatabase) -> Result<FreeSpace> + Send + Sync + 'static,
    ) -> Self {
        self.room_of = Box::new(room_of);
        self
    }

    /// The engine behind the seam.
    pub fn shared(self) -> Result<Engine> {
        let queries = self.database.lock().reader()?;
        let engine = Arc::new(self);
        Ok(Engine {
            log: engine.clone(),
            queries,
            housekeeping: engine,
        })
    }

    fn displaced(&self) -> StoreError {
        let path = self.path.clone();
        StoreError::Displaced { path }
    }

    /// Has the thread do this, unless the database is being recovered.
    fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut JobDatabase) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        if self.database.is_locked() {
            return Box::pin(ready(Err(self.displaced())));
        }
        self.queue(task)
    }

    fn queue<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut JobDatabase) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (reply, replied) = oneshot::channel();
        let checkpoint_is_due = self.checkpoint_is_due.clone();
        let task = move |database: &Mutex<JobDatabase>| {
            // Who has the reply finds the database unlocked.
            let done = {
                let mut database = database.lock();
                let done = task(&mut database);
                checkpoint_is_due.store(database.checkpoint_is_due(), Ordering::Relaxed);
                done
            };
            // Nobody may wait for it any more.
            let _ = reply.send(done);
        };
        // A task that cannot be queued drops its reply.
        if let Some(tasks) = &self.tasks {
            let _ = tasks.try_send(Box::new(task));
        }
        let path = self.path.clone();
        Box::pin(async move {
            let interrupted = |_| Err(StoreError::Interrupted { path });
            replied.await.unwrap_or_else(interrupted)
        })
    }

    /// An answer that can be given at once, unless the database is being recovered.
    fn look<T: Send + 'static>(&self, look: impl FnOnce(&JobDatabase) -> Result<T>) -> Pending<T> {
        let seen = match self.database.try_lock() {
            Some(database) => look(&database),
            None => Err(self.displaced()),
        };
        Box::pin(ready(seen))
    }
}

impl Drop for SqliteEngine {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // It catches its panics.
            let _ = thread.join();
        }
    }
}

/// A panic costs the task, whose reply is dropped, and not the tasks behind it.
fn run(database: &Mutex<JobDatabase>, tasks: &Receiver<Task>) {
    while let Ok(task) = tasks.recv() {
        if catch_unwind(AssertUnwindSafe(|| task(database))).is_err() {
            tracing::error!("a change of the job database panicked");
        }
    }
}

impl JobLog for SqliteEngine {
    fn append(&self, batch: Arc<Batch>) -> Pending<Committed> {
        self.ask(move |database| database.commit_with_events(&batch.writes, &batch.caused))
    }

    fn import(&self, slice: Vec<CachedJob>) -> Pending<Imported> {
        self.ask(move |database| database.import(&slice))
    }

    fn finish_import(&self) -> Pending<()> {
        self.ask(JobDatabase::finish_import)
    }

    fn next_event_position(&self) -> Pending<i64> {
        self.look(|database| Ok(database.next_event_position()))
    }

    fn audit_head(&self) -> Pending<AuditHead> {
        self.look(|database| Ok(database.audit_head()))
    }
}

impl Housekeeping for SqliteEngine {
    fn place(&self) -> &Path {
        &self.path
    }

    fn remove_slice(&self, retention: Retention, slice: usize) -> Pending<Option<Removed>> {
        self.ask(move |database| database.remove_slice(&retention, slice))
    }

    fn condition(&self, now: i64) -> Result<Condition> {
        let Some(database) = self.database.try_lock() else {
            return Ok(Condition::Recovering);
        };
        Ok(match database.is_displaced()? {
            false => Condition::Ready,
            true => Condition::Displaced {
                is_due: database.restore_is_due(now),
            },
        })
    }

    fn recover(&self, now: i64) -> Pending<bool> {
        self.queue(move |database| Ok(restore(database, now)))
    }

    fn size(&self) -> Pending<Option<Size>> {
        self.look(|database| database.size().map(Some))
    }

    fn room(&self) -> Pending<Option<FreeSpace>> {
        self.look(|database| (self.room_of)(database).map(Some))
    }

    fn hold_reserve(&self, total: u64) -> Pending<()> {
        self.ask(move |database| database.hold_reserve(total))
    }

    fn release_reserve(&self) -> Pending<u64> {
        self.ask(|database| database.release_reserve())
    }

    fn checkpoint_is_due(&self) -> bool {
        self.checkpoint_is_due.load(Ordering::Relaxed)
    }

    fn checkpoint(&self) -> Result<bool> {
        Ok(self.checkpointer.fold()?.left() <= LITTLE)
    }

    fn finish_checkpoint(&self) -> Pending<()> {
        self.ask(|database| database.checkpoint().map(|_| ()))
    }

    fn scrub(&self, scrub: &mut Scrub, slice: ScrubSlice) -> Result<bool> {
        self.scrubber.scrub(scrub, slice)
    }
}

/// Writes the database to its place and says so; whether it is there now.
fn restore(database: &mut JobDatabase, now: i64) -> bool {
    let path = database.path().to_owned();
    let path = path.display();
    let restored = match database.restore_if_displaced(now) {
        Ok(Some(restored)) => restored,
        Ok(None) => return true,
        Err(error) => {
            let error = chain(&error);
            tracing::error!(
                error,
                "the job database \"{path}\" was removed or replaced while the master runs, and \
                 cannot be written to its place: nothing is stored until it can"
            );
            return false;
        }
    };
    let mut what = format!(
        "the job database \"{path}\", or its log, was removed or replaced while the master ran; \
         what the master had open is written to its place: nothing is lost"
    );
    if let Some(aside) = restored.set_aside {
        what += &format!(", and what was in its place is \"{}\"", aside.display());
    }
    tracing::error!("{what}");
    if let Err(error) = note_incident(database.path(), now, &what) {
        tracing::warn!(
            error = chain(&error),
            "the incident cannot be recorded for saltern doctor"
        );
    }
    true
}

//! PostgreSQL behind the seam: the owner's writer, its housekeeping, and a reader.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use saltern_config::{SqlStore, is_schema_name};
use saltern_store::jobs::{
    Batch, Committed, Engine, Housekeeping, Imported, JobLog, Pending, Removed, Retention,
};
use saltern_store::{AuditHead, CachedJob, Result, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::error::SqlState;

use super::decide::Numbers;
use super::lease_table::Fence;
use super::reader::ClusterReader;
use super::runtime::RuntimeThread;
use super::session::Session;
use super::writer::{Done, Task, Work, Writer};
use crate::error::SqlError;

/// Tasks that wait for the writer. A caller has one in flight.
const MAX_TASKS: usize = 16;

/// Time that the last attempt to open a database may take beyond the patience.
const LONGER: Duration = Duration::from_secs(90);

/// How an engine works on a database.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The name of the cluster, which its schema bears.
    pub name: String,
    /// How long a batch waits for a database that is away before its caller gets an error.
    pub patience: Duration,
    /// Time after which the server ends a transaction whose client is silent, so that the locks of a
    /// machine that is lost or frozen are given back. A lock is waited for half as long.
    pub idle_limit: Duration,
}

impl ClusterOptions {
    /// Longest wait of the opening of an engine for locks of a former owner, which the server gives back
    /// meanwhile.
    pub(super) fn patience_for_locks(&self) -> Duration {
        self.patience + self.idle_limit * 2
    }
}

/// The database of an engine.
pub(super) struct Target {
    servers: Vec<SqlStore>,
    /// The server that took writes last.
    last: AtomicUsize,
    pub(super) options: ClusterOptions,
    pub(super) place: PathBuf,
}

impl Target {
    pub(super) fn new(servers: Vec<SqlStore>, options: ClusterOptions) -> Result<Self> {
        if !is_schema_name(&options.name) {
            return Err(StoreError::Option {
                option: "saltern_cluster",
                reason: "a name has lower-case letters, digits and underscores, 60 at most"
                    .to_owned(),
            });
        }
        let hosts = servers
            .iter()
            .map(|store| format!("{}:{}", store.host, store.port));
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let database = servers.first().map_or("", |store| store.database.as_str());
        let place = format!("postgresql://{hosts}/{database}/{}", options.name).into();
        Ok(Self {
            servers,
            last: AtomicUsize::new(0),
            options,
            place,
        })
    }

    /// A connection to the server that takes writes. Each has its own time, the one that took them last
    /// comes first. Must be called within the runtime that is to run the connection.
    pub(super) async fn open(&self, settings: &str) -> std::result::Result<Session, SqlError> {
        let first = self.last.load(Ordering::Relaxed);
        let mut failed = None;
        for turn in 0..self.servers.len() {
            let at = (first + turn) % self.servers.len();
            let Some(server) = self.servers.get(at) else {
                continue;
            };
            match Session::connect(server, &self.options, settings).await {
                Ok(session) => {
                    self.last.store(at, Ordering::Relaxed);
                    return Ok(session);
                }
                Err(error) => failed = Some(error.after(failed)),
            }
        }
        Err(failed.unwrap_or(SqlError::ConnectTimeout(0)))
    }

    /// A thread for connections.
    pub(super) fn runtime(&self) -> Result<RuntimeThread> {
        let started = RuntimeThread::start();
        started.map_err(|error| StoreError::io("start a thread for", &self.place, error))
    }

    /// A connection that the thread runs, for a caller that blocks.
    pub(super) fn connect(
        self: &Arc<Self>,
        runtime: &RuntimeThread,
        settings: &'static str,
    ) -> std::result::Result<Session, SqlError> {
        let target = self.clone();
        let connecting = runtime
            .handle()
            .spawn(async move { target.open(settings).await });
        // It ends by itself before that.
        match runtime.wait(LONGER, connecting) {
            Some(Ok(session)) => session,
            _ => Err(SqlError::ConnectTimeout(LONGER.as_secs())),
        }
    }

    pub(super) fn error(&self, action: &'static str, error: SqlError) -> StoreError {
        let path = self.place.clone();
        if error.has_code(&SqlState::DISK_FULL) {
            return StoreError::Full { path };
        }
        StoreError::Database {
            action,
            path,
            is_busy: false,
            source: Box::new(error),
        }
    }

    pub(super) fn not_owner(&self) -> StoreError {
        let path = self.place.clone();
        StoreError::NotOwner { path }
    }
}

/// Opens the job database of a cluster and becomes the owner of its jobs, whoever has its lease; the
/// schema and its tables are made where they are missing. `store` says where the database is; its kind
/// of tables is not looked at.
///
/// # Errors
/// [`StoreError::Option`] for a name that no schema can have without quotes, [`StoreError::Schema`] when
/// a newer release made the tables.
pub fn open_cluster(store: SqlStore, options: ClusterOptions) -> Result<Engine> {
    let target = Target::new(vec![store], options)?;
    Ok(open_engine(Arc::new(target), None)?.engine)
}

/// An engine of this process.
pub(super) struct OwnedEngine {
    pub(super) engine: Engine,
    pub(super) signs: Arc<EngineSigns>,
}

/// Signs of an engine that it appends nothing any more.
#[derive(Default)]
pub(super) struct EngineSigns {
    /// Another process owns the jobs.
    pub(super) has_lost: AtomicBool,
    /// The writer's task is over although it can still be asked, as after a panic.
    pub(super) has_ended: AtomicBool,
}

/// Runs the task of a writer, which is over once nobody can ask it any more. Whatever else ends it is a sign.
pub(super) fn spawn_writer(
    runtime: &Handle,
    signs: Arc<EngineSigns>,
    writing: impl Future<Output = ()> + Send + 'static,
) {
    struct End(Arc<EngineSigns>, bool);

    impl Drop for End {
        fn drop(&mut self) {
            self.0.has_ended.store(!self.1, Ordering::Release);
        }
    }

    let end = End(signs, false);
    runtime.spawn(async move {
        // The whole of it, not the flag alone.
        let mut end = end;
        writing.await;
        end.1 = true;
    });
}

/// Becomes the owner of the jobs, only under a lease if one is given.
pub(super) fn open_engine(target: Arc<Target>, fence: Option<Fence>) -> Result<OwnedEngine> {
    let runtime = Arc::new(target.runtime()?);
    let (reply, opened) = oneshot::channel();
    let (tasks, waiting) = mpsc::channel(MAX_TASKS);
    let (held, opening) = (runtime.clone(), target.clone());
    let signs = Arc::<EngineSigns>::default();
    let lost = signs.clone();
    spawn_writer(runtime.handle(), signs.clone(), async move {
        match Writer::open(opening, fence, lost).await {
            Ok(writer) => {
                if reply.send(Ok(writer.shared())).is_ok() {
                    writer.run(waiting).await;
                }
            }
            // Whoever opens it may be gone.
            Err(error) => drop(reply.send(Err(error))),
        }
        // Until here the thread is needed, whoever else still holds it.
        drop(held);
    });
    let limit = target.options.patience_for_locks() + LONGER;
    let opened = runtime
        .wait(limit, opened)
        .and_then(std::result::Result::ok);
    let numbers = opened.unwrap_or_else(|| {
        let path = target.place.clone();
        Err(StoreError::Interrupted { path })
    })?;
    let queries = Arc::new(ClusterReader::new(target.clone(), runtime));
    let log = Arc::new(ClusterLog {
        target,
        tasks,
        numbers,
    });
    let engine = Engine {
        log: log.clone(),
        queries,
        housekeeping: log,
    };
    Ok(OwnedEngine { engine, signs })
}

/// The owner's end of the writer.
struct ClusterLog {
    target: Arc<Target>,
    tasks: mpsc::Sender<Task>,
    numbers: Arc<Mutex<Numbers>>,
}

impl ClusterLog {
    /// Has the writer do this; `take` takes the result out of its outcome.
    fn ask<T: Send + 'static>(&self, work: Work, take: fn(Done) -> Option<T>) -> Pending<T> {
        let (reply, replied) = oneshot::channel();
        // A task that cannot be queued drops its reply.
        let _ = self.tasks.try_send(Task { work, reply });
        let path = self.target.place.clone();
        Box::pin(async move {
            let done = match replied.await {
                Ok(done) => take(done?),
                Err(_) => None,
            };
            done.ok_or(StoreError::Interrupted { path })
        })
    }

    fn number<T: Send + 'static>(&self, value: impl FnOnce(Numbers) -> T) -> Pending<T> {
        let value = value(*self.numbers.lock());
        Box::pin(std::future::ready(Ok(value)))
    }
}

impl JobLog for ClusterLog {
    fn append(&self, batch: Arc<Batch>) -> Pending<Committed> {
        self.ask(Work::Append(batch), |done| match done {
            Done::Committed(committed) => Some(committed),
            _ => None,
        })
    }

    fn import(&self, slice: Vec<CachedJob>) -> Pending<Imported> {
        self.ask(Work::Import(slice), |done| match done {
            Done::Imported(imported) => Some(imported),
            _ => None,
        })
    }

    fn finish_import(&self) -> Pending<()> {
        self.ask(Work::FinishImport, |_| Some(()))
    }

    fn next_event_position(&self) -> Pending<i64> {
        self.number(|numbers| numbers.event + 1)
    }

    fn audit_head(&self) -> Pending<AuditHead> {
        self.number(|numbers| numbers.audit)
    }
}

impl Housekeeping for ClusterLog {
    fn place(&self) -> &Path {
        &self.target.place
    }

    fn remove_slice(&self, retention: Retention, slice: usize) -> Pending<Option<Removed>> {
        self.ask(Work::Remove(retention, slice), |done| match done {
            Done::Removed(removed, _) => Some(removed),
            _ => None,
        })
    }
}

//! Control socket for the local operator: `saltern_control.ipc` in `sock_dir`, for the master's
//! own user.
//!
//! One line in, an answer out, both JSON: see [`ControlRequest`].

mod seen_minions;

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use saltern_base::blocking;
use saltern_base::fail_point::FailPoint;
use saltern_base::metrics::Registry;
use saltern_config::LogLevel;
use saltern_model::Jid;
use saltern_model::control::{
    Account, ActorName, ActorStatus, ControlRequest, CurrentLevels, InventoryRequest, MAX_IDS,
    Reply, SOCKET, SyndicBelow, Syndics, TaskStatus,
};
use saltern_requests::explain::missing_of_ended;
use saltern_requests::{MasterFleet, Services};
use saltern_store::StoreError;
use saltern_supervise::Tree;
use saltern_wire::member::{LocalPeer, RelayedConnections};
use saltern_wire::net::accept_all;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::automation::reactor::ReactionQueue;
use crate::messages::{Explain, MaintenanceTask};
use crate::syndic::view::SyndicView;
use crate::upkeep::maintenance_tasks::{MaintenanceTasks, Record};

/// Why a log level is not changed.
#[derive(Debug, thiserror::Error)]
pub enum LogLevelError {
    /// Nothing in this program has such a target.
    #[error(
        "\"{0}\" names no place in this program; their names begin with that of a crate, as \
         \"saltern_actors::front::mworker\" does"
    )]
    UnknownPlace(String),
    /// As many targets as are allowed have a level of their own.
    #[error("{0} targets have a level of their own already")]
    TooManyPlaces(usize),
}

/// Log levels, shown and changed at run time.
pub trait LogLevels: Send + Sync {
    /// The current levels.
    fn current(&self) -> CurrentLevels;

    /// Logs at this level from now on: everywhere, or the lines of one place of the program.
    ///
    /// # Errors
    /// [`LogLevelError`], in one line.
    fn set(&self, level: LogLevel, place: Option<&str>) -> Result<(), LogLevelError>;

    /// Goes back to what the configuration says.
    fn reset(&self);
}

/// Why a request is refused, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::of(error)
    }
}

impl Refusal {
    fn of(reason: impl ToString) -> Self {
        Self(reason.to_string().replace('\n', " "))
    }
}

/// Parts of the master that the control socket reaches.
pub(crate) struct Control {
    pub(crate) reactor: Option<Arc<ReactionQueue>>,
    pub(crate) tree: Tree,
    pub(crate) registry: Registry,
    pub(crate) maintenance_tasks: Arc<MaintenanceTasks>,
    /// Gives accounts of open jobs.
    pub(crate) tracker: Recipient<Explain>,
    pub(crate) minions: Arc<MasterFleet>,
    /// The masters above; what is known of the syndics below.
    pub(crate) syndics: (Arc<SyndicView>, Arc<Services>),
    pub(crate) log_levels: Option<Arc<dyn LogLevels>>,
}

/// Longer lines are cut off. A target and the names of many grains have their place in one.
const MAX_LINE: u64 = 16 << 10;

/// Timeout of one request with its answer.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A maintenance task, or a replay, that takes longer goes on in the background. Shorter than
/// [`REQUEST_TIMEOUT`], so that the client gets an answer.
const DUTY_TIME: Duration = Duration::from_secs(9);

/// Less than [`REQUEST_TIMEOUT`], so that the client of an inventory gets an answer while the grains
/// of all minions are still being read.
const INVENTORY_TIME: Duration = Duration::from_secs(8);

/// Concurrent requests.
pub(crate) const MAX_ASKING: usize = 16;

/// Binds the socket; nothing is answered before it is served.
pub(crate) fn bind(sock_dir: &Path) -> io::Result<StdUnixListener> {
    crate::events::event_sockets::bind(&sock_dir.join(SOCKET), 0o600)
}

/// The control socket, bound.
pub(crate) struct ControlSocket {
    pub(crate) listener: UnixListener,
    /// Programs at other members of a cluster.
    pub(crate) relayed: RelayedConnections,
}

/// Serves the socket until `stop`.
pub(crate) fn serve(socket: ControlSocket, control: Control, stop: CancellationToken) {
    if cfg!(feature = "fault-injection") {
        tracing::info!("fault injection is built in: this is a test build");
    }
    let asking = Arc::new(Asking {
        control,
        places: Arc::new(Semaphore::new(MAX_ASKING)),
    });
    let ControlSocket { listener, relayed } = socket;
    actix_rt::spawn(async move {
        tokio::select! {
            () = accept_all(&listener, &stop, |stream| asking.take(stream)) => {}
            () = relayed.each(|stream| asking.take(stream)) => {}
        }
    });
}

/// The programs that ask.
struct Asking {
    control: Control,
    places: Arc<Semaphore>,
}

impl Asking {
    fn take(self: &Arc<Self>, stream: impl LocalPeer) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return;
        };
        let asking = Arc::clone(self);
        actix_rt::spawn(async move {
            // A client that is too slow gets no answer.
            let _ = tokio::time::timeout(REQUEST_TIMEOUT, converse(stream, &asking.control)).await;
            drop(place);
        });
    }
}

async fn converse(mut stream: impl LocalPeer, control: &Control) -> io::Result<()> {
    stream.confirm().await?;
    let mut line = String::new();
    BufReader::new((&mut stream).take(MAX_LINE))
        .read_line(&mut line)
        .await?;
    stream
        .write_all(answer(control, &line).await.as_bytes())
        .await?;
    stream.shutdown().await
}

async fn answer(control: &Control, line: &str) -> String {
    let answered = match serde_json::from_str(line) {
        Ok(request) => control.answer(request).await,
        Err(error) => Err(Refusal(format!("no request of this release: {error}"))),
    };
    answered.unwrap_or_else(|refusal| {
        let refused = Reply::<()>::Error(refusal.to_string());
        serde_json::to_string(&refused).unwrap_or_default()
    })
}

fn reply<T: Serialize>(answer: T) -> Result<String, Refusal> {
    serde_json::to_string(&Reply::Ok(answer)).map_err(Refusal::of)
}

fn status(task: MaintenanceTask, record: &Record) -> TaskStatus {
    let failed = record.failed.as_ref().map(ToString::to_string);
    TaskStatus {
        every: record.every.as_secs(),
        failures: record.failures,
        is_ok: failed.is_none(),
        last_run: record.began,
        result: failed.as_deref().unwrap_or("ok").replace(['\t', '\n'], " "),
        runs: record.runs,
        task: task.name().to_owned(),
        took: record.took.as_micros() as f64 / 1e6,
    }
}

#[cfg(feature = "fault-injection")]
fn die(point: &str, count: u32) -> Result<(), Refusal> {
    let found = FailPoint::from_name(point);
    let point = found.ok_or_else(|| Refusal(format!("there is no place \"{point}\"")))?;
    point.arm(count);
    Ok(())
}

#[cfg(not(feature = "fault-injection"))]
fn die(_: &str, _: u32) -> Result<(), Refusal> {
    Err(Refusal::of(WITHOUT))
}

#[cfg(not(feature = "fault-injection"))]
const WITHOUT: &str = "this master was built without fault injection";

impl Control {
    async fn answer(&self, request: ControlRequest) -> Result<String, Refusal> {
        match request {
            ControlRequest::Metrics => reply(self.metrics()?),
            ControlRequest::Actors => reply(self.actors()),
            ControlRequest::Minions => reply(seen_minions::seen(&self.minions)?),
            ControlRequest::MinionIds(prefix) => reply(self.minions.ids(&prefix, MAX_IDS)?),
            ControlRequest::Inventory(request) => self.inventory(request).await,
            ControlRequest::Job(jid) => reply(self.job(jid).await?),
            ControlRequest::EndedJob(jid) => self.ended_job(jid).await,
            ControlRequest::Syndics => reply(self.syndics()),
            ControlRequest::MaintenanceTasks => reply(self.maintenance_tasks()),
            ControlRequest::RunMaintenanceTask(name) => reply(self.run_task(&name).await?),
            ControlRequest::Replay(letter) => reply(self.replay(&letter).await?),
            ControlRequest::LogLevels => reply(self.log_levels()?.current()),
            ControlRequest::SetLogLevel { level, target } => {
                reply(self.set_log_level(&level, target.as_deref())?)
            }
            ControlRequest::ResetLogLevels => {
                self.log_levels()?.reset();
                reply(self.log_levels()?.current())
            }
            ControlRequest::FailPoints => reply(FailPoint::ALL.map(FailPoint::name).as_slice()),
            ControlRequest::Die { point, count } => reply(die(&point, count)?),
            ControlRequest::Panic(actor) => reply(self.break_actor(Fault::Panic, &actor)?),
            ControlRequest::Stall(actor) => reply(self.break_actor(Fault::Stall, &actor)?),
        }
    }

    /// On a thread that may wait: after a start the cache of every minion is read, by this or by
    /// upkeep.
    async fn inventory(&self, request: InventoryRequest) -> Result<String, Refusal> {
        let (minions, services) = (self.minions.clone(), self.syndics.1.clone());
        let work = move || {
            if !request.grains.is_empty() {
                minions
                    .wait_for_index(INVENTORY_TIME)
                    .map_err(Refusal::of)?;
            }
            let mut inventory = minions.inventory(&request).map_err(Refusal::of)?;
            if request.last_jobs {
                let ids = inventory.minions.iter().map(|row| &row.minion.id);
                inventory.last_jobs = Some(services.last_jobs_of(ids).map_err(Refusal::of)?);
            }
            reply(inventory)
        };
        let done = blocking::run(work);
        match tokio::time::timeout(INVENTORY_TIME, done).await {
            Ok(done) => done.map_err(Refusal::of)?,
            Err(_) => Err(Refusal::of(self.minions.being_indexed())),
        }
    }

    async fn job(&self, jid: Jid) -> Result<Option<Account>, Refusal> {
        self.tracker.send(Explain(jid)).await.map_err(Refusal::of)
    }

    /// On a thread that may wait for the job database.
    async fn ended_job(&self, jid: Jid) -> Result<String, Refusal> {
        let services = self.syndics.1.clone();
        let work = move || missing_of_ended(&jid, &services);
        let missing = blocking::run(work).await;
        reply(missing.map_err(Refusal::of)?.map_err(Refusal::of)?)
    }

    fn syndics(&self) -> Syndics {
        let (view, services) = &self.syndics;
        let known = &services.minions.syndics;
        let below = known.ids().into_iter().map(|id| {
            let minions = known.claimed_by(&id);
            let seen = self.minions.seen(id);
            SyndicBelow {
                id: seen.id,
                is_connected: seen.is_present,
                last_heard: seen.last_heard,
                minions,
            }
        });
        Syndics {
            above: view.above(),
            outboxes: view.outboxes(),
            below: below.collect(),
        }
    }

    fn metrics(&self) -> Result<String, Refusal> {
        prometheus::TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .map_err(Refusal::of)
    }

    fn maintenance_tasks(&self) -> Vec<TaskStatus> {
        let records = self.maintenance_tasks.records().into_iter();
        records
            .map(|(task, record)| status(task, &record))
            .collect()
    }

    async fn run_task(&self, name: &str) -> Result<TaskStatus, Refusal> {
        let refused = |what: &str| Refusal(format!("\"{name}\" {what}"));
        let Some(task) = MaintenanceTask::from_name(name) else {
            return Err(Refusal(format!("there is no maintenance task \"{name}\"")));
        };
        match tokio::time::timeout(DUTY_TIME, self.maintenance_tasks.do_now(task)).await {
            Ok(Some(record)) => Ok(status(task, &record)),
            Ok(None) => Err(refused("is not asked for by the configuration")),
            Err(_) => Err(refused("was begun and is not done yet")),
        }
    }

    fn actors(&self) -> Vec<ActorStatus> {
        let children = self.tree.liveness().into_iter();
        let status = |child: saltern_supervise::ChildHealth| ActorStatus {
            name: child.name.to_owned(),
            instance: child.instance,
            restarts: child.restarts,
        };
        children.map(status).collect()
    }

    fn log_levels(&self) -> Result<&dyn LogLevels, Refusal> {
        let levels = self.log_levels.as_deref();
        levels.ok_or_else(|| Refusal::of("the log of this master cannot be changed"))
    }

    fn set_log_level(&self, level: &str, target: Option<&str>) -> Result<CurrentLevels, Refusal> {
        let known = LogLevel::from_name(level);
        let level =
            known.ok_or_else(|| Refusal(format!("\"{level}\" is not {}", LogLevel::NAMES)))?;
        let levels = self.log_levels()?;
        levels.set(level, target).map_err(Refusal::of)?;
        tracing::info!(%level, place = target, "the log level was changed");
        Ok(levels.current())
    }

    async fn replay(&self, letter: &str) -> Result<(), Refusal> {
        let reactor = self.reactor.as_ref();
        let reactor = reactor.ok_or_else(|| Refusal::of("this master has no reactor"))?;
        let begun = reactor.replay(letter).map_err(Refusal::of)?;
        match tokio::time::timeout(DUTY_TIME, begun).await {
            Ok(Ok(replayed)) => replayed.map_err(Refusal::of),
            Ok(Err(_)) => Err(Refusal::of("the reactor ended before it was begun")),
            Err(_) => Err(Refusal(format!("\"{letter}\" waits behind other events"))),
        }
    }

    /// An actor of a pool may be named without its number: the first one is meant.
    #[cfg(feature = "fault-injection")]
    fn break_actor(&self, fault: Fault, actor: &ActorName) -> Result<(), Refusal> {
        let ActorName { name, instance } = actor;
        let break_one = |instance| match fault {
            Fault::Stall => self.tree.inject_stall(name, instance),
            Fault::Panic => self.tree.inject_panic(name, instance),
        };
        match break_one(*instance) || (*instance == 0 && break_one(1)) {
            true => Ok(()),
            false => Err(Refusal(format!("there is no actor \"{name}\" {instance}"))),
        }
    }

    #[cfg(not(feature = "fault-injection"))]
    #[expect(clippy::unused_self, reason = "the test build needs it")]
    fn break_actor(&self, _: Fault, _: &ActorName) -> Result<(), Refusal> {
        Err(Refusal::of(WITHOUT))
    }
}

/// Fault to inject into an actor.
#[derive(Clone, Copy)]
enum Fault {
    Panic,
    Stall,
}

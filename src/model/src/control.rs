//! Requests and replies of the control socket (`saltern_control.ipc`): one JSON document each,
//! a line for the request. The master's side is an actor's, the client's is `saltern-client`'s.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Jid, MinionId};

/// The socket's name, in `sock_dir`.
pub const SOCKET: &str = "saltern_control.ipc";

/// The most ids in one answer to [`ControlRequest::MinionIds`].
pub const MAX_IDS: usize = 1_000;

/// A request. Those that answer nothing answer `()`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// The metrics: `String`.
    Metrics,
    /// The actors: `Vec<ActorStatus>`.
    Actors,
    /// The accepted minions, sorted by id: `Vec<SeenMinion>`.
    Minions,
    /// Accepted ids that begin so, sorted, at most [`MAX_IDS`]: `Vec<String>`.
    MinionIds(String),
    /// The accepted minions that a target means, with cached grains: `Inventory`.
    Inventory(InventoryRequest),
    /// State of the tracker for a job: `Option<Account>`, `None` when it is not open.
    Job(Jid),
    /// The minions that have not returned a job that has ended, with what is known of them at this moment:
    /// `Option<Vec<Missing>>`, `None` when there is no such job, or it is open.
    EndedJob(Jid),
    /// The masters above and the syndics below: `Syndics`.
    Syndics,
    /// The maintenance tasks: `Vec<TaskStatus>`.
    MaintenanceTasks,
    /// Runs a maintenance task now: `TaskStatus`.
    RunMaintenanceTask(String),
    /// Retries a failed reaction, by the name of its dead letter.
    Replay(String),
    /// The levels of the log: `CurrentLevels`.
    LogLevels,
    /// Changes them: `CurrentLevels`.
    SetLogLevel {
        /// The level's name.
        level: String,
        /// The one target (module) that it is for.
        target: Option<String>,
    },
    /// Goes back to the configured levels: `CurrentLevels`.
    ResetLogLevels,
    /// The fail points: `Vec<String>`.
    FailPoints,
    /// Makes the process die at a pass of a fail point; only in test builds.
    Die {
        /// The fail point.
        point: String,
        /// At which pass from now on; 0 disarms it.
        count: u32,
    },
    /// An actor panics at its next poll; only in test builds.
    Panic(ActorName),
    /// An actor's thread hangs for ever; only in test builds.
    Stall(ActorName),
}

/// One actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorName {
    /// Its name.
    pub name: String,
    /// Its number in a pool, from 1; 0 for an actor that exists once, and for the first of a pool.
    pub instance: u32,
}

/// An actor and its restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorStatus {
    /// Its name.
    pub name: String,
    /// Its number in a pool, else 0.
    pub instance: u32,
    /// How often it was built again.
    pub restarts: u64,
}

/// The masters above this one, and the syndics below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syndics {
    /// The masters above, in the order of the configuration.
    pub above: Vec<UpperStatus>,
    /// The outboxes of what goes up: one of each master above, and `any` for the returns of jobs
    /// that none of them published.
    pub outboxes: Vec<OutboxStatus>,
    /// The syndics below, sorted by id.
    pub below: Vec<SyndicBelow>,
}

/// A master above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpperStatus {
    /// As `syndic_master` names it.
    pub master: String,
    /// Whether this master is connected to it.
    pub is_connected: bool,
    /// When it was connected or cut off, in microseconds since 1970; `None` before the first try.
    pub since: Option<i64>,
    /// Why it is not connected.
    pub problem: Option<String>,
}

/// An outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxStatus {
    /// The master above that it is for, or `any`.
    pub outbox: String,
    /// Returns that were acknowledged since this master started.
    pub acknowledged: u64,
    /// Returns that were dropped since then.
    pub dropped: u64,
    /// Rows of the job database behind its cursor.
    pub lag_rows: u64,
    /// Age of the oldest return that waits, in seconds.
    pub lag_seconds: u64,
}

/// A syndic below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyndicBelow {
    /// Which.
    pub id: MinionId,
    /// Whether it is, or may be, connected.
    pub is_connected: bool,
    /// When its last request came, in microseconds since 1970.
    pub last_heard: Option<i64>,
    /// Minions that it has spoken for since this master started.
    pub minions: usize,
}

/// A minion with an accepted key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenMinion {
    /// Which.
    pub id: MinionId,
    /// Whether it is, or may be, connected.
    pub is_present: bool,
    /// When its last request came, in microseconds since 1970.
    pub last_heard: Option<i64>,
    /// The address of its connection, or of its last request.
    pub address: Option<IpAddr>,
    /// Its presence state, in words.
    pub standing: String,
}

/// Selection of minions for an inventory, and of their fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryRequest {
    /// A compound target.
    pub target: String,
    /// Paths into the cached grains, such as `os` or `ip4_interfaces:eth0`.
    pub grains: Vec<String>,
    /// Whether the last job of each is to be named.
    #[serde(default)]
    pub last_jobs: bool,
}

/// Minions, sorted by id. `V` is a grain's value as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory<V> {
    /// The minions that the target matches.
    pub minions: Vec<InventoryRow<V>>,
    /// Their last jobs, where these were asked for and are known.
    #[serde(default)]
    pub last_jobs: Option<LastJobs>,
}

/// The last jobs that minions returned, in the order of the minions. Each job is named once: most
/// minions share theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastJobs {
    /// The id and the function of each job.
    pub jobs: Vec<(String, String)>,
    /// Of each minion the number of its job among these, when its return came, in microseconds since
    /// 1970, and its return code.
    pub returns: Vec<Option<(usize, i64, i64)>>,
}

/// One minion of an inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryRow<V> {
    /// Which, and its presence.
    pub minion: SeenMinion,
    /// The grains that were asked for, in their order; nothing where it has none.
    pub grains: Vec<Option<V>>,
}

/// A maintenance task with what is known of its runs, also as `saltern maintenance --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Seconds between two runs.
    pub every: u64,
    /// Runs that failed.
    pub failures: u64,
    /// Whether the last run did what it should, as far as there was one.
    pub is_ok: bool,
    /// When it last began, in seconds since 1970; `None` before the first time.
    pub last_run: Option<i64>,
    /// `ok`, or why the last run failed, in one line.
    pub result: String,
    /// Runs that have ended.
    pub runs: u64,
    /// The task's name.
    pub task: String,
    /// How long the last run took, in seconds.
    pub took: f64,
}

/// The levels of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentLevels {
    /// Of the console.
    pub console: String,
    /// Of the log file; `None` where none is open.
    pub file: Option<String>,
    /// Of targets (modules) with a level of their own, the longest name first.
    pub targets: Vec<(String, String)>,
}

/// The answer to a request.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply<T> {
    /// The answer.
    Ok(T),
    /// Why not, in one line.
    Error(String),
}

/// A minion that has not returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Which.
    pub minion: MinionId,
    /// Its state in one word, as on the bus: `expected`, `delivered`, `running`, `unreachable` or
    /// `unknown`.
    pub state: String,
    /// The evidence for it, for people.
    pub why: String,
}

/// Account of an open job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Rounds of probes so far.
    pub rounds: u32,
    /// Time until the next look at the job, if one is scheduled.
    pub next_look: Option<Duration>,
    /// Minions that have not returned.
    pub missing: Vec<Missing>,
}

//! What is asked and answered at the control socket: one JSON document each, and the client's side
//! of it.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use saltern_model::{Jid, MinionId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::SOCKET;
use crate::messages::Account;

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
    /// What the tracker knows of a job: `Option<Account>`, `None` when it is not open.
    Job(Jid),
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
pub(super) enum Reply<T> {
    Ok(T),
    /// Why not, in one line.
    Error(String),
}

/// Why a control request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No connection, or it broke.
    #[error("the control socket does not answer; is the master running?")]
    Socket(#[from] io::Error),
    /// The master closed the connection: it answers as many clients as it may, or took too long.
    #[error("the master is busy with other questions")]
    Busy,
    /// An answer of another release.
    #[error("the master's answer cannot be read")]
    Unreadable(#[from] serde_json::Error),
    /// The master refused.
    #[error("the master refused: {0}")]
    Refused(String),
}

type Answer<T> = Result<T, ControlError>;

/// Sends a request to a running master; gives its answer, of the type that the request names.
///
/// # Errors
/// No answer, another one, or a refusal.
pub fn ask<T: DeserializeOwned>(sock_dir: &Path, request: &ControlRequest) -> Answer<T> {
    let mut stream = UnixStream::connect(sock_dir.join(SOCKET))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.is_empty() {
        return Err(ControlError::Busy);
    }
    match serde_json::from_slice(&answer)? {
        Reply::Ok(answer) => Ok(answer),
        Reply::Error(reason) => Err(ControlError::Refused(reason)),
    }
}

/// The metrics in Prometheus' text format.
///
/// # Errors
/// As for [`ask`].
pub fn metrics(sock_dir: &Path) -> Answer<String> {
    ask(sock_dir, &ControlRequest::Metrics)
}

/// The minions with an accepted key, sorted by id.
///
/// # Errors
/// As for [`ask`].
pub fn minions(sock_dir: &Path) -> Answer<Vec<SeenMinion>> {
    ask(sock_dir, &ControlRequest::Minions)
}

/// Account of an open job; `None` when it is not open.
///
/// # Errors
/// As for [`ask`].
pub fn account(sock_dir: &Path, jid: &Jid) -> Answer<Option<Account>> {
    ask(sock_dir, &ControlRequest::Job(jid.clone()))
}

/// The maintenance tasks, in the order in which they are shown.
///
/// # Errors
/// As for [`ask`].
pub fn maintenance_tasks(sock_dir: &Path) -> Answer<Vec<TaskStatus>> {
    ask(sock_dir, &ControlRequest::MaintenanceTasks)
}

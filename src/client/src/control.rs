//! The control socket of a running master of ours, for local programs: questions about it and
//! orders to it, which no network peer can give.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use saltern_model::Jid;
use saltern_model::control::{
    Account, ControlRequest, Inventory, InventoryRequest, Missing, Reply, SOCKET, SeenMinion,
    Syndics, TaskStatus,
};
use serde::de::DeserializeOwned;

/// Why a control request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No connection, or it broke.
    #[error("the control socket does not answer; is the master running?")]
    Socket(#[from] io::Error),
    /// The master closed the connection: it answers as many clients as it may, or took too long.
    #[error("the master is busy with other questions, or stands by while none is active")]
    Busy,
    /// An answer of another release.
    #[error("the master's answer cannot be read")]
    Unreadable(#[from] serde_json::Error),
    /// The master refused.
    #[error("the master refused: {0}")]
    Refused(String),
}

impl ControlError {
    /// Whether no master runs here.
    #[must_use]
    pub fn is_no_master(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        matches!(self, Self::Socket(error) if [ConnectionRefused, NotFound].contains(&error.kind()))
    }

    /// Whether the connection was closed without an answer, as a member of a cluster that stands by does
    /// while none is active.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        match self {
            Self::Busy => true,
            Self::Socket(error) => [BrokenPipe, ConnectionReset].contains(&error.kind()),
            Self::Unreadable(_) | Self::Refused(_) => false,
        }
    }
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

/// The first accepted ids that begin with a text.
///
/// # Errors
/// As for [`ask`].
pub fn minion_ids(sock_dir: &Path, prefix: &str) -> Answer<Vec<String>> {
    ask(sock_dir, &ControlRequest::MinionIds(prefix.to_owned()))
}

/// The accepted minions that a target means, with some of their grains as JSON.
///
/// # Errors
/// As for [`ask`].
pub fn inventory(
    sock_dir: &Path,
    request: &InventoryRequest,
) -> Answer<Inventory<serde_json::Value>> {
    ask(sock_dir, &ControlRequest::Inventory(request.clone()))
}

/// Account of an open job; `None` when it is not open.
///
/// # Errors
/// As for [`ask`].
pub fn account(sock_dir: &Path, jid: &Jid) -> Answer<Option<Account>> {
    ask(sock_dir, &ControlRequest::Job(jid.clone()))
}

/// The minions that have not returned a job that has ended; `None` when there is no such job, or it is open.
///
/// # Errors
/// As for [`ask`]; a master of an earlier release refuses it.
pub fn missing_of_ended(sock_dir: &Path, jid: &Jid) -> Answer<Option<Vec<Missing>>> {
    ask(sock_dir, &ControlRequest::EndedJob(jid.clone()))
}

/// The masters above, and the syndics below.
///
/// # Errors
/// As for [`ask`].
pub fn syndics(sock_dir: &Path) -> Answer<Syndics> {
    ask(sock_dir, &ControlRequest::Syndics)
}

/// The maintenance tasks, in the order in which they are shown.
///
/// # Errors
/// As for [`ask`].
pub fn maintenance_tasks(sock_dir: &Path) -> Answer<Vec<TaskStatus>> {
    ask(sock_dir, &ControlRequest::MaintenanceTasks)
}

//! Liveness and readiness checks, each with its reason.
//!
//! *Alive* means that every actor answers its heartbeat: a restart cures a failure. *Ready* means
//! that a minion or a user who connects now is served. Nothing here repairs anything.

use std::sync::Arc;
use std::time::Duration;

use saltern_base::metrics::{Registry, gauge_on_scrape};
use saltern_store::{PkiTree, StoreError};
use saltern_supervise::{ChildHealth, ChildState, Tree};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::jobs::job_store::StoreHealth;

/// Heartbeat timeout: an actor silent for longer counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(15);

/// Inputs of the checks.
pub(crate) struct Health {
    pub(crate) tree: Tree,
    pub(crate) pki: Arc<PkiTree>,
    /// Cancelled when the master stops.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the request port is closed.
    pub(crate) requests_closed: CancellationToken,
    /// How many workers there should be.
    pub(crate) workers: usize,
    pub(crate) store: StoreHealth,
}

/// Registers the results of [`Health::ready`] as gauges, for as long as `health` lives.
///
/// # Panics
/// When the registry has it already.
pub(crate) fn register(registry: &Registry, health: &Arc<Health>) {
    let health = Arc::downgrade(health);
    gauge_on_scrape(
        registry,
        "saltern_check_passed",
        "Whether a check of /readyz passes, by check; /readyz says why not.",
        &["check"],
        move |gauges| {
            let checks = health.upgrade().map(|health| health.ready());
            for check in checks.unwrap_or_default() {
                let passed = i64::from(check.passed);
                gauges.with_label_values(&[check.name]).set(passed);
            }
        },
    );
}

/// Why a check fails.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    /// The master stops.
    #[error("the master is stopping")]
    Stopping,
    /// Requests are no longer taken.
    #[error("the request port is closed")]
    PortClosed,
    /// An actor without which nobody is served.
    #[error("the actor \"{0}\" is not running")]
    NotRunning(&'static str),
    /// The directory of accepted keys cannot be read.
    #[error("the accepted minions cannot be listed: {0}")]
    Keys(StoreError),
    /// The job database has become read-only.
    #[error("the disk is full ({room} bytes are left): nothing is written")]
    DiskFull {
        /// Bytes that are left.
        room: i64,
    },
    /// The job database does not take writes.
    #[error("the last commit failed")]
    CommitFailed,
    /// No worker runs.
    #[error("0 of {wanted} workers are running")]
    NoWorkers {
        /// How many there should be.
        wanted: usize,
    },
    /// Actors that do not answer, each with its silence.
    #[error("no answer of {}", .0.join(", "))]
    NoAnswer(Vec<String>),
}

/// One check and its finding.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    #[serde(rename = "check")]
    pub(crate) name: &'static str,
    #[serde(rename = "ok")]
    pub(crate) passed: bool,
    /// The finding, passed or not.
    pub(crate) reason: String,
}

impl Check {
    pub(crate) fn new(name: &'static str, found: Result<String, impl ToString>) -> Self {
        Self {
            name,
            passed: found.is_ok(),
            reason: found.unwrap_or_else(|error| error.to_string()),
        }
    }
}

/// Checks that the status port answers with.
pub(crate) trait Checks: Send + Sync {
    /// Liveness: whether the process should go on.
    fn alive(&self) -> Vec<Check>;

    /// Readiness: whether new clients are served.
    fn ready(&self) -> Vec<Check>;
}

impl Checks for Health {
    fn alive(&self) -> Vec<Check> {
        vec![Check::new("actors", answering(&self.tree.liveness()))]
    }

    fn ready(&self) -> Vec<Check> {
        let children = self.tree.liveness();
        vec![
            Check::new("running", self.running()),
            Check::new("actors", answering(&children)),
            Check::new("ports", self.ports(&children)),
            Check::new("workers", workers(&children, self.workers)),
            Check::new("database", database(&self.store)),
            Check::new("keys", self.keys()),
        ]
    }
}

impl Health {
    fn running(&self) -> Result<String, CheckError> {
        match self.stop.is_cancelled() {
            true => Err(CheckError::Stopping),
            false => Ok("the master has started".to_owned()),
        }
    }

    fn ports(&self, children: &[ChildHealth]) -> Result<String, CheckError> {
        if self.requests_closed.is_cancelled() {
            return Err(CheckError::PortClosed);
        }
        for name in ["req_router", "publisher"] {
            if running(children, name) == 0 {
                return Err(CheckError::NotRunning(name));
            }
        }
        Ok("requests and subscribers are taken".to_owned())
    }

    fn keys(&self) -> Result<String, CheckError> {
        match self.pki.accepted() {
            Ok(accepted) => Ok(format!("{} minions are accepted", accepted.len())),
            Err(error) => Err(CheckError::Keys(error)),
        }
    }
}

fn database(store: &StoreHealth) -> Result<String, CheckError> {
    let room = store.room.get();
    if store.read_only.get() != 0 {
        Err(CheckError::DiskFull { room })
    } else if store.failing.get() != 0 {
        Err(CheckError::CommitFailed)
    } else {
        Ok(format!("{} MiB can still be written", room >> 20))
    }
}

fn running(children: &[ChildHealth], name: &str) -> usize {
    let running = |child: &&ChildHealth| child.name == name && child.state == ChildState::Running;
    children.iter().filter(running).count()
}

fn workers(children: &[ChildHealth], wanted: usize) -> Result<String, CheckError> {
    let running = running(children, "mworker");
    match running {
        0 => Err(CheckError::NoWorkers { wanted }),
        _ => Ok(format!("{running} of {wanted} workers are running")),
    }
}

/// Whether all actors answer that should, and if not, which do not. Actors that may block (on
/// templates, Python, other machines, disks) are exempt: their queues show whether they work.
fn answering(children: &[ChildHealth]) -> Result<String, CheckError> {
    let is_stuck = |child: &&ChildHealth| {
        child.state == ChildState::Running && child.last_beat_age > STUCK_AFTER && !child.may_block
    };
    let stuck: Vec<String> = children
        .iter()
        .filter(is_stuck)
        .map(|child| {
            let silence = child.last_beat_age.as_secs();
            format!("\"{}\" {} for {silence} s", child.name, child.instance)
        })
        .collect();
    match stuck.is_empty() {
        true => Ok(format!("{} actors answer", children.len())),
        false => Err(CheckError::NoAnswer(stuck)),
    }
}

#[cfg(test)]
mod tests {
    use saltern_base::metrics::IntGauge;

    use super::*;

    fn child(name: &'static str, state: ChildState, silence: u64) -> ChildHealth {
        ChildHealth {
            name,
            instance: 1,
            supervisor: "master".to_owned(),
            state,
            restarts: 0,
            last_beat_age: Duration::from_secs(silence),
            may_block: false,
            mailbox_len: 0,
        }
    }

    #[test]
    fn stuck_actor_is_named_unless_it_may_block() {
        let well = [
            child("job_store", ChildState::Running, 1),
            ChildHealth {
                may_block: true,
                ..child("reactor", ChildState::Running, 3600)
            },
            child("mworker", ChildState::Waiting, 60),
        ];
        assert_eq!(answering(&well).ok().as_deref(), Some("3 actors answer"));
        let stuck = [
            child("job_store", ChildState::Running, 16),
            child("mworker", ChildState::Running, 1),
        ];
        let reason = "no answer of \"job_store\" 1 for 16 s";
        assert!(answering(&stuck).is_err_and(|error| error.to_string() == reason));
    }

    #[test]
    fn one_running_worker_is_enough() {
        let one = [
            child("mworker", ChildState::Running, 0),
            child("mworker", ChildState::Waiting, 0),
        ];
        let found = |children| workers(children, 2).unwrap_or_else(|error| error.to_string());
        assert_eq!(found(&one), "1 of 2 workers are running");
        assert_eq!(found(&one[1..]), "0 of 2 workers are running");
        assert!(workers(&one[1..], 2).is_err());
    }

    #[test]
    fn database_check_gives_its_reason() {
        let gauge = |name: &str| IntGauge::new(name, name).expect("a name");
        let store = StoreHealth {
            read_only: gauge("read_only"),
            failing: gauge("failing"),
            room: gauge("room"),
        };
        store.room.set(7 << 20);
        assert!(database(&store).is_ok_and(|reason| reason.starts_with("7 MiB")));
        store.failing.set(1);
        assert!(database(&store).is_err_and(|error| error.to_string().contains("commit")));
        store.read_only.set(1);
        assert!(database(&store).is_err_and(|error| error.to_string().contains("full")));
    }
}

//! Live state of the master for queries of users: accounts of open jobs, and readiness.

use std::sync::Weak;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use actix::Recipient;
use saltern_model::Jid;
use saltern_model::control::Account;
use saltern_model::query::{Health as HealthReport, HealthCheck};
use saltern_runners::{LiveMaster, NoAnswer};

use super::health::Health;
use crate::messages::ExplainTo;

/// The tracker answers between two messages, so within this unless it is overloaded.
const ACCOUNT: Duration = Duration::from_secs(5);

/// The running master.
pub(crate) struct RunningMaster {
    pub(crate) tracker: Recipient<ExplainTo>,
    /// Gone when the master is: it holds the tree, whose actors hold this.
    pub(crate) health: Weak<Health>,
}

impl LiveMaster for RunningMaster {
    fn account(&self, jid: &Jid) -> Result<Option<Account>, NoAnswer> {
        let (answer, account) = sync_channel(1);
        let jid = jid.clone();
        let asked = self.tracker.try_send(ExplainTo { jid, answer });
        asked.map_err(|_| NoAnswer)?;
        account.recv_timeout(ACCOUNT).map_err(|_| NoAnswer)
    }

    fn health(&self) -> HealthReport {
        let health = self.health.upgrade();
        let checks = health.map(|health| health.ready()).unwrap_or_default();
        HealthReport {
            is_ready: !checks.is_empty() && checks.iter().all(|check| check.passed),
            checks: checks
                .into_iter()
                .map(|check| HealthCheck {
                    name: check.name.to_owned(),
                    passed: check.passed,
                    reason: check.reason,
                })
                .collect(),
        }
    }
}

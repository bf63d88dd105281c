//! The status port of a master that stands by: alive, and not ready, with the reason.
//!
//! It has the address of the active master's status port, and is closed before that one is opened.

use std::sync::Arc;

use saltern_base::metrics::Registry;
use saltern_config::MasterConfig;
use saltern_http::HttpMetrics;
use tokio_util::sync::CancellationToken;

use crate::operator::health::{Check, Checks};
use crate::operator::status_port::StatusPort;
use crate::tree::StartError;
use crate::tree::listeners::Listeners;

/// The bound port, where one is configured.
pub struct StandbyPort {
    port: Option<StatusPort>,
    checks: Arc<dyn Checks>,
}

/// Tells why it is not ready.
struct Standby<F>(F);

impl<F: Fn() -> String + Send + Sync> Checks for Standby<F> {
    fn alive(&self) -> Vec<Check> {
        let alive = "this master is a member of its cluster".to_owned();
        vec![Check::new("cluster", Ok::<_, String>(alive))]
    }

    fn ready(&self) -> Vec<Check> {
        vec![Check::new("cluster", Err(self.0()))]
    }
}

impl StandbyPort {
    /// Binds `saltern_metrics_address`, if there is one; `reason` says why nobody is served.
    ///
    /// # Errors
    /// The address is taken, or the files of its TLS cannot be used.
    pub fn open(
        config: &MasterConfig,
        registry: &Registry,
        reason: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let http = HttpMetrics::new(registry);
        Ok(Self {
            port: Listeners::open_status(config, (registry, &http))?,
            checks: Arc::new(Standby(reason)),
        })
    }

    /// Answers while a task runs; the port is closed when its outcome is given.
    pub async fn serve_while<T>(self, task: impl Future<Output = T>) -> T {
        let Some(port) = self.port else {
            return task.await;
        };
        let stop = CancellationToken::new();
        let until = stop.clone();
        let task = async move {
            let outcome = task.await;
            until.cancel();
            outcome
        };
        tokio::join!(port.serve(self.checks, stop), task).1
    }
}

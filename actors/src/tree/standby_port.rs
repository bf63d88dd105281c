//! The status port of a master that stands by: alive, and ready where it relays to the active one.
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

/// Whether a master that stands by is of use to a peer.
pub struct StandbyState {
    /// A peer is served here, by way of the active master.
    pub is_ready: bool,
    /// Its standing, for people.
    pub text: String,
}

struct Standby<F>(F);

impl<F: Fn() -> StandbyState + Send + Sync> Checks for Standby<F> {
    fn alive(&self) -> Vec<Check> {
        let alive = "this master is a member of its cluster".to_owned();
        vec![Check::new("cluster", Ok::<_, String>(alive))]
    }

    fn ready(&self) -> Vec<Check> {
        let StandbyState { is_ready, text } = (self.0)();
        let outcome = match is_ready {
            true => Ok(text),
            false => Err(text),
        };
        vec![Check::new("cluster", outcome)]
    }
}

impl StandbyPort {
    /// Binds `saltern_metrics_address`, if there is one; `state` is read at each request.
    ///
    /// # Errors
    /// The address is taken, or the files of its TLS cannot be used.
    pub fn open(
        config: &MasterConfig,
        registry: &Registry,
        state: impl Fn() -> StandbyState + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let http = HttpMetrics::new(registry);
        Ok(Self {
            port: Listeners::open_status(config, (registry, &http))?,
            checks: Arc::new(Standby(state)),
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

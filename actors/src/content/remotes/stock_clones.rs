//! Updater of stock's own clones of gitfs (`cachedir/gitfs`), for its `salt-run`.
//!
//! `salt-run state.orchestrate` and `salt-run fileserver.*` never ask a master for files: they
//! read these clones, which only the maintenance of stock's master fetches. Their layout belongs
//! to the provider of the installation (pygit2, GitPython or git), so stock's own code is run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use saltern_base::chain;
use saltern_bridge::{BridgeError, Call, Work};
use saltern_requests::Services;
use saltern_wire::msgpack::Value;

/// Timeout of stock's update of all remotes.
const STOCK_TIMEOUT: Duration = Duration::from_secs(1_800);

/// Whether an update runs, and whether another one is wanted.
#[derive(Clone, Default)]
pub(super) struct StockClones {
    is_running: Arc<AtomicBool>,
    is_wanted: Arc<AtomicBool>,
    was_updated: Arc<AtomicBool>,
}

impl StockClones {
    /// Whether there has been an update since the start, or cannot be one.
    pub(super) fn were_updated(&self) -> bool {
        self.was_updated.load(Ordering::Relaxed)
    }

    /// Starts an update, or schedules another one after the one that runs.
    pub(super) fn update(&self, services: &Arc<Services>) {
        if !services.config.saltern_gitfs_for_salt_run {
            self.was_updated.store(true, Ordering::Relaxed);
            return;
        }
        self.is_wanted.store(true, Ordering::SeqCst);
        if self.is_running.swap(true, Ordering::SeqCst) {
            return;
        }
        let (clones, services) = (self.clone(), services.clone());
        let started = thread::Builder::new()
            .name("stock-gitfs".to_owned())
            .spawn(move || clones.run(&services));
        if let Err(error) = started {
            self.is_running.store(false, Ordering::SeqCst);
            tracing::error!(%error, "no thread for the clones of stock's salt-run");
        }
    }

    fn run(&self, services: &Services) {
        loop {
            while self.is_wanted.swap(false, Ordering::SeqCst) {
                let is_done = fetch(services);
                self.was_updated.store(is_done, Ordering::Relaxed);
            }
            self.is_running.store(false, Ordering::SeqCst);
            // Requested between the two, while this one still ran.
            let is_left = self.is_wanted.load(Ordering::SeqCst);
            if !is_left || self.is_running.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }
}

/// Whether no retry is needed before the next change.
fn fetch(services: &Services) -> bool {
    let jid = services.minter.mint().to_string();
    let call = Call {
        fun: "fileserver.update".to_owned(),
        positional: Vec::new(),
        named: vec![("backend".to_owned(), Value::from("gitfs"))],
        tag: format!("salt/run/{jid}"),
        jid,
        user: services.config.user.clone(),
    };
    match services.bridge.call(&Work::Runner(&call), STOCK_TIMEOUT) {
        Ok(done) if done.get("success").is_some_and(Value::is_truthy) => {
            tracing::debug!("the clones of stock's salt-run are up to date");
            true
        }
        Ok(done) => {
            let said = done.get("return").and_then(Value::as_str);
            let said: String = said.unwrap_or_default().chars().take(500).collect();
            tracing::warn!(said, "stock's salt-run may not see what is new in gitfs");
            false
        }
        // Without an installation there is no such salt-run.
        Err(BridgeError::Off { .. } | BridgeError::NotFound { .. }) => {
            tracing::debug!("no Salt is found whose salt-run would read gitfs");
            true
        }
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(error, "stock's salt-run may not see what is new in gitfs");
            false
        }
    }
}

//! An engine that Python runs, in a process of its own that ends with it.

use std::sync::Arc;

use saltern_automation::engines::python_engine;
use saltern_base::blocking;
use saltern_bridge::EngineHandle;
use saltern_config::yaml::Mapping;

use super::{Ended, Seed};

/// Kills the process when its waiting future is dropped.
struct Held(Arc<EngineHandle>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Runs until the master stops, or the engine ends.
pub(super) async fn run(seed: &Seed, module: &str, options: &Mapping) -> Result<(), Ended> {
    let engine = python_engine(&seed.engine.name, module, options);
    let leash = Arc::new(EngineHandle::default());
    let held = Held(leash.clone());
    let bridge = seed.services.bridge.clone();
    // A thread that only waits for the process.
    let mut running = blocking::begin(move || bridge.run_engine(&engine, &leash))?;
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = seed.stop.cancelled() => {
            held.0.ask_to_end();
            let patience = seed.services.config.saltern_stop_timeout / 2;
            match tokio::time::timeout(patience, &mut running).await {
                Ok(ended) => ended,
                Err(_) => {
                    held.0.kill();
                    running.await
                }
            }
        }
    };
    ended??;
    Err(Ended::Returned)
}

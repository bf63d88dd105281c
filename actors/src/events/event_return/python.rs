//! Returners in Python, by the bridge.

use std::sync::Arc;
use std::time::Duration;

use saltern_bridge::{Bridge, BridgeError, ReturnerCall, Work};
use saltern_wire::msgpack::Value;

use super::queue::PackedEvent;
use super::{End, Sink};

/// Function that a returner of events must have.
const NEEDS: &str = "event_return";

/// A returner of the site's Salt installation.
pub(crate) struct PythonReturner {
    name: String,
    bridge: Arc<Bridge>,
}

impl PythonReturner {
    pub(crate) fn new(name: &str, bridge: &Arc<Bridge>) -> Self {
        Self {
            name: name.to_owned(),
            bridge: bridge.clone(),
        }
    }

    /// Why it cannot be called, if that is known without a call of Python.
    pub(crate) fn refusal(&self) -> Option<BridgeError> {
        self.bridge.refusal(&self.work(&[]))
    }

    fn work<'a>(&'a self, steps: &'a [saltern_bridge::Step<'a>]) -> Work<'a> {
        Work::Returner {
            name: &self.name,
            needs: NEEDS,
            steps,
            patience: 1,
        }
    }
}

impl Sink for PythonReturner {
    fn give(&self, batch: Vec<PackedEvent>) -> End {
        let step = (!batch.is_empty()).then(|| vec![ReturnerCall::EventReturn(&batch)]);
        let called = self.bridge.call(&self.work(step.as_slice()), Duration::MAX);
        drop(step);
        match called {
            Ok(value) => match value.as_array().and_then(<[Value]>::first) {
                Some(Value::Str(problem)) => End::Failed(problem.to_string()),
                _ => End::Returned,
            },
            Err(
                error @ (BridgeError::NotFound { .. }
                | BridgeError::NoHelper { .. }
                | BridgeError::Busy { .. }),
            ) => End::NotTried(error.to_string(), batch),
            Err(error) => End::Failed(error.to_string()),
        }
    }
}

//! Hands the steps of running orchestrations from the bus to the list of running calls.

use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_model::Event;
use saltern_runners::RunningCalls;

use crate::events::bus::Tap;

/// Observer of the bus for the list of running calls.
pub(crate) struct CallSteps {
    pub(crate) calls: Arc<RunningCalls>,
    pub(crate) clock: Clock,
}

impl Tap for CallSteps {
    fn hear(&self, event: &Event) {
        self.calls.hear(event, self.clock.unix_micros());
    }
}

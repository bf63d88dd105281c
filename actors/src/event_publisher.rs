//! Puts events on the bus, in the order in which they arrive.
//!
//! The subscribers, their queues and both event sockets live beside the actor (`bus`,
//! `event_sockets`) and survive it.

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use parking_lot::Mutex;
use saltern_supervise::Child;
use tokio_util::sync::CancellationToken;

use crate::bus::Bus;
use crate::event_sockets::EventSockets;
use crate::messages::Fire;

/// What an event publisher is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) bus: Arc<Bus>,
    /// The event sockets, until the first event publisher has taken them over.
    pub(crate) sockets: Arc<Mutex<Option<EventSockets>>>,
    pub(crate) stop: CancellationToken,
}

/// See the module.
pub(crate) struct EventPublisher {
    seed: Seed,
}

impl Child for EventPublisher {
    type Seed = Seed;

    const NAME: &'static str = "event_publisher";
    const MAILBOX: usize = 4096;

    fn build(seed: &Seed) -> Self {
        Self { seed: seed.clone() }
    }
}

impl Actor for EventPublisher {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        use actix::AsyncContext;
        if let Some(sockets) = self.seed.sockets.lock().take() {
            sockets.serve(&self.seed.bus, &context.address(), &self.seed.stop);
        }
    }
}

impl Handler<Fire> for EventPublisher {
    type Result = ();

    fn handle(&mut self, Fire(events): Fire, _: &mut Self::Context) {
        for event in &events {
            self.seed.bus.publish(event);
        }
    }
}

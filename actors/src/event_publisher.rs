//! Puts events on the bus, in the order in which they arrive.
//!
//! The subscribers, their queues and both event sockets live beside the actor (`bus`,
//! `event_sockets`) and survive it.

use std::sync::{Arc, OnceLock};

use actix::{Actor, AsyncContext, Context, Handler, ResponseActFuture};
use parking_lot::Mutex;
use saltern_supervise::Child;
use tokio_util::sync::CancellationToken;

use crate::batches::BatchFeed;
use crate::bus::Bus;
use crate::event_sockets::{Door, EventSockets, Greeter};
use crate::messages::Fire;

/// What an event publisher is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) bus: Arc<Bus>,
    /// The event sockets, until the first event publisher has taken them over.
    pub(crate) sockets: Arc<Mutex<Option<EventSockets>>>,
    /// Who greets new subscribers.
    pub(crate) greeter: Greeter,
    /// Set when the sockets have been taken over.
    pub(crate) door: Arc<OnceLock<Arc<Door>>>,
    /// Hears what local programs say of batches.
    pub(crate) batches: Arc<BatchFeed>,
    /// Cancelled when no more events are taken from local programs.
    pub(crate) stop_taking: CancellationToken,
    /// Cancelled, by this actor, when everybody else has ended.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the last answer has left the request port.
    pub(crate) requests_closed: CancellationToken,
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

    /// The last to stop: everything that was published or answered has left when this is over.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        self.seed.stop.cancel();
        let (bus, requests_closed) = (self.seed.bus.clone(), self.seed.requests_closed.clone());
        let gone = async move {
            bus.emptied().await;
            requests_closed.cancelled().await;
        };
        Some(Box::pin(actix::fut::wrap_future(gone)))
    }
}

impl Actor for EventPublisher {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let Seed {
            bus,
            batches,
            greeter,
            stop_taking,
            stop,
            ..
        } = &self.seed;
        if let Some(sockets) = self.seed.sockets.lock().take()
            && let Some(door) = sockets.serve(
                bus,
                &context.address(),
                (batches, greeter),
                stop_taking,
                stop,
            )
        {
            // Nobody else sets it.
            let _ = self.seed.door.set(door);
        }
    }
}

impl Handler<Fire> for EventPublisher {
    type Result = ();

    fn handle(&mut self, Fire(events): Fire, _: &mut Self::Context) {
        if let Some(door) = self.seed.door.get() {
            door.let_in_waiting();
        }
        for event in &events {
            self.seed.bus.publish(event);
        }
    }
}

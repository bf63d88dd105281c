//! Actor that puts events on the bus, in the order in which they arrive.
//!
//! The subscribers, their queues and both event sockets live beside the actor (`bus`,
//! `event_sockets`) and survive it.

use std::sync::{Arc, OnceLock};

use actix::{Actor, AsyncContext, Context, Handler, Recipient, ResponseActFuture};
use parking_lot::Mutex;
use saltern_supervise::Child;
use tokio_util::sync::CancellationToken;

use crate::events::batch_feed::BatchFeed;
use crate::events::bus::Bus;
use crate::events::event_sockets::{EventSocketHandle, EventSockets};
use crate::messages::{Fire, FireKept, Greet};

/// Seed of an event publisher.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) bus: Arc<Bus>,
    /// The event sockets, until the first event publisher has taken them.
    pub(crate) sockets: Arc<Mutex<Option<EventSockets>>>,
    /// Greets new subscribers with the state of open jobs.
    pub(crate) greeter: Recipient<Greet>,
    /// Set when the sockets have been taken.
    pub(crate) door: Arc<OnceLock<Arc<EventSocketHandle>>>,
    /// Forwards events of local programs about batches.
    pub(crate) batches: Arc<BatchFeed>,
    /// Cancelled when no more events are accepted from local programs.
    pub(crate) stop_taking: CancellationToken,
    /// Cancelled, by this actor, when all other actors have ended.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the last answer has left the request port.
    pub(crate) requests_closed: CancellationToken,
}

/// Actor that publishes on the event bus.
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

    /// The last actor to stop: at its end everything that was published or answered has left.
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
            // Only the first call counts.
            let _ = self.seed.door.set(door);
        }
    }
}

impl Handler<Fire> for EventPublisher {
    type Result = ();

    fn handle(&mut self, Fire(events): Fire, _: &mut Self::Context) {
        self.let_in_waiting();
        for event in &events {
            self.seed.bus.publish(event);
        }
    }
}

impl Handler<FireKept> for EventPublisher {
    type Result = ();

    fn handle(&mut self, FireKept(events): FireKept, _: &mut Self::Context) {
        self.let_in_waiting();
        for event in &events {
            self.seed.bus.publish_kept(event);
        }
    }
}

impl EventPublisher {
    fn let_in_waiting(&self) {
        if let Some(door) = self.seed.door.get() {
            door.let_in_waiting();
        }
    }
}

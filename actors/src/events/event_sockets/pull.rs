//! Acceptor of local programs that fire events: `master_event_pull.ipc`.

use std::sync::Arc;

use actix::Addr;
use bytes::Bytes;
use futures_util::StreamExt;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::{IntCounter, IntGauge};
use saltern_model::{Event, Packed, Tag};
use saltern_wire::ipc::{FrameError, PullDecoder, split_body};
use saltern_wire::member::LocalPeer;
use saltern_wire::msgpack::{Limits, RawValue};
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;

use crate::events::batch_feed::BatchFeed;
use crate::events::event_publisher::EventPublisher;
use crate::messages::Fire;

/// Events of one program that are sent to the bus together at most.
const EVENTS_AT_ONCE: usize = 64;

/// The acceptor.
pub(super) struct PullDoor {
    pub(super) publisher: Addr<EventPublisher>,
    pub(super) batches: Arc<BatchFeed>,
    pub(super) max_event: usize,
    pub(super) stop: CancellationToken,
    pub(super) most: usize,
    pub(super) senders: IntGauge,
    pub(super) refused: IntCounter,
    pub(super) too_many: LogThrottle,
}

/// Counts a sender for as long as it lives.
struct Counted(IntGauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl PullDoor {
    pub(super) fn let_in(&self, stream: impl LocalPeer) {
        if usize::try_from(self.senders.get()).unwrap_or(0) >= self.most {
            self.refused.inc();
            if let Some(times) = self.too_many.record() {
                tracing::warn!(
                    most = self.most,
                    times,
                    "there are too many event senders; further ones are turned away"
                );
            }
            return;
        }
        self.senders.inc();
        let counted = Counted(self.senders.clone());
        let (publisher, max_event) = (self.publisher.clone(), self.max_event);
        let batches = self.batches.clone();
        let stop = self.stop.clone();
        actix_rt::spawn(async move {
            tokio::select! {
                () = take_in(stream, &publisher, &batches, max_event) => {}
                () = stop.cancelled() => {}
            }
            drop(counted);
        });
    }
}

/// Reads events of a local program. The events of one read go to the bus as one message: a program
/// that fires many wakes the bus once for many.
async fn take_in(
    mut stream: impl LocalPeer,
    publisher: &Addr<EventPublisher>,
    batches: &BatchFeed,
    max_event: usize,
) {
    if stream.confirm().await.is_err() {
        return;
    }
    let frames = FramedRead::new(stream, PullDecoder::new(max_event));
    let mut frames = frames.ready_chunks(EVENTS_AT_ONCE);
    while let Some(come) = frames.next().await {
        let (events, end) = read_events(come);
        let of_batches = BatchFeed::heard(&events);
        let count = events.len();
        if count > 0 && publisher.send(Fire(events)).await.is_err() {
            tracing::warn!(events = count, "events of a local program were lost");
        }
        batches.pass_on(of_batches).await;
        if let Some(error) = end {
            tracing::warn!(%error, "a local program fired something that is no event");
            return;
        }
    }
}

/// The events among the frames read, and the error of the last one.
fn read_events(come: Vec<Result<Bytes, FrameError>>) -> (Vec<Event>, Option<FrameError>) {
    let mut events = Vec::with_capacity(come.len());
    for frame in come {
        match frame {
            Ok(body) => match read_event(&body) {
                Some(event) => events.push(event),
                None => tracing::warn!("a local program fired an event without a tag or a map"),
            },
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

fn read_event(body: &Bytes) -> Option<Event> {
    let (tag, data) = split_body(body).ok()?;
    let tag = Tag::parse(tag).ok()?;
    let data = RawValue::parse(body.slice_ref(data), &Limits::WIRE).ok()?;
    data.is_map().then(|| Event {
        tag,
        data: Packed::new(data.into_bytes()),
    })
}

//! Where local programs that fire events come in: `master_event_pull.ipc`.

use std::sync::Arc;

use actix::Addr;
use bytes::Bytes;
use futures_util::StreamExt;
use saltern_base::metrics::{IntCounter, IntGauge};
use saltern_base::seldom::Seldom;
use saltern_model::{Event, Packed, Tag};
use saltern_wire::ipc::{PullDecoder, split_body};
use saltern_wire::msgpack::{Limits, RawValue};
use tokio::net::UnixStream;
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;

use crate::batches::BatchFeed;
use crate::event_publisher::EventPublisher;
use crate::messages::Fire;

/// The door.
pub(super) struct PullDoor {
    pub(super) publisher: Addr<EventPublisher>,
    pub(super) batches: Arc<BatchFeed>,
    pub(super) max_event: usize,
    pub(super) stop: CancellationToken,
    pub(super) most: usize,
    pub(super) senders: IntGauge,
    pub(super) refused: IntCounter,
    pub(super) too_many: Seldom,
}

/// A sender is counted for as long as this lives.
struct Counted(IntGauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl PullDoor {
    pub(super) fn let_in(&self, stream: UnixStream) {
        if usize::try_from(self.senders.get()).unwrap_or(0) >= self.most {
            self.refused.inc();
            if let Some(times) = self.too_many.happened() {
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

async fn take_in(
    stream: UnixStream,
    publisher: &Addr<EventPublisher>,
    batches: &BatchFeed,
    max_event: usize,
) {
    let mut frames = FramedRead::new(stream, PullDecoder::new(max_event));
    while let Some(frame) = frames.next().await {
        let event = match frame {
            Ok(body) => read_event(&body),
            Err(error) => {
                tracing::warn!(%error, "a local program fired something that is no event");
                return;
            }
        };
        match event {
            Some(event) => {
                if publisher.send(Fire(vec![event.clone()])).await.is_err() {
                    tracing::warn!("an event of a local program was lost");
                }
                batches.overhear(&event).await;
            }
            None => tracing::warn!("a local program fired an event without a tag or a map"),
        }
    }
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

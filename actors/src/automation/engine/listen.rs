//! `test`: writes every event into the log at level debug (`salt/engines/test.py`).
//!
//! A bus subscriber like any other: events that overflow its queue are announced as missed.

use bytes::{Bytes, BytesMut};
use saltern_wire::ipc::{PullDecoder, split_body};
use saltern_wire::msgpack::{Limits, Value, decode_exact};
use tokio_util::codec::Decoder;

use super::{Ended, Seed};

/// Frames taken at once.
const FRAMES_AT_ONCE: usize = 64;

/// Runs until the master stops.
pub(super) async fn run(seed: &Seed) -> Result<(), Ended> {
    let engine = seed.engine.name.as_str();
    let subscription = seed.heard.subscribe();
    let mut decoder = PullDecoder::new(usize::MAX);
    loop {
        let (frames, missed) = tokio::select! {
            taken = subscription.take(FRAMES_AT_ONCE) => taken,
            () = seed.stop.cancelled() => return Ok(()),
        };
        for (tag, data) in frames
            .into_iter()
            .filter_map(|frame| read(&mut decoder, frame))
        {
            tracing::debug!(engine, tag, ?data, "event of the bus");
        }
        if missed > 0 {
            tracing::debug!(
                engine,
                missed,
                "events were dropped for this engine: its queue is full"
            );
        }
    }
}

/// The tag and the data of an event that this master has packed itself.
fn read(decoder: &mut PullDecoder, frame: Bytes) -> Option<(String, Value)> {
    let body = decoder.decode(&mut BytesMut::from(frame)).ok()??;
    let (tag, data) = split_body(&body).ok()?;
    let data = decode_exact(data, &Limits::WIRE).ok()?;
    Some((tag.to_owned(), data))
}

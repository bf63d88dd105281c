//! Messages of a minion to its master by its own accord: its grains, then that it has started. Grains that are
//! not taken go again with the next connection; other failures are ignored.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use saltern_channel::{asctime, between};
use saltern_wire::msgpack::Value;
use tracing::info;

use crate::pillar;
use crate::stats::Channel;

/// Messages of a minion to its master at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Introduction {
    /// Its grains, with the request for its pillar.
    pub(crate) grains: bool,
    /// That it has started.
    pub(crate) start_events: bool,
}

/// Introduces a minion that has subscribed. Grains that are not taken, not even after some tries, set
/// `lacks_grains`.
pub(crate) async fn introduce(
    channel: Arc<Channel>,
    grains: Arc<Value>,
    introduction: Introduction,
    lacks_grains: Arc<AtomicBool>,
) {
    if introduction.grains {
        let is_taken = send_grains(&channel, &grains).await;
        lacks_grains.store(!is_taken, Relaxed);
    }
    if introduction.start_events {
        announce(channel).await;
    }
}

/// Sends the grains, as often as a return; whether the master took them.
async fn send_grains(channel: &Channel, grains: &Value) -> bool {
    let config = channel.config();
    let limit = config.request_channel_timeout;
    for attempt in 1..=config.return_retry_tries {
        match pillar::request(channel, grains, limit, true).await {
            Ok(_) => return true,
            Err(error) => info!(attempt, "the master did not take the grains: {error}"),
        }
        let longest = config.return_retry_timer_max.max(config.return_retry_timer);
        tokio::time::sleep(between(config.return_retry_timer, longest)).await;
    }
    false
}

/// Fires the event that the minion has started, as stock does after subscribing.
async fn announce(channel: Arc<Channel>) {
    let config = channel.config();
    let id = channel.id();
    let text = format!(
        "Minion {id} started at {}",
        asctime(channel.clock().unix_micros())
    );
    if config.enable_legacy_startup_events {
        fire(&channel, "minion_start", Value::from(text.as_str())).await;
    }
    fire(
        &channel,
        &format!("salt/minion/{id}/start"),
        Value::from(text),
    )
    .await;
}

/// Fires one event; a failure is ignored.
pub(crate) async fn fire(channel: &Channel, tag: &str, data: Value) {
    if let Err(error) = channel.fire(tag, data).await {
        info!("the event \"{tag}\" was not taken: {error}");
    }
}

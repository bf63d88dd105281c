//! The events that a minion fires by itself; a failure of one is ignored.

use std::sync::Arc;

use saltern_channel::asctime;
use saltern_wire::msgpack::Value;
use tracing::info;

use crate::stats::Channel;

/// Fires the event that the minion has started, as stock does after subscribing.
pub(crate) async fn announce(channel: Arc<Channel>) {
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

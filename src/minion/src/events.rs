//! Messages of a minion to its master by its own accord: its grains, then that it has started. A failure of
//! one is ignored.

use std::sync::Arc;

use saltern_channel::asctime;
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

/// Introduces a minion that has subscribed.
pub(crate) async fn introduce(
    channel: Arc<Channel>,
    grains: Arc<Value>,
    introduction: Introduction,
) {
    if introduction.grains {
        let limit = channel.config().request_channel_timeout;
        if let Err(error) = pillar::request(&channel, &grains, limit, true).await {
            info!("the master did not take the grains: {error}");
        }
    }
    if introduction.start_events {
        announce(channel).await;
    }
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

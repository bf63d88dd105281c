//! The events that a minion fires by itself; a failure of one is ignored.

use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::civil;
use saltern_wire::msgpack::Value;
use tracing::info;

use crate::channel::Channel;

/// How long an event may take to be accepted.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

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
    let fields = [
        ("id", Value::from(channel.id())),
        ("cmd", Value::from("_minion_event")),
        ("pretag", Value::Nil),
        ("data", data),
        ("tag", Value::from(tag)),
    ];
    if let Err(error) = channel.send(&fields, EVENT_TIMEOUT).await {
        info!("the event \"{tag}\" was not taken: {error}");
    }
}

/// A time as C's `asctime` writes it, in UTC: `Sat Nov 21 07:06:22 2026`.
fn asctime(unix_micros: i64) -> String {
    civil(unix_micros).strftime("%a %b %e %T %Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_read_as_c_writes_them() {
        assert_eq!(asctime(1_795_244_782_637_714), "Sat Nov 21 07:06:22 2026");
        assert_eq!(asctime(0), "Thu Jan  1 00:00:00 1970");
    }
}

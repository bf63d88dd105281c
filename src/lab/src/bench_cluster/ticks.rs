//! Ticks: NOTIFY without payload on a connection of its own, never in a transaction with data, whose
//! commits would wait for each other.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{AsyncMessage, NoTls};

use super::{ClusterError, Master, connect};

/// Sends a tick after commits of a master, at most one in so much time, until it is aborted.
pub(super) async fn send(
    postgres: String,
    master: Arc<Master>,
    pause: Duration,
) -> Result<(), ClusterError> {
    let client = connect(&postgres).await?;
    loop {
        master.committed.notified().await;
        client.batch_execute("NOTIFY spike_tick").await?;
        tokio::time::sleep(pause).await;
    }
}

/// Wakes the follower of a master at each tick, until it is aborted.
pub(super) async fn hear(postgres: String, master: Arc<Master>) -> Result<(), ClusterError> {
    let (client, mut connection) = tokio_postgres::connect(&postgres, NoTls).await?;
    let listening = tokio::spawn(async move {
        let result = client.batch_execute("LISTEN spike_tick").await;
        // Dropped, it would end the connection.
        (client, result)
    });
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(_) = message? {
            master.ticked.notify_one();
        }
    }
    listening.await?.1?;
    Ok(())
}

//! The follower of a master: reads what each master committed, in the order of its batches.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;

use super::{ClusterError, Shared};

const HEADS: &str = "SELECT id, head FROM spike_master";
const ROWS: &str = "
SELECT batch, jid, minion, load FROM spike_return
WHERE writer = $1 AND batch > $2 AND batch <= $3 ORDER BY batch";

/// Follows until everything that was written is read; the master, and how many returns it read.
pub(super) async fn follow(
    client: Client,
    shared: Arc<Shared>,
    master: i32,
    poll: Duration,
) -> Result<(i32, u64), ClusterError> {
    let heads = client.prepare(HEADS).await?;
    let rows = client.prepare(ROWS).await?;
    let mut places = vec![0_i64; shared.begun.len()];
    let mut seen = 0;
    loop {
        // Asked before the heads: what was written until then is among them.
        let is_last = shared.written.is_cancelled();
        for head in client.query(&heads, &[]).await? {
            let (writer, head): (i32, i64) = (head.try_get(0)?, head.try_get(1)?);
            let Some(place) = places.get_mut(usize::try_from(writer).unwrap_or(0)) else {
                continue;
            };
            if head > *place {
                let found = client.query(&rows, &[&writer, place, &head]).await?;
                seen += found.len() as u64;
                note(&shared, writer, *place, head);
                *place = head;
            }
        }
        if is_last {
            return Ok((master, seen));
        }
        if let Some(ticked) = shared.ticked.get(usize::try_from(master).unwrap_or(0)) {
            // A tick or the time, whichever is first.
            let _ = timeout(poll, ticked.notified()).await;
        }
    }
}

/// Records when batches after `place` up to `head` were read.
fn note(shared: &Shared, writer: i32, place: i64, head: i64) {
    let Some(begun) = shared.begun.get(usize::try_from(writer).unwrap_or(0)) else {
        return;
    };
    let begun = begun.lock();
    let range = usize::try_from(place).unwrap_or(0)..usize::try_from(head).unwrap_or(0);
    for start in begun.get(range).unwrap_or_default() {
        shared.seen.record(start.elapsed());
    }
}

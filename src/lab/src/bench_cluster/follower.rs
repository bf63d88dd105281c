//! The follower of a master: reads what each master committed, in the order of its batches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::{ClusterError, Master, Shared};

const HEADS: &str = "SELECT id, head FROM spike_master";
const ROWS: &str = "
SELECT batch, jid, minion, load FROM spike_return
WHERE writer = $1 AND batch > $2 AND batch <= $3 ORDER BY batch";

/// The follower of one master.
pub(super) struct Follower {
    pub(super) shared: Arc<Shared>,
    pub(super) masters: Arc<[Arc<Master>]>,
    pub(super) own: Arc<Master>,
    /// The longest time between two looks.
    pub(super) poll: Duration,
}

impl Follower {
    /// Follows until everything that was written is read; the master, and how many returns it read.
    pub(super) async fn follow(self, client: Client) -> Result<(i32, u64), ClusterError> {
        let heads = client.prepare(HEADS).await?;
        let rows = client.prepare(ROWS).await?;
        let mut places = vec![0_i64; self.masters.len()];
        let mut seen = 0;
        loop {
            // Asked before the heads: what was written until then is among them.
            let is_last = self.shared.written.is_cancelled();
            let heads = client.query(&heads, &[]).await?;
            let heads: HashMap<i32, i64> = heads
                .iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .collect::<Result<_, tokio_postgres::Error>>()?;
            for (writer, place) in self.masters.iter().zip(&mut places) {
                let head = heads.get(&writer.number).copied().unwrap_or(0);
                if head > *place {
                    let range: [&(dyn ToSql + Sync); 3] = [&writer.number, place, &head];
                    let found = client.query(&rows, &range).await?;
                    seen += found.len() as u64;
                    self.note(writer, *place, head);
                    *place = head;
                }
            }
            if is_last {
                return Ok((self.own.number, seen));
            }
            // A tick or the time, whichever is first.
            let _ = timeout(self.poll, self.own.ticked.notified()).await;
        }
    }

    /// Records when batches after `place` up to `head` were read.
    fn note(&self, writer: &Master, place: i64, head: i64) {
        let begun = writer.begun.lock();
        let range = usize::try_from(place).unwrap_or(0)..usize::try_from(head).unwrap_or(0);
        for start in begun.get(range).unwrap_or_default() {
            self.shared.seen.record(start.elapsed());
        }
    }
}

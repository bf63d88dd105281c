//! The writer of a master: batches with numbers, each committed before the next is sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::{ClusterError, Master, Shared};

/// Commits only as the next batch of a master that has its epoch: one statement, one round trip.
const BATCH: &str = "
WITH fence AS (
    UPDATE spike_master SET head = $1::bigint WHERE id = $2 AND epoch = 1 AND head = $1::bigint - 1
    RETURNING id
), written AS (
    INSERT INTO spike_return (jid, minion, writer, batch, load)
    SELECT jid, minion, fence.id, $1::bigint, load
    FROM fence, unnest($3::text[], $4::text[], $5::bytea[]) AS r(jid, minion, load)
    ON CONFLICT DO NOTHING RETURNING 1
)
SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM written)";

/// The load of one master.
pub(super) struct Load {
    pub(super) group: u32,
    pub(super) bytes: usize,
    /// Between two batches; without, the next comes at once.
    pub(super) interval: Option<Duration>,
    pub(super) until: Instant,
}

/// Writes until the time is over; how many returns were committed.
pub(super) async fn write(
    client: Client,
    shared: Arc<Shared>,
    master: Arc<Master>,
    load: Load,
) -> Result<u64, ClusterError> {
    let statement = client.prepare(BATCH).await?;
    let number = master.number;
    let mut pace = load.interval.map(interval);
    if let Some(pace) = &mut pace {
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let mut returns = 0;
    let mut batch = 0_i64;
    while Instant::now() < load.until {
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        batch += 1;
        let (jids, minions, loads) = rows(number, batch, &load);
        let start = Instant::now();
        master.begun.lock().push(start);
        let parameters: [&(dyn ToSql + Sync); 5] = [&batch, &number, &jids, &minions, &loads];
        let row = client.query_one(&statement, &parameters).await?;
        shared.commits.record(start.elapsed());
        let (fences, written): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        if fences != 1 {
            return Err(ClusterError::Fenced {
                master: number,
                batch,
            });
        }
        returns += u64::try_from(written).unwrap_or(0);
        master.committed.notify_one();
    }
    Ok(returns)
}

type Rows = (Vec<String>, Vec<String>, Vec<Vec<u8>>);

/// One return of each minion to one job; texts that compress about as returns do.
fn rows(master: i32, batch: i64, load: &Load) -> Rows {
    let jid = format!("2026{master:04}{batch:012}");
    let rows = (0..load.group).map(|number| {
        let minion = format!("minion-{number:05}.example.com");
        let mut text = format!("{{\"id\": \"{minion}\", \"jid\": \"{jid}\", \"return\": [");
        while text.len() < load.bytes {
            let state = text.len().wrapping_mul(2_654_435_761) ^ (number as usize);
            text.push_str(&format!(
                "{{\"state_{state:x}\": true, \"changes\": {{}}}}, "
            ));
        }
        text.truncate(load.bytes);
        (jid.clone(), minion, text.into_bytes())
    });
    let mut columns = Rows::default();
    for (jid, minion, load) in rows {
        columns.0.push(jid);
        columns.1.push(minion);
        columns.2.push(load);
    }
    columns
}

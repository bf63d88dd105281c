//! The takeover of a lost master's jobs, once its lease has ended.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Client;

use super::ClusterError;

/// Jobs taken in one statement.
const SLICE: i64 = 500;

const TAKE: &str = "
UPDATE spike_job SET owner = 1, epoch = epoch + 1 WHERE jid IN (
    SELECT jid FROM spike_job WHERE owner = 0 AND NOT is_done LIMIT $1 FOR UPDATE SKIP LOCKED
) RETURNING jid";

/// The time until all jobs of one master are another's, with the returns that each has read again.
pub(super) async fn measure(client: &Client, jobs: u32) -> Result<Duration, ClusterError> {
    // Jobs of the first master's first batches, so that there are returns to read.
    let made = "INSERT INTO spike_job
        SELECT '20260000' || lpad(number::text, 12, '0'), 0, 1, false
        FROM generate_series(1, $1::bigint) AS number";
    client.execute(made, &[&i64::from(jobs)]).await?;
    let began = Instant::now();
    loop {
        let rows = client.query(TAKE, &[&SLICE]).await?;
        if rows.is_empty() {
            return Ok(began.elapsed());
        }
        let taken = rows.iter().map(|row| row.try_get(0));
        let jids = taken.collect::<Result<Vec<String>, _>>()?;
        let returns = "SELECT jid, minion, load FROM spike_return WHERE jid = ANY($1)";
        client.query(returns, &[&jids]).await?;
    }
}

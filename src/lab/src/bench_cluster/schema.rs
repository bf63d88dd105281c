//! The tables of the trial: as much of a cluster's as its figures depend on.

use tokio_postgres::Client;

use super::ClusterError;

/// A master's row is its counter, its fence and the record of what became of a commit at once.
const TABLES: &str = "
DROP TABLE IF EXISTS spike_master, spike_return, spike_job;
CREATE TABLE spike_master (
    id integer PRIMARY KEY, epoch bigint NOT NULL, head bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE spike_return (
    jid text NOT NULL, minion text NOT NULL, writer integer NOT NULL, batch bigint NOT NULL,
    load bytea NOT NULL, PRIMARY KEY (jid, minion)
);
CREATE INDEX spike_return_log ON spike_return (writer, batch);
CREATE TABLE spike_job (
    jid text PRIMARY KEY, owner integer NOT NULL, epoch bigint NOT NULL, is_done boolean NOT NULL
);
CREATE INDEX spike_job_owner ON spike_job (owner) WHERE NOT is_done;
";

/// Makes the tables anew, with a row for each master.
pub(super) async fn create(client: &Client, masters: i32) -> Result<(), ClusterError> {
    client.batch_execute(TABLES).await?;
    let rows = "INSERT INTO spike_master SELECT id, 1, 0 FROM generate_series(0, $1 - 1) AS id";
    client.execute(rows, &[&masters]).await?;
    // The figures are those of running, not of what was made before.
    client.batch_execute("CHECKPOINT").await?;
    Ok(())
}

/// Bytes that were ever written to the log.
pub(super) async fn log_position(client: &Client) -> Result<i64, ClusterError> {
    let position = "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint";
    Ok(client.query_one(position, &[]).await?.try_get(0)?)
}

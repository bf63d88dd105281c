//! A connection of the engine: its statements, and the warnings that PostgreSQL gives.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use saltern_config::SqlStore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, RowStream, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::engine::ClusterOptions;
use crate::error::SqlError;
use crate::postgres::{self, PostgresConnection};

/// Longest time for connecting, where a site does not say.
const CONNECT: Duration = Duration::from_secs(10);

/// Longest time for a cancellation.
const CANCEL: Duration = Duration::from_secs(10);

/// Values of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection.
pub(super) struct Session {
    client: Client,
    statements: HashMap<String, Statement>,
    /// Warnings so far.
    warnings: Arc<AtomicU64>,
    /// Runs the protocol; ends with the connection.
    driver: JoinHandle<()>,
    tls: MakeRustlsConnect,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    /// Connects. Must be called within the runtime that is to run the connection.
    pub(super) async fn connect(
        store: &SqlStore,
        options: &ClusterOptions,
        settings: &str,
    ) -> Result<Self, SqlError> {
        let limit = store.connect_timeout.unwrap_or(CONNECT);
        let tls = postgres::tls(store)?;
        let limits = (limit, Some(options.idle_limit));
        postgres::open(store, limits, |client, connection| {
            Self::begin((client, connection), tls.clone(), options, settings)
        })
        .await
    }

    /// Begins a session with a server that takes writes.
    async fn begin(
        (client, connection): (Client, PostgresConnection),
        tls: MakeRustlsConnect,
        options: &ClusterOptions,
        settings: &str,
    ) -> Result<Self, SqlError> {
        let warnings = Arc::<AtomicU64>::default();
        let driver = tokio::spawn(drive(connection, warnings.clone()));
        let session = Self {
            client,
            statements: HashMap::new(),
            warnings,
            driver,
            tls,
        };
        let bounds = bounds(options.idle_limit);
        let settings = format!("SET search_path = {}; {bounds}; {settings}", options.name);
        // A standby of the database answers, too, and lags behind.
        let is_read_only = session.texts("SHOW transaction_read_only").await?;
        if is_read_only.concat().concat() == "on" {
            return Err(SqlError::ReadOnly);
        }
        session.run(&settings).await?;
        Ok(session)
    }

    /// Runs statements without values.
    pub(super) async fn run(&self, sql: &str) -> Result<(), SqlError> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// The rows of statements without values, as texts.
    pub(super) async fn texts(&self, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
        let messages = self.client.simple_query(sql).await?;
        let rows = messages.into_iter().filter_map(|message| {
            let SimpleQueryMessage::Row(row) = message else {
                return None;
            };
            let value = |number| row.get(number).unwrap_or_default().to_owned();
            Some((0..row.len()).map(value).collect())
        });
        Ok(rows.collect())
    }

    /// The rows of a statement.
    pub(super) async fn rows(
        &mut self,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, SqlError> {
        let statement = self.prepared(sql).await?;
        Ok(self.client.query(&statement, values).await?)
    }

    /// The rows of a statement as they come: no more than a few of them are in memory.
    pub(super) async fn stream(&mut self, sql: &str) -> Result<Pin<Box<RowStream>>, SqlError> {
        let statement = self.prepared(sql).await?;
        let none: [&(dyn ToSql + Sync); 0] = [];
        Ok(Box::pin(self.client.query_raw(&statement, none).await?))
    }

    /// The rows of a statement that is a transaction of its own. As with [`commit`](Self::commit), a
    /// warning says that a standby has not confirmed it.
    pub(super) async fn confirmed_rows(
        &mut self,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, SqlError> {
        let statement = self.prepared(sql).await?;
        let before = self.warnings.load(Ordering::Acquire);
        let rows = self.client.query(&statement, values).await?;
        match self.warnings.load(Ordering::Acquire) == before {
            true => Ok(rows),
            false => Err(SqlError::Unconfirmed),
        }
    }

    /// Runs a statement; how many rows it changed.
    pub(super) async fn execute(&mut self, sql: &str, values: Values<'_>) -> Result<u64, SqlError> {
        let statement = self.prepared(sql).await?;
        Ok(self.client.execute(&statement, values).await?)
    }

    /// Commits the transaction. An error of the connection says that it may be committed or not.
    pub(super) async fn commit(&self) -> Result<(), SqlError> {
        let before = self.warnings.load(Ordering::Acquire);
        let committed = self.run("COMMIT").await;
        committed.map_err(SqlError::of_commit)?;
        match self.warnings.load(Ordering::Acquire) == before {
            true => Ok(()),
            false => Err(SqlError::Unconfirmed),
        }
    }

    /// Ends the connection, and what the server still does on it. Without that a statement which waits
    /// for a synchronous standby would keep its server process, whoever is gone.
    pub(super) async fn cancel(self) {
        let token = self.client.cancel_token();
        let cancelled = timeout(CANCEL, token.cancel_query(self.tls.clone())).await;
        if let Ok(Err(error)) = cancelled {
            tracing::debug!(%error, "a statement cannot be cancelled");
        }
    }

    async fn prepared(&mut self, sql: &str) -> Result<Statement, SqlError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

/// The statement by which the server ends what a silent client has left behind, and a wait for its locks.
/// Older servers lack some of the settings.
fn bounds(idle_limit: Duration) -> String {
    let millis = idle_limit.as_millis().max(1);
    let (seconds, lock) = (idle_limit.as_secs(), (millis / 2).max(1));
    let (idle, interval) = ((seconds / 2).max(1), (seconds / 6).max(1));
    format!(
        "SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN '{lock}' \
         WHEN 'tcp_keepalives_idle' THEN '{idle}' WHEN 'tcp_keepalives_interval' THEN '{interval}' \
         WHEN 'tcp_keepalives_count' THEN '3' ELSE '{millis}' END, false) FROM pg_settings \
         WHERE name IN ('idle_in_transaction_session_timeout', 'lock_timeout', 'tcp_user_timeout', \
         'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count')"
    )
}

/// Runs the protocol, and counts warnings before the reply behind them is handed on.
async fn drive(mut connection: PostgresConnection, warnings: Arc<AtomicU64>) {
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) => {
                if notice.parsed_severity() == Some(Severity::Warning) {
                    warnings.fetch_add(1, Ordering::AcqRel);
                    let (code, text) = (notice.code().code(), notice.message());
                    tracing::warn!(code, text, "a warning of PostgreSQL");
                }
            }
            Ok(_) => {}
            Err(error) => {
                // Whoever asks next gets an error of its own.
                tracing::debug!(%error, "the connection to PostgreSQL has ended");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::engine::Target;
    use crate::postgres::tests::{Fake, servers};

    /// Longer than a test may take, where an answer is awaited.
    const LONG: Duration = Duration::from_secs(300);

    fn options() -> ClusterOptions {
        ClusterOptions {
            name: "saltern".to_owned(),
            patience: CONNECT,
            idle_limit: CONNECT,
        }
    }

    async fn session(limit: Duration, fakes: &[Fake]) -> Result<Session, SqlError> {
        let (store, addresses) = servers(fakes);
        let options = options();
        let (tls, limits) = (postgres::tls(&store)?, (limit, Some(CONNECT)));
        postgres::open_at(&addresses, &store, limits, |client, connection| {
            Session::begin((client, connection), tls.clone(), &options, "SELECT 1")
        })
        .await
    }

    #[tokio::test]
    async fn standby_leaves_the_others_to_be_tried_and_is_the_reason_without_one() {
        for fakes in [
            [Fake::Standby, Fake::Primary],
            [Fake::Absent, Fake::Primary],
        ] {
            session(LONG, &fakes).await.expect("one takes writes");
        }
        for fakes in [[Fake::Standby, Fake::Absent], [Fake::Absent, Fake::Standby]] {
            let failed = session(LONG, &fakes).await.err();
            let failed = failed.expect("none takes writes");
            assert!(
                matches!(failed, SqlError::ReadOnly),
                "{fakes:?}: {failed:?}"
            );
        }
    }

    #[tokio::test]
    async fn refusal_of_one_address_is_final_only_where_no_other_may_serve_later() {
        let refuses = Fake::Says("28000");
        for other in [Fake::Absent, Fake::Standby, Fake::Says("57P03")] {
            for fakes in [[refuses, other], [other, refuses]] {
                let failed = session(LONG, &fakes).await.err();
                let failed = failed.expect("none takes writes");
                let says = failed.to_string();
                assert!(
                    failed.asks_for_another_connection() && says.contains("28000"),
                    "{fakes:?}: {failed:?}"
                );
            }
        }
        for fakes in [[refuses, Fake::Silent], [Fake::Silent, refuses]] {
            let failed = session(Duration::from_secs(1), &fakes).await.err();
            let failed = failed.expect("none takes writes");
            assert!(
                failed.asks_for_another_connection(),
                "{fakes:?}: {failed:?}"
            );
        }
        let fakes = [refuses, Fake::Says("3D000")];
        let failed = session(LONG, &fakes).await.err().expect("both refuse");
        assert!(!failed.asks_for_another_connection(), "{failed:?}");
    }

    #[tokio::test]
    async fn refusal_of_one_host_is_final_only_where_no_other_may_serve_later() {
        let refuses = Fake::Says("28P01");
        for (fakes, asks) in [
            ([refuses, Fake::Absent], true),
            ([Fake::Standby, refuses], true),
            ([refuses, refuses], false),
        ] {
            let (store, addresses) = servers(&fakes);
            let hosts = addresses.iter().map(|address| SqlStore {
                host: address.to_string(),
                connect_timeout: Some(LONG),
                ..store.clone()
            });
            let target = Target::new(hosts.collect(), options()).expect("a target");
            let failed = target.open("SELECT 1").await.err();
            let failed = failed.expect("none takes writes");
            assert_eq!(
                failed.asks_for_another_connection(),
                asks,
                "{fakes:?}: {failed:?}"
            );
            assert!(failed.to_string().contains("28P01"), "{failed}");
        }
    }
}

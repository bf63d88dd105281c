//! MySQL and MariaDB: one connection, each batch one transaction of inserts of many rows.
//!
//! A named lock of the server is held over each transaction. So one whose connection was lost, and
//! which the server may still commit, has ended before its rows are looked for again. They are compared
//! here and not by the server, whose collation takes `Web1` and `web1` for the same minion.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{ClientIdentity, Conn, OptsBuilder, Params, SslOpts, Value};
use saltern_config::{SqlStore, SqlTlsMode};

use crate::connection::addresses;
use crate::error::SqlError;
use crate::row::{JobRow, ReturnRow};
use crate::writer::{Batch, EventRow};

/// Longest document: `mediumtext`, with room for the escapes of its statement.
const MAX_DOCUMENT: usize = 15 << 20;

/// Of a packet, what is left to everything but documents.
const PACKET_MARGIN: usize = 64 << 10;

/// Rows of one statement at most.
const ROWS: usize = 500;

/// The named lock, and how many seconds are waited for it.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('saltern.', DATABASE()), 30)";
const UNLOCK: &str = "SELECT RELEASE_LOCK(CONCAT('saltern.', DATABASE()))";

/// Of the session: times are written as UTC, and too long a value is an error and not cut.
const SETUP: [&str; 2] = [
    "SET time_zone = '+00:00'",
    "SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
];

/// A connection.
pub(crate) struct Mysql {
    conn: Conn,
    /// Bytes of one statement at most.
    packet: usize,
}

impl Mysql {
    pub(crate) async fn connect(store: &SqlStore, _timeout: Duration) -> Result<Self, SqlError> {
        let options = OptsBuilder::default()
            .ip_or_hostname(store.host.as_str())
            .resolved_ips(Some(addresses(store).await?))
            .tcp_port(store.port)
            .user(Some(store.user.as_str()))
            .pass(Some(store.password.expose()))
            .db_name(Some(store.database.as_str()))
            // Stock's client connects to the port too.
            .prefer_socket(false)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .setup(SETUP.to_vec())
            .ssl_opts(tls(store));
        let mut conn = Conn::new(options).await?;
        let packet: Option<u64> = conn.query_first("SELECT @@max_allowed_packet").await?;
        let packet = packet.and_then(|bytes| usize::try_from(bytes).ok());
        let packet = packet.unwrap_or(1 << 20).saturating_sub(PACKET_MARGIN);
        Ok(Self { conn, packet })
    }

    /// Longest document: a return is in its row twice.
    pub(crate) fn max_document(&self) -> usize {
        MAX_DOCUMENT.min(self.packet / 2)
    }

    /// Runs a statement; how many rows it changed.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<u64, SqlError> {
        self.conn.query_drop(sql).await?;
        Ok(self.conn.affected_rows())
    }

    /// Makes the session one that changes nothing, and whose statements end in time.
    pub(crate) async fn only_read(&mut self) -> Result<(), SqlError> {
        let sql = "SET SESSION TRANSACTION READ ONLY";
        self.conn.query_drop(sql).await?;
        // MariaDB has the one, in seconds, MySQL the other, in milliseconds.
        let timeouts = ["max_statement_time = 20", "max_execution_time = 20000"];
        for timeout in timeouts {
            let set = self.conn.query_drop(format!("SET SESSION {timeout}")).await;
            match set {
                Ok(()) => return Ok(()),
                Err(mysql_async::Error::Server(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The rows of a statement with text parameters.
    pub(crate) async fn select(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let parameters = parameters.iter().map(|text| Value::from(*text)).collect();
        let parameters = Params::Positional(parameters);
        let rows: Vec<mysql_async::Row> = self.conn.exec(sql, parameters).await?;
        let rows = rows.into_iter().map(mysql_async::Row::unwrap);
        Ok(rows
            .map(|row| row.into_iter().map(text).collect())
            .collect())
    }

    /// The rows of a statement, as texts.
    pub(crate) async fn rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
        let rows: Vec<mysql_async::Row> = self.conn.query(sql).await?;
        let text = |value| text(value).unwrap_or_default();
        let rows = rows.into_iter().map(mysql_async::Row::unwrap);
        Ok(rows
            .map(|row| row.into_iter().map(text).collect())
            .collect())
    }

    pub(crate) async fn write(&mut self, batch: &Batch<'_>) -> Result<(), SqlError> {
        let locked: Option<Option<i64>> = self.conn.query_first(LOCK).await?;
        if locked.flatten() != Some(1) {
            return Err(SqlError::Database {
                code: "GET_LOCK".to_owned(),
                text: "another master, or an earlier transaction, holds the lock".to_owned(),
            });
        }
        self.conn.query_drop("START TRANSACTION").await?;
        match self.insert(batch).await {
            Ok(()) => {
                let committed = self.conn.query_drop("COMMIT").await;
                committed.map_err(|error| SqlError::from(error).of_commit())?;
            }
            Err(error) => {
                if error.keeps_connection() {
                    self.conn.query_drop("ROLLBACK").await?;
                    self.conn.query_drop(UNLOCK).await?;
                }
                return Err(error);
            }
        }
        // It is committed; a connection that ends now takes its lock with it.
        let unlocked = self.conn.query_drop(UNLOCK).await;
        unlocked.map_err(|error| SqlError::from(error).of_commit())
    }

    async fn insert(&mut self, batch: &Batch<'_>) -> Result<(), SqlError> {
        let head = "INSERT INTO `jids` (`jid`, `load`) VALUES ";
        let keep = " ON DUPLICATE KEY UPDATE `jid` = `jids`.`jid`";
        let update = " ON DUPLICATE KEY UPDATE `load` = VALUES(`load`)";
        for (jobs, tail) in [(&batch.reported, keep), (&batch.published, update)] {
            let rows = jobs.iter().map(|job| of_job(job));
            self.insert_rows((head, "(?, ?)", tail), rows).await?;
        }
        let known = self.known(&batch.returns).await?;
        let is_new = |row: &&&ReturnRow| {
            let key = (row.jid.as_bytes().to_vec(), row.id.as_bytes().to_vec());
            !known.contains(&key)
        };
        let rows = batch.returns.iter().filter(is_new);
        let head = "INSERT INTO `salt_returns` (`fun`, `jid`, `return`, `id`, `success`, `full_ret`, \
                    `alter_time`) VALUES ";
        let row = "(?, ?, ?, ?, ?, ?, FROM_UNIXTIME(?))";
        self.insert_rows((head, row, ""), rows.map(|row| of_return(row)))
            .await?;
        let head = "INSERT INTO `salt_events` (`tag`, `data`, `master_id`) VALUES ";
        let rows = batch.events.iter().map(of_event);
        self.insert_rows((head, "(?, ?, ?)", ""), rows).await
    }

    /// Which of the returns are there.
    async fn known(
        &mut self,
        rows: &[&ReturnRow],
    ) -> Result<HashSet<(Vec<u8>, Vec<u8>)>, SqlError> {
        let mut known = HashSet::new();
        for rows in rows.chunks(ROWS) {
            let jids: HashSet<&str> = rows.iter().map(|row| row.jid.as_str()).collect();
            let ids: HashSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
            let sql = format!(
                "SELECT `jid`, `id` FROM `salt_returns` WHERE `jid` IN ({}) AND `id` IN ({})",
                marks(jids.len()),
                marks(ids.len())
            );
            let values = jids.into_iter().chain(ids).map(Value::from);
            let values = Params::Positional(values.collect());
            let found: Vec<(Vec<u8>, Vec<u8>)> = self.conn.exec(sql, values).await?;
            known.extend(found);
        }
        Ok(known)
    }

    /// Inserts rows by statements of bounded size.
    async fn insert_rows(
        &mut self,
        (head, row, tail): (&str, &str, &str),
        rows: impl Iterator<Item = Vec<Value>>,
    ) -> Result<(), SqlError> {
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let (mut values, mut count, mut bytes) = (Vec::new(), 0, 0);
            while let Some(next) = rows
                .next_if(|next| count == 0 || (count < ROWS && bytes + size(next) <= self.packet))
            {
                bytes += size(&next);
                count += 1;
                values.extend(next);
            }
            let sql = format!("{head}{}{tail}", vec![row; count].join(", "));
            self.conn.exec_drop(sql, Params::Positional(values)).await?;
        }
        Ok(())
    }
}

fn tls(store: &SqlStore) -> Option<SslOpts> {
    let path = |path: &Path| path.to_owned().into();
    let options = SslOpts::default().with_disable_built_in_roots(true);
    let options = options.with_client_identity(
        store
            .tls
            .identity
            .as_ref()
            .map(|(certificate, key)| ClientIdentity::new(path(certificate), path(key))),
    );
    let authorities = store.tls.authorities.as_deref().map(path);
    let options = options.with_root_certs(authorities.into_iter().collect());
    match store.tls.mode {
        SqlTlsMode::Disable => None,
        SqlTlsMode::Prefer | SqlTlsMode::Require => {
            Some(options.with_danger_accept_invalid_certs(true))
        }
        // Stock's client checks the authority and not the name.
        SqlTlsMode::VerifyCa => Some(options.with_danger_skip_domain_validation(true)),
        SqlTlsMode::VerifyFull => Some(options),
    }
}

fn of_job(job: &JobRow) -> Vec<Value> {
    [&job.jid, &job.load]
        .map(|text| text.as_str().into())
        .into()
}

fn of_return(row: &ReturnRow) -> Vec<Value> {
    vec![
        row.fun.as_str().into(),
        row.jid.as_str().into(),
        row.ret.as_str().into(),
        row.id.as_str().into(),
        row.success.as_deref().unwrap_or_default().into(),
        row.full_ret.as_str().into(),
        row.received.into(),
    ]
}

fn of_event(event: &EventRow) -> Vec<Value> {
    [&event.tag, &event.data, &event.master]
        .map(|text| text.as_str().into())
        .into()
}

/// A value as its text; none of null, and of what no statement of ours asks for.
fn text(value: Value) -> Option<String> {
    match value {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Double(number) => Some(number.to_string()),
        Value::NULL | Value::Date(..) | Value::Time(..) => None,
    }
}

fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

fn size(values: &[Value]) -> usize {
    let bytes = values.iter().map(|value| match value {
        Value::Bytes(bytes) => bytes.len() + 9,
        _ => 9,
    });
    bytes.sum()
}

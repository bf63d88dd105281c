//! PostgreSQL: one connection, each batch one transaction of a few statements over arrays.
//!
//! A transaction takes an advisory lock first. So one whose connection was lost, and which the server
//! may still commit, has ended before its rows are looked for again.

use std::collections::HashMap;
use std::future::{Future, ready};
use std::net::IpAddr;
use std::time::Duration;

use saltern_config::{SqlSchema, SqlStore, SqlTlsMode};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, SimpleQueryMessage, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connection::{addresses, first_of, within};
use crate::error::SqlError;
use crate::row::{JOB_COLUMNS, JobRow, ReturnRow};
use crate::tls;
use crate::writer::{Batch, EventRow};

/// Key of the advisory lock: "saltern" in ASCII.
const LOCK: i64 = 0x0073_616c_7465_726e;

/// Longest document: PostgreSQL takes up to 255 MB in a text of `jsonb`; this bounds our memory.
pub(crate) const MAX_DOCUMENT: usize = 64 << 20;

/// Idle time after which the system probes the connection.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Shortest time of the system's probes.
const PROBE: Duration = Duration::from_secs(1);

/// The returns of the jobs of a batch that are there already, by the index of jobs alone: `OFFSET` keeps
/// the planner, which knows nothing of the array, from the index of minions, whose entries are of every
/// job, and from the whole table.
const PRESENT: &str = "WITH present AS (SELECT o.jid, o.id FROM \
     (SELECT DISTINCT j.jid FROM unnest($2::text[]) AS j(jid)) AS j CROSS JOIN LATERAL \
     (SELECT r.jid, r.id FROM salt_returns AS r WHERE r.jid = j.jid OFFSET 0) AS o OFFSET 0)";

/// Plans of a writer: made once, compiled never, which would take longer than a batch, and never over a
/// whole table, however small it was when the plan was made. Older servers lack some of the settings.
const PLANS: &str = "SELECT set_config(name, CASE name WHEN 'plan_cache_mode' \
     THEN 'force_generic_plan' ELSE 'off' END, false) \
     FROM pg_settings WHERE name IN ('jit', 'plan_cache_mode', 'enable_seqscan')";

/// A connection, with its statements.
pub(crate) struct Postgres {
    schema: SqlSchema,
    client: Client,
    statements: HashMap<String, Statement>,
    /// Runs the protocol; ends with the connection.
    driver: JoinHandle<()>,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Runs the protocol of a connection.
pub(crate) type PostgresConnection =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Postgres {
    pub(crate) async fn connect(store: &SqlStore, limit: Duration) -> Result<Self, SqlError> {
        open(store, (limit, None), |client, connection| {
            ready(Ok(Self::of(store.schema, client, connection)))
        })
        .await
    }

    fn of(schema: SqlSchema, client: Client, connection: PostgresConnection) -> Self {
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                // Whoever writes next gets an error of its own.
                tracing::debug!(%error, "the connection to PostgreSQL has ended");
            }
        });
        Self {
            schema,
            client,
            statements: HashMap::new(),
            driver,
        }
    }

    /// Runs a statement; how many rows it changed.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<u64, SqlError> {
        Ok(self.client.execute(sql, &[]).await?)
    }

    /// Makes the session one that writes batches.
    pub(crate) async fn only_write(&mut self) -> Result<(), SqlError> {
        Ok(self.client.batch_execute(PLANS).await?)
    }

    /// Makes the session one that changes nothing, and whose statements end in time.
    pub(crate) async fn only_read(&mut self) -> Result<(), SqlError> {
        let sql = "SET default_transaction_read_only = on; SET statement_timeout = '20s'";
        Ok(self.client.batch_execute(sql).await?)
    }

    /// The rows of a statement with text parameters.
    pub(crate) async fn select(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> = parameters
            .iter()
            .map(|text| (text as &(dyn ToSql + Sync), Type::TEXT))
            .collect();
        let rows = self.client.query_typed(sql, &parameters).await?;
        let texts = |row: &tokio_postgres::Row| {
            let columns = (0..row.len()).map(|number| row.try_get(number));
            columns.collect::<Result<Vec<Option<String>>, _>>()
        };
        Ok(rows.iter().map(texts).collect::<Result<_, _>>()?)
    }

    /// The rows of a statement, as texts.
    pub(crate) async fn rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
        let messages = self.client.simple_query(sql).await?;
        let rows = messages.into_iter().filter_map(|message| {
            let SimpleQueryMessage::Row(row) = message else {
                return None;
            };
            let values =
                (0..row.len()).map(|number| row.get(number).unwrap_or_default().to_owned());
            Some(values.collect())
        });
        Ok(rows.collect())
    }

    pub(crate) async fn write(&mut self, batch: &Batch<'_>) -> Result<(), SqlError> {
        let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})");
        self.client.batch_execute(&begin).await?;
        match self.insert(batch).await {
            Ok(()) => {
                let committed = self.client.batch_execute("COMMIT").await;
                committed.map_err(|error| SqlError::from(error).of_commit())
            }
            Err(error) => {
                if error.keeps_connection() {
                    self.client.batch_execute("ROLLBACK").await?;
                }
                Err(error)
            }
        }
    }

    async fn insert(&mut self, batch: &Batch<'_>) -> Result<(), SqlError> {
        for (jobs, replaces) in [(&batch.reported, false), (&batch.published, true)] {
            if !jobs.is_empty() {
                self.jobs(jobs, replaces).await?;
            }
        }
        if !batch.returns.is_empty() {
            self.returns(&batch.returns).await?;
        }
        if !batch.events.is_empty() {
            self.events(&batch.events).await?;
        }
        Ok(())
    }

    async fn jobs(&mut self, jobs: &[&JobRow], replaces: bool) -> Result<(), SqlError> {
        let jids = column(jobs, |job| job.jid.as_str());
        if self.schema != SqlSchema::PostgresLocalCache {
            let loads = column(jobs, |job| job.load.as_str());
            let action = match replaces {
                true => "UPDATE SET load = EXCLUDED.load",
                false => "NOTHING",
            };
            let sql = format!(
                "INSERT INTO jids (jid, load) SELECT n.jid, n.load{} FROM unnest($1::text[], \
                 $2::text[]) AS n(jid, load) ON CONFLICT (jid) DO {action}",
                self.cast()
            );
            return self.execute(&sql, &[&jids, &loads]).await;
        }
        let started: Vec<f64> = jobs.iter().map(|job| job.started).collect();
        let of_column = |number: usize| {
            column(jobs, |job| {
                job.columns.get(number).map_or("", String::as_str)
            })
        };
        let columns: Vec<Vec<&str>> = (0..JOB_COLUMNS.len()).map(of_column).collect();
        let names = JOB_COLUMNS.join(", ");
        let new = JOB_COLUMNS.map(|name| format!("n.{name}")).join(", ");
        let updates = JOB_COLUMNS.map(|name| format!("{name} = EXCLUDED.{name}"));
        let action = match replaces {
            true => format!("UPDATE SET {}", updates.join(", ")),
            false => "NOTHING".to_owned(),
        };
        let arrays = (0..JOB_COLUMNS.len()).map(|number| format!("${}::text[]", number + 3));
        let arrays: Vec<String> = arrays.collect();
        let sql = format!(
            "INSERT INTO jids (jid, started, {names}) SELECT n.jid, to_timestamp(n.started), {new} \
             FROM unnest($1::text[], $2::float8[], {}) AS n(jid, started, {names}) \
             ON CONFLICT (jid) DO {action}",
            arrays.join(", ")
        );
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&jids, &started];
        parameters.extend(columns.iter().map(|column| column as &(dyn ToSql + Sync)));
        self.execute(&sql, &parameters).await
    }

    async fn returns(&mut self, rows: &[&ReturnRow]) -> Result<(), SqlError> {
        let funs = column(rows, |row| row.fun.as_str());
        let jids = column(rows, |row| row.jid.as_str());
        let rets = column(rows, |row| row.ret.as_str());
        let ids = column(rows, |row| row.id.as_str());
        let successes: Vec<Option<&str>> = rows.iter().map(|row| row.success.as_deref()).collect();
        let times: Vec<f64> = rows.iter().map(|row| row.received).collect();
        let missing =
            "WHERE NOT EXISTS (SELECT 1 FROM present AS p WHERE p.jid = n.jid AND p.id = n.id)";
        if self.schema == SqlSchema::PostgresLocalCache {
            let sql = format!(
                "{PRESENT} INSERT INTO salt_returns (fun, jid, return, id, success, added) SELECT n.fun, \
                 n.jid, n.ret, n.id, n.success::boolean, to_timestamp(n.at) FROM \
                 unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[]) \
                 AS n(fun, jid, ret, id, success, at) {missing}"
            );
            let parameters: Parameters<'_> = &[&funs, &jids, &rets, &ids, &successes, &times];
            return self.execute(&sql, parameters).await;
        }
        let cast = self.cast();
        let sql = format!(
            "{PRESENT} INSERT INTO salt_returns (fun, jid, return, id, success, full_ret, alter_time) SELECT \
             n.fun, n.jid, n.ret{cast}, n.id, n.success, n.full_ret{cast}, to_timestamp(n.at) FROM \
             unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], \
             $7::float8[]) AS n(fun, jid, ret, id, success, full_ret, at) {missing}"
        );
        let full = column(rows, |row| row.full_ret.as_str());
        let parameters: Parameters<'_> = &[&funs, &jids, &rets, &ids, &successes, &full, &times];
        self.execute(&sql, parameters).await
    }

    async fn events(&mut self, events: &[EventRow]) -> Result<(), SqlError> {
        let tags = column(events, |event| event.tag.as_str());
        let data = column(events, |event| event.data.as_str());
        let masters = column(events, |event| event.master.as_str());
        let sql = format!(
            "INSERT INTO salt_events (tag, data, master_id) SELECT n.tag, n.data{}, n.master_id \
             FROM unnest($1::text[], $2::text[], $3::text[]) AS n(tag, data, master_id)",
            self.cast()
        );
        self.execute(&sql, &[&tags, &data, &masters]).await
    }

    /// The expression that makes a document of a text.
    fn cast(&self) -> &'static str {
        match self.schema {
            SqlSchema::PgJsonb => "::jsonb",
            _ => "",
        }
    }

    async fn execute(&mut self, sql: &str, parameters: Parameters<'_>) -> Result<(), SqlError> {
        let statement = match self.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql).await?;
                self.statements.insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        self.client.execute(&statement, parameters).await?;
        Ok(())
    }
}

/// Opens a connection and makes a session of it, within a time; `silence` is the time after which a server that does not
/// acknowledge is lost.
///
/// Each address of a name is tried, see [`first_of`]. The driver's own time ends when the system has connected, as it
/// does also for a server that is frozen. Must be called within the runtime that is to run the connection.
pub(crate) async fn open<T, M: Future<Output = Result<T, SqlError>>>(
    store: &SqlStore,
    (limit, silence): (Duration, Option<Duration>),
    make: impl Fn(Client, PostgresConnection) -> M,
) -> Result<T, SqlError> {
    if is_directory(&store.host) {
        let connected = connect(config_of(store, silence), tls(store)?, &make);
        return within(limit, SqlError::ConnectTimeout, connected).await;
    }
    let began = Instant::now();
    let found = within(limit, SqlError::ConnectTimeout, addresses(store)).await?;
    let left = limit.saturating_sub(began.elapsed());
    open_at(&found, store, (left, silence), make).await
}

/// The same at these addresses of the name.
pub(crate) async fn open_at<T, M: Future<Output = Result<T, SqlError>>>(
    addresses: &[IpAddr],
    store: &SqlStore,
    (limit, silence): (Duration, Option<Duration>),
    make: impl Fn(Client, PostgresConnection) -> M,
) -> Result<T, SqlError> {
    let (config, tls) = (config_of(store, silence), tls(store)?);
    let attempts = addresses.iter().copied().map(|address| {
        let mut config = config.clone();
        config.hostaddr(address);
        connect(config, tls.clone(), &make)
    });
    first_of(attempts, limit).await
}

async fn connect<T, M: Future<Output = Result<T, SqlError>>>(
    config: Config,
    tls: MakeRustlsConnect,
    make: &impl Fn(Client, PostgresConnection) -> M,
) -> Result<T, SqlError> {
    let (client, connection) = config.connect(tls).await?;
    make(client, connection).await
}

/// The options of a connection to the host; its certificate is that of the name, whatever the address.
fn config_of(store: &SqlStore, silence: Option<Duration>) -> Config {
    let mut config = Config::new();
    config
        .host(&store.host)
        .port(store.port)
        .user(&store.user)
        .password(store.password.expose())
        .dbname(&store.database)
        .application_name("saltern")
        .keepalives_idle(KEEPALIVE)
        .ssl_mode(match store.tls.mode {
            SqlTlsMode::Disable => SslMode::Disable,
            SqlTlsMode::Prefer => SslMode::Prefer,
            SqlTlsMode::Require | SqlTlsMode::VerifyCa | SqlTlsMode::VerifyFull => SslMode::Require,
        });
    if let Some(silence) = silence {
        config
            .keepalives_idle((silence / 2).max(PROBE))
            .keepalives_interval((silence / 6).max(PROBE))
            .keepalives_retries(3)
            .tcp_user_timeout(silence.max(PROBE));
    }
    config
}

/// Whether a host is the directory of a socket.
fn is_directory(host: &str) -> bool {
    host.starts_with('/')
}

/// Connector of TLS.
pub(crate) fn tls(store: &SqlStore) -> Result<MakeRustlsConnect, SqlError> {
    Ok(MakeRustlsConnect::new(tls::client_config(&store.tls)?))
}

fn column<'r, R, T>(rows: &'r [R], value: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{self, Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::thread;

    use super::*;
    use crate::connection::tests::store;

    /// Behaviour of a server of a test.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fake {
        /// Accepts, and says nothing, as one that is frozen.
        Silent,
        /// Ends the connection.
        Absent,
        /// Refuses with this SQLSTATE.
        Says(&'static str),
        /// Takes no writes.
        Standby,
        /// Takes them.
        Primary,
    }

    fn message(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len() + 4).expect("a short message");
        [&[kind], &length.to_be_bytes()[..], content].concat()
    }

    fn read(stream: &mut TcpStream, is_first: bool) -> io::Result<(u8, Vec<u8>)> {
        let (mut kind, mut length) = ([0; 1], [0; 4]);
        if !is_first {
            stream.read_exact(&mut kind)?;
        }
        stream.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).expect("a length");
        let mut content = vec![0; length - 4];
        stream.read_exact(&mut content)?;
        Ok((kind[0], content))
    }

    /// Answers as PostgreSQL, as far as a session is opened.
    fn answer(stream: &mut TcpStream, fake: Fake) -> io::Result<()> {
        let ready = message(b'Z', b"I");
        read(stream, true)?;
        if let Fake::Says(code) = fake {
            let refusal = format!("SFATAL\0C{code}\0Ma word\0\0");
            return stream.write_all(&message(b'E', refusal.as_bytes()));
        }
        stream.write_all(&message(b'R', &[0; 4]))?;
        stream.write_all(&ready)?;
        loop {
            let (kind, content) = read(stream, false)?;
            if kind != b'Q' {
                return Ok(());
            }
            if content.starts_with(b"SHOW transaction_read_only") {
                let value: &[u8] = match fake {
                    Fake::Standby => b"\0\x01\0\0\0\x02on",
                    _ => b"\0\x01\0\0\0\x03off",
                };
                let column = [&b"\0\x01a\0"[..], &[0; 6], &25_u32.to_be_bytes(), &[0; 8]].concat();
                stream.write_all(&message(b'T', &column))?;
                stream.write_all(&message(b'D', value))?;
            }
            stream.write_all(&message(b'C', b"SET\0"))?;
            stream.write_all(&ready)?;
        }
    }

    /// Servers at addresses of the loopback with one port, which end with the process; gives how to reach them.
    pub(crate) fn servers(fakes: &[Fake]) -> (SqlStore, Vec<IpAddr>) {
        let mut store = store("pgjsonb", "127.0.0.1");
        store.tls.mode = SqlTlsMode::Disable;
        store.port = 0;
        let mut all = Vec::new();
        for (number, fake) in (1..).zip(fakes) {
            let address = Ipv4Addr::new(127, 0, 0, number);
            let listener = TcpListener::bind(SocketAddr::from((address, store.port)));
            let listener = listener.expect("a port");
            store.port = listener.local_addr().expect("an address").port();
            all.push(IpAddr::from(address));
            let fake = *fake;
            let serve = move || {
                let mut kept = Vec::new();
                while let Ok((mut stream, _)) = listener.accept() {
                    match fake {
                        Fake::Silent => kept.push(stream),
                        Fake::Absent => drop(stream),
                        _ => drop(answer(&mut stream, fake)),
                    }
                }
            };
            let thread = thread::Builder::new().spawn(serve);
            drop(thread.expect("a thread"));
        }
        (store, all)
    }

    async fn connected(
        store: &SqlStore,
        addresses: &[IpAddr],
        seconds: u64,
    ) -> Result<Postgres, SqlError> {
        let limit = (Duration::from_secs(seconds), None);
        open_at(addresses, store, limit, |client, connection| {
            ready(Ok(Postgres::of(store.schema, client, connection)))
        })
        .await
    }

    #[tokio::test]
    async fn silent_address_leaves_time_to_the_others() {
        let (store, addresses) = servers(&[Fake::Silent, Fake::Primary]);
        // A small share of a time that is longer than a test may take.
        let (silent, others) = addresses.split_at(1);
        let many = [silent.to_vec(), others.repeat(999)].concat();
        let opened = connected(&store, &many, 300).await;
        opened.expect("the second one answers");
        let failed = connected(&store, silent, 1).await;
        let failed = failed.err().expect("nobody answers");
        assert!(matches!(failed, SqlError::ConnectTimeout(1)), "{failed:?}");
    }

    #[test]
    fn directory_is_no_name() {
        assert!(is_directory("/run/postgresql"));
        assert!(!is_directory("db.example.com"));
    }
}

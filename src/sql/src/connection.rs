//! A connection to either database.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use saltern_base::blocking;
use saltern_config::{SqlSchema, SqlStore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::SqlError;
use crate::mysql::Mysql;
use crate::postgres::Postgres;

/// Longest time for connecting, where a site does not say.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection. It lives in the runtime that opened it, and is dropped there.
pub(crate) enum Connection {
    Postgres(Box<Postgres>),
    Mysql(Box<Mysql>),
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(store: &SqlStore) -> Result<Self, SqlError> {
        let limit = store.connect_timeout.unwrap_or(CONNECT);
        Ok(match store.schema {
            SqlSchema::Mysql => {
                let opened = Mysql::connect(store, limit);
                let opened = within(limit, SqlError::ConnectTimeout, opened).await?;
                Self::Mysql(Box::new(opened))
            }
            _ => Self::Postgres(Box::new(Postgres::connect(store, limit).await?)),
        })
    }
}

/// Addresses of the server's name; the drivers would look it up by a call that panics where the system starts no
/// thread, and end the task that connects.
pub(crate) async fn addresses(store: &SqlStore) -> Result<Vec<IpAddr>, SqlError> {
    let failed = |error: io::Error| SqlError::Connection(error.into());
    let found = blocking::lookup_host(&store.host, store.port).await;
    let found = found.map_err(failed)?;
    match found.is_empty() {
        true => Err(failed(io::ErrorKind::AddrNotAvailable.into())),
        false => Ok(found.iter().map(|address| address.ip()).collect()),
    }
}

/// Gives a task so much time; `late` makes the error of the seconds.
pub(crate) async fn within<T>(
    limit: Duration,
    late: fn(u64) -> SqlError,
    task: impl Future<Output = Result<T, SqlError>>,
) -> Result<T, SqlError> {
    match timeout(limit, task).await {
        Ok(result) => result,
        Err(_) => Err(late(limit.as_secs())),
    }
}

/// The first of several attempts to connect that succeeds. The next one begins when one has failed, or its share of the
/// time is over; those before go on: a silent one leaves time to the others, a slow one has all of it.
pub(crate) async fn first_of<T>(
    mut attempts: impl ExactSizeIterator<Item = impl Future<Output = Result<T, SqlError>>>,
    limit: Duration,
) -> Result<T, SqlError> {
    let end = Instant::now() + limit;
    let share = limit / u32::try_from(attempts.len()).unwrap_or(u32::MAX).max(1);
    let late = SqlError::ConnectTimeout(limit.as_secs());
    let (mut under_way, mut failed) = (FuturesUnordered::new(), None);
    loop {
        under_way.extend(attempts.next());
        let is_last = attempts.len() == 0;
        let until = if is_last { end } else { Instant::now() + share };
        match timeout_at(until, under_way.next()).await {
            Ok(Some(Ok(opened))) => return Ok(opened),
            Ok(Some(Err(error))) => failed = Some(error.after(failed)),
            Ok(None) => return Err(failed.unwrap_or(late)),
            Err(_) if is_last => return Err(late.after(failed)),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::error::Error as _;
    use std::fs;

    use saltern_config::load_master;
    use tokio::time::sleep;

    use super::*;

    /// The options of a connection with the tables of a returner.
    pub(crate) fn store(returner: &str, host: &str) -> SqlStore {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("master");
        let mut text = format!("master_job_cache: {returner}\n");
        let prefix = match returner {
            "mysql" => "mysql",
            _ => "returner.pgjsonb",
        };
        for (key, value) in [
            ("host", host),
            ("port", "9"),
            ("user", "salt"),
            ("pass", "x"),
            ("db", "salt"),
        ] {
            text.push_str(&format!("{prefix}.{key}: {value}\n"));
        }
        fs::write(&path, text).expect("a file");
        let config = load_master(&path).expect("a configuration").config;
        let store = config.returners.sql_store(returner);
        store.expect("a store").clone()
    }

    const LIMIT: Duration = Duration::from_secs(12);

    /// Seconds of an attempt, and what comes of it then.
    type Attempt = (u64, fn() -> Result<(), SqlError>);

    /// The outcome of attempts, and the seconds that they took.
    async fn first(attempts: [Attempt; 2]) -> (Result<(), SqlError>, u64) {
        let began = Instant::now();
        let attempts = attempts.into_iter().map(|(seconds, outcome)| async move {
            sleep(Duration::from_secs(seconds)).await;
            outcome()
        });
        (first_of(attempts, LIMIT).await, began.elapsed().as_secs())
    }

    fn good() -> Result<(), SqlError> {
        Ok(())
    }

    fn refused() -> Result<(), SqlError> {
        let (code, text) = ("28000".to_owned(), String::new());
        Err(SqlError::Database { code, text })
    }

    fn away() -> Result<(), SqlError> {
        Err(SqlError::Connection(
            io::Error::from(io::ErrorKind::ConnectionRefused).into(),
        ))
    }

    #[tokio::test(start_paused = true)]
    async fn slow_attempt_has_the_whole_time_and_silent_one_leaves_some_to_the_next() {
        const SILENT: u64 = 1_000;
        let cases: [([Attempt; 2], u64); 5] = [
            ([(11, good), (SILENT, good)], 11),
            ([(SILENT, good), (4, good)], 10),
            ([(11, good), (1, refused)], 11),
            ([(1, away), (4, good)], 5),
            ([(7, away), (5, good)], 11),
        ];
        for (attempts, seconds) in cases {
            let (opened, took) = first(attempts).await;
            opened.expect("one takes it");
            assert_eq!(took, seconds, "{attempts:?}");
        }
        let (opened, took) = first([(SILENT, good), (SILENT, good)]).await;
        let failed = opened.expect_err("all are silent");
        assert!(matches!(failed, SqlError::ConnectTimeout(12)), "{failed:?}");
        assert_eq!(took, 12);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_one_address_and_refusal_of_another_are_both_in_the_error() {
        let (refuses, silent): (Attempt, Attempt) = ((1, refused), (1_000, good));
        for attempts in [[refuses, silent], [silent, refuses]] {
            let (opened, took) = first(attempts).await;
            let failed = opened.expect_err("nobody takes it");
            assert_eq!(took, 12);
            assert!(failed.asks_for_another_connection(), "{failed:?}");
            let says = saltern_base::chain(&failed);
            assert!(
                says.contains("28000") && says.contains("within 12 s"),
                "{says}"
            );
        }
        let (opened, took) = first([refuses, refuses]).await;
        let failed = opened.expect_err("both refuse");
        assert!(matches!(failed, SqlError::Database { .. }), "{failed:?}");
        assert_eq!(took, 2);
    }

    /// The drivers' own look-up of a name would panic here.
    #[test]
    fn name_is_an_error_where_no_thread_starts_and_address_needs_none() {
        for (returner, host, kind) in [
            ("pgjsonb", "localhost", io::ErrorKind::WouldBlock),
            ("mysql", "localhost", io::ErrorKind::WouldBlock),
            ("pgjsonb", "127.0.0.1", io::ErrorKind::ConnectionRefused),
            ("mysql", "127.0.0.1", io::ErrorKind::ConnectionRefused),
        ] {
            let runtime = blocking::without_threads().build();
            let runtime = runtime.expect("a runtime");
            let opened = runtime.block_on(Connection::open(&store(returner, host)));
            let error = opened.err().expect("there is no server");
            let mut cause = error.source();
            let mut found = None;
            while let Some(error) = cause {
                found = error.downcast_ref::<io::Error>().or(found);
                cause = error.source();
            }
            let found = found.map(io::Error::kind);
            assert_eq!(found, Some(kind), "{returner} {host}: {error:?}");
        }
    }
}

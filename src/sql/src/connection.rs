//! A connection to either database.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use saltern_base::blocking;
use saltern_config::{SqlSchema, SqlStore};
use tokio::time::timeout;

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

#[cfg(test)]
pub(crate) mod tests {
    use std::error::Error as _;
    use std::fs;

    use saltern_config::load_master;

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

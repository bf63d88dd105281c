//! A connection to either database.

use std::future::Future;
use std::time::Duration;

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
        let opened = async {
            Ok(match store.schema {
                SqlSchema::Mysql => Self::Mysql(Box::new(Mysql::connect(store, limit).await?)),
                _ => Self::Postgres(Box::new(Postgres::connect(store, limit).await?)),
            })
        };
        within(limit, SqlError::ConnectTimeout, opened).await
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

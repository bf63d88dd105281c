//! The connection of a reader: opened when it is needed, with a back-off after each failure.

use std::io;
use std::time::Duration;

use saltern_config::{SqlSchema, SqlStore};
use tokio::time::Instant;

use crate::blocking_runtime::BlockingRuntime;
use crate::connection::{Connection, within};
use crate::error::SqlError;

/// Time without a question after which the connection is closed.
pub(super) const IDLE: Duration = Duration::from_secs(300);

/// Longest time of a statement; the server ends it a little earlier by itself.
const STATEMENT: Duration = Duration::from_secs(25);

/// First and longest back-off.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A row; each column is a text or null.
pub(super) type TextRow = Vec<Option<String>>;

/// The connection, or its absence.
pub(super) struct Link {
    store: SqlStore,
    runtime: BlockingRuntime,
    connection: Option<Connection>,
    /// Failed attempts in a row.
    failures: u32,
    /// Back-off: no attempt before.
    paused_until: Option<Instant>,
    /// Why the last attempt failed.
    why: String,
}

impl Link {
    pub(super) fn new(store: SqlStore) -> io::Result<Self> {
        Ok(Self {
            store,
            runtime: BlockingRuntime::new()?,
            connection: None,
            failures: 0,
            paused_until: None,
            why: String::new(),
        })
    }

    pub(super) fn schema(&self) -> SqlSchema {
        self.store.schema
    }

    /// Reads, and once more when the connection turns out to be lost: the server may have been
    /// restarted since the last question.
    pub(super) fn retrying<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let was_open = self.connection.is_some();
        match read(self) {
            Err(error) if was_open && self.connection.is_none() && error.is_of_connection() => {
                read(self)
            }
            other => other,
        }
    }

    /// The rows of a statement with text parameters.
    pub(super) fn select(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Vec<TextRow>, SqlError> {
        self.connect()?;
        let Some(connection) = &mut self.connection else {
            return Ok(Vec::new());
        };
        let selected = async {
            match connection {
                Connection::Postgres(postgres) => postgres.select(sql, parameters).await,
                Connection::Mysql(mysql) => mysql.select(sql, parameters).await,
            }
        };
        let selected = self
            .runtime
            .block_on(within(STATEMENT, SqlError::Timeout, selected));
        if (selected.as_ref()).is_err_and(|error| !error.keeps_connection()) {
            self.disconnect();
        }
        selected
    }

    fn connect(&mut self) -> Result<(), SqlError> {
        if self.connection.is_some() {
            return Ok(());
        }
        let now = self.runtime.now();
        if let Some(end) = self.paused_until.filter(|end| *end > now) {
            return Err(SqlError::Away {
                seconds: end.duration_since(now).as_secs() + 1,
                why: self.why.clone(),
            });
        }
        let opened = self.runtime.block_on(async {
            let mut connection = Connection::open(&self.store).await?;
            match &mut connection {
                Connection::Postgres(postgres) => postgres.only_read().await?,
                Connection::Mysql(mysql) => mysql.only_read().await?,
            }
            Ok(connection)
        });
        match opened {
            Ok(connection) => {
                self.connection = Some(connection);
                (self.failures, self.paused_until) = (0, None);
                Ok(())
            }
            Err(error) => {
                self.pause(saltern_base::chain(&error));
                Err(error)
            }
        }
    }

    /// Begins a back-off, or a longer one.
    pub(super) fn pause(&mut self, why: impl Into<String>) {
        let doubled = self.failures.min(8);
        self.failures = self.failures.saturating_add(1);
        let pause = FIRST_PAUSE.saturating_mul(1 << doubled).min(MAX_PAUSE);
        self.paused_until = Some(self.runtime.now() + pause);
        self.why = why.into();
    }

    /// Has no time pass for it, so that a back-off does not end by itself.
    #[cfg(test)]
    pub(super) fn stop_clock(&mut self) -> Result<(), SqlError> {
        self.runtime.block_on(async {
            tokio::time::pause();
            Ok(())
        })
    }

    pub(super) fn disconnect(&mut self) {
        // Its tasks end in the runtime.
        let _inside = self.runtime.enter();
        self.connection = None;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.disconnect();
    }
}

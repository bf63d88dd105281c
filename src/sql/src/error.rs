//! Why a database did not take rows. No text has a password or a row's content in it.

use tokio_postgres::error::SqlState;

/// Longest text of a database that is kept, in bytes: it may quote a value.
const MAX_TEXT: usize = 200;

/// A failed write.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// No connection, or none any more.
    #[error("no connection to the database")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No connection within seconds.
    #[error("no connection to the database within {0} s")]
    ConnectTimeout(u64),
    /// No server of several takes the connection: one may do so later, its error is the source; another one refuses it.
    #[error("no server of the database takes the connection; one says: {refusal}")]
    Several {
        /// Of the one that may take it later.
        source: Box<Self>,
        /// Of the one that refuses.
        refusal: Box<Self>,
    },
    /// The server is a standby of the database, or takes no writes by its configuration.
    #[error("the database takes no writes")]
    ReadOnly,
    /// The connection ended while a transaction was committed: it may have been, or not.
    #[error("the database may or may not have committed")]
    InDoubt(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The transaction is committed, and PostgreSQL warned: its synchronous standby may not have it.
    #[error("the database has committed, and its standby may not have")]
    Unconfirmed,
    /// It took longer than it may.
    #[error("the database does not answer within {0} s")]
    Timeout(u64),
    /// Files or settings of TLS.
    #[error("TLS cannot be used")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database refused the statement, for whatever rows: a missing table, a full disk.
    #[error("the database refuses: {code}: {text}")]
    Database {
        /// SQLSTATE of PostgreSQL, number of MySQL.
        code: String,
        /// Its message.
        text: String,
    },
    /// The database refused a value.
    #[error("the database refuses a row: {code}: {text}")]
    Row {
        /// SQLSTATE of PostgreSQL, number of MySQL.
        code: String,
        /// Its message.
        text: String,
    },
    /// The last attempt to connect failed, and the next one is not due.
    #[error("no connection to the database; the next attempt is in {seconds} s: {why}")]
    Away {
        /// Until the next attempt.
        seconds: u64,
        /// The last failure.
        why: String,
    },
    /// Other questions wait for the connection.
    #[error("{0} other questions wait for the database")]
    Busy(usize),
    /// It ended without a result; its panic is in the log.
    #[error("the question ended without an answer")]
    Ended,
    /// The thread cannot wait for a connection.
    #[error("no runtime")]
    Runtime(#[source] std::io::Error),
}

impl SqlError {
    /// Whether a row is at fault, so that others can be written.
    pub(crate) fn is_of_row(&self) -> bool {
        matches!(self, Self::Row { .. })
    }

    /// Whether the connection can be used again.
    pub(crate) fn keeps_connection(&self) -> bool {
        matches!(self, Self::Row { .. } | Self::Database { .. })
    }

    /// Whether the connection is at fault, so that another one may serve.
    pub(crate) fn is_of_connection(&self) -> bool {
        matches!(self, Self::Connection(_))
    }

    /// Whether another connection may do what this one did not: it is lost, its server takes no writes
    /// any more, or a row is locked by another one, which may be that of a lost machine.
    pub(crate) fn asks_for_another_connection(&self) -> bool {
        !self.keeps_connection()
            || self.has_code(&SqlState::READ_ONLY_SQL_TRANSACTION)
            || self.has_code(&SqlState::CANNOT_CONNECT_NOW)
            || self.has_code(&SqlState::LOCK_NOT_AVAILABLE)
            || self.has_code(&SqlState::TOO_MANY_CONNECTIONS)
    }

    /// The error of several attempts to connect, this one and those before. One that may succeed later decides, so a
    /// refusal is final only where all refuse. Otherwise a server's word is worth more than that another one is silent.
    pub(crate) fn after(self, failed: Option<Self>) -> Self {
        let Some(failed) = failed else {
            return self;
        };
        let asks = [&failed, &self].map(Self::asks_for_another_connection);
        match (asks, &failed, &self) {
            (_, Self::Several { .. }, _) => failed,
            ([true, false], ..) => Self::several(failed, self),
            ([false, true], ..) => Self::several(self, failed),
            (_, Self::Database { .. } | Self::ReadOnly, _) | (.., Self::ConnectTimeout(_)) => {
                failed
            }
            _ => self,
        }
    }

    fn several(source: Self, refusal: Self) -> Self {
        Self::Several {
            source: Box::new(source),
            refusal: Box::new(refusal),
        }
    }

    /// The same error, of a commit.
    pub(crate) fn of_commit(self) -> Self {
        match self {
            Self::Connection(source) => Self::InDoubt(source),
            other => other,
        }
    }

    /// Whether the database has refused with this SQLSTATE.
    pub(crate) fn has_code(&self, state: &SqlState) -> bool {
        match self {
            Self::Database { code, .. } | Self::Row { code, .. } => code == state.code(),
            _ => false,
        }
    }

    fn of_database(is_of_row: bool, code: String, text: &str) -> Self {
        let end = text.floor_char_boundary(MAX_TEXT);
        let text = text.get(..end).unwrap_or_default().to_owned();
        match is_of_row {
            true => Self::Row { code, text },
            false => Self::Database { code, text },
        }
    }
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(refused) = error.as_db_error() else {
            return Self::Connection(error.into());
        };
        let code = refused.code();
        let ends = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            SqlState::IDLE_SESSION_TIMEOUT,
        ];
        if ends.contains(code) {
            return Self::Connection(error.into());
        }
        // Its detail may quote the row, its message hardly.
        let class = code.code().get(..2).unwrap_or_default();
        let is_of_row = matches!(class, "22" | "23" | "54" | "P0") || code.code() == "XX000";
        Self::of_database(is_of_row, code.code().to_owned(), refused.message())
    }
}

impl From<mysql_async::Error> for SqlError {
    fn from(error: mysql_async::Error) -> Self {
        let mysql_async::Error::Server(refused) = &error else {
            return Self::Connection(error.into());
        };
        let is_of_row = match refused.code {
            // Packet too large, NULL, duplicate, row too large, out of range, truncated, wrong text,
            // too long, references, a trigger's own, invalid JSON, a check.
            1048 | 1062 | 1118 | 1153 | 1264 | 1265 | 1292 | 1366 | 1406 | 1451 | 1452 | 1644
            | 3140 | 3819 | 4025 => true,
            _ => false,
        };
        Self::of_database(is_of_row, refused.code.to_string(), &refused.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_mysql(code: u16, message: &str) -> SqlError {
        let error = mysql_async::ServerError {
            code,
            message: message.to_owned(),
            state: "HY000".to_owned(),
        };
        mysql_async::Error::Server(error).into()
    }

    #[test]
    fn only_errors_of_values_are_of_a_row() {
        for code in [1366, 1406, 1153] {
            assert!(of_mysql(code, "x").is_of_row(), "{code}");
        }
        // A missing table, a full disk, a read-only server, a deadlock, a wrong password.
        for code in [1146, 1021, 1290, 1213, 1045] {
            let error = of_mysql(code, "x");
            assert!(!error.is_of_row() && error.keeps_connection(), "{code}");
        }
    }

    #[test]
    fn texts_of_databases_are_bounded() {
        let text = of_mysql(1366, &"ß".repeat(500)).to_string();
        assert!(text.len() < MAX_TEXT + 50, "{text}");
    }
}

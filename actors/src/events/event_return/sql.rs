//! SQL databases as returners of events (`saltern_sql`).

use parking_lot::Mutex;
use saltern_base::chain;
use saltern_sql::{SqlError, SqlWriter};

use super::queue::PackedEvent;
use super::{End, Sink};

/// A SQL database with stock's table of events.
pub(crate) struct SqlReturner {
    /// There is one batch at a time.
    writer: Mutex<SqlWriter>,
}

impl SqlReturner {
    pub(crate) fn new(writer: SqlWriter) -> Self {
        Self {
            writer: Mutex::new(writer),
        }
    }
}

impl Sink for SqlReturner {
    fn give(&self, batch: Vec<PackedEvent>) -> End {
        match self.writer.lock().store_events(&batch) {
            Ok(()) => End::Returned,
            // It is refused for ever, or may be stored.
            Err(error @ (SqlError::Row { .. } | SqlError::InDoubt(_) | SqlError::Timeout(_))) => {
                End::Failed(chain(&error))
            }
            Err(error) => End::NotTried(chain(&error), batch),
        }
    }
}

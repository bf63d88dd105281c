//! Writes rows of the job database into one SQL database, each once, in order.
//!
//! A batch is one transaction. When the database refuses a value, the batch is halved until the row is
//! found; it is stored without its content, or skipped. Every other failure ends the call: what was
//! stored before it counts, the rest is given again.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use saltern_config::{SqlSchema, SqlStore};
use saltern_store::Followed;

use crate::blocking_runtime::BlockingRuntime;
use crate::connection::{Connection, within};
use crate::document::{Marks, TextRules, Texts, unpack};
use crate::error::SqlError;
use crate::postgres;
use crate::row::{JobRow, ReturnRow, Row, Rows};

/// Longest time of a transaction.
const TRANSACTION: Duration = Duration::from_secs(60);

/// Bytes of documents in a transaction, about; a larger row is alone.
const BATCH_BYTES: usize = 16 << 20;

/// Widths of the columns of an event, in characters.
const TAG: usize = 255;
const MASTER: usize = 255;

/// The rows of a transaction.
#[derive(Default)]
pub(crate) struct Batch<'r> {
    pub(crate) reported: Vec<&'r JobRow>,
    pub(crate) published: Vec<&'r JobRow>,
    pub(crate) returns: Vec<&'r ReturnRow>,
    pub(crate) events: Vec<EventRow>,
}

/// A row of `salt_events`.
pub(crate) struct EventRow {
    pub(crate) tag: String,
    pub(crate) data: String,
    pub(crate) master: String,
}

impl<'r> Batch<'r> {
    fn of(rows: &'r [Row]) -> Self {
        let mut batch = Self::default();
        // One statement must not touch a row twice.
        let (mut reported, mut published) = (HashMap::new(), HashMap::new());
        for row in rows {
            match row {
                Row::Job(job) => {
                    let jobs = match job.is_reported {
                        true => &mut reported,
                        false => &mut published,
                    };
                    jobs.insert(job.jid.as_str(), job);
                }
                Row::Return(row) => batch.returns.push(row),
            }
        }
        batch.reported = reported.into_values().collect();
        batch.published = published.into_values().collect();
        batch
    }
}

/// Outcome of rows.
#[derive(Debug, Default)]
pub struct Stored {
    /// How many of the rows, from the first on, are done.
    pub done: usize,
    /// Those of them that the database refused and that are nowhere in it.
    pub skipped: u64,
    /// Values that are not stored as they are.
    pub marks: Marks,
    /// Why the rest is not done, or why a row was refused.
    pub problem: Option<SqlError>,
}

/// The writer of one SQL database. Blocks.
pub struct SqlWriter {
    store: SqlStore,
    master: String,
    runtime: BlockingRuntime,
    connection: Option<Connection>,
}

impl SqlWriter {
    /// The writer of the master `master`, without a connection until the first call.
    ///
    /// # Errors
    /// The system gives no runtime.
    pub fn new(store: SqlStore, master: &str) -> io::Result<Self> {
        Ok(Self {
            store,
            master: master.to_owned(),
            runtime: BlockingRuntime::new()?,
            connection: None,
        })
    }

    /// Writes rows of the job database. What is there already stays: rows may be given again.
    pub fn store(&mut self, followed: &[&Followed]) -> Stored {
        let mut stored = Stored::default();
        let document = match self.connect() {
            Ok(document) => document,
            Err(error) => {
                stored.problem = Some(error);
                return stored;
            }
        };
        let rows = Rows::new(self.store.schema, document);
        let mut rest = followed;
        while !rest.is_empty() && self.connection.is_some() {
            let mut taken = Vec::new();
            let mut bytes = 0;
            for followed in rest {
                let (row, marks) = rows.of(followed);
                if !taken.is_empty() && bytes + row.len() > BATCH_BYTES {
                    break;
                }
                bytes += row.len();
                stored.marks += marks;
                taken.push(row);
            }
            let (now, later) = rest.split_at(taken.len());
            rest = later;
            if !self.store_rows(&rows, now, &taken, &mut stored) {
                break;
            }
        }
        stored
    }

    /// Whether the rows after these may be tried.
    fn store_rows(
        &mut self,
        rows: &Rows,
        followed: &[&Followed],
        taken: &[Row],
        stored: &mut Stored,
    ) -> bool {
        let error = match self.write(&Batch::of(taken)) {
            Ok(()) => {
                stored.done += taken.len();
                return true;
            }
            Err(error) => error,
        };
        if !error.is_of_row() {
            stored.problem = Some(error);
            return false;
        }
        let half = taken.len() / 2;
        if half > 0 {
            let (first, second) = taken.split_at(half);
            let (followed_first, followed_second) = followed.split_at(half);
            return self.store_rows(rows, followed_first, first, stored)
                && self.store_rows(rows, followed_second, second, stored);
        }
        let Some(followed) = followed.first() else {
            return true;
        };
        let why = match &error {
            SqlError::Row { code, .. } => code.clone(),
            _ => String::new(),
        };
        stored.problem = Some(error);
        let row = rows.without_content(followed, &why);
        match self.write(&Batch::of(std::slice::from_ref(&row))) {
            Ok(()) => stored.marks.cut += 1,
            Err(error) if error.is_of_row() => {
                stored.skipped += 1;
                stored.problem = Some(error);
            }
            Err(error) => {
                stored.problem = Some(error);
                return false;
            }
        }
        stored.done += 1;
        true
    }

    /// Writes events, all or none.
    ///
    /// # Errors
    /// None of them is stored, unless the connection broke at the end.
    pub fn store_events(&mut self, events: &[(String, Bytes)]) -> Result<(), SqlError> {
        let document = self.connect()?;
        let mut texts = Texts::new(TextRules {
            strict_json: self.store.schema == SqlSchema::PgJsonb,
            narrow: self.store.schema == SqlSchema::Mysql,
            document,
        });
        let mut rows = Vec::with_capacity(events.len());
        for (tag, data) in events {
            let data = texts.clean(unpack(data));
            rows.push(EventRow {
                tag: texts.text(tag, TAG),
                data: texts.json_or_cut(&data).0,
                master: texts.text(&self.master, MASTER),
            });
        }
        let batch = Batch {
            events: rows,
            ..Batch::default()
        };
        self.write(&batch)
    }

    /// Connects, unless there is a connection; the longest document that it takes.
    fn connect(&mut self) -> Result<usize, SqlError> {
        if self.connection.is_none() {
            let opened = self.runtime.block_on(async {
                let mut connection = Connection::open(&self.store).await?;
                if let Connection::Postgres(postgres) = &mut connection {
                    postgres.only_write().await?;
                }
                Ok(connection)
            })?;
            self.connection = Some(opened);
        }
        Ok(match &self.connection {
            Some(Connection::Mysql(mysql)) => mysql.max_document(),
            _ => postgres::MAX_DOCUMENT,
        })
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), SqlError> {
        self.connect()?;
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        let written = async {
            match connection {
                Connection::Postgres(postgres) => postgres.write(batch).await,
                Connection::Mysql(mysql) => mysql.write(batch).await,
            }
        };
        let written = self
            .runtime
            .block_on(within(TRANSACTION, SqlError::Timeout, written));
        if written
            .as_ref()
            .is_err_and(|error| !error.keeps_connection())
        {
            self.disconnect();
        }
        written
    }

    fn disconnect(&mut self) {
        // Its tasks end in the runtime.
        let _inside = self.runtime.enter();
        self.connection = None;
    }
}

impl Drop for SqlWriter {
    fn drop(&mut self) {
        self.disconnect();
    }
}

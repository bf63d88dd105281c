//! Care for the tables, by an administrator's command: what they lack, making them, and removing old
//! jobs.
//!
//! A job's age is the time in its jid, and decides for its returns too, so that no return is left
//! without its job. Rows go in slices, each a transaction of its own, returns before jobs.

use saltern_config::{SqlSchema, SqlStore};

use crate::blocking_runtime::BlockingRuntime;
use crate::connection::Connection;
use crate::error::SqlError;
use crate::schema::{columns, tables};

/// Rows of a slice: few enough that nothing waits noticeably for its locks.
const SLICE: u64 = 2_000;

/// A connection for care. Blocks.
pub struct SqlCare {
    schema: SqlSchema,
    runtime: BlockingRuntime,
    connection: Connection,
}

/// The first jid that is kept, and the moment for what has no such jid.
#[derive(Clone, Debug)]
pub struct Cutoff {
    /// Twenty digits, in the time zone of the master's jids.
    jid: String,
    /// Seconds since 1970.
    unix: i64,
}

impl Cutoff {
    /// `None` unless `jid` is the twenty digits of a jid.
    pub fn new(jid: &str, unix: i64) -> Option<Self> {
        let is_jid = jid.len() == 20 && jid.bytes().all(|byte| byte.is_ascii_digit());
        is_jid.then(|| Self {
            jid: jid.to_owned(),
            unix,
        })
    }
}

/// A step of a purge: the statement that removes a slice, repeated until nothing is left.
#[derive(Debug)]
pub struct Step {
    /// The table.
    pub table: &'static str,
    /// The statement.
    pub sql: String,
}

/// The statements of a purge, in order.
pub fn purge_steps(schema: SqlSchema, cutoff: &Cutoff) -> Vec<Step> {
    let Cutoff { jid, unix } = cutoff;
    let (matches, moment, received) = match schema {
        SqlSchema::Mysql => ("REGEXP", format!("FROM_UNIXTIME({unix})"), "alter_time"),
        SqlSchema::PostgresLocalCache => ("~", format!("to_timestamp({unix})"), "added"),
        _ => ("~", format!("to_timestamp({unix})"), "alter_time"),
    };
    let is_time = format!("jid {matches} '^[0-9]{{20}}'");
    let old = format!("jid < '{jid}' AND {is_time}");
    // Without a time in their jid, returns have the time at which they came.
    let strange = format!("NOT ({is_time}) AND {received} < {moment}");
    let by_time = format!("alter_time < {moment}");
    [
        ("salt_returns", old.as_str(), "jid"),
        ("salt_returns", strange.as_str(), "jid"),
        ("jids", old.as_str(), "jid"),
        ("salt_events", by_time.as_str(), "id"),
    ]
    .into_iter()
    .map(|(table, condition, order)| Step {
        table,
        sql: match schema {
            SqlSchema::Mysql => {
                format!("DELETE FROM {table} WHERE {condition} ORDER BY {order} LIMIT {SLICE}")
            }
            _ => format!(
                "DELETE FROM {table} WHERE ctid IN (SELECT ctid FROM {table} WHERE {condition} \
                 ORDER BY {order} LIMIT {SLICE})"
            ),
        },
    })
    .collect()
}

impl SqlCare {
    /// Connects.
    ///
    /// # Errors
    /// No connection.
    pub fn connect(store: &SqlStore) -> Result<Self, SqlError> {
        let runtime = BlockingRuntime::new().map_err(SqlError::Runtime)?;
        let connection = runtime.block_on(Connection::open(store))?;
        Ok(Self {
            schema: store.schema,
            runtime,
            connection,
        })
    }

    /// Columns that the tables lack, as `table.column`.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn missing(&mut self) -> Result<Vec<String>, SqlError> {
        let schema = match self.schema {
            SqlSchema::Mysql => "DATABASE()",
            _ => "ANY (current_schemas(false))",
        };
        let sql = format!(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = \
             {schema} AND table_name IN ('jids', 'salt_returns', 'salt_events')"
        );
        let found = self.query(&sql)?;
        let has = |table: &str, column: &str| {
            found.iter().any(|row| {
                let [found_table, found_column] = row.as_slice() else {
                    return false;
                };
                found_table == table && found_column.eq_ignore_ascii_case(column)
            })
        };
        let wanted = columns(self.schema).iter();
        let wanted = wanted.flat_map(|(table, columns)| {
            columns
                .iter()
                .filter(|column| !has(table, column))
                .map(move |column| format!("{table}.{column}"))
        });
        Ok(wanted.collect())
    }

    /// Makes the tables and indexes that are not there.
    ///
    /// # Errors
    /// The database refuses.
    pub fn create(&mut self) -> Result<(), SqlError> {
        tables(self.schema)
            .iter()
            .try_for_each(|sql| self.execute(sql).map(drop))
    }

    /// Carries out a step to its end; how many rows went.
    ///
    /// # Errors
    /// The database refuses; slices before are gone.
    pub fn purge(&mut self, step: &Step) -> Result<u64, SqlError> {
        let mut gone = 0;
        loop {
            let rows = self.execute(&step.sql)?;
            gone += rows;
            if rows == 0 {
                return Ok(gone);
            }
        }
    }

    fn execute(&mut self, sql: &str) -> Result<u64, SqlError> {
        let connection = &mut self.connection;
        self.runtime.block_on(async {
            match connection {
                Connection::Postgres(postgres) => postgres.run(sql).await,
                Connection::Mysql(mysql) => mysql.run(sql).await,
            }
        })
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
        let connection = &mut self.connection;
        self.runtime.block_on(async {
            match connection {
                Connection::Postgres(postgres) => postgres.rows(sql).await,
                Connection::Mysql(mysql) => mysql.rows(sql).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutoff_is_nothing_but_a_jid() {
        assert!(Cutoff::new("20261121070622000000", 0).is_some());
        for text in ["2026112107062200000", "2026112107062200000'", "", "x"] {
            assert!(Cutoff::new(text, 0).is_none(), "{text}");
        }
    }
}

//! Care for the tables, by an administrator's command: what they lack, making them, and removing old
//! jobs.
//!
//! A job's age is the time in its jid, and decides for its returns too, so that no return is left
//! without its job. Jids are times in UTC, as stock makes them. Rows go in slices, each a transaction of
//! its own, returns before jobs. With `archive_jobs` they go into stock's `…_archive` tables.

use std::time::Duration;

use saltern_base::clock::civil;
use saltern_config::{SqlSchema, SqlStore};

use crate::blocking_runtime::BlockingRuntime;
use crate::connection::Connection;
use crate::error::SqlError;
use crate::schema::{columns, tables};

/// Rows of the first slice, of the smallest and of the largest one.
const SLICE: u64 = 500;
const MIN_SLICE: u64 = 20;
const MAX_SLICE: u64 = 5_000;

/// Time of a slice above which the next one is smaller, and below which it is larger: nothing waits
/// noticeably for its locks.
const LONG: Duration = Duration::from_millis(50);
const SHORT: Duration = Duration::from_millis(20);

/// A connection for care. Blocks.
pub struct SqlCare {
    schema: SqlSchema,
    runtime: BlockingRuntime,
    connection: Connection,
}

/// The moment from which on everything is kept.
#[derive(Clone, Copy, Debug)]
pub struct Cutoff {
    unix_micros: i64,
}

impl Cutoff {
    /// The moment so long before another, in microseconds since 1970.
    pub fn before(unix_micros: i64, age: Duration) -> Self {
        let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        Self {
            unix_micros: unix_micros.saturating_sub(age),
        }
    }

    /// The first jid that is kept.
    fn jid(self) -> String {
        civil(self.unix_micros)
            .strftime("%Y%m%d%H%M%S%6f")
            .to_string()
    }

    /// Whole seconds since 1970.
    fn unix(self) -> i64 {
        self.unix_micros.div_euclid(1_000_000)
    }
}

/// A step of a purge, which is repeated until nothing is left.
#[derive(Debug)]
pub struct Step {
    /// The table.
    pub table: &'static str,
    schema: SqlSchema,
    archives: bool,
    /// Which rows go.
    condition: String,
    order: &'static str,
}

impl Step {
    /// The statements of one slice, a transaction; the last one counts its rows.
    pub fn statements(&self, rows: u64) -> Vec<String> {
        let Self {
            table,
            condition,
            order,
            ..
        } = self;
        match (self.schema, self.archives) {
            (SqlSchema::Mysql, false) => vec![format!(
                "DELETE FROM {table} WHERE {condition} ORDER BY {order} LIMIT {rows}"
            )],
            // Both statements mean the same rows: all up to that of the slice's end, whatever they share.
            (SqlSchema::Mysql, true) => vec![
                format!("CREATE TABLE IF NOT EXISTS {table}_archive LIKE {table}"),
                "START TRANSACTION".to_owned(),
                format!(
                    "SELECT MAX({order}) INTO @saltern_end FROM (SELECT {order} FROM {table} WHERE \
                     {condition} ORDER BY {order} LIMIT {rows}) AS slice"
                ),
                // A job that was archived before stays as it was.
                format!(
                    "INSERT IGNORE INTO {table}_archive SELECT * FROM {table} WHERE {condition} AND \
                     {order} <= @saltern_end"
                ),
                format!("DELETE FROM {table} WHERE {condition} AND {order} <= @saltern_end"),
            ],
            (_, archives) => {
                let delete = format!(
                    "DELETE FROM {table} WHERE ctid IN (SELECT ctid FROM {table} WHERE {condition} \
                     ORDER BY {order} LIMIT {rows})"
                );
                match archives {
                    false => vec![delete],
                    true => vec![
                        format!("CREATE TABLE IF NOT EXISTS {table}_archive (LIKE {table})"),
                        format!(
                            "WITH gone AS ({delete} RETURNING *) INSERT INTO {table}_archive \
                             SELECT * FROM gone"
                        ),
                    ],
                }
            }
        }
    }
}

/// The steps of a purge, in order; with `archives`, rows go into stock's archive tables.
pub fn purge_steps(schema: SqlSchema, cutoff: Cutoff, archives: bool) -> Vec<Step> {
    let (jid, unix) = (cutoff.jid(), cutoff.unix());
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
    let steps = [
        ("salt_returns", old.clone(), "jid"),
        ("salt_returns", strange, "jid"),
        ("jids", old, "jid"),
        ("salt_events", by_time, "id"),
    ];
    let steps = steps.into_iter().map(|(table, condition, order)| Step {
        table,
        schema,
        archives,
        condition,
        order,
    });
    steps.collect()
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

    /// Carries out a step to its end; how many rows went. `is_over` is asked before each slice, and is
    /// the place to wait.
    ///
    /// # Errors
    /// The database refuses; slices before are gone.
    pub fn purge(
        &mut self,
        step: &Step,
        mut is_over: impl FnMut(Duration) -> bool,
    ) -> Result<u64, SqlError> {
        let (mut gone, mut size, mut took) = (0, SLICE, Duration::ZERO);
        while !is_over(took) {
            let began = self.runtime.now();
            let rows = self.slice(&step.statements(size))?;
            took = self.runtime.now().duration_since(began);
            gone += rows;
            if rows == 0 {
                break;
            }
            if took > LONG {
                size = (size / 2).max(MIN_SLICE);
            } else if took < SHORT {
                size = (size * 2).min(MAX_SLICE);
            }
        }
        Ok(gone)
    }

    /// Carries out the statements of a slice; how many rows the last one changed.
    fn slice(&mut self, statements: &[String]) -> Result<u64, SqlError> {
        let mut rows = 0;
        let done: Result<(), SqlError> = statements.iter().try_for_each(|sql| {
            rows = self.execute(sql)?;
            Ok(())
        });
        let is_open = statements.iter().any(|sql| sql == "START TRANSACTION");
        match done {
            Ok(()) if is_open => self.execute("COMMIT").map(|_| rows),
            Ok(()) => Ok(rows),
            Err(error) => {
                if is_open && error.keeps_connection() {
                    self.execute("ROLLBACK")?;
                }
                Err(error)
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
    fn cutoff_is_a_jid_in_utc() {
        let cutoff = Cutoff::before(1_795_244_782_637_714, Duration::from_secs(3600));
        assert_eq!(cutoff.jid(), "20261121060622637714");
        let steps = purge_steps(SqlSchema::PgJsonb, cutoff, false);
        let first = steps.first().expect("a step").statements(7).concat();
        assert!(first.contains("jid < '20261121060622637714'"), "{first}");
        assert!(first.ends_with("LIMIT 7)"), "{first}");
    }
}

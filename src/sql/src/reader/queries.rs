//! The statements of the reads, for each schema. Every column comes as a text.
//!
//! Minions are compared and sorted by their bytes, as elsewhere in this master: MySQL's collation takes
//! `Web1` and `web1` for the same one. Jids are digits, so any collation sorts them, and the index serves.

use saltern_config::SqlSchema;

use crate::row::JOB_COLUMNS;

/// Bytes of a document above which a list has no place for it.
const MAX_LISTED: usize = 256 << 10;

/// Statements of one schema.
#[derive(Clone, Copy)]
pub(super) struct Queries(pub(super) SqlSchema);

impl Queries {
    fn is_mysql(self) -> bool {
        self.0 == SqlSchema::Mysql
    }

    fn parameter(self, number: usize) -> String {
        match self.is_mysql() {
            true => "?".to_owned(),
            false => format!("${number}"),
        }
    }

    /// The minion, by its bytes.
    fn id(self) -> &'static str {
        match self.is_mysql() {
            true => "BINARY `id`",
            false => "id COLLATE \"C\"",
        }
    }

    /// The columns of a job behind its jid.
    fn job_columns(self) -> Vec<String> {
        match self.0 {
            SqlSchema::PgJsonb => vec!["load::text".to_owned()],
            SqlSchema::Postgres => vec!["load".to_owned()],
            SqlSchema::Mysql => vec!["`load`".to_owned()],
            SqlSchema::PostgresLocalCache => JOB_COLUMNS.map(str::to_owned).into(),
        }
    }

    pub(super) fn job(self) -> String {
        let columns = self.job_columns().join(", ");
        format!(
            "SELECT jid, {columns} FROM jids WHERE jid = {}",
            self.parameter(1)
        )
    }

    /// Jobs, highest jid first; a document that is too long is null.
    pub(super) fn jobs(self, has_before: bool, has_from: bool, limit: usize) -> String {
        let columns = self.job_columns().into_iter().map(|column| {
            format!("CASE WHEN octet_length({column}) <= {MAX_LISTED} THEN {column} END")
        });
        let columns: Vec<String> = columns.collect();
        let mut bounds = Vec::new();
        if has_before {
            bounds.push(format!("jid < {}", self.parameter(bounds.len() + 1)));
        }
        if has_from {
            bounds.push(format!("jid >= {}", self.parameter(bounds.len() + 1)));
        }
        let bounds = match bounds.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", bounds.join(" AND ")),
        };
        format!(
            "SELECT jid, {} FROM jids{bounds} ORDER BY jid DESC LIMIT {limit}",
            columns.join(", ")
        )
    }

    /// The document of a return.
    fn document(self) -> &'static str {
        match self.0 {
            SqlSchema::PgJsonb => "full_ret::text",
            // Its column may be null.
            SqlSchema::Postgres => "COALESCE(full_ret, 'null')",
            SqlSchema::PostgresLocalCache => "return",
            SqlSchema::Mysql => "`full_ret`",
        }
    }

    /// When a return was stored, in seconds.
    fn received(self) -> &'static str {
        match self.0 {
            SqlSchema::Mysql => "UNIX_TIMESTAMP(`alter_time`)",
            SqlSchema::PostgresLocalCache => "extract(epoch FROM added)",
            SqlSchema::PgJsonb | SqlSchema::Postgres => "extract(epoch FROM alter_time)",
        }
    }

    fn received_text(self) -> String {
        match self.is_mysql() {
            true => self.received().to_owned(),
            false => format!("{}::text", self.received()),
        }
    }

    /// The columns of a return.
    fn return_columns(self) -> String {
        let (id, success) = match self.0 {
            SqlSchema::Mysql => ("`id`", "`success`"),
            SqlSchema::PostgresLocalCache => ("id", "success::text"),
            SqlSchema::PgJsonb | SqlSchema::Postgres => ("id", "success"),
        };
        format!(
            "{id}, {}, {}, fun, {success}",
            self.document(),
            self.received_text()
        )
    }

    /// Minion and size of each return behind a minion.
    pub(super) fn return_sizes(self, limit: usize) -> String {
        let length = match self.is_mysql() {
            true => format!("LENGTH({})", self.document()),
            false => format!("octet_length({})::text", self.document()),
        };
        // `LIMIT` of either database is 63 bits wide.
        let limit = limit.min(i64::MAX as usize);
        format!(
            "SELECT id, {length} FROM salt_returns WHERE jid = {} AND {} > {} ORDER BY {} LIMIT {limit}",
            self.parameter(1),
            self.id(),
            self.parameter(2),
            self.id(),
        )
    }

    /// Returns behind one minion, up to another. Of a return that is there twice, the last one is read
    /// last.
    pub(super) fn returns(self) -> String {
        format!(
            "SELECT {} FROM salt_returns WHERE jid = {} AND {} > {} AND {} <= {} ORDER BY {}, {}",
            self.return_columns(),
            self.parameter(1),
            self.id(),
            self.parameter(2),
            self.id(),
            self.parameter(3),
            self.id(),
            self.received(),
        )
    }

    pub(super) fn return_of(self) -> String {
        format!(
            "SELECT {} FROM salt_returns WHERE jid = {} AND {} = {} ORDER BY {}",
            self.return_columns(),
            self.parameter(1),
            self.id(),
            self.parameter(2),
            self.received(),
        )
    }

    /// Jid, minions, minions without success, and time of the last return.
    pub(super) fn counts(self, jids: usize) -> String {
        let parameters: Vec<String> = (1..=jids).map(|number| self.parameter(number)).collect();
        let parameters = parameters.join(", ");
        let (number, failed) = match self.0 {
            SqlSchema::Mysql => (
                "COUNT(DISTINCT BINARY `id`)",
                "`success` NOT IN ('1', 'true')",
            ),
            SqlSchema::PostgresLocalCache => ("COUNT(DISTINCT id)::text", "success IS FALSE"),
            _ => ("COUNT(DISTINCT id)::text", "lower(success) <> 'true'"),
        };
        let (failures, last) = match self.is_mysql() {
            true => (
                format!("COUNT(DISTINCT CASE WHEN {failed} THEN BINARY `id` END)"),
                "MAX(UNIX_TIMESTAMP(`alter_time`))".to_owned(),
            ),
            false => (
                format!("COUNT(DISTINCT CASE WHEN {failed} THEN id END)::text"),
                format!("MAX({})::text", self.received()),
            ),
        };
        format!(
            "SELECT jid, {number}, {failures}, {last} FROM salt_returns WHERE jid IN ({parameters}) \
             GROUP BY jid"
        )
    }

    /// The newest return of each minion, with its jid in front. `pgjsonb` of stock goes by the time of
    /// the row, `mysql` by the jid.
    pub(super) fn newest_returns(self, limit: usize) -> String {
        let columns = self.return_columns();
        let fun = self.parameter(1);
        let newest = match self.0 {
            SqlSchema::Mysql => {
                return format!(
                    "SELECT r.`jid`, r.`id`, r.`full_ret`, UNIX_TIMESTAMP(r.`alter_time`), r.`fun`, \
                     r.`success` FROM `salt_returns` r JOIN (SELECT `fun`, BINARY `id` AS `minion`, \
                     MAX(`jid`) AS `jid` FROM `salt_returns` WHERE `fun` = ? \
                     GROUP BY `fun`, BINARY `id`) m ON m.`jid` = r.`jid` AND m.`fun` = r.`fun` \
                     AND m.`minion` = BINARY r.`id` ORDER BY BINARY r.`id` LIMIT {limit}"
                );
            }
            SqlSchema::PgJsonb => "alter_time DESC",
            SqlSchema::Postgres | SqlSchema::PostgresLocalCache => "jid DESC",
        };
        format!(
            "SELECT DISTINCT ON (id COLLATE \"C\") jid, {columns} FROM salt_returns WHERE fun = {fun} \
             ORDER BY id COLLATE \"C\", {newest} LIMIT {limit}"
        )
    }

    pub(super) fn minions(self, limit: usize) -> String {
        match self.is_mysql() {
            true => format!(
                "SELECT DISTINCT BINARY `id` AS `minion` FROM `salt_returns` ORDER BY `minion` \
                 LIMIT {limit}"
            ),
            false => format!(
                "SELECT id FROM (SELECT DISTINCT id FROM salt_returns) AS minions \
                 ORDER BY id COLLATE \"C\" LIMIT {limit}"
            ),
        }
    }
}

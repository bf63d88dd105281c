//! Tables of the engine, in a schema of the cluster's name.
//!
//! Columns are those of the engine on SQLite. Texts are compared by their bytes. What may be longer than
//! an index entry can be is indexed by its first 200 characters, and queries say so in the same words.

use tokio_postgres::error::SqlState;

use super::data_table::DATA;
use super::key_table::KEYS;
use super::revisioned::Revisioned;
use super::session::Session;
use crate::error::SqlError;

/// The layout's number.
pub(super) const VERSION: i64 = 5;

/// The first layout whose release looks at the floor: one of before takes no newer layout.
pub(super) const FIRST_WITH_FLOOR: i64 = 3;

/// The entry of `meta` with the lowest layout that a release has to know. A layout only adds to the one before,
/// so a release of that one goes on until the floor is raised.
const FLOOR: &str = "layout_floor";

/// The entry of `meta` that shows which secret the members have.
pub(super) const SECRET_CHECK: &str = "secret_check";

const PRESENT: &str = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()";

/// Key of the advisory lock under which tables are made: "saltclus" in ASCII.
const LOCK: i64 = 0x7361_6c74_636c_7573;

/// The only writer of a schema so far.
pub(super) const WRITER: i32 = 1;

const TABLES: &str = r#"
CREATE TABLE IF NOT EXISTS meta (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE IF NOT EXISTS writer (
    writer int PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    head bigint NOT NULL DEFAULT 0,
    last_job bigint NOT NULL DEFAULT 0,
    last_return bigint NOT NULL DEFAULT 0,
    last_event bigint NOT NULL DEFAULT 0,
    lowest_job bigint NOT NULL DEFAULT 0,
    lowest_return bigint NOT NULL DEFAULT 0,
    audit_head text NOT NULL DEFAULT '',
    looks bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS lease (
    name text PRIMARY KEY,
    owner text NOT NULL,
    epoch bigint NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS member (
    name text PRIMARY KEY,
    instance text NOT NULL,
    address text NOT NULL,
    version text NOT NULL,
    master_key text NOT NULL,
    role text NOT NULL,
    seen timestamptz NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS jobs (
    id bigint PRIMARY KEY,
    jid text COLLATE "C" NOT NULL UNIQUE,
    created bigint NOT NULL,
    username text COLLATE "C" NOT NULL,
    fun text COLLATE "C" NOT NULL,
    tgt text COLLATE "C" NOT NULL,
    tgt_type text COLLATE "C" NOT NULL,
    nocache bool NOT NULL,
    state bigint NOT NULL,
    load bytea NOT NULL,
    notes bytea,
    published bigint,
    finished bigint,
    publisher text COLLATE "C",
    reporter text COLLATE "C",
    returns_before bigint
);
CREATE INDEX IF NOT EXISTS jobs_created ON jobs (created);
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (id) WHERE state = 0;
CREATE INDEX IF NOT EXISTS jobs_function ON jobs (left(fun, 200), jid);
CREATE INDEX IF NOT EXISTS jobs_user ON jobs (left(username, 200), jid);
CREATE INDEX IF NOT EXISTS jobs_incomplete ON jobs (state, jid) WHERE state <> 1;
CREATE TABLE IF NOT EXISTS expected_part (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    jid text COLLATE "C" NOT NULL,
    minions text[] COLLATE "C" NOT NULL
);
CREATE INDEX IF NOT EXISTS expected_part_jid ON expected_part (jid);
CREATE TABLE IF NOT EXISTS returns (
    id bigint PRIMARY KEY,
    jid text COLLATE "C" NOT NULL,
    minion text COLLATE "C" NOT NULL,
    received bigint NOT NULL,
    fun text COLLATE "C" NOT NULL,
    retcode bigint NOT NULL,
    success bool NOT NULL,
    load bytea NOT NULL,
    UNIQUE (jid, minion)
);
CREATE INDEX IF NOT EXISTS returns_failed ON returns (jid) WHERE retcode <> 0;
CREATE TABLE IF NOT EXISTS batches (
    jid text COLLATE "C" PRIMARY KEY,
    is_open bool NOT NULL,
    halted text,
    plan bytea NOT NULL,
    paused_since bigint
);
CREATE INDEX IF NOT EXISTS batches_open ON batches (jid) WHERE is_open;
CREATE TABLE IF NOT EXISTS batch_failed (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    jid text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    minions text[] COLLATE "C" NOT NULL
);
CREATE INDEX IF NOT EXISTS batch_failed_jid ON batch_failed (jid);
CREATE TABLE IF NOT EXISTS events (
    position bigint PRIMARY KEY,
    received bigint NOT NULL,
    tag text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    of_minion bool NOT NULL
);
CREATE INDEX IF NOT EXISTS events_of_minion ON events (of_minion, position);
CREATE TABLE IF NOT EXISTS audit (
    number bigint PRIMARY KEY,
    at bigint NOT NULL,
    door text NOT NULL,
    username text COLLATE "C" NOT NULL,
    backend text,
    proof text NOT NULL,
    origin text,
    cmd text NOT NULL,
    fun text COLLATE "C" NOT NULL,
    tgt text,
    tgt_type text,
    arguments text NOT NULL,
    verdict text NOT NULL,
    reason text,
    jid text COLLATE "C",
    suppressed bigint NOT NULL,
    hash bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS sealed_file (
    id bytea PRIMARY KEY CHECK (length(id) = 32),
    version bigint NOT NULL,
    sealed bytea NOT NULL
);
INSERT INTO meta (name, value) VALUES ('identity', replace(gen_random_uuid()::text, '-', ''))
    ON CONFLICT DO NOTHING;
"#;

/// Additions of layouts 3 and 4.
const ADDED_BEFORE: &str = "
CREATE TABLE IF NOT EXISTS member_report (
    name text PRIMARY KEY,
    reported timestamptz NOT NULL,
    report text NOT NULL
);
CREATE TABLE IF NOT EXISTS minion_key (
    id bytea PRIMARY KEY CHECK (length(id) = 32),
    version bigint NOT NULL,
    replaced bigint NOT NULL,
    revision bigint NOT NULL,
    is_tombstone bool NOT NULL,
    changed timestamptz NOT NULL,
    sealed bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS minion_key_revision ON minion_key (revision, id);
CREATE TABLE IF NOT EXISTS minion_key_head (
    head bool PRIMARY KEY DEFAULT true CHECK (head),
    revision bigint NOT NULL
) WITH (fillfactor = 50);
";

/// Additions of this layout to the one before.
const ADDED: &str = "
CREATE TABLE IF NOT EXISTS minion_data (
    id bytea PRIMARY KEY CHECK (length(id) = 32),
    version bigint NOT NULL,
    revision bigint NOT NULL,
    is_tombstone bool NOT NULL,
    changed timestamptz NOT NULL,
    sealed bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS minion_data_revision ON minion_data (revision, id);
CREATE TABLE IF NOT EXISTS minion_data_head (
    head bool PRIMARY KEY DEFAULT true CHECK (head),
    revision bigint NOT NULL
) WITH (fillfactor = 50);
";

/// Columns of a table that members read all the time, and which these lock them out of: they come last.
const ADDED_COLUMNS: &str = "
ALTER TABLE member ADD COLUMN IF NOT EXISTS layout bigint NOT NULL DEFAULT 0;
ALTER TABLE member ADD COLUMN IF NOT EXISTS note text NOT NULL DEFAULT '';
";

/// The tables with a head.
const REVISIONED: [Revisioned; 2] = [KEYS, DATA];

/// The layout of the tables that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its number.
    pub version: i64,
    /// The lowest layout that a release has to know to work with them.
    pub floor: i64,
}

impl Layout {
    /// Whether this release works with them: it knows all that it needs of newer ones, too.
    pub(super) const fn is_usable(self) -> bool {
        self.version >= VERSION && self.floor <= VERSION
    }

    /// Whether a release that does not know the present layout works with them, too.
    pub const fn is_expanded(self) -> bool {
        self.floor < self.version
    }

    /// Whether masters of the release whose layout is the floor take over, and may be restarted.
    pub const fn admits_release_before(self) -> bool {
        self.floor >= FIRST_WITH_FLOOR
    }
}

/// Why there are no tables to work with.
pub(super) enum LayoutError {
    /// The database refused, or is away.
    Sql(SqlError),
    /// A newer release made them.
    Newer(i64),
    /// Another process has the lease under which this one was to own the jobs.
    NotOwner,
}

impl From<SqlError> for LayoutError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

/// Makes the tables that are missing, also those that an older layout lacks: a layout only adds, so that
/// an active master of the release before goes on. The schema's name is one of [`saltern_config::is_schema_name`].
pub(super) async fn make(session: &mut Session, schema: &str) -> Result<(), LayoutError> {
    let before = found(session).await?;
    if let Some(found) = before
        && found.version >= VERSION
    {
        return match found.is_usable() {
            true => Ok(()),
            false => Err(LayoutError::Newer(found.version)),
        };
    }
    // Also an index that is there locks its table while it is not made.
    let (tables, added_before) = match before.is_some_and(|found| found.version == VERSION - 1) {
        true => ("", ""),
        false => (TABLES, ADDED_BEFORE),
    };
    let heads = REVISIONED.map(|one| one.put_head()).join("; ");
    let script = format!(
        "BEGIN; SELECT pg_advisory_xact_lock({LOCK}); CREATE SCHEMA IF NOT EXISTS {schema}; {tables} \
         INSERT INTO writer (writer) VALUES ({WRITER}) ON CONFLICT DO NOTHING; \
         INSERT INTO meta (name, value) SELECT '{FLOOR}', \
         coalesce((SELECT value FROM meta WHERE name = 'layout'), '{VERSION}') ON CONFLICT DO NOTHING; \
         INSERT INTO meta AS m (name, value) VALUES ('layout', '{VERSION}') ON CONFLICT (name) DO UPDATE \
         SET value = EXCLUDED.value WHERE m.value::bigint < {VERSION}; {added_before} {ADDED} {heads}; {ADDED_COLUMNS} COMMIT"
    );
    let made = session.run(&script).await;
    if made.as_ref().is_err_and(SqlError::keeps_connection) {
        session.run("ROLLBACK").await?;
    }
    made?;
    match found(session).await? {
        Some(found) if !found.is_usable() => Err(LayoutError::Newer(found.version)),
        _ => Ok(()),
    }
}

/// Puts back the rows of heads, without which no member shares keys or grains; whether one was missing.
pub(super) async fn put_heads(session: &mut Session) -> Result<bool, SqlError> {
    let mut was_missing = false;
    for table in &REVISIONED {
        let put = session.confirmed_rows(&table.put_head(), &[]).await?;
        was_missing |= !put.is_empty();
    }
    Ok(was_missing)
}

/// The layout that is there. Tables without a floor are of a release that knew none.
pub(super) async fn found(session: &mut Session) -> Result<Option<Layout>, SqlError> {
    let sql = format!(
        "SELECT l.value, coalesce(f.value, l.value) FROM meta AS l \
         LEFT JOIN meta AS f ON f.name = '{FLOOR}' WHERE l.name = 'layout'"
    );
    let rows = match session.texts(&sql).await {
        Err(error) if error.has_code(&SqlState::UNDEFINED_TABLE) => return Ok(None),
        rows => rows?,
    };
    let mut values = rows.into_iter().flatten().map(|value| value.parse().ok());
    let (version, floor) = (values.next().flatten(), values.next().flatten());
    Ok(version.map(|version| Layout {
        version,
        floor: floor.unwrap_or(version),
    }))
}

/// Ends the time in which a release of the layout before works with the tables, too, unless a member of one lives,
/// whose row ends within `far` microseconds; whether it did.
pub(super) async fn contract(session: &mut Session, far: f64) -> Result<bool, SqlError> {
    let sql = format!(
        "INSERT INTO meta AS m (name, value) SELECT '{FLOOR}', '{VERSION}' WHERE NOT EXISTS \
         (SELECT 1 FROM member WHERE until > clock_timestamp() \
         AND until <= clock_timestamp() + $1 * interval '1 microsecond' AND layout < {VERSION}) \
         ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value WHERE m.value::bigint <= {VERSION} RETURNING 1"
    );
    Ok(!session.confirmed_rows(&sql, &[&far]).await?.is_empty())
}

/// The tables of this layout that are missing, as after somebody removed one.
pub(super) async fn missing(session: &mut Session) -> Result<Vec<&'static str>, SqlError> {
    let rows = session.rows(PRESENT, &[]).await?;
    let mut present = Vec::new();
    for row in &rows {
        present.push(row.try_get::<_, String>(0)?);
    }
    let is_missing = |name: &&str| !present.iter().any(|one| one == name);
    Ok(names().filter(is_missing).collect())
}

/// The names of all tables.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let statements = TABLES.lines().chain(ADDED_BEFORE.lines());
    let statements = statements.chain(ADDED.lines());
    let made = statements.filter_map(|line| line.strip_prefix("CREATE TABLE IF NOT EXISTS "));
    made.filter_map(|line| line.split_whitespace().next())
}

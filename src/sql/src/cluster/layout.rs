//! Tables of the engine, in a schema of the cluster's name.
//!
//! Columns are those of the engine on SQLite. Texts are compared by their bytes. What may be longer than
//! an index entry can be is indexed by its first 200 characters, and queries say so in the same words.

use tokio_postgres::error::SqlState;

use super::session::Session;
use crate::error::SqlError;

/// The layout's number.
pub(super) const VERSION: i64 = 2;

/// The entry of `meta` that shows which secret the members have.
pub(super) const SECRET_CHECK: &str = "secret_check";

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
    if let Some(found) = version(session).await?
        && found >= VERSION
    {
        return match found {
            VERSION => Ok(()),
            newer => Err(LayoutError::Newer(newer)),
        };
    }
    let script = format!(
        "BEGIN; SELECT pg_advisory_xact_lock({LOCK}); CREATE SCHEMA IF NOT EXISTS {schema}; {TABLES} \
         INSERT INTO writer (writer) VALUES ({WRITER}) ON CONFLICT DO NOTHING; \
         INSERT INTO meta AS m (name, value) VALUES ('layout', '{VERSION}') ON CONFLICT (name) DO UPDATE \
         SET value = EXCLUDED.value WHERE m.value::bigint < {VERSION}; COMMIT"
    );
    let made = session.run(&script).await;
    if made.as_ref().is_err_and(SqlError::keeps_connection) {
        session.run("ROLLBACK").await?;
    }
    made?;
    match version(session).await? {
        Some(found) if found > VERSION => Err(LayoutError::Newer(found)),
        _ => Ok(()),
    }
}

/// The number of the layout that is there.
pub(super) async fn version(session: &mut Session) -> Result<Option<i64>, SqlError> {
    let sql = "SELECT value FROM meta WHERE name = 'layout'";
    let rows = match session.texts(sql).await {
        Err(error) if error.has_code(&SqlState::UNDEFINED_TABLE) => return Ok(None),
        rows => rows?,
    };
    let value = rows.into_iter().flatten().next();
    Ok(value.and_then(|value| value.parse().ok()))
}

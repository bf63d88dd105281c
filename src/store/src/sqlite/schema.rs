//! Schema and migrations of the job database; opens, checks and sets aside its file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use saltern_base::percent_encoded;

use super::{DatabaseLimits, audit, batches, events};
use crate::error::{Result, StoreError};

/// The steps that lead to today's layout; `user_version` is the number of those taken. A step is
/// never changed once a release had it: the next one changes what it made.
const STEPS: [&str; 14] = [
    LAYOUT,
    VERDICTS,
    LISTINGS,
    batches::LAYOUT,
    PUBLISHERS,
    events::LAYOUT,
    REPORTERS,
    events::MINION_EVENTS,
    events::POSITIONS,
    events::NUMBER_EVENTS,
    SEARCHES,
    audit::LAYOUT,
    batches::PAUSES,
    REPUBLICATIONS,
];

/// The layout's number (`user_version`).
const VERSION: i64 = STEPS.len() as i64;

/// Marks the file as ours (`application_id`): "Sltn".
const APPLICATION: i32 = 0x536c_746e;

pub(super) const PAGE_BYTES: u64 = 4096;

/// `expected_part` keeps whole lists as JSON: one row a publish instead of one row a minion makes a
/// publish to ten thousand minions as cheap as one to a single minion. The views spread them out
/// again for people with an SQLite shell.
const LAYOUT: &str = "
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    id       INTEGER PRIMARY KEY,
    jid      TEXT NOT NULL UNIQUE,
    created  INTEGER NOT NULL,
    user     TEXT NOT NULL,
    fun      TEXT NOT NULL,
    tgt      TEXT NOT NULL,
    tgt_type TEXT NOT NULL,
    nocache  INTEGER NOT NULL,
    state    INTEGER NOT NULL,
    load     BLOB NOT NULL,
    notes    BLOB
) STRICT;
CREATE INDEX jobs_created ON jobs (created);
CREATE INDEX jobs_open ON jobs (id) WHERE state = 0;

CREATE TABLE expected_part (
    id      INTEGER PRIMARY KEY,
    jid     TEXT NOT NULL,
    minions TEXT NOT NULL
) STRICT;
CREATE INDEX expected_part_jid ON expected_part (jid);

CREATE TABLE returns (
    id       INTEGER PRIMARY KEY,
    jid      TEXT NOT NULL,
    minion   TEXT NOT NULL,
    received INTEGER NOT NULL,
    fun      TEXT NOT NULL,
    retcode  INTEGER NOT NULL,
    success  INTEGER NOT NULL,
    load     BLOB NOT NULL,
    UNIQUE (jid, minion)
) STRICT;

CREATE VIEW expected AS
    SELECT DISTINCT jid, value AS minion FROM expected_part, json_each(minions);
CREATE VIEW missing AS
    SELECT jid, minion FROM expected EXCEPT SELECT jid, minion FROM returns;
";

/// How a job ended, and whether its load ever left. Before, every ended job was merely closed: the
/// ones whose minions did not all return had expired.
const VERDICTS: &str = "
ALTER TABLE jobs ADD COLUMN published INTEGER;
ALTER TABLE jobs ADD COLUMN finished INTEGER;
UPDATE jobs SET state = 2 WHERE state = 1 AND
    (SELECT count(*) FROM returns WHERE returns.jid = jobs.jid) <
    (SELECT coalesce(sum(json_array_length(minions)), 0)
     FROM expected_part WHERE expected_part.jid = jobs.jid);
UPDATE jobs SET published = created;
";

/// For listings of one function; `jid` gives them their order.
const LISTINGS: &str = "
CREATE INDEX jobs_function ON jobs (fun, jid);
";

/// The minion that a job was published for: it alone may ask the master for the job's returns.
const PUBLISHERS: &str = "
ALTER TABLE jobs ADD COLUMN publisher TEXT;
";

/// The peer that reported a job which this master never published: a minion that ran it by itself,
/// or the syndic of the master that published it.
const REPORTERS: &str = "
ALTER TABLE jobs ADD COLUMN reporter TEXT;
";

/// The number of the last return when the job was published again: returns up to it were there before
/// their minions were asked anew. No time says so, because the clock of the day may be set back.
const REPUBLICATIONS: &str = "
ALTER TABLE jobs ADD COLUMN returns_before INTEGER;
UPDATE jobs SET returns_before = (SELECT max(id) FROM returns
    WHERE returns.jid = jobs.jid AND returns.received < jobs.created) WHERE state = 0;
";

/// For searches (`search.rs`): by user, and for jobs and returns that did not go well. The latter two
/// hold only the rows that are searched for, so that a job that goes well costs little.
const SEARCHES: &str = "
CREATE INDEX jobs_user ON jobs (user, jid);
CREATE INDEX jobs_incomplete ON jobs (state, jid) WHERE state <> 1;
CREATE INDEX returns_failed ON returns (jid) WHERE retcode <> 0;
";

/// Opens the file for writing, makes it if it is not there, and examines it.
pub(super) fn open_writer(path: &Path, limits: &DatabaseLimits) -> Result<Connection> {
    let failed = |action| move |error| wrap(path, action, error);
    let mut connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(failed("open"))?;
    connection
        .busy_timeout(Duration::from_secs(5))
        .map_err(failed("open"))?;
    for (name, value) in [
        ("journal_mode", "wal".to_owned()),
        ("synchronous", "full".to_owned()),
        ("temp_store", "memory".to_owned()),
        ("cache_size", cache_size(limits.cache_bytes)),
        ("wal_autocheckpoint", limits.checkpoint_pages.to_string()),
    ] {
        connection
            .pragma_update(None, name, value)
            .map_err(failed("open"))?;
    }
    if let Some(max_bytes) = limits.max_bytes {
        let pages = i64::try_from(max_bytes / PAGE_BYTES)
            .unwrap_or(i64::MAX)
            .max(64);
        connection
            .pragma_update(None, "max_page_count", pages)
            .map_err(failed("open"))?;
    }
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failed("open"))?;
    let steps = usize::try_from(found)
        .ok()
        .and_then(|taken| STEPS.get(taken..))
        .ok_or_else(|| StoreError::Schema {
            path: path.to_path_buf(),
            found,
            known: VERSION,
        })?;
    if !steps.is_empty() {
        let is_new = found == 0;
        take_steps(&mut connection, steps, is_new).map_err(failed("lay out"))?;
    }
    let size = fs::metadata(path).map_or(0, |meta| meta.len());
    let suspicion = suspicion(path);
    if size <= limits.check_bytes || suspicion.exists() {
        quick_check(&connection, path)?;
        crate::files::remove(&suspicion)?;
    }
    Ok(connection)
}

/// The file whose presence asks for an examination at the next start.
fn suspicion(path: &Path) -> PathBuf {
    crate::files::beside(path, ".suspect")
}

/// Damage was met: the next start examines the database, whatever its size.
pub(super) fn suspect(path: &Path) {
    let create = crate::files::Create::PRIVATE;
    if let Err(error) = crate::files::create_new(&suspicion(path), b"", create) {
        tracing::error!(%error, "the next start will not examine the job database");
    }
}

/// Opens an existing database for reading only.
pub(super) fn open_reader(path: &Path, limits: &DatabaseLimits) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = |name: &Path, flags| {
        let connection = Connection::open_with_flags(name, flags)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update(None, "cache_size", cache_size(limits.cache_bytes / 8))?;
        // Otherwise a statement is compiled anew for each value that an index of a part of a table
        // might be for.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((connection, found))
    };
    let opened = open(path, flags).or_else(|error| match immutable(path) {
        Some(name) => open(&name, flags | OpenFlags::SQLITE_OPEN_URI).map_err(|_| error),
        None => Err(error),
    });
    let (connection, found) = opened.map_err(|error| wrap(path, "open", error))?;
    if found == VERSION {
        Ok(connection)
    } else {
        Err(StoreError::Schema {
            path: path.to_path_buf(),
            found,
            known: VERSION,
        })
    }
}

/// The name that has SQLite read a database without making files beside it; nothing unless the disk
/// is read-only and the log was checkpointed, so that nothing can change underneath.
fn immutable(path: &Path) -> Option<PathBuf> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let is_read_only = disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = std::fs::metadata(log).is_ok_and(|log| log.len() > 0);
    if !is_read_only || has_log {
        return None;
    }
    let path = std::path::absolute(path).ok()?;
    let path = percent_encoded(path.as_os_str().as_encoded_bytes(), "/.-_");
    Some(PathBuf::from(format!("file:{path}?immutable=1")))
}

/// Opens an existing database for nothing but checkpoints.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.pragma_update(None, "synchronous", "full")?;
        Ok(connection)
    };
    open().map_err(|error| wrap(path, "open", error))
}

/// Reads every page and index for damage.
pub(super) fn quick_check(connection: &Connection, path: &Path) -> Result<()> {
    let detail: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| wrap(path, "check", error))?;
    if detail == "ok" {
        Ok(())
    } else {
        Err(StoreError::Corrupt {
            path: path.to_path_buf(),
            detail,
        })
    }
}

/// Moves a damaged database out of the way, with its log, and says where to.
///
/// `stamp` makes the new name, as a rule Unix seconds. Nothing is deleted: what can be saved can be
/// saved later with SQLite's own `.recover`.
pub fn set_aside(path: &Path, stamp: i64) -> Result<PathBuf> {
    let target = |suffix: &str| crate::files::beside(path, &format!(".damaged-{stamp}{suffix}"));
    // The log goes first: a new database must never find the log of an old one.
    for suffix in ["-wal", "-shm", ""] {
        let from = crate::files::beside(path, suffix);
        match fs::rename(&from, target(suffix)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(StoreError::io("set aside", from, source)),
        }
    }
    crate::files::remove(&suspicion(path))?;
    Ok(target(""))
}

/// Maps an error of SQLite: no space, corruption, anything else.
pub(super) fn wrap(path: &Path, action: &'static str, error: rusqlite::Error) -> StoreError {
    let path = path.to_path_buf();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full { path },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt {
            path,
            detail: error.to_string(),
        },
        code => StoreError::Database {
            action,
            path,
            is_busy: matches!(
                code,
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ),
            source: Box::new(error),
        },
    }
}

/// SQLite would create the file world-readable; returns may hold secrets.
pub(super) fn private_file(path: &Path) -> Result<()> {
    crate::files::create_new(path, b"", crate::files::Create::PRIVATE).map(|_| ())
}

/// SQLite takes negative numbers as KiB.
fn cache_size(bytes: u32) -> String {
    format!("-{}", (bytes >> 10).max(64))
}

/// All or none of them.
fn take_steps(connection: &mut Connection, steps: &[&str], is_new: bool) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for step in steps {
        transaction.execute_batch(step)?;
    }
    if is_new {
        transaction.execute(
            "INSERT INTO meta (name, value) VALUES ('identity', lower(hex(randomblob(16))))",
            [],
        )?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

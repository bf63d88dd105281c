//! A job database whose file is removed, moved or replaced while it is open.
//!
//! SQLite goes on in the open file, which nobody will find again once the process ends: every
//! commit into it would be acknowledged and lost. So the writer compares the file with what lies
//! under its name before each commit. What it still holds open is whole; it is written to its place
//! as a new file, with the same identity and the same numbers of rows, so that followers go on
//! where they were. Until that has worked nothing is committed.
//!
//! The write-ahead log belongs to the database: one without the other is displaced too.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rustix::fs::{AtFlags, CWD};

use saltern_config::MasterConfig;

use super::JobDatabase;
use super::schema::{self, wrap};
use crate::error::{Result, StoreError};
use crate::files::{self, Create, beside};
use crate::options::StoreOptions;

/// Writing all of it anew may take long; after a failure it is tried again so many seconds later.
const RETRY: i64 = 2;

/// Which file lies at a path: device and inode.
pub(super) type FileId = (u64, u64);

/// `None` when there is no file.
pub(super) fn file_id(path: &Path) -> Result<Option<FileId>> {
    // Never opened for this: closing it would end SQLite's locks on it.
    match rustix::fs::statat(CWD, path, AtFlags::empty()) {
        Ok(stat) => Ok(Some((stat.st_dev, stat.st_ino))),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
        Err(error) => Err(StoreError::io("examine", path, error)),
    }
}

/// What the writer has open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenFiles {
    database: Option<FileId>,
    log: Option<FileId>,
    /// In seconds since 1970.
    failed_at: Option<i64>,
}

impl OpenFiles {
    pub(super) fn of(path: &Path) -> Result<Self> {
        Ok(Self {
            database: file_id(path)?,
            log: file_id(&log_of(path))?,
            failed_at: None,
        })
    }
}

fn log_of(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// Incidents that are kept for `saltern doctor`.
const MOST_NOTES: usize = 8;

/// Keeps in a file beside the database what happened to it, for `saltern doctor`: whoever has read
/// it removes the file. `stamp` makes the name, as a rule Unix seconds.
pub fn note_incident(path: &Path, stamp: i64, what: &str) -> Result<()> {
    if incidents(path)?.len() >= MOST_NOTES {
        return Ok(());
    }
    let note = beside(path, &format!("{NOTE}{stamp}"));
    files::create_new(&note, what.as_bytes(), Create::PRIVATE).map(|_| ())
}

/// What happened to the database, with the file that says so, oldest first.
pub fn incidents(path: &Path) -> Result<Vec<(PathBuf, String)>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{}{NOTE}", name.to_string_lossy());
    let mut notes = Vec::new();
    files::each_entry(directory, |name, entry| {
        if name.starts_with(&prefix) {
            notes.push(entry.path());
        }
    })?;
    notes.sort_unstable();
    let read = |note: PathBuf| {
        let text = files::read_text(&note, NOTE_BYTES)?.unwrap_or_default();
        Ok((note, text))
    };
    notes.into_iter().map(read).collect()
}

/// Whether there is no database where this master had one: its reserve, or the place of the mirror
/// in it, is still there.
pub fn is_lost(config: &MasterConfig) -> bool {
    let options = StoreOptions::from(config);
    let path = &options.job_database;
    let traces = [
        beside(path, ".reserve"),
        options.private_dir().join("mirror_cursor"),
    ];
    !path.exists() && traces.iter().any(|trace| trace.exists())
}

/// What stands behind the database's name in those of the notes.
const NOTE: &str = ".incident-";

/// The longest note that is read, in bytes.
const NOTE_BYTES: usize = 4 << 10;

/// What was done about a displaced database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Another file had its place, and is here now.
    pub set_aside: Option<PathBuf>,
}

impl JobDatabase {
    /// Whether the open database is not, or not with its log, where its path says.
    pub fn is_displaced(&self) -> Result<bool> {
        if file_id(&self.path)? != self.files.database {
            return Ok(true);
        }
        let log = self.files.log;
        Ok(log.is_some() && file_id(&log_of(&self.path))? != log)
    }

    /// Writes a displaced database to its place as a whole and goes on with that; `None` when it
    /// is where it should be. `stamp` is the time in seconds since 1970; it names a file that has
    /// its place.
    ///
    /// # Errors
    /// When it cannot be written, and for some seconds after that: then nothing must be committed.
    pub fn restore_if_displaced(&mut self, stamp: i64) -> Result<Option<Restored>> {
        if !self.is_displaced()? {
            return Ok(None);
        }
        let failed_at = self.files.failed_at;
        if failed_at.is_some_and(|at| (0..RETRY).contains(&stamp.saturating_sub(at))) {
            return Err(StoreError::Missing {
                path: self.path.clone(),
                reason: "it was removed or replaced while it was in use",
            });
        }
        let restored = self.restore(stamp);
        if restored.is_err() {
            self.files.failed_at = Some(stamp);
        }
        restored.map(Some)
    }

    fn restore(&mut self, stamp: i64) -> Result<Restored> {
        let building = beside(&self.path, ".restoring");
        for suffix in ["-journal", "-wal", "-shm", ""] {
            files::remove(&beside(&building, suffix))?;
        }
        if let Some(directory) = self.path.parent() {
            files::ensure_dir(directory, 0o700)?;
        }
        // SQLite fills an empty file; one that it made would be readable by others.
        files::create_new(&building, b"", Create::PRIVATE)?;
        let name = building.to_string_lossy();
        self.connection
            .execute("VACUUM INTO ?1", [name.as_ref()])
            .map_err(|error| wrap(&self.path, "write anew", error))?;
        let failed = |source| StoreError::io("write to the disk", &building, source);
        let file = fs::OpenOptions::new().write(true).open(&building);
        file.and_then(|file| file.sync_all()).map_err(failed)?;

        let set_aside = self.clear_place(stamp)?;
        let failed = |source| StoreError::io("create", &self.path, source);
        fs::rename(&building, &self.path).map_err(failed)?;
        files::sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;

        let fresh = schema::open_writer(&self.path, &self.limits)?;
        fresh.set_prepared_statement_cache_capacity(super::database::PREPARED);
        let old = std::mem::replace(&mut self.connection, fresh);
        // At its end it would remove the log of the path, which is no longer its own.
        let kept = old.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        if let Err(error) = kept {
            tracing::debug!(%error, "the displaced job database");
        }
        drop(old);
        self.files = OpenFiles::of(&self.path)?;
        self.unfolded = 0;
        Ok(Restored { set_aside })
    }

    /// Removes what is left of the displaced database, and sets aside another file in its place.
    fn clear_place(&self, stamp: i64) -> Result<Option<PathBuf>> {
        let found = file_id(&self.path)?;
        let is_other = found.is_some() && found != self.files.database;
        let aside = |suffix: &str| beside(&self.path, &format!(".replaced-{stamp}{suffix}"));
        // The log goes first: a new database must never find the log of an old one.
        for suffix in ["-wal", "-shm"] {
            let part = beside(&self.path, suffix);
            if is_other && file_id(&part)?.is_some() {
                let failed = |source| StoreError::io("set aside", &part, source);
                fs::rename(&part, aside(suffix)).map_err(failed)?;
            } else {
                files::remove(&part)?;
            }
        }
        if is_other {
            let failed = |source| StoreError::io("set aside", &self.path, source);
            fs::rename(&self.path, aside("")).map_err(failed)?;
        }
        Ok(is_other.then(|| aside("")))
    }
}

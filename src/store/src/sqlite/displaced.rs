//! A job database whose file is removed, moved or replaced while it is open.
//!
//! SQLite goes on in the open file, which has no path and is lost when the process ends: every
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
use super::room;
use super::schema::{self, wrap};
use crate::error::{Result, StoreError};
use crate::files::{self, Create, beside};
use crate::jobs::Restored;
use crate::options::StoreOptions;

/// Delay before the first retry of a restore, in seconds; doubled by each further failure.
const RETRY: i64 = 2;

/// Maximum delay between two attempts, in seconds.
const MAX_PAUSE: i64 = 300;

/// Free bytes to leave for the write-ahead log of the new file.
const LOG_ROOM: u64 = 1 << 20;

/// Consecutive failures to write the database to its place.
#[derive(Clone, Copy, Debug)]
struct Failed {
    times: u32,
    /// The last time, in seconds since 1970.
    at: i64,
}

impl Failed {
    fn once_more(before: Option<Self>, at: i64) -> Self {
        let times = before.map_or(0, |failed| failed.times).saturating_add(1);
        Self { times, at }
    }

    /// A clock that was set back makes it due, too.
    fn is_over(self, now: i64) -> bool {
        let doublings = self.times.saturating_sub(1).min(16);
        let pause = (RETRY << doublings).min(MAX_PAUSE);
        !(0..pause).contains(&now.saturating_sub(self.at))
    }
}

/// Identity of the file at a path: device and inode.
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

/// Opens a file, with the identity that its path had before: another file that took the place
/// meanwhile is found to be another one.
pub(super) fn identified<T>(
    path: &Path,
    open: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<FileId>)> {
    let id = file_id(path)?;
    Ok((open()?, id))
}

/// Files that the writer has open. One without an identity was replaced while it was opened, and
/// counts as displaced.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenFiles {
    database: Option<FileId>,
    log: Option<FileId>,
    failed: Option<Failed>,
}

impl OpenFiles {
    /// Opens the database with `open`, and gives the files that it opened.
    pub(super) fn opened<T>(path: &Path, open: impl FnOnce() -> Result<T>) -> Result<(T, Self)> {
        schema::private_file(path)?;
        // SQLite removes the log of an empty database.
        let is_new = fs::metadata(path).is_ok_and(|found| found.len() == 0);
        let log = file_id(&log_of(path))?.filter(|_| !is_new);
        let (opened, database) = identified(path, open)?;
        let now = (file_id(path)?, file_id(&log_of(path))?);
        let files = Self {
            database: database.filter(|_| now.0 == database),
            log: now.1.filter(|_| log.is_none() || now.1 == log),
            failed: None,
        };
        Ok((opened, files))
    }

    fn are_displaced(&self, path: &Path) -> Result<bool> {
        let is_at = |id: Option<FileId>, path: &Path| Ok(id.is_some() && file_id(path)? == id);
        Ok(!is_at(self.database, path)? || !is_at(self.log, &log_of(path))?)
    }
}

fn log_of(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// Incidents that are kept for `saltern doctor`.
const MAX_NOTES: usize = 8;

/// Records an incident in a file beside the database, for `saltern doctor`; an operator who has
/// read it removes the file. `stamp` makes the name, as a rule Unix seconds.
pub fn note_incident(path: &Path, stamp: i64, what: &str) -> Result<()> {
    if incidents(path)?.len() >= MAX_NOTES {
        return Ok(());
    }
    // A later name where an incident of the same second has this one.
    for later in 0..=i64::try_from(MAX_NOTES).unwrap_or(i64::MAX) {
        let note = beside(path, &format!("{NOTE}{}", stamp.saturating_add(later)));
        if files::create_new(&note, what.as_bytes(), Create::PRIVATE)? {
            break;
        }
    }
    Ok(())
}

/// Incidents of the database, each with its file and text, oldest first.
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

/// Suffix of the notes, behind the database's name.
const NOTE: &str = ".incident-";

/// The longest note that is read, in bytes.
const NOTE_BYTES: usize = 4 << 10;

impl JobDatabase {
    /// Whether the open database is not, or not with its log, where its path says.
    pub fn is_displaced(&self) -> Result<bool> {
        self.files.are_displaced(&self.path)
    }

    /// Whether a displaced database may be written to its place now: after failures at growing
    /// intervals. `now` is in seconds since 1970.
    pub fn restore_is_due(&self, now: i64) -> bool {
        self.files.failed.is_none_or(|failed| failed.is_over(now))
    }

    /// Writes a displaced database to its place as a whole and goes on with that; `None` when it
    /// is where it should be. `stamp` is the time in seconds since 1970; it names a file that has
    /// its place. Takes as long as the disk takes for all of the database.
    ///
    /// # Errors
    /// When it cannot be written; [`StoreError::NoRoom`] before anything is. Then nothing must be
    /// committed.
    pub fn restore_if_displaced(&mut self, stamp: i64) -> Result<Option<Restored>> {
        if !self.is_displaced()? {
            return Ok(None);
        }
        let building = beside(&self.path, ".restoring");
        let restored = self.restore(&building, stamp);
        if restored.is_err() {
            self.files.failed = Some(Failed::once_more(self.files.failed, stamp));
            // It may take much of a disk that is nearly full.
            if let Err(error) = remove_parts(&building) {
                tracing::warn!(%error, "the unfinished copy of the job database cannot be removed");
            }
        }
        restored.map(Some)
    }

    fn restore(&mut self, building: &Path, stamp: i64) -> Result<Restored> {
        remove_parts(building)?;
        let directory = self.path.parent().unwrap_or(Path::new("."));
        files::ensure_dir(directory, 0o700)?;
        let size = self.size()?;
        let needed = size.file.saturating_sub(size.free) + LOG_ROOM;
        has_room(building, needed, room::free_on(directory)?)?;
        // SQLite fills an empty file; one that it made would be readable by others.
        files::create_new(building, b"", Create::PRIVATE)?;
        let name = building.to_string_lossy();
        self.connection
            .execute("VACUUM INTO ?1", [name.as_ref()])
            .map_err(|error| wrap(&self.path, "write anew", error))?;
        let failed = |source| StoreError::io("write to the disk", building, source);
        let file = fs::OpenOptions::new().write(true).open(building);
        file.and_then(|file| file.sync_all()).map_err(failed)?;

        let set_aside = self.clear_place(stamp)?;
        let failed = |source| StoreError::io("create", &self.path, source);
        fs::rename(building, &self.path).map_err(failed)?;
        files::sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;

        let open = || schema::open_writer(&self.path, &self.limits);
        let (fresh, files) = OpenFiles::opened(&self.path, open)?;
        fresh.set_prepared_statement_cache_capacity(super::database::PREPARED);
        let old = std::mem::replace(&mut self.connection, fresh);
        // At its end it would remove the log of the path, which is no longer its own.
        let kept = old.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        if let Err(error) = kept {
            tracing::debug!(%error, "the displaced job database cannot be kept from a checkpoint on close");
        }
        drop(old);
        self.files = files;
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

/// Removes a file of SQLite and what it makes beside it.
fn remove_parts(path: &Path) -> Result<()> {
    for suffix in ["-journal", "-wal", "-shm", ""] {
        files::remove(&beside(path, suffix))?;
    }
    Ok(())
}

fn has_room(path: &Path, needed: u64, free: u64) -> Result<()> {
    if needed <= free {
        return Ok(());
    }
    Err(StoreError::NoRoom {
        path: path.to_path_buf(),
        needed,
        free,
    })
}

#[cfg(test)]
mod tests {
    use super::super::DatabaseLimits;
    use super::super::reader::JobReader;
    use super::*;

    /// A database under each of these names.
    fn databases(names: &[&str]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().expect("a directory");
        let paths: Vec<PathBuf> = names.iter().map(|name| dir.path().join(name)).collect();
        for path in &paths {
            JobDatabase::open(path, DatabaseLimits::default()).expect("a database");
        }
        (dir, paths)
    }

    /// Opens `path` for writing; `meanwhile` happens before its identity is compared.
    fn opened(path: &Path, meanwhile: &dyn Fn()) -> (rusqlite::Connection, OpenFiles) {
        let open = || {
            let connection = schema::open_writer(path, &DatabaseLimits::default())?;
            meanwhile();
            Ok(connection)
        };
        OpenFiles::opened(path, open).expect("opened")
    }

    #[test]
    fn file_replaced_while_it_is_opened_is_displaced() {
        let (_dir, paths) = databases(&["jobs", "other"]);
        let [path, other] = paths.as_slice() else {
            panic!("two databases");
        };
        let log = log_of(path);
        let is_displaced = |meanwhile: &dyn Fn()| {
            let (_connection, files) = opened(path, meanwhile);
            files.are_displaced(path).expect("compared")
        };
        assert!(!is_displaced(&|| ()));
        assert!(is_displaced(&|| fs::rename(other, path).expect("replaced")));
        assert!(!is_displaced(&|| ()), "the next one opens what is there");
        assert!(is_displaced(&|| fs::remove_file(&log).expect("removed")));
        assert!(is_displaced(&|| fs::remove_file(path).expect("removed")));
    }

    /// An operator removed the database and left its log.
    #[test]
    fn new_database_beside_log_of_another_is_in_its_place() {
        let (_dir, paths) = databases(&["jobs"]);
        let [path] = paths.as_slice() else {
            panic!("a database");
        };
        fs::remove_file(path).expect("removed");
        fs::write(log_of(path), b"another log").expect("written");
        let (_connection, files) = opened(path, &|| ());
        assert!(!files.are_displaced(path).expect("compared"));
    }

    #[test]
    fn reader_of_file_replaced_while_it_is_opened_goes_over_to_the_new_one() {
        let (_dir, paths) = databases(&["jobs", "other"]);
        let [path, other] = paths.as_slice() else {
            panic!("two databases");
        };
        let identity = |path: &Path| {
            let reader = JobReader::open(path, DatabaseLimits::default()).expect("a reader");
            reader.identity().expect("an identity")
        };
        let new = identity(other);
        assert_ne!(identity(path), new);
        let limits = DatabaseLimits::default();
        let reader = JobReader::opened(path, limits, || {
            let connection = schema::open_reader(path, &limits)?;
            fs::rename(other, path).expect("replaced");
            Ok(connection)
        });
        assert_eq!(reader.expect("a reader").identity().expect("one"), new);
    }

    #[test]
    fn restore_is_due_at_growing_intervals_up_to_the_longest() {
        let mut failed = None;
        let mut now = 1_000;
        for pause in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] {
            let last = Failed::once_more(failed, now);
            assert!(!last.is_over(now), "{pause}");
            assert!(!last.is_over(now + pause - 1), "{pause}");
            assert!(last.is_over(now + pause), "{pause}");
            assert!(last.is_over(now - 1), "the clock was set back");
            now += pause;
            failed = Some(last);
        }
        let forever = Failed {
            times: u32::MAX,
            at: now,
        };
        assert!(forever.is_over(now + MAX_PAUSE));
    }

    #[test]
    fn restore_without_room_says_what_it_takes() {
        let path = Path::new("/x/jobs.sqlite.restoring");
        assert!(has_room(path, 5, 5).is_ok());
        let error = has_room(path, 70_000, 4_096).expect_err("no room");
        assert!(error.is_full());
        assert_eq!(
            error.to_string(),
            "writing \"/x/jobs.sqlite.restoring\" takes 70000 bytes, and 4096 are free"
        );
    }
}

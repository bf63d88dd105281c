//! Small files: read with a bound, written whole or not at all, private from their birth.
//!
//! A file's mode is given when it is created, never afterwards, so there is no moment in which a
//! key can be read by others. Not here: what the files mean, and the job database.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use saltern_base::fail_point::FailPoint;
use saltern_wire::msgpack::{Limits, RawValue};

use crate::error::{Result, StoreError};

/// Whether a write must be on the disk before it is reported as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Content and name survive a power loss.
    Synced,
    /// The file can be made again; a power loss may take it.
    Derived,
}

/// How a new file is made.
#[derive(Clone, Copy, Debug)]
pub struct Create {
    /// Permission bits, before the process umask.
    pub mode: u32,
    /// Owner, when not this process's user; ignored without the right to change owners.
    pub owner: Option<u32>,
    /// Whether it must be on the disk first.
    pub durability: Durability,
    /// The file grows in the directory above its own, for the sake of those who watch or list its
    /// directory (salt-exporter takes every name in `pki_dir/minions` for a minion).
    pub above: bool,
    /// The time that it has as that of its last change, in microseconds since 1970; now without one.
    pub modified: Option<i64>,
}

impl Create {
    /// A file that only its owner may read and write.
    pub const PRIVATE: Self = Self {
        mode: 0o600,
        owner: None,
        durability: Durability::Synced,
        above: false,
        modified: None,
    };

    /// The same with other permission bits.
    pub const fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    /// The same, but growing in the directory above.
    pub const fn above(self) -> Self {
        Self {
            above: true,
            ..self
        }
    }

    /// The same with a time as that of its last change, in microseconds since 1970.
    pub const fn modified(self, modified: i64) -> Self {
        Self {
            modified: Some(modified),
            ..self
        }
    }

    /// The same, but without waiting for the disk.
    pub const fn derived(self) -> Self {
        Self {
            durability: Durability::Derived,
            ..self
        }
    }
}

/// Joins a name to a directory after checking that it names one entry directly inside.
///
/// The callers' names are validated already (minion ids, jids); this is the second lock.
pub fn child(root: &Path, name: &str) -> Result<PathBuf> {
    let unsafe_name = name.is_empty()
        || name == "."
        || name == ".."
        || name.bytes().any(|byte| byte == b'/' || byte == 0);
    if unsafe_name {
        return Err(StoreError::UnsafeName {
            name: name.chars().take(64).collect(),
            root: root.to_path_buf(),
        });
    }
    Ok(root.join(name))
}

/// Creates a directory and its parents with `mode`; an existing directory is left as it is.
pub fn ensure_dir(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|source| StoreError::io("create the directory", path, source))
}

/// Whether there is no such file, or cannot be one: an id may be as long as a file name, and file names have more.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename
    )
}

/// The whole content of a file of at most `limit` bytes; `None` when there is no such file.
pub fn read(path: &Path, limit: usize) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(source) => return Err(StoreError::io("open", path, source)),
    };
    let mut content = Vec::with_capacity(1024.min(limit));
    file.take(limit as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|source| StoreError::io("read", path, source))?;
    if content.len() > limit {
        return Err(StoreError::TooLarge {
            path: path.to_path_buf(),
            limit,
        });
    }
    Ok(Some(content))
}

/// Like [`read`], for a file that must be UTF-8.
pub fn read_text(path: &Path, limit: usize) -> Result<Option<String>> {
    let Some(content) = read(path, limit)? else {
        return Ok(None);
    };
    String::from_utf8(content)
        .map(Some)
        .map_err(|_| StoreError::Malformed {
            path: path.to_path_buf(),
            reason: "it is not text",
        })
}

/// Like [`read_text`], for a file that its reader replaces: a damaged one counts as missing, with a
/// line in the log.
pub(crate) fn read_replaceable(path: &Path, limit: usize) -> Result<Option<String>> {
    match read_text(path, limit) {
        Err(error) if error.is_damaged() => {
            tracing::warn!(%error, "a damaged file is replaced");
            Ok(None)
        }
        read => read,
    }
}

/// Refuses what could not be read again.
pub fn readable(packed: &Bytes, limits: &Limits, path: &Path) -> Result<()> {
    if packed.len() > limits.bytes {
        return Err(StoreError::TooLarge {
            path: path.to_path_buf(),
            limit: limits.bytes,
        });
    }
    match RawValue::parse(packed.clone(), limits) {
        Ok(_) => Ok(()),
        Err(source) => Err(StoreError::Unreadable {
            path: path.to_path_buf(),
            source,
        }),
    }
}

/// Calls `each` for every entry of a directory whose name is text; no directory, no entries.
pub fn each_entry(dir: &Path, mut each: impl FnMut(&str, &fs::DirEntry)) -> Result<()> {
    let failed = |source| StoreError::io("list", dir, source);
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed(source)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if let Some(name) = entry.file_name().to_str() {
            each(name, &entry);
        }
    }
    Ok(())
}

/// Replaces the file's content as a whole: a reader sees the old content or the new, never a part.
pub fn write_atomic(path: &Path, content: &[u8], create: Create) -> Result<()> {
    place(path, content, create, IfPresent::Replace).map(|_| ())
}

/// Creates a file with all its content. `false` when there is one already, which stays as it is.
pub fn create_new(path: &Path, content: &[u8], create: Create) -> Result<bool> {
    place(path, content, create, IfPresent::KeepExisting)
}

/// The name of a file that belongs to `path`: the same with `suffix` behind it.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a file; `false` when there was none.
pub fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(source) => Err(StoreError::io("remove", path, source)),
    }
}

/// Writes a directory's entries to the disk.
pub(crate) fn sync_dir(path: &Path) -> Result<()> {
    let action = "write to the disk";
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(|source| StoreError::io(action, path, source))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IfPresent {
    Replace,
    KeepExisting,
}

/// Writes a temporary file, then gives it its name in one step.
fn place(path: &Path, content: &[u8], create: Create, how: IfPresent) -> Result<bool> {
    let dir = path.parent().unwrap_or(Path::new("."));
    if let Some(above) = dir.parent().filter(|_| create.above) {
        match place_from(above, path, content, create, how) {
            // A directory of another file system, or one that is not ours.
            Err(StoreError::Io { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::CrossesDevices
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ReadOnlyFilesystem
                ) => {}
            other => return other,
        }
    }
    place_from(dir, path, content, create, how)
}

/// The same with the temporary file in `temporary_dir`.
fn place_from(
    temporary_dir: &Path,
    path: &Path,
    content: &[u8],
    create: Create,
    how: IfPresent,
) -> Result<bool> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let (temporary, mut file) = temporary_in(temporary_dir, create.mode)?;
    let written: io::Result<()> = (|| {
        if let Some(owner) = create.owner {
            give_away(&file, owner)?;
        }
        file.write_all(content)?;
        if let Some(modified) = create.modified {
            set_modified(&file, modified)?;
        }
        if create.durability == Durability::Synced {
            file.sync_all()?;
        }
        Ok(())
    })();
    if let Err(source) = written {
        discard(&temporary);
        return Err(StoreError::io("write", path, source));
    }
    drop(file);
    FailPoint::FileBefore.pass();
    let renamed = match how {
        IfPresent::Replace => rustix::fs::rename(&temporary, path),
        IfPresent::KeepExisting => {
            let linked = rustix::fs::link(&temporary, path);
            discard(&temporary);
            linked
        }
    };
    match renamed {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) if how == IfPresent::KeepExisting => return Ok(false),
        Err(error) => {
            if how == IfPresent::Replace {
                discard(&temporary);
            }
            return Err(StoreError::io("create", path, error));
        }
    }
    if create.durability == Durability::Synced {
        sync_dir(dir)?;
    }
    Ok(true)
}

/// Removes temporary files that a process which is no more left in a directory. Not to be called
/// after this process has begun to write there.
pub fn remove_stale(dir: &Path) -> Result<()> {
    let own = std::process::id();
    let mut stale = Vec::new();
    each_entry(dir, |name, entry| {
        let Some((pid, number)) = name
            .strip_prefix(TEMPORARY)
            .and_then(|rest| rest.split_once('-'))
        else {
            return;
        };
        let (Ok(pid), Ok(_)) = (pid.parse::<u32>(), number.parse::<u32>()) else {
            return;
        };
        // In a container the master of before had the same number.
        if pid == own || !Path::new("/proc").join(pid.to_string()).exists() {
            stale.push(entry.path());
        }
    })?;
    for path in stale {
        remove(&path)?;
    }
    Ok(())
}

/// How the names of temporary files begin; the process and a number follow.
const TEMPORARY: &str = ".saltern-";

/// A new file with a name that no other writer has and that Salt's listings skip (a leading dot).
fn temporary_in(dir: &Path, mode: u32) -> Result<(PathBuf, File)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{TEMPORARY}{}-{number}", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, Mode::from_raw_mode(mode)) {
            Ok(fd) => return Ok((path, File::from(fd))),
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(StoreError::io("create a file in", dir, error)),
        }
    }
}

/// Gives a file to a user. Without the right to do so it stays ours, as with stock.
fn give_away(file: &File, owner: u32) -> io::Result<()> {
    match rustix::fs::fchown(file, Some(Uid::from_raw(owner)), None::<Gid>) {
        Ok(()) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file a time as that of its last change, in microseconds since 1970.
pub(crate) fn set_modified(file: &File, modified: i64) -> io::Result<()> {
    let since = Duration::from_micros(u64::try_from(modified).unwrap_or(0));
    file.set_modified(SystemTime::UNIX_EPOCH + since)
}

/// Removes a temporary file on the way out of an error, which is the one worth reporting.
fn discard(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(path = %path.display(), %error, "a temporary file cannot be removed");
    }
}

/// Version of a file or directory, from a single `stat`.
///
/// Kernels stamp files with a clock that ticks only every few milliseconds, so two changes within
/// one tick look alike. A version that was read within `TICK_NANOS` of its own change is
/// therefore never taken for current (the idea is git's "racily clean" index entry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: i128,
    changed: i128,
}

impl Version {
    /// Longer than any kernel's tick, in nanoseconds.
    const TICK_NANOS: i128 = 50_000_000;

    /// The version of what lies at `path`, following links when `follow`; `None` when nothing does.
    pub fn of(path: &Path, follow: bool) -> Result<Option<Stat>> {
        let flags = if follow {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        match rustix::fs::statat(CWD, path, flags) {
            Ok(stat) => Ok(Some(Stat::from_raw(&stat))),
            Err(
                rustix::io::Errno::NOENT
                | rustix::io::Errno::NOTDIR
                | rustix::io::Errno::NAMETOOLONG,
            ) => Ok(None),
            Err(error) => Err(StoreError::io("examine", path, error)),
        }
    }

    /// Whether a read that began now can be trusted to have seen the last change under this stamp.
    ///
    /// Asks the kernel's own coarse clock, the one that file times come from: no other clock could
    /// be compared with them.
    pub fn is_settled(&self) -> bool {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let youngest = self.changed.max(self.modified);
        now - youngest > Self::TICK_NANOS
    }

    /// Whether this content was written before the other file came to be what and where it is.
    pub(crate) fn is_from_before(&self, other: &Version) -> bool {
        self.modified < other.changed
    }

    /// Whether it is the same file with the same content, whoever may use it now.
    pub(crate) fn has_content_of(&self, other: &Version) -> bool {
        let content = |of: &Self| (of.device, of.inode, of.size, of.modified);
        content(self) == content(other)
    }

    /// When the content last changed, in microseconds since 1970-01-01 UTC.
    pub fn modified_micros(&self) -> i64 {
        i64::try_from(self.modified.div_euclid(1_000)).unwrap_or(i64::MAX)
    }
}

/// Result of one `stat`.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// The version.
    pub version: Version,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
}

impl Stat {
    fn from_raw(stat: &rustix::fs::Stat) -> Self {
        let nanos =
            |seconds: i64, rest: u64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            version: Version {
                device: stat.st_dev,
                inode: stat.st_ino,
                size: u64::try_from(stat.st_size).unwrap_or(0),
                modified: nanos(stat.st_mtime, stat.st_mtime_nsec),
                changed: nanos(stat.st_ctime, stat.st_ctime_nsec),
            },
            mode: stat.st_mode,
        }
    }

    /// A regular file.
    pub fn is_file(&self) -> bool {
        rustix::fs::FileType::from_raw_mode(self.mode).is_file()
    }

    /// A directory.
    pub fn is_dir(&self) -> bool {
        rustix::fs::FileType::from_raw_mode(self.mode).is_dir()
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.version.size
    }
}

//! The log file: appended to, reopened after external rotation, rotated by size.
//!
//! As stock (`WatchedFileHandler` and `RotatingFileHandler` of Python): a file that somebody moved
//! away, as logrotate does, is reopened; with `log_rotate_max_bytes` a file that would grow
//! longer is rotated to `.1`, the previous `.1` to `.2`, and so on.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// Log file that follows external rotation and rotates itself by size.
pub(super) struct LogFile {
    path: PathBuf,
    /// Bytes; 0 for never.
    rotate_at: u64,
    rotated_files: u32,
    open: Mutex<Open>,
}

struct Open {
    file: File,
    /// Bytes in it, as far as is known.
    length: u64,
}

impl LogFile {
    /// Opens or makes the file, and its directory.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn open(path: &Path, rotate_at: u64, rotated_files: u32) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        Ok(Self {
            path: path.to_owned(),
            rotate_at,
            rotated_files,
            open: Mutex::new(open(path)?),
        })
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Those of the system. A file that cannot be moved or opened anew is no error: the line goes
    /// where the last one went.
    pub(super) fn write(&self, line: &str) -> io::Result<()> {
        let mut now = self.open.lock();
        let mut is_there = now.is_at(&self.path);
        if !is_there && let Ok(fresh) = open(&self.path) {
            *now = fresh;
            is_there = true;
        }
        let is_full = now.length > 0 && now.length + line.len() as u64 > self.rotate_at;
        if self.rotate_at > 0 && self.rotated_files > 0 && is_full && is_there {
            match self.rotate() {
                Ok(fresh) => *now = fresh,
                // Tried again when as much has been written once more.
                Err(_) => now.length = 0,
            }
        }
        now.length += line.len() as u64;
        (&now.file).write_all(line.as_bytes())
    }

    fn rotate(&self) -> io::Result<Open> {
        // Only as far as there is no room: a log that cannot be moved, as one that is mounted,
        // would otherwise push a file out with each try.
        let is_free = |number: &u32| self.aside(*number).symlink_metadata().is_err();
        let free = (1..self.rotated_files).find(is_free);
        for number in (1..free.unwrap_or(self.rotated_files)).rev() {
            moved(&self.aside(number), &self.aside(number + 1))?;
        }
        moved(&self.path, &self.aside(1))?;
        open(&self.path)
    }

    fn aside(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

impl Open {
    /// Whether this is still the file of that name.
    fn is_at(&self, path: &Path) -> bool {
        match (self.file.metadata(), std::fs::metadata(path)) {
            (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }
}

/// Moves a file; a missing one is no error.
fn moved(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Log files may hold ids and addresses: others may not read them.
fn open(path: &Path) -> io::Result<Open> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o640).open(path)?;
    let length = file.metadata()?.len();
    Ok(Open { file, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn moved_file_is_reopened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sub/master");
        let log = LogFile::open(&path, 0, 5).unwrap();
        log.write("one\n").unwrap();
        let moved = directory.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        log.write("two\n").unwrap();
        log.write("three\n").unwrap();
        assert_eq!(read(&moved), "one\n");
        assert_eq!(read(&path), "two\nthree\n");
    }

    #[test]
    fn long_file_is_rotated_and_the_oldest_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master");
        std::fs::write(&path, "before\n").unwrap();
        let log = LogFile::open(&path, 10, 2).unwrap();
        for line in ["one\n", "two\n", "a line longer than a file\n", "three\n"] {
            log.write(line).unwrap();
        }
        let aside = |number: u32| log.aside(number);
        assert_eq!(read(&path), "three\n");
        assert_eq!(read(&aside(1)), "a line longer than a file\n");
        assert_eq!(read(&aside(2)), "one\ntwo\n");
        assert!(!aside(3).exists());
    }

    #[test]
    fn deleted_file_is_recreated_with_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master");
        let log = LogFile::open(&path, 10, 3).unwrap();
        for line in ["one\n", "two\n", "a long line\n"] {
            log.write(line).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        log.write("three\n").unwrap();
        assert_eq!(read(&path), "three\n");
        assert_eq!(read(&log.aside(1)), "one\ntwo\n");
        assert!(!log.aside(2).exists(), "nothing was there to be set aside");
    }

    #[test]
    fn failed_rotation_is_retried_and_removes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master");
        let log = LogFile::open(&path, 10, 3).unwrap();
        log.write("one\n").unwrap();
        // As after a move whose new file could not be opened.
        std::fs::rename(&path, log.aside(1)).unwrap();
        std::fs::create_dir(&path).unwrap();
        for line in ["a line\n", "a line\n", "a line\n"] {
            log.write(line).unwrap();
        }
        assert_eq!(read(&log.aside(1)), "one\na line\na line\na line\n");
        assert!(!log.aside(2).exists());
        std::fs::remove_dir(&path).unwrap();
        log.write("two\n").unwrap();
        assert_eq!(read(&path), "two\n");
    }

    #[test]
    fn failed_rotation_loses_no_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master");
        let log = LogFile::open(&path, 5, 1).unwrap();
        log.write("one\n").unwrap();
        // Nothing can take the place of a directory with something in it.
        std::fs::create_dir_all(log.aside(1).join("full")).unwrap();
        log.write("two\n").unwrap();
        log.write("three\n").unwrap();
        assert_eq!(read(&path), "one\ntwo\nthree\n");
    }
}

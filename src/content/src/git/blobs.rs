//! Single files of a clone on disk, by the names of their objects.
//!
//! A file gets its name when it is complete and on the disk, so that not even a power failure
//! leaves a wrong one under it. All of them together are bounded, and the oldest are evicted;
//! a reader that finds one gone between lookup and opening retries once.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::clone::{create_directories, entries, remove};
use super::error::GitError;
use super::refs::Oid;

/// The most bytes of all files of a clone.
const MAX_BYTES: u64 = 2 << 30;

/// The files of one clone.
pub(super) struct Blobs {
    directory: PathBuf,
    most: u64,
    /// Approximate number of bytes.
    bytes: AtomicU64,
    /// Held during an eviction.
    clearing: Mutex<()>,
}

impl Blobs {
    /// Opens the blobs below a directory, which an earlier master may have left.
    pub(super) fn new(directory: PathBuf) -> Self {
        let blobs = Self {
            directory,
            most: MAX_BYTES,
            bytes: AtomicU64::new(0),
            clearing: Mutex::default(),
        };
        let bytes = blobs.found().iter().map(|found| found.bytes).sum();
        blobs.bytes.store(bytes, Ordering::Relaxed);
        blobs
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of an object's file below the directory.
    fn name(oid: &Oid) -> String {
        let (start, rest) = oid.as_str().split_at(2);
        format!("{start}/{rest}")
    }

    /// The path of a file that is there.
    pub(super) fn get(&self, oid: &Oid) -> Option<String> {
        let name = Self::name(oid);
        self.directory.join(&name).is_file().then_some(name)
    }

    /// Makes a file of what `write` puts into it, and gives its path. `fresh` is a name that
    /// nothing else has.
    pub(super) fn put(
        &self,
        oid: &Oid,
        fresh: &str,
        write: impl FnOnce(File) -> Result<(), GitError>,
    ) -> Result<String, GitError> {
        let name = Self::name(oid);
        let path = self.directory.join(&name);
        let directory = path.parent().unwrap_or(&self.directory);
        let fresh = directory.join(fresh);
        let failed = |error: io::Error| GitError::io(directory, error);
        let make = || {
            create_directories(directory).map_err(failed)?;
            let file = OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(&fresh)
                .map_err(failed)?;
            write(file.try_clone().map_err(failed)?)?;
            file.sync_all().map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            fs::rename(&fresh, &path).map_err(failed)?;
            Ok(length)
        };
        let made: Result<u64, GitError> = make();
        if made.is_err() {
            // What is left of it would never be read.
            let _ = fs::remove_file(&fresh);
        }
        let length = made?;
        let before = self.bytes.fetch_add(length, Ordering::Relaxed);
        if before + length > self.most {
            self.make_room(&path);
        }
        Ok(name)
    }

    /// Removes the oldest files, so that a quarter of the room is free; `kept` is the one that is
    /// wanted just now.
    fn make_room(&self, kept: &Path) {
        let Some(_clearing) = self.clearing.try_lock() else {
            return;
        };
        let mut found = self.found();
        found.sort_by_key(|found| found.since);
        let mut bytes: u64 = found.iter().map(|found| found.bytes).sum();
        for file in found.iter().filter(|file| file.path != kept) {
            if bytes <= self.most / 4 * 3 {
                break;
            }
            remove(&file.path);
            bytes -= file.bytes;
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// All complete files.
    fn found(&self) -> Vec<Found> {
        let files = entries(&self.directory);
        let files = files.iter().flat_map(|directory| entries(directory));
        let complete = files.filter(|path| !is_leftover(path));
        complete
            .filter_map(|path| {
                let stat = path.symlink_metadata().ok()?;
                Some(Found {
                    bytes: stat.len(),
                    since: stat.modified().ok()?,
                    path,
                })
            })
            .collect()
    }

    /// Removes what was being written when an earlier master was killed. Under the lock on the
    /// clone.
    pub(super) fn remove_leftovers(&self) {
        for directory in entries(&self.directory) {
            let leftovers = entries(&directory).into_iter();
            leftovers
                .filter(|path| is_leftover(path))
                .for_each(|path| remove(&path));
        }
    }
}

struct Found {
    path: PathBuf,
    bytes: u64,
    since: SystemTime,
}

/// Whether this is something that was never completed, or whose removal was not.
pub(super) fn is_leftover(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b"new.") || name.starts_with(b"old.")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{Blobs, Oid};

    fn oid(number: usize) -> Oid {
        Oid::parse(&format!("{number:040x}")).expect("a name of an object")
    }

    fn put(blobs: &Blobs, number: usize) {
        let write = |mut file: std::fs::File| {
            file.write_all(&[0; 100]).expect("it is written");
            Ok(())
        };
        blobs
            .put(&oid(number), "new.1.1", write)
            .expect("it is put");
    }

    #[test]
    fn blob_files_are_bounded_also_across_restarts() {
        let top = tempfile::tempdir().expect("a directory");
        let open = || Blobs {
            most: 1000,
            ..Blobs::new(top.path().to_owned())
        };
        let present = |blobs: &Blobs| (0..40).filter(|at| blobs.get(&oid(*at)).is_some()).count();
        let blobs = open();
        for number in 0..9 {
            put(&blobs, number);
        }
        assert_eq!(present(&blobs), 9);
        let blobs = open();
        for number in 9..40 {
            put(&blobs, number);
            assert!(
                blobs.get(&oid(number)).is_some(),
                "the one that is wanted is there"
            );
            assert!(present(&blobs) <= 10, "{}", present(&blobs));
        }
    }

    #[test]
    fn unfinished_blob_of_a_killed_master_is_removed() {
        let top = tempfile::tempdir().expect("a directory");
        let blobs = Blobs::new(top.path().to_owned());
        put(&blobs, 1);
        let leftover = top.path().join("00/new.1.1");
        std::fs::write(&leftover, "half").expect("it is written");
        blobs.remove_leftovers();
        assert!(!leftover.exists() && blobs.get(&oid(1)).is_some());
        put(&blobs, 2);
    }
}

//! The fingerprint of a file's state: detects changed content without reading it.

use rustix::fs::Stat;

/// Identity, size and time of change of a file; see [`super::tree::is_settled`] for when that can
/// be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

//! Free space for the job database, and a reserve for when the disk is full.
//!
//! Deleting needs space too: changes are written to the write-ahead log first. So a reserve file is
//! preallocated. It is released when the disk is full, so that old jobs can still be removed, and
//! taken again when there is space.

use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags};

use super::JobDatabase;
use crate::error::{Result, StoreError};
use crate::files::{self, Version};
use crate::jobs::FreeSpace;

/// Maximum size of the reserve, in bytes.
const RESERVE: u64 = 8 << 20;

/// Maximum share of the disk that the reserve takes.
const RESERVE_PART: u64 = 64;

impl JobDatabase {
    /// Measures the free space.
    pub fn room(&self) -> Result<FreeSpace> {
        let directory = self.path().parent().unwrap_or(Path::new("."));
        let disk = disk_of(directory)?;
        Ok(FreeSpace {
            free: disk.free + self.size()?.free,
            total: disk.total,
        })
    }

    /// Keeps the reserve back, unless it is kept already. `total` is [`FreeSpace::total`].
    pub fn hold_reserve(&self, total: u64) -> Result<()> {
        let path = self.reserve();
        let failed = |error| StoreError::io("keep room back in", &path, error);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let bytes = RESERVE.min(total / RESERVE_PART).max(1);
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // A file system without preallocation has no reserve.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => {
                // A partial reserve would only take space.
                files::remove(&path)?;
                Err(failed(error))
            }
        }
    }

    /// Gives the reserve up; how many bytes it had.
    pub fn release_reserve(&self) -> Result<u64> {
        let path = self.reserve();
        let held = Version::of(&path, false)?.map_or(0, |stat| stat.size());
        files::remove(&path)?;
        Ok(held)
    }

    fn reserve(&self) -> PathBuf {
        files::beside(self.path(), ".reserve")
    }
}

/// Bytes that are free on a directory's file system.
pub(super) fn free_on(directory: &Path) -> Result<u64> {
    disk_of(directory).map(|disk| disk.free)
}

fn disk_of(directory: &Path) -> Result<FreeSpace> {
    let disk = rustix::fs::statvfs(directory)
        .map_err(|error| StoreError::io("look at the room of", directory, error))?;
    Ok(FreeSpace {
        free: disk.f_bavail.saturating_mul(disk.f_frsize),
        total: disk.f_blocks.saturating_mul(disk.f_frsize),
    })
}

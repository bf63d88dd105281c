//! For which minion a job was published, as stock's `minion_pub` keeps it: a file of the job's name
//! in `cachedir/publish_auth` with the minion's id in it (`salt/daemons/masterapi.py`).
//!
//! For a stock master that takes over from us. This master asks its database.

use std::io;
use std::path::Path;
use std::time::Duration;

use saltern_model::{Jid, MinionId};

use super::JobFiles;
use crate::error::{Result, StoreError};
use crate::files::{self, Create, Version};

/// Before the umask, which keeps others out where no other users are admitted; stock's under its
/// usual umask.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

impl JobFiles {
    /// Writes the file of one job.
    pub fn write_publisher(&self, jid: &Jid, publisher: &MinionId) -> Result<()> {
        files::ensure_dir(self.publish_auth(), DIR_MODE)?;
        let path = files::child(self.publish_auth(), jid.as_str())?;
        let create = Create::PRIVATE.mode(FILE_MODE).derived().above();
        files::write_atomic(&path, publisher.as_str().as_bytes(), create)
    }

    /// Removes the file of one job, if there is one.
    pub(super) fn remove_publisher(&self, jid: &Jid) -> Result<()> {
        let path = files::child(self.publish_auth(), jid.as_str())?;
        files::remove(&path).map(|_| ())
    }

    /// Removes the files that are older than `keep` and says how many (stock: `clean_pub_auth` in
    /// `salt/daemons/masterapi.py`); a `keep` of zero keeps everything.
    ///
    /// `now` is in seconds since 1970-01-01 UTC.
    pub fn clean_publishers(&self, keep: Duration, now: i64) -> Result<usize> {
        if keep.is_zero() {
            return Ok(0);
        }
        let keep = i64::try_from(keep.as_secs()).unwrap_or(i64::MAX);
        let dir = self.publish_auth();
        let failed = |source| StoreError::io("list", dir, source);
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(failed(error)),
        };
        let mut removed = 0;
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if is_old(&path, keep, now)? && files::remove(&path)? {
                removed += 1;
            }
        }
        Ok(removed)
    }
}

fn is_old(path: &Path, keep: i64, now: i64) -> Result<bool> {
    let stat = Version::of(path, false)?;
    let age = |stat: &files::Stat| now - stat.version.modified_micros().div_euclid(1_000_000);
    Ok(stat.is_some_and(|stat| stat.is_file() && age(&stat) > keep))
}

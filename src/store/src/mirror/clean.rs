//! Removes old jobs from the job-cache files (stock: `clean_old_jobs`).
//!
//! A job is as old as its `jid` file's modification time. One in 256 parts at a time, because a
//! site may have a hundred thousand jobs and no commit should wait for all of them.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use saltern_model::Jid;

use super::JobFiles;
use crate::error::{Result, StoreError};
use crate::files::Version;

/// A job directory is made before its `jid` file. Stock scrubs a directory that it finds in
/// between; here one without a `jid` file has this long, in seconds.
const GRACE: i64 = 60;

impl JobFiles {
    /// Removes the jobs of one part that are older than `keep`, and what is left of jobs without a
    /// `jid` file; how many were removed. A `keep` of zero keeps everything (`keep_jobs_seconds`).
    ///
    /// `now` is in seconds since 1970-01-01 UTC.
    pub fn clean_part(&self, part: u8, keep: Duration, now: i64) -> Result<usize> {
        if keep.is_zero() {
            return Ok(0);
        }
        let keep = i64::try_from(keep.as_secs()).unwrap_or(i64::MAX);
        let top = self.root().join(format!("{part:02x}"));
        let failed = |source| StoreError::io("list", &top, source);
        let entries = match fs::read_dir(&top) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(failed(error)),
        };
        let mut removed = 0;
        for entry in entries {
            let entry = entry.map_err(failed)?;
            if !entry.file_type().map_err(failed)?.is_dir() {
                continue;
            }
            let path = entry.path();
            if is_old(&path, keep, now)? {
                match fs::remove_dir_all(&path) {
                    Ok(()) => removed += 1,
                    Err(error) => tracing::warn!(path = %path.display(), %error,
                        "an old job cannot be removed"),
                }
            }
        }
        Ok(removed)
    }

    /// Removes the files of one job, if there are any.
    pub fn remove(&self, jid: &Jid) -> Result<()> {
        self.remove_publisher(jid)?;
        let dir = self.job_dir(jid)?;
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", dir, error))
            }
            _ => Ok(()),
        }
    }

    /// All parts at once.
    pub fn clean_old(&self, keep: Duration, now: i64) -> Result<usize> {
        (0..=u8::MAX)
            .map(|part| self.clean_part(part, keep, now))
            .sum()
    }
}

fn is_old(dir: &Path, keep: i64, now: i64) -> Result<bool> {
    let age = |version: Version| now - version.modified_micros().div_euclid(1_000_000);
    if let Some(jid) = Version::of(&dir.join("jid"), false)? {
        return Ok(age(jid.version) > keep);
    }
    let dir = Version::of(dir, false)?;
    Ok(dir.is_some_and(|stat| age(stat.version) > GRACE))
}

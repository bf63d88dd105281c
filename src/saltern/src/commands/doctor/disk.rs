//! Whether there is room on the disks of the job database and of the cache, and whether the
//! directories can be written.

use std::path::{Path, PathBuf};

use super::{Diagnosis, Finding};

/// Less than this part of a disk is little, if it is also less than `saltern_disk_low`.
const LITTLE_PART: u64 = 20;

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let config = &diagnosis.loaded.config;
    let database = config.saltern_job_database.parent();
    let database = database.unwrap_or(Path::new("/"));
    let mut directories: Vec<PathBuf> = [database, &config.cachedir, &config.pki_dir]
        .into_iter()
        .map(existing)
        .collect();
    directories.dedup();
    let low = config.saltern_disk_low as u64;
    let findings = directories.iter();
    findings
        .filter_map(|directory| finding(directory, low))
        .collect()
}

/// The directory, or the nearest one above it that is there.
fn existing(directory: &Path) -> PathBuf {
    let mut above = directory.ancestors();
    let there = above.find(|directory| directory.exists());
    there.unwrap_or(Path::new("/")).to_owned()
}

fn finding(directory: &Path, low: u64) -> Option<Finding> {
    let shown = directory.display();
    let disk = match rustix::fs::statvfs(directory) {
        Ok(disk) => disk,
        Err(error) => {
            let what = format!("the free space for \"{shown}\" cannot be measured: {error}");
            return Some(Finding::new(what, "look at the disk"));
        }
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let total = disk.f_blocks.saturating_mul(disk.f_frsize);
    let low = low.min(total / LITTLE_PART);
    if free < low {
        let what = format!(
            "there are {} MiB left for \"{shown}\"; below {} MiB jobs are refused",
            free >> 20,
            (low / 16) >> 20
        );
        let advice = "make room, keep fewer jobs (keep_jobs_seconds, saltern_keep_jobs_size), or \
                      move the directory";
        let finding = Finding::new(what, advice);
        return Some(match free < low / 16 {
            true => finding.error(),
            false => finding,
        });
    }
    if disk.f_files > 0 && disk.f_favail == 0 {
        let what = format!("no more files can be made in \"{shown}\"");
        let advice = "remove files: the disk has no inodes left";
        return Some(Finding::new(what, advice).error());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tests::diagnosis;
    use super::*;

    #[test]
    fn a_disk_counts_as_full_by_the_bound_of_the_configuration() {
        let dir = tempfile::tempdir().unwrap();
        assert!(finding(dir.path(), 0).is_none());
        assert!(finding(&dir.path().join("nothing"), 0).is_some());
        let (_dir, diagnosis) = diagnosis("saltern_disk_low: 0\n");
        assert!(check(&diagnosis).is_empty());
    }
}

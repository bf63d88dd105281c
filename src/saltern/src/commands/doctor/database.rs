//! The job database: whether one was set aside as damaged, and, of a stopped master, whether it is
//! sound.
//!
//! Only the user of the database has it read: anybody else, root included, would leave files beside
//! it that the master could not open.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use saltern_store::sqlite::{incidents, is_lost};

use super::{Diagnosis, Finding, chain};

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    if diagnosis.loaded.config.saltern_cluster.is_some() {
        // It is PostgreSQL's (`cluster`).
        return Vec::new();
    }
    let path = &diagnosis.loaded.config.saltern_job_database;
    let mut findings = set_aside(path);
    findings.extend(record(path));
    if is_lost(&diagnosis.loaded.config) {
        let what = format!(
            "there is no job database \"{}\", though this master had one",
            path.display()
        );
        let advice = match diagnosis.running {
            Some(_) => {
                "the master writes what it has open to its place within seconds; if it does \
                        not, its log says why"
            }
            None => {
                "put it back, or start the master: it makes a new one and reads jobs back from \
                     the job cache"
            }
        };
        findings.push(Finding::new(what, advice));
    }
    let is_ours = std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.uid() == nix::unistd::Uid::effective().as_raw());
    if diagnosis.running.is_none()
        && is_ours
        && let Err(error) = saltern_store::examine(&diagnosis.loaded.config)
    {
        let what = format!("\"{}\": {}", path.display(), chain(&error));
        let advice = "start the master: it sets a damaged database aside and keeps what can be \
                      read of it";
        findings.push(Finding::new(what, advice).error());
    }
    findings
}

/// Incidents of the database that no operator has removed yet.
fn record(path: &Path) -> Vec<Finding> {
    let found = match incidents(path) {
        Ok(found) => found,
        Err(error) => {
            let advice = "give the master's user access to the directory";
            return vec![Finding::new(chain(&error), advice)];
        }
    };
    found
        .into_iter()
        .map(|(note, what)| {
            let advice = format!(
                "find out who removed it, then remove \"{}\", which says so",
                note.display()
            );
            Finding::new(what, advice)
        })
        .collect()
}

/// Databases that a start found damaged, and kept.
fn set_aside(path: &Path) -> Vec<Finding> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let prefix = format!("{}.damaged", name.to_string_lossy());
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let databases = names.filter(|name| {
        let is_part = ["-wal", "-shm", "-journal"]
            .iter()
            .any(|end| name.ends_with(end));
        name.starts_with(&prefix) && !is_part
    });
    databases
        .map(|name| {
            let what = format!("a damaged database was set aside: \"{name}\"");
            let advice = "what could be read of it is in the new one; look after the disk, then \
                          remove it";
            Finding::new(what, advice).note()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::diagnosis;
    use super::*;

    #[test]
    fn invalid_database_is_found() {
        let (_dir, diagnosis) = diagnosis("");
        assert!(check(&diagnosis).is_empty(), "there is none yet");
        let path = &diagnosis.loaded.config.saltern_job_database;
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "no database, and long enough to be looked at").unwrap();
        assert_eq!(check(&diagnosis).len(), 1);
    }
}

//! Key directories: their permissions, and keys that have been pending for long.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Diagnosis, Finding};

/// A key that waits for longer than this has been forgotten: a day, in seconds.
const FORGOTTEN_AFTER_SECONDS: i64 = 24 * 60 * 60;

/// The most names of a finding.
const MAX_NAMES: usize = 10;

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let pki = &diagnosis.loaded.config.pki_dir;
    let mut findings = Vec::new();
    findings.extend(too_open(pki, 0o027));
    for name in ["master.pem", "master_sign.pem"] {
        findings.extend(too_open(&pki.join(name), 0o077));
    }
    findings.extend(waiting(&pki.join("minions_pre"), diagnosis.now));
    findings
}

/// Whether the mode of a file lets in other users; `others` are the bits that must not be set.
fn too_open(path: &Path, others: u32) -> Option<Finding> {
    let mode = std::fs::metadata(path).ok()?.mode() & 0o7777;
    (mode & others != 0).then(|| {
        let what = format!("\"{}\" has mode {mode:04o}", path.display());
        Finding::new(what, format!("chmod {:04o} it", mode & !others))
    })
}

fn waiting(directory: &Path, now: i64) -> Option<Finding> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let is_old =
        |metadata: Metadata| now.saturating_sub(metadata.mtime()) > FORGOTTEN_AFTER_SECONDS;
    let old = entries.filter(|entry| entry.metadata().is_ok_and(is_old));
    let mut names: Vec<String> = old
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    (!names.is_empty()).then(|| {
        let names = listed(&names);
        let what = format!("keys have been waiting for more than a day: {names}");
        Finding::new(what, "accept or reject them with salt-key").note()
    })
}

/// The first names, and how many more there are.
pub(super) fn listed(names: &[String]) -> String {
    let shown = names.get(..MAX_NAMES).unwrap_or(names);
    let more = match names.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::tests::diagnosis;
    use super::*;

    #[test]
    fn open_directories_and_old_pending_keys_are_found() {
        let (_dir, mut diagnosis) = diagnosis("");
        assert!(check(&diagnosis).is_empty(), "nothing is there yet");
        let pki = diagnosis.loaded.config.pki_dir.clone();
        std::fs::create_dir_all(pki.join("minions_pre")).unwrap();
        std::fs::set_permissions(&pki, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::write(pki.join("minions_pre/m1"), "key").unwrap();
        assert!(check(&diagnosis).is_empty());
        diagnosis.now += FORGOTTEN_AFTER_SECONDS + 60;
        assert!(check(&diagnosis)[0].what.contains("m1"));
        std::fs::set_permissions(&pki, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check(&diagnosis)[0].what.contains("0755"));
    }
}

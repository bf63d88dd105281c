//! Minions that cannot connect under `fips_mode`: those whose last authentication used SHA-1. With the
//! option in the file and the master not yet restarted, those that will not.

use std::io::ErrorKind;
use std::path::Path;

use saltern_model::MinionId;
use saltern_store::sha1_minions::minions_with_sha1;

use super::{Diagnosis, Finding};

/// The most minions that are named.
const MAX_NAMES: usize = 10;

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let config = &diagnosis.loaded.config;
    if !config.fips_mode {
        return Vec::new();
    }
    let private_dir = config.cachedir.join("saltern");
    let minions: Vec<MinionId> = match minions_with_sha1(&private_dir) {
        Ok(listed) => {
            let accepted = config.pki_dir.join("minions");
            let may_be = |id: &MinionId| may_be_accepted(&accepted, id);
            listed.into_iter().filter(may_be).collect()
        }
        Err(error) => {
            let what = format!("which minions use SHA-1 cannot be read: {error}");
            let advice = "let the master's user read its cachedir";
            return vec![Finding::new(what, advice)];
        }
    };
    if minions.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = minions
        .iter()
        .take(MAX_NAMES)
        .map(|id| id.as_str())
        .collect();
    let what = format!(
        "minions cannot connect under fips_mode, because their last authentication used SHA-1 ({}): {}; \
         all are in \"{}\"",
        minions.len(),
        names.join(", "),
        private_dir.join("sha1_minions").display(),
    );
    let advice =
        "set encryption_algorithm: OAEP-SHA224 and signing_algorithm: PKCS1v15-SHA224 on them";
    vec![Finding::new(what, advice)]
}

/// Whether the minion has an accepted key, or this user may not see it.
fn may_be_accepted(accepted: &Path, id: &MinionId) -> bool {
    let key = accepted.join(id.as_str());
    !matches!(key.symlink_metadata(), Err(error) if error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::super::tests::diagnosis;
    use super::*;

    #[test]
    fn minions_with_sha1_are_named_under_fips_mode_alone() {
        for (options, is_found) in [("fips_mode: true\n", true), ("", false)] {
            let (_dir, diagnosis) = diagnosis(options);
            let private_dir = diagnosis.loaded.config.cachedir.join("saltern");
            assert!(check(&diagnosis).is_empty(), "no list yet");
            std::fs::create_dir_all(&private_dir).unwrap();
            std::fs::write(private_dir.join("sha1_minions"), "m1\nm2\nold\n").unwrap();
            assert!(check(&diagnosis).is_empty(), "no key is accepted");
            let accepted = diagnosis.loaded.config.pki_dir.join("minions");
            std::fs::create_dir_all(&accepted).unwrap();
            for id in ["m1", "m2", "new"] {
                std::fs::write(accepted.join(id), "key").unwrap();
            }
            let found = check(&diagnosis);
            assert_eq!(found.len(), usize::from(is_found));
            assert!(found.iter().all(|one| one.what.contains("(2): m1, m2;")));
        }
    }
}

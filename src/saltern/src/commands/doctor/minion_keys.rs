//! The keys of minions: those that were denied, accepted files that hold no key, and one key under
//! several names, as machines have that were cloned with their keys.

use std::collections::BTreeMap;
use std::path::Path;

use super::keys::listed;
use super::{Diagnosis, Finding};

/// A public key of 16,384 bits has less than this in bytes.
const MAX_KEY_LENGTH: u64 = 64 << 10;

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let pki = &diagnosis.loaded.config.pki_dir;
    let mut findings = Vec::new();
    findings.extend(denied(&pki.join("minions_denied")));
    findings.extend(accepted(&pki.join("minions")));
    findings
}

fn denied(directory: &Path) -> Option<Finding> {
    let names: Vec<String> = files(directory).map(|(name, _)| name).collect();
    (!names.is_empty()).then(|| {
        let what = format!(
            "another key than the accepted one was presented under these names: {}",
            listed(&sorted(names))
        );
        let advice = "compare salt-call --local key.finger on the machine with salt-key -f NAME: if it \
                      was reinstalled, remove all its keys (salt-key -d NAME) and accept the new \
                      one; if not, somebody poses as it";
        Finding::new(what, advice)
    })
}

fn accepted(directory: &Path) -> Vec<Finding> {
    let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut bad = Vec::new();
    for (name, key) in files(directory) {
        match key {
            Some(key) => holders.entry(key).or_default().push(name),
            None => bad.push(name),
        }
    }
    let mut findings = Vec::new();
    if !bad.is_empty() {
        let what = format!(
            "accepted keys that are empty or no keys, so these minions cannot authenticate: {}",
            listed(&sorted(bad))
        );
        let advice = "remove them (salt-key -d NAME), then accept what the minions send";
        findings.push(Finding::new(what, advice).error());
    }
    for names in holders.into_values().filter(|names| names.len() > 1) {
        let what = format!(
            "minions with one key among them: {}",
            listed(&sorted(names))
        );
        let advice = "each of them can read what is meant for the others: on cloned machines remove \
                      /etc/salt/pki/minion and restart the minion, then salt-key -d NAME and accept \
                      the new key";
        findings.push(Finding::new(what, advice));
    }
    findings
}

/// The files of a directory of keys, each with its key without white space; none for what is no
/// key.
fn files(directory: &Path) -> impl Iterator<Item = (String, Option<String>)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        if name.starts_with('.') {
            return None;
        }
        let is_short = entry
            .metadata()
            .is_ok_and(|file| file.len() <= MAX_KEY_LENGTH);
        let text = match is_short {
            true => match std::fs::read_to_string(entry.path()) {
                // Not readable for this user.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
                text => text.ok(),
            },
            false => None,
        };
        let key = text.map(|text| text.split_whitespace().collect::<String>());
        let key = key.filter(|key| key.starts_with("-----BEGIN") && key.ends_with("-----"));
        Some((name, key))
    })
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use saltern_config::Severity;

    use super::super::tests::diagnosis;
    use super::*;

    #[test]
    fn denied_cloned_and_empty_keys_are_found() {
        let (_dir, diagnosis) = diagnosis("");
        let pki = &diagnosis.loaded.config.pki_dir;
        let write = |path: &str, text: &str| {
            let path = pki.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let key =
            |body: &str| format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n");
        assert!(check(&diagnosis).is_empty());
        write("minions/web1", &key("one"));
        write("minions/web2", &key("two"));
        write("minions/.hidden", "");
        assert!(check(&diagnosis).is_empty());
        write("minions/web3", key("one").trim_end());
        write("minions/web4", "");
        write("minions/web5", &"x".repeat(100_000));
        write("minions_denied/web1", &key("three"));
        let found = check(&diagnosis);
        let texts: Vec<(Severity, &str)> = found
            .iter()
            .map(|one| (one.severity, one.what.as_str()))
            .collect();
        let [denied, bad, cloned] = texts.as_slice() else {
            panic!("{texts:?}");
        };
        assert!(denied.1.ends_with(": web1"), "{denied:?}");
        assert_eq!(bad.0, Severity::Error);
        assert!(bad.1.ends_with(": web4, web5"), "{bad:?}");
        assert!(cloned.1.ends_with(": web1, web3"), "{cloned:?}");
    }
}

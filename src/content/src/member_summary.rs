//! A summary of what a member of a cluster has: digests of its options, of what it serves, and of its
//! keys, so that members can be compared without the files of the others (`saltern cluster verify`).
//!
//! Digests follow from the secret that the members share, so that values cannot be tried out by
//! whoever reads the database they are in. Options that may hold secrets, and those that are of one
//! machine, are left out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use saltern_base::hex;
use saltern_config::MasterConfig;
use saltern_config::yaml::{Key, Node};
use saltern_model::KeyState;
use saltern_store::{PkiTree, StoreError};
use sha2::{Digest as _, Sha256};

use crate::files::options::environment_roots;

/// Digests by what they are of.
pub type MemberSummary = BTreeMap<String, String>;

/// The entry of a release, beside those that begin with `option `, `files `, `pillar ` and `keys `.
const RELEASE: &str = "release";

/// The entries below the roots of an environment that have digests of their own; with more of them
/// the environment has one.
const MAX_ENTRIES: usize = 500;

/// The deepest directory that is looked into.
const MAX_DEPTH: usize = 100;

/// Bytes of a digest that are kept.
const KEPT: usize = 8;

/// Options that are of one machine: its names, addresses and places.
const OWN: [&str; 17] = [
    "cachedir",
    "conf_file",
    "config_dir",
    "default_include",
    "id",
    "interface",
    "key_logfile",
    "log_file",
    "master_id",
    "pidfile",
    "pki_dir",
    "root_dir",
    "saltern_cluster",
    "saltern_job_database",
    "saltern_metrics_address",
    "sock_dir",
    "sqlite_queue_dir",
];

/// Options that are mappings, and which entries of them are of one machine.
const APIS: [&str; 4] = ["rest_cherrypy", "rest_tornado", "rest_wsgi", "saltern_api"];
const OWN_OF_APIS: [&str; 3] = ["host", "port", "address"];

/// Directories of version control, which differ between two checkouts of the same.
const IGNORED: [&str; 3] = [".git", ".hg", ".svn"];

/// Summarises what this machine has. Reads all files below the roots.
///
/// # Errors
/// The keys cannot be listed. A file that cannot be read has a digest of its own.
pub fn member_summary(
    config: &MasterConfig,
    pki: &PkiTree,
    (release, secret): (&str, &[u8]),
) -> Result<MemberSummary, StoreError> {
    let mut summary = MemberSummary::new();
    summary.insert(RELEASE.to_owned(), release.to_owned());
    for (name, node) in config.shown_values() {
        if !OWN.contains(&name) {
            let mut digest = keyed(secret);
            digest.update(of_all_members(name, node));
            summary.insert(format!("option {name}"), kept(digest));
        }
    }
    for (kind, roots) in [
        ("files", environment_roots(config.file_roots(), "/srv/salt")),
        (
            "pillar",
            environment_roots(config.pillar_roots(), "/srv/pillar"),
        ),
    ] {
        // An option that is wrong has a digest above.
        for (environment, roots) in roots.unwrap_or_default() {
            for (entry, digest) in of_roots(&roots, secret) {
                summary.insert(format!("{kind} {environment}: {entry}"), digest);
            }
        }
    }
    for state in [KeyState::Accepted, KeyState::Rejected] {
        let name = state.directory();
        summary.insert(format!("keys {name}"), of_keys(pki, state, secret)?);
    }
    Ok(summary)
}

/// The names of what two members have differently. Options that only one of two releases has are not
/// compared.
pub fn differences<'s>(one: &'s MemberSummary, other: &'s MemberSummary) -> Vec<&'s str> {
    let is_same_release = one.get(RELEASE) == other.get(RELEASE);
    let mut found: Vec<&str> = one
        .keys()
        .chain(other.keys())
        .map(String::as_str)
        .filter(|name| match (one.get(*name), other.get(*name)) {
            (Some(one), Some(other)) => one != other,
            _ => is_same_release || !name.starts_with("option "),
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn keyed(secret: &[u8]) -> Sha256 {
    Sha256::new_with_prefix(secret)
}

fn kept(digest: Sha256) -> String {
    let digest = digest.finalize();
    hex(digest.get(..KEPT).unwrap_or_default())
}

/// The value of an option without what is of one machine.
fn of_all_members(name: &str, node: &Node) -> String {
    let Some(map) = node.as_map().filter(|_| APIS.contains(&name)) else {
        return format!("{node:?}");
    };
    let is_own = |key: &Key| key.as_str().is_some_and(|key| OWN_OF_APIS.contains(&key));
    let shared = map.iter().filter(|(key, _)| !is_own(key));
    let shared = shared.map(|(key, entry)| format!("{key}: {:?}\n", entry.value));
    shared.collect()
}

/// Digests of what is directly below some roots: with the first path of a root that does not say what
/// is served at all, in the order of the roots.
fn of_roots(roots: &[String], secret: &[u8]) -> BTreeMap<String, String> {
    let mut entries: BTreeMap<String, Sha256> = BTreeMap::new();
    for root in roots {
        for (name, path) in children(Path::new(root)).unwrap_or_default() {
            let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
            let digest = entries.entry(name).or_insert_with(|| keyed(secret));
            add_path(digest, &path, MAX_DEPTH);
        }
    }
    if entries.len() <= MAX_ENTRIES {
        let kept = entries.into_iter().map(|(name, one)| (name, kept(one)));
        return kept.collect();
    }
    let mut all = keyed(secret);
    for (name, digest) in entries {
        add(&mut all, b'e', name.as_bytes());
        all.update(digest.finalize());
    }
    BTreeMap::from([("all".to_owned(), kept(all))])
}

/// Adds a kind and a text whose end is clear.
fn add(digest: &mut Sha256, kind: u8, text: &[u8]) {
    digest.update([kind]);
    digest.update((text.len() as u64).to_be_bytes());
    digest.update(text);
}

/// The entries of a directory, in the order of their names.
fn children(directory: &Path) -> io::Result<Vec<(std::ffi::OsString, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !IGNORED
            .iter()
            .any(|ignored| name.as_bytes() == ignored.as_bytes())
        {
            found.push((name, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Adds a file, or a directory with all that is in it. Links are not followed.
fn add_path(digest: &mut Sha256, path: &Path, depth: usize) {
    let added = fs::symlink_metadata(path).and_then(|stat| {
        let kind = stat.file_type();
        if kind.is_symlink() {
            add(digest, b'l', fs::read_link(path)?.as_os_str().as_bytes());
        } else if kind.is_file() {
            digest.update([b'f']);
            digest.update(stat.len().to_be_bytes());
            add_content(digest, path)?;
        } else if kind.is_dir() && depth > 0 {
            digest.update([b'd']);
            for (name, path) in children(path)? {
                add(digest, b'n', name.as_bytes());
                add_path(digest, &path, depth - 1);
            }
            digest.update([b'.']);
        } else {
            digest.update([b'o']);
        }
        Ok(())
    });
    if added.is_err() {
        digest.update(b"unreadable");
    }
}

fn add_content(digest: &mut Sha256, path: &Path) -> io::Result<()> {
    let (mut file, mut buffer) = (File::open(path)?, vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            length => digest.update(buffer.get(..length).unwrap_or_default()),
        }
    }
}

/// Count and digest of the keys of a state.
fn of_keys(pki: &PkiTree, state: KeyState, secret: &[u8]) -> Result<String, StoreError> {
    let mut ids = pki.list(state)?;
    ids.sort_unstable();
    let mut digest = keyed(secret);
    for id in &ids {
        add(&mut digest, b'i', id.as_str().as_bytes());
        // It may be gone meanwhile.
        let pem = pki.stored_pem(id, state).ok().flatten().unwrap_or_default();
        add(&mut digest, b'k', pem.trim().as_bytes());
    }
    Ok(format!("{} {}", ids.len(), kept(digest)))
}

#[cfg(test)]
mod tests {
    use saltern_base::clock::Clock;
    use saltern_config::load_master;

    use super::*;

    fn summary(place: &Path, more: &str) -> MemberSummary {
        let text = format!(
            "root_dir: {0}\npki_dir: {0}/pki\nfile_roots: {{base: [{0}/srv]}}\n\
             pillar_roots: {{base: [{0}/pillar]}}\n{more}",
            place.display()
        );
        fs::write(place.join("master"), text).expect("written");
        let config = load_master(place).expect("a configuration").config;
        let pki = PkiTree::open(&config, Clock::system()).expect("a directory");
        let mut summary = member_summary(&config, &pki, ("1", b"secret")).expect("a summary");
        // The test's own places.
        for name in ["option file_roots", "option pillar_roots"] {
            summary.remove(name);
        }
        summary
    }

    #[test]
    fn differences_name_options_files_and_keys() {
        let places = [1, 2].map(|_| tempfile::tempdir().expect("a directory"));
        let [one, other] = places.each_ref().map(tempfile::TempDir::path);
        for place in [one, other] {
            fs::create_dir_all(place.join("srv/web/deep")).expect("made");
            fs::create_dir_all(place.join("srv/.git")).expect("made");
            fs::create_dir_all(place.join("pillar")).expect("made");
            fs::write(place.join("srv/top.sls"), "base: {}").expect("written");
            fs::write(place.join("srv/web/deep/init.sls"), "a: 1").expect("written");
        }
        let api = |port: u16, socket: u16| {
            format!(
                "id: m{port}\nrest_cherrypy: {{port: {port}, disable_ssl: true, thread_pool: {socket}}}\n"
            )
        };
        let (a, b) = (summary(one, &api(8000, 1)), summary(other, &api(8001, 1)));
        assert_eq!(differences(&a, &b), [""; 0], "what is of one machine");
        fs::write(other.join("srv/.git/index"), "other").expect("written");
        fs::write(other.join("srv/web/deep/init.sls"), "a: 2").expect("written");
        fs::write(other.join("pillar/top.sls"), "base: {}").expect("written");
        let b = summary(other, &format!("{}timeout: 9\n", api(8001, 2)));
        assert_eq!(
            differences(&a, &b),
            [
                "files base: web",
                "option rest_cherrypy",
                "option timeout",
                "pillar base: top.sls"
            ]
        );
        let newer = MemberSummary::from([
            (RELEASE.to_owned(), "2".to_owned()),
            ("option new".to_owned(), "1".to_owned()),
        ]);
        let found = differences(&a, &newer);
        assert!(found.contains(&RELEASE) && !found.contains(&"option new"));
        assert!(found.contains(&"files base: web"), "{found:?}");
    }
}

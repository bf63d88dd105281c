//! A summary of what a member of a cluster has: digests of its options, of what it serves, and of its
//! keys, so that members can be compared without the files of the others (`saltern cluster verify`).
//!
//! Digests follow from the secret that the members share, so that values cannot be tried out by
//! whoever reads the database they are in. Options that may hold secrets by their names, and those that are of one
//! machine, are left out; without a secret also mappings and lists, which may hold one in an entry.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use saltern_base::hex;
use saltern_config::yaml::{Key, Node, NodeValue};
use saltern_config::{ClusterConfig, MasterConfig};
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
const OWN: [&str; 26] = [
    "api_logfile",
    "api_pidfile",
    "cachedir",
    "conf_file",
    "config_dir",
    "default_include",
    "extension_modules",
    "id",
    "interface",
    "key_logfile",
    "log_dir",
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
    "ssh_log_file",
    "syndic_dir",
    "syndic_log_file",
    "syndic_pidfile",
    "token_dir",
];

/// Options that are mappings, and which entries of them are of one machine.
const MAPPINGS: [&str; 5] = [
    "rest_cherrypy",
    "rest_tornado",
    "rest_wsgi",
    "saltern_api",
    "ssl",
];
const OWN_OF_MAPPINGS: [&str; 11] = [
    "address",
    "ca_certs",
    "certfile",
    "host",
    "keyfile",
    "log_access_file",
    "log_error_file",
    "port",
    "ssl_chain",
    "ssl_crt",
    "ssl_key",
];

/// Longest text that all digests of a summary may make; with more of them each environment has one.
const MAX_DIGESTS: usize = 512 << 10;

/// Directories of version control, which differ between two checkouts of the same.
const IGNORED: [&str; 3] = [".git", ".hg", ".svn"];

/// Summarises what this machine has. Reads all files below the roots.
///
/// # Errors
/// The keys cannot be listed. A missing directory has none; a file that cannot be read has a digest of its own.
pub fn member_summary(
    (config, cluster): (&MasterConfig, &ClusterConfig),
    pki: &PkiTree,
    (release, secret): (&str, &[u8]),
) -> Result<MemberSummary, StoreError> {
    let mut summary = MemberSummary::new();
    summary.insert(RELEASE.to_owned(), release.to_owned());
    let is_compared = |name: &str, node: &Node| {
        !OWN.contains(&name) && (!secret.is_empty() || !has_entries(node))
    };
    for (name, node) in config.shown_values() {
        if is_compared(name, node) {
            let mut digest = keyed(secret);
            digest.update(of_all_members(name, node));
            summary.insert(format!("option {name}"), kept(digest));
        }
    }
    for (name, value) in of_cluster(cluster) {
        let mut digest = keyed(secret);
        digest.update(value);
        summary.insert(format!("option saltern_cluster: {name}"), kept(digest));
    }
    let mut environments = Vec::new();
    for (kind, roots) in [
        ("files", environment_roots(config.file_roots(), "/srv/salt")),
        (
            "pillar",
            environment_roots(config.pillar_roots(), "/srv/pillar"),
        ),
    ] {
        // An option that is wrong has a digest above.
        for (environment, roots) in roots.unwrap_or_default() {
            let name = format!("{kind} {environment}");
            environments.push((name, of_roots(&roots, secret)));
        }
    }
    summary.extend(of_environments(environments, MAX_DIGESTS));
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

/// Values that all members have alike in the option `saltern_cluster`, which as a whole may hold a password.
fn of_cluster(cluster: &ClusterConfig) -> [(&'static str, String); 3] {
    [
        ("lease", format!("{:?}", cluster.lease)),
        ("member_port", format!("{:?}", cluster.member_port)),
        ("share_keys", cluster.share_keys.to_string()),
    ]
}

/// Whether an entry of a value may hold a secret, whatever the name of the option.
const fn has_entries(node: &Node) -> bool {
    matches!(node.value, NodeValue::Seq(_) | NodeValue::Map(_))
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
    let Some(map) = node.as_map().filter(|_| MAPPINGS.contains(&name)) else {
        return format!("{node:?}");
    };
    let is_own = |key: &Key| {
        key.as_str()
            .is_some_and(|key| OWN_OF_MAPPINGS.contains(&key))
    };
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
    let entries: BTreeMap<String, String> = entries
        .into_iter()
        .map(|(name, one)| (name, kept(one)))
        .collect();
    match entries.len() > MAX_ENTRIES {
        true => folded(&entries),
        false => entries,
    }
}

/// One digest in place of those of the entries, which follow from the secret.
fn folded(entries: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = Sha256::new();
    for (name, digest) in entries {
        add(&mut all, b'e', name.as_bytes());
        add(&mut all, b'h', digest.as_bytes());
    }
    BTreeMap::from([("all".to_owned(), kept(all))])
}

/// The digests of environments, one of each where all of them would be longer than a summary may be.
fn of_environments(
    environments: Vec<(String, BTreeMap<String, String>)>,
    limit: usize,
) -> MemberSummary {
    let length: usize = environments
        .iter()
        .flat_map(|(name, entries)| entries.keys().map(|entry| name.len() + entry.len()))
        // The digest, and the punctuation of JSON.
        .map(|length| length + 2 * KEPT + 8)
        .sum();
    let mut digests = MemberSummary::new();
    for (name, entries) in environments {
        let entries = match length > limit {
            true => folded(&entries),
            false => entries,
        };
        let named = entries.into_iter();
        digests.extend(named.map(|(entry, digest)| (format!("{name}: {entry}"), digest)));
    }
    digests
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
    let mut ids = match pki.list(state) {
        // A copy of the directory may lack what was empty.
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Vec::new()
        }
        ids => ids?,
    };
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
        summary_under(b"secret", place, more)
    }

    fn summary_under(secret: &[u8], place: &Path, more: &str) -> MemberSummary {
        let text = format!(
            "root_dir: {0}\nsaltern_cluster: {{postgres: 'host=/nowhere user=a dbname=b'}}\npki_dir: {0}/pki\nfile_roots: {{base: [{0}/srv]}}\n\
             pillar_roots: {{base: [{0}/pillar]}}\n{more}",
            place.display()
        );
        fs::write(place.join("master"), text).expect("written");
        let config = load_master(place).expect("a configuration").config;
        let cluster = config.saltern_cluster.as_ref().expect("a cluster");
        let pki = PkiTree::existing(&config, Clock::system());
        let mut summary =
            member_summary((&config, cluster), &pki, ("1", secret)).expect("a summary");
        assert!(!place.join("pki").exists(), "nothing is made");
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
                "id: m{port}\nlog_file: /var/log/{port}\nextension_modules: /var/{port}\nsyndic_pidfile: /run/{port}\n\
                 rest_cherrypy: {{port: {port}, ssl_crt: /etc/{port}.crt, ssl_key: /etc/{port}.key, \
                 thread_pool: {socket}}}\n"
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

    #[test]
    fn values_that_may_hold_secrets_are_left_out_without_one() {
        let place = tempfile::tempdir().expect("a directory");
        let more = "id: a\ntimeout: 9\next_pillar: [{mysql: {pass: hidden}}]\n";
        let has = |secret: &[u8], name| {
            summary_under(secret, place.path(), more).contains_key(&format!("option {name}"))
        };
        for (name, with, without) in [
            ("timeout", true, true),
            ("ext_pillar", true, false),
            ("saltern_cluster", false, false),
            ("saltern_cluster: lease", true, true),
            ("saltern_cluster: share_keys", true, true),
        ] {
            assert_eq!(
                (has(b"secret", name), has(b"", name)),
                (with, without),
                "{name}"
            );
        }
    }

    #[test]
    fn environments_are_folded_when_they_have_too_many_entries() {
        let entries = |value: &str| {
            BTreeMap::from(["a", "b"].map(|name| (name.to_owned(), value.to_owned())))
        };
        let of =
            |value, limit| of_environments(vec![("files base".to_owned(), entries(value))], limit);
        assert_eq!(of("1", MAX_DIGESTS).len(), 2);
        let small = of("1", 10);
        assert_eq!(small.keys().collect::<Vec<_>>(), ["files base: all"]);
        assert_ne!(small, of("2", 10));
    }
}

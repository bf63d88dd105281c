//! Fixtures of the tests of this crate.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use saltern_crypto::PrivateKey;
use saltern_model::{
    AuditDoor, AuditProof, AuditRecord, AuditVerdict, Compat, Jid, JobRecord, MinionId, Packed,
    ReturnRecord,
};
use saltern_store::files::Version;
use saltern_store::{Session, Sessions, StoreOptions};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tempfile::TempDir;

/// A directory for one test, and options that lie below it.
pub(crate) fn place(compat: Compat) -> (TempDir, StoreOptions) {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let options = StoreOptions::below(dir.path(), compat);
    (dir, options)
}

/// Two minion keys; making one takes a while.
pub(crate) static KEYS: LazyLock<[PrivateKey; 2]> =
    LazyLock::new(|| [(); 2].map(|()| PrivateKey::generate(2048).expect("a key")));

/// The session of a minion whose key came when the directory of all this was made.
pub(crate) fn admit(
    sessions: &Sessions,
    options: &StoreOptions,
    minion: &MinionId,
) -> Arc<Session> {
    let key_file = Version::of(&options.cachedir, true).expect("a stat");
    let key_file = key_file.expect("a directory").version;
    sessions.get_or_create(minion, &key_file).expect("made")
}

pub(crate) fn pem(index: usize) -> String {
    format!("{}\n", KEYS[index].public().pem())
}

pub(crate) fn id(text: &str) -> MinionId {
    MinionId::parse(text).expect("a minion id")
}

pub(crate) fn jid(number: u32) -> Jid {
    Jid::parse(&format!("20261121070622{number:06}")).expect("a jid")
}

pub(crate) fn job(number: u32, minions: &[&str]) -> JobRecord {
    let jid = jid(number);
    let load = Value::map([
        ("jid", Value::from(jid.as_str())),
        ("fun", Value::from("test.ping")),
        ("tgt", Value::from("*")),
        ("tgt_type", Value::from("glob")),
        ("arg", Value::Array(Vec::new())),
        ("user", Value::from("root")),
    ]);
    JobRecord {
        created: 1_795_244_782_000_000 + i64::from(number),
        jid,
        user: "root".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: "*".to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(encode(&load, Dialect::Bin)),
        minions: minions.iter().map(|name| id(name)).collect(),
        nocache: false,
    }
}

pub(crate) fn ret(number: u32, minion: &str, value: Value) -> ReturnRecord {
    let jid = jid(number);
    let load = Value::map([
        ("cmd", Value::from("_return")),
        ("id", Value::from(minion)),
        ("jid", Value::from(jid.as_str())),
        ("return", value),
        ("retcode", Value::from(0_i64)),
        ("success", Value::from(true)),
        ("fun", Value::from("test.ping")),
        ("out", Value::from("nested")),
    ]);
    ReturnRecord {
        jid,
        minion: id(minion),
        received: 1_795_244_783_000_000 + i64::from(number),
        fun: "test.ping".to_owned(),
        retcode: 0,
        success: true,
        load: Packed::new(encode(&load, Dialect::Bin)),
    }
}

/// A row of the audit trail.
pub(crate) fn audit_row(number: u32) -> AuditRecord {
    AuditRecord {
        at: i64::from(number) * 1_000,
        door: if number.is_multiple_of(2) {
            AuditDoor::Port
        } else {
            AuditDoor::Api
        },
        user: format!("user{}", number % 3),
        backend: (number % 2 == 1).then(|| "pam".to_owned()),
        proof: AuditProof::Key,
        origin: Some([192, 0, 2, 1].into()),
        cmd: "publish".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: Some("*".to_owned()),
        tgt_type: Some("glob".to_owned()),
        arguments: r#"["a"]"#.to_owned(),
        verdict: if number.is_multiple_of(4) {
            AuditVerdict::Refused
        } else {
            AuditVerdict::Allowed
        },
        reason: number
            .is_multiple_of(4)
            .then(|| "no rule allows it".to_owned()),
        jid: Some(jid(number)),
        suppressed: 0,
    }
}

pub(crate) fn mode(path: &Path) -> u32 {
    let meta = std::fs::symlink_metadata(path).expect("a file");
    meta.permissions().mode() & 0o7777
}

pub(crate) fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("a text file")
}

/// Every entry below a directory, as paths relative to it, sorted.
pub(crate) fn tree(root: &Path) -> Vec<String> {
    fn walk(root: &Path, dir: PathBuf, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let relative = path.strip_prefix(root).expect("below the root");
            found.push(relative.to_string_lossy().into_owned());
            if path.symlink_metadata().expect("its type").is_dir() {
                walk(root, path, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root.to_path_buf(), &mut found);
    found.sort();
    found
}

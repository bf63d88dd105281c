//! Messages that cost the master its workers, and files that others could read.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::wire::client::Minion;
use crate::wire::pillar::pillar_load;

/// As many malformed messages as workers left a master that answered nobody.
#[test]
fn cve_2023_20897_malformed_messages_end_no_worker() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let junk: [&[u8]; 8] = [
        b"",
        b"\x00",
        b"\xff",
        b"\x81\xa3enc",
        b"\xdf\xff\xff\xff\xff",
        b"\x83\xa3enc\xa3aes\xa4load\xc0\xa7version\x03",
        b"\x82\xa3enc\xa5clear\xa4load\xa1x",
        b"not msgpack at all",
    ];
    for _ in 0..20 {
        for bytes in junk {
            site.ask_in_vain("junk", Bytes::copy_from_slice(bytes));
        }
    }
    let answer = m1.open(&site.ask(m1.sealed(m1.load("_file_envs"), 3)).reply, 3);
    assert!(answer.as_array().is_some());
}

/// A crafted authentication ended workers. It costs at most the signature of its answer.
#[test]
fn cve_2017_14696_crafted_authentication_costs_one_signature() {
    let site = Site::new("");
    let minion = Minion::new("m1", "minion");
    let operations = || site.services.keys.master.private.operations();
    for (what, load) in [
        ("no id", minion.auth().without("id")),
        ("no key", minion.auth().without("pub")),
        (
            "a key that is a list",
            minion.auth().set("pub", Value::Array(Vec::new())),
        ),
        (
            "a key that is none",
            minion.auth().set("pub", "-----BEGIN PUBLIC KEY-----"),
        ),
        ("an id with a zero byte", minion.auth().set("id", "m1\0")),
        (
            "a nonce that is a map",
            minion.auth().set("nonce", Load::new()),
        ),
    ] {
        let before = operations();
        site.ask(clear(load, 3));
        assert!(operations() - before <= 1, "{what}");
    }
    let outcome = site.ask(clear(minion.auth(), 3));
    assert!(!outcome.effects.is_empty(), "others are served");
}

fn assert_private(dir: &Path, seen: &mut usize) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        if path.is_dir() {
            assert_private(&path, seen);
        } else {
            assert_eq!(mode & 0o007, 0, "{} is {mode:o}", path.display());
            *seen += 1;
        }
    }
}

/// Data of states, with their secrets, could be read by every user of the machine.
#[test]
fn cve_2015_8034_cached_data_is_private() {
    let site = Site::new(LOGIN);
    let cache = site.path("cache");
    site.write("pillar/top.sls", "base:\n  '*':\n    - role\n");
    site.write("pillar/role.sls", "password: hunter2\n");
    let m1 = Minion::signed_in(&site, "m1");
    site.ask(m1.sealed(pillar_load(&m1), 3));
    let mine = Load::new().set("secret", "x");
    site.ask(m1.sealed(m1.load("_mine").set("data", mine), 3));
    site.ask(clear(login("ana").set("cmd", "mk_token"), 3));
    let mut seen = 0;
    // The job database of the fixture is opened by its path alone.
    for entry in std::fs::read_dir(&cache).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_private(&path, &mut seen);
        }
    }
    assert!(seen >= 3, "only {seen} files were looked at");
}

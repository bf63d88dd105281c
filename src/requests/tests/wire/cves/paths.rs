//! Names that lead out of their directories.

use super::*;
use crate::wire::attacks::hostile_ids;
use crate::wire::client::{JID, Minion};
use crate::wire::files::git;
use crate::wire::site::list;

const SECRET: &str = "the master's own";

/// A master with files to serve and a secret beside them.
fn site(options: &str) -> Site {
    let site = Site::new(&format!("file_roots: {{base: [ROOT/salt]}}\n{options}"));
    site.write("salt/a", "1\n");
    site.write("pillar/top.sls", "{}\n");
    site.write("secret", SECRET);
    site
}

fn wheel(site: &Site, fun: &str, path: &str) -> Load {
    let load = Load::new()
        .set("cmd", "wheel")
        .set("fun", fun)
        .set("user", "root")
        .with_key_of_root(site);
    load.set("path", path).set("saltenv", "base")
}

/// Paths that lead to the secret, seen from a root.
fn ways_out(site: &Site) -> Vec<String> {
    let absolute = site.path("secret").display().to_string();
    let ways = [
        "../secret",
        "a/../../secret",
        "./../secret",
        "../salt/../secret",
    ];
    let ways = ways.iter().map(|way| (*way).to_owned());
    ways.chain([absolute]).collect()
}

/// Functions of the wheel read any file of the machine.
#[test]
fn cve_2020_11652_wheel_reads_nothing_outside_its_roots() {
    let site = site("");
    let inside = wheel(&site, "file_roots.read", "a");
    assert!(
        holds(&site.ask(clear(inside, 3)).reply, "1\n"),
        "others are read"
    );
    for path in ways_out(&site) {
        for module in ["file_roots", "pillar_roots"] {
            for fun in ["find", "read"] {
                let load = wheel(&site, &format!("{module}.{fun}"), &path);
                let reply = site.ask(clear(load, 3)).reply;
                assert!(!holds(&reply, SECRET), "{module}.{fun} of {path}");
            }
        }
    }
}

/// `pillar_roots.write` wrote any file of the machine.
#[test]
fn cve_2021_25282_wheel_writes_nothing_outside_its_roots() {
    let site = site("");
    let before = site.files();
    for path in ways_out(&site) {
        for fun in ["file_roots.write", "pillar_roots.write"] {
            let load = wheel(&site, fun, &path)
                .set("data", "evil")
                .set("index", 0_i64);
            site.ask(clear(load, 3));
            assert_eq!(site.files(), before, "{fun} to {path}");
        }
    }
    let inside = wheel(&site, "file_roots.write", "b").set("data", "good");
    site.ask(clear(inside.set("index", 0_i64), 3));
    assert_eq!(site.read("salt/b").as_deref(), Some("good"));
}

/// The name of a minion led out of the directories of keys.
#[test]
fn cve_2017_12791_minion_id_is_one_name() {
    let site = site("auto_accept: True\n");
    let minion = Minion::new("m1", "minion");
    for id in hostile_ids() {
        let what = format!("{id:?}");
        site.ask_in_vain(&what, clear(minion.auth().set("id", id), 3));
    }
}

/// The same by another form of the name, a map or bytes among them.
#[test]
fn cve_2017_14695_minion_id_is_text() {
    let site = site("auto_accept: True\n");
    let minion = Minion::new("m1", "minion");
    for id in [
        Value::Bin(Bytes::from_static(b"../../m1\xff")),
        Value::Array(vec!["..".into(), "m1".into()]),
        Value::map([("..", "m1")]),
        Value::from(5_i64),
        "..".into(),
        "m1/..".into(),
    ] {
        let what = format!("{id:?}");
        site.ask_in_vain(&what, clear(minion.auth().set("id", id), 3));
    }
}

/// A syndic's name made directories anywhere below the cache.
#[test]
fn cve_2024_22231_syndic_makes_no_directory_by_its_name() {
    let site = site("order_masters: True\n");
    let relay = Minion::signed_in(&site, "relay");
    let started = relay.load("_minion_event").set("data", "started");
    site.ask(relay.sealed(started.set("tag", "salt/syndic/relay/start"), 3));
    let before = site.files();
    for name in ["../../evil", "..", "/evil", "a/../../evil", "evil\0"] {
        let answer = Value::map([("return", Value::from("x")), ("retcode", 0_i64.into())]);
        let aggregate = Load::new()
            .set("id", name)
            .set("jid", JID)
            .set("fun", "test.ping")
            .set("master_id", name)
            .set("return", Value::map([(name, answer)]))
            .set("load", Load::new().set("fun", "test.ping").set("tgt", "*"));
        let aggregates = Value::Array(vec![aggregate.value()]);
        let load = relay.load("_syndic_return").set("load", aggregates);
        site.ask(relay.sealed(load, 3));
        assert_eq!(site.files(), before, "{name:?}");
    }
}

/// The file server served files beside its roots.
#[test]
fn cve_2024_22232_file_server_stays_in_its_roots() {
    let site = site("");
    let m1 = Minion::signed_in(&site, "m1");
    let inside = m1
        .load("_serve_file")
        .set("path", "a")
        .set("saltenv", "base");
    let answer = m1.open(&site.ask(m1.sealed(inside.set("loc", 0_i64), 3)).reply, 3);
    assert_eq!(
        answer.get("data").and_then(Value::as_bytes),
        Some(&b"1\n"[..])
    );
    for path in ways_out(&site) {
        for cmd in [
            "_serve_file",
            "_file_find",
            "_file_hash",
            "_file_hash_and_stat",
        ] {
            let load = m1
                .load(cmd)
                .set("path", path.as_str())
                .set("saltenv", "base")
                .set("loc", 0_i64);
            let reply = site.ask(m1.sealed(load, 3)).reply;
            let sealed = decode(&reply);
            let opened = sealed
                .as_bytes()
                .map(|sealed| m1.crypticle(3).loads(sealed));
            let plain = opened.and_then(Result::ok).unwrap_or_default();
            assert!(!holds(&plain, SECRET), "{cmd} of {path}");
            let found = site.path("secret").display().to_string();
            assert!(!holds(&plain, &found), "{cmd} of {path}");
        }
    }
}

/// A minion that pushes files wrote any file below the cache.
#[test]
fn cve_2024_38824_pushed_file_stays_with_its_minion() {
    let site = site("file_recv: True\n");
    let m1 = Minion::signed_in(&site, "m1");
    for path in [
        &["..", "m2", "files", "x"][..],
        &["a", "../../../x"],
        &["/x"],
        &["..", "..", "..", "x"],
        &["a\0b"],
        &["a/../../x"],
    ] {
        let load = m1
            .load("_file_recv")
            .set("path", list(path))
            .set("loc", 0_i64)
            .set("data", "evil")
            .set("size", 4_i64);
        site.ask_in_vain(&format!("{path:?}"), m1.sealed(load, 3));
    }
    let load = m1.load("_file_recv").set("path", list(&["a", "b"]));
    let load = load
        .set("loc", 0_i64)
        .set("data", "good")
        .set("size", 4_i64);
    site.ask(m1.sealed(load, 3));
    let kept = site.read("cache/minions/m1/files/a/b");
    assert_eq!(kept.as_deref(), Some("good"));
}

/// The cache of grains and pillars had its files by the name that the minion sent.
#[test]
fn cve_2025_22238_cached_data_is_kept_by_the_proved_name() {
    let site = site("");
    let m1 = Minion::signed_in(&site, "m1");
    for id in hostile_ids() {
        for cmd in ["_pillar", "_mine", "_minion_event"] {
            let load = m1
                .load(cmd)
                .set("id", id.clone())
                .set("grains", Load::new())
                .set("data", Load::new())
                .set("tag", "my/own");
            site.ask_in_vain(&format!("{cmd} as {id:?}"), m1.sealed(load, 3));
        }
    }
}

/// `find_file` of gitfs made and removed files by the name of an environment.
#[test]
fn cve_2025_22240_environment_of_gitfs_makes_and_removes_no_file() {
    let site = Site::new("fileserver_backend: [gitfs]\ngitfs_remotes: ['file://ROOT/repo']\n");
    let repository = site.path("repo");
    site.write("repo/a", "1\n");
    git(&repository, &["init", "--quiet", "--initial-branch=master"]);
    git(&repository, &["add", "a"]);
    git(&repository, &["commit", "--quiet", "--message=a"]);
    assert!(site.services.content.files.refresh_remotes());
    let m1 = Minion::signed_in(&site, "m1");
    let ask = |cmd: &str, saltenv: &str| {
        let load = m1.load(cmd).set("path", "a").set("saltenv", saltenv);
        site.ask(m1.sealed(load.set("loc", 0_i64), 3))
    };
    // What the first look at the tree leaves in its cache.
    let answer = m1.open(&ask("_serve_file", "base").reply, 3);
    assert_eq!(
        answer.get("data").and_then(Value::as_bytes),
        Some(&b"1\n"[..])
    );
    let before = site.files();
    for saltenv in [
        "../../secret",
        "..",
        "/etc",
        "base/../../x",
        "--help",
        "a\0b",
    ] {
        for cmd in ["_file_find", "_file_hash", "_serve_file", "_file_list"] {
            ask(cmd, saltenv);
            assert_eq!(site.files(), before, "{cmd} in {saltenv:?}");
        }
    }
}

/// The on-demand pillar of libvirt made files by names that the minion sent.
#[test]
fn cve_2025_22241_on_demand_pillar_makes_no_key() {
    let site = site("on_demand_ext_pillar: [libvirt, virtkey, git]\n");
    let m1 = Minion::signed_in(&site, "m1");
    let pki = |site: &Site| {
        let mut files = site.files();
        files.retain(|path, _| path.starts_with(site.path("pki")));
        files
    };
    let before = pki(&site);
    for name in ["virtkey", "libvirt"] {
        for hyper in ["../../evil", "/evil", "m1"] {
            let chosen = Load::new().set("hyper", hyper).set("name", "../evil");
            let load = m1
                .load("_pillar")
                .set("ver", "2")
                .set("grains", Load::new())
                .set("ext", Load::new().set(name, chosen));
            site.ask(m1.sealed(load, 3));
            assert_eq!(pki(&site), before, "{name} of {hyper}");
            assert!(!site.path("evil").exists());
        }
    }
}

/// The jid of `pub_ret` was the name of a file, a pipe of `/proc` among them, that a worker read.
#[test]
fn cve_2025_22242_jid_opens_no_file() {
    let site = site("peer: {'.*': ['.*']}\n");
    let m1 = Minion::signed_in(&site, "m1");
    let secret = site.path("secret").display().to_string();
    for jid in [
        "../../../../proc/self/fd/0",
        "/proc/self/fd/0",
        "/dev/stdin",
        secret.as_str(),
        "../../secret",
    ] {
        let load = m1.load("pub_ret").set("jid", jid);
        let reply = site.ask_in_vain(jid, m1.sealed(load, 3));
        assert!(!holds(&reply, SECRET));
    }
}

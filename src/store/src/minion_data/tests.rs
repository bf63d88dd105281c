//! The cache on disk: what it keeps, what it forgets, what it notices, and that stock reads it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use saltern_model::{Changed, Compat, MinionId};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tempfile::TempDir;

use super::environments::ENVIRONMENTS;
use super::{LIMITS, MINE_FUNCTIONS, MinionDataStore};
use crate::StoreError;
use crate::options::StoreOptions;

fn place(compat: Compat) -> (TempDir, PathBuf, MinionDataStore) {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions::below(dir.path(), compat);
    let store = MinionDataStore::with_options(&options);
    (dir, options.cachedir, store)
}

fn id(text: &str) -> MinionId {
    MinionId::parse(text).unwrap()
}

fn grains(os: &str) -> Value {
    Value::map([
        ("os", Value::from(os)),
        ("größe", Value::from(vec![Value::from(1_i64), Value::Nil])),
        ("ratio", Value::Float(0.5)),
    ])
}

fn names(store: &MinionDataStore) -> Vec<String> {
    let known = store.known().unwrap();
    known.iter().map(|id| id.as_str().to_owned()).collect()
}

fn changed(store: &MinionDataStore, since: u64) -> Vec<MinionId> {
    match store.changes(Some(since)).unwrap().changed {
        Changed::These(ids) => ids,
        Changed::Everything => panic!("the changes are known one by one"),
    }
}

#[test]
fn stored_data_is_read_back_from_files_of_each_version() {
    for compat in Compat::ALL {
        let (_dir, cachedir, store) = place(compat);
        let pillar = Value::map([("secret", "x")]);
        store
            .store_grains_and_pillar(&id("web1"), &grains("Debian"), &pillar)
            .unwrap();
        assert_eq!(
            store.grains(&id("web1")).unwrap().as_deref(),
            Some(&grains("Debian"))
        );
        assert_eq!(store.pillar(&id("web1")).unwrap().as_deref(), Some(&pillar));
        assert_eq!(store.grains(&id("web2")).unwrap(), None);
        assert_eq!(names(&store), ["web1"]);
        let files: &[&str] = match compat {
            Compat::V3008 => &["grains/web1.p", "pillar/web1.p"],
            _ => &["minions/web1/data.p"],
        };
        for file in files {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(cachedir.join(file))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }
}

#[test]
fn mine_is_merged_reduced_and_removed() {
    for compat in Compat::ALL {
        let (_dir, _, store) = place(compat);
        let web = id("web1");
        let mine = |store: &MinionDataStore| store.mine(&web).unwrap().as_deref().cloned();
        let both = Value::map([("a", 1_i64), ("b", 2_i64)]);
        assert!(store.mine_delete(&web, &"a".into()).unwrap());
        assert!(store.mine_update(&web, &both, false).unwrap());
        assert!(
            store
                .mine_update(&web, &Value::map([("b", 3_i64)]), false)
                .unwrap()
        );
        assert_eq!(mine(&store), Some(Value::map([("a", 1_i64), ("b", 3_i64)])));
        assert!(store.mine_delete(&web, &"a".into()).unwrap());
        assert!(store.mine_delete(&web, &"never".into()).unwrap());
        assert_eq!(mine(&store), Some(Value::map([("b", 3_i64)])));
        assert!(
            store
                .mine_update(&web, &Value::map([("c", 4_i64)]), true)
                .unwrap()
        );
        assert_eq!(mine(&store), Some(Value::map([("c", 4_i64)])));
        assert!(
            !store
                .mine_update(&web, &"no mapping".into(), false)
                .unwrap()
        );
        assert!(store.mine_flush(&web).unwrap());
        assert!(!store.mine_flush(&web).unwrap());
        assert_eq!(mine(&store), None);
    }
}

#[test]
fn damaged_mine_is_replaced_by_the_next_update() {
    let (_dir, cachedir, store) = place(Compat::V3008);
    let one = Value::map([("a", 1_i64)]);
    assert!(store.mine_update(&id("web1"), &one, false).unwrap());
    let path = cachedir.join("mine/web1.p");
    std::fs::write(&path, b"\xc1").unwrap();
    assert!(!store.mine_delete(&id("web1"), &"a".into()).unwrap());
    assert!(store.mine_update(&id("web1"), &one, false).unwrap());
    let mine = store.mine(&id("web1")).unwrap();
    assert_eq!(mine.as_deref(), Some(&one));
}

#[test]
fn writers_of_one_mine_lose_nothing() {
    let (_dir, _, store) = place(Compat::V3008);
    std::thread::scope(|scope| {
        for writer in 0..4_i64 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..20 {
                    let name = format!("{writer}.{number}");
                    let data = Value::map([(name.as_str(), number)]);
                    assert!(store.mine_update(&id("web1"), &data, false).unwrap());
                }
            });
        }
    });
    let mine = store.mine(&id("web1")).unwrap().unwrap();
    assert_eq!(mine.as_map().unwrap().len(), 80);
}

#[test]
fn purge_leaves_nothing_to_the_next_owner_of_an_id() {
    for compat in Compat::ALL {
        let (_dir, cachedir, store) = place(compat);
        let fill = |name: &str| {
            let minion = id(name);
            store
                .store_with_pillarenv(&minion, &grains("x"), &Value::Map(vec![]), "dev")
                .unwrap();
            store
                .store_grains_and_pillar(&minion, &grains("x"), &Value::Map(vec![]))
                .unwrap();
            store
                .mine_update(&minion, &Value::map([("f", 1_i64)]), false)
                .unwrap();
        };
        ["web1", "web2", "web3"].into_iter().for_each(fill);
        let since = store.changes(None).unwrap().generation;
        store.purge(&id("web1")).unwrap();
        assert_eq!(changed(&store, since), [id("web1")]);
        assert_eq!(store.purge_all_but(|id| id.as_str() == "web3").unwrap(), 1);
        for name in ["web1", "web2"] {
            assert_eq!(store.grains(&id(name)).unwrap(), None);
            assert_eq!(store.pillar(&id(name)).unwrap(), None);
            assert_eq!(store.mine(&id(name)).unwrap(), None);
        }
        assert!(store.mine(&id("web3")).unwrap().is_some());
        assert_eq!(names(&store), ["web3"]);
        let mut left = Vec::new();
        let mut dirs = vec![cachedir];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => dirs.push(entry.path()),
                    false => left.push(entry.path().display().to_string()),
                }
            }
        }
        assert!(left.iter().all(|path| path.contains("web3")), "{left:?}");
        store.purge(&id("nobody")).unwrap();
    }
}

#[test]
fn changes_by_other_programs_are_detected() {
    for compat in Compat::ALL {
        let (_dir, cachedir, store) = place(compat);
        for name in ["web1", "web2"] {
            store
                .store_grains_and_pillar(&id(name), &grains("a"), &Value::Map(vec![]))
                .unwrap();
        }
        let since = store.changes(None).unwrap().generation;
        assert_eq!(changed(&store, since), []);
        assert_eq!(store.refresh().unwrap(), 0);
        // A read detects a change at once; other changes are found by `refresh`.
        let packed = match compat {
            Compat::V3008 => grains("b"),
            _ => Value::map([("grains", grains("b"))]),
        };
        let packed = encode(&packed, Dialect::Bin);
        let file = |name: &str| match compat {
            Compat::V3008 => cachedir.join(format!("grains/{name}.p")),
            _ => cachedir.join(format!("minions/{name}/data.p")),
        };
        fs::write(file("web1"), &packed).unwrap();
        assert_eq!(
            store.grains(&id("web1")).unwrap().as_deref(),
            Some(&grains("b"))
        );
        assert_eq!(changed(&store, since), [id("web1")]);
        let since = store.changes(None).unwrap().generation;
        fs::write(file("web2"), &packed).unwrap();
        assert_eq!(store.refresh().unwrap(), 1);
        assert_eq!(changed(&store, since), [id("web2")]);
        let since = store.changes(None).unwrap().generation;
        match compat {
            Compat::V3008 => fs::remove_file(file("web1")).unwrap(),
            _ => fs::remove_dir_all(cachedir.join("minions/web1")).unwrap(),
        }
        assert_eq!(store.refresh().unwrap(), 1);
        assert_eq!(changed(&store, since), [id("web1")]);
        assert_eq!(names(&store), ["web2"]);
        let since = store.changes(None).unwrap().generation;
        fs::remove_file(file("web2")).unwrap();
        assert_eq!(store.grains(&id("web2")).unwrap(), None);
        assert_eq!(changed(&store, since), [id("web2")]);
        let directory_stays = compat != Compat::V3008;
        assert_eq!(names(&store).len(), usize::from(directory_stays));
    }
}

#[test]
fn path_traversal_in_names_is_refused() {
    let (dir, _, store) = place(Compat::V3008);
    let empty = Value::Map(Vec::new());
    for environment in ["../x", "a/../b", "a\0b"] {
        let stored = store.store_with_pillarenv(&id("web1"), &empty, &empty, environment);
        assert!(stored.is_err(), "{environment}");
    }
    assert!(!dir.path().join("cache/grains").exists());
    let branch = store.store_with_pillarenv(&id("web1"), &empty, &empty, "feature/x");
    assert!(branch.is_ok() && !dir.path().join("cache/pillar").exists());
}

#[test]
fn pillar_environments_of_a_minion_are_bounded() {
    let (_dir, cachedir, store) = place(Compat::V3008);
    let empty = Value::Map(Vec::new());
    for number in 0..ENVIRONMENTS + 10 {
        let name = format!("e{number}");
        let stored = store.store_with_pillarenv(&id("web1"), &empty, &empty, &name);
        stored.unwrap();
    }
    let kept = fs::read_dir(cachedir.join("pillar")).unwrap().count();
    assert_eq!(kept, ENVIRONMENTS);
    store.purge(&id("web1")).unwrap();
    assert_eq!(fs::read_dir(cachedir.join("pillar")).unwrap().count(), 0);
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    let (_dir, cachedir, store) = place(Compat::V3008);
    fs::create_dir_all(cachedir.join("grains")).unwrap();
    fs::write(cachedir.join("grains/web1.p"), b"\xc1").unwrap();
    let error = store.grains(&id("web1")).unwrap_err().to_string();
    assert!(error.contains("grains/web1.p"), "{error}");
}

#[test]
fn mine_is_bounded_and_unreadable_values_are_refused() {
    let (_dir, _, store) = place(Compat::V3008);
    let many = |prefix: &str, count: usize| {
        Value::map((0..count).map(|number| (format!("{prefix}{number}"), 1_i64)))
    };
    let web = id("web1");
    let full = many("a", MINE_FUNCTIONS);
    assert!(store.mine_update(&web, &full, false).unwrap());
    assert!(
        store.mine_update(&web, &full, false).unwrap(),
        "none is new"
    );
    let kept = || store.mine(&web).unwrap().unwrap();
    // The last would take hours if each new entry were looked for among all others.
    for (more, clear) in [
        (many("b", 1), false),
        (many("b", MINE_FUNCTIONS + 1), true),
        (many("b", 900_000), false),
    ] {
        let refused = store.mine_update(&web, &more, clear);
        assert!(matches!(refused, Err(StoreError::TooMany { .. })));
        assert_eq!(*kept(), full, "it stays as it was");
    }
    let large = Value::map([("a0", Value::Array(vec![Value::Nil; LIMITS.items]))]);
    let refused = store.mine_update(&web, &large, false);
    assert!(matches!(refused, Err(StoreError::Unreadable { .. })));
    assert_eq!(*kept(), full);
    assert!(store.mine_update(&web, &many("b", 1), true).unwrap());
}

#[test]
fn grains_alone_leave_every_pillar_as_it_is() {
    for compat in [Compat::V3006, Compat::V3007, Compat::V3008] {
        let (_dir, _, store) = place(compat);
        let web = id("web1");
        store.store_grains(&web, &grains("Debian")).unwrap();
        assert_eq!(
            store.grains(&web).unwrap().as_deref(),
            Some(&grains("Debian"))
        );
        let pillar = Value::map([("role", "web")]);
        store
            .store_grains_and_pillar(&web, &grains("Debian"), &pillar)
            .unwrap();
        store.store_grains(&web, &grains("Arch")).unwrap();
        assert_eq!(store.pillar(&web).unwrap().as_deref(), Some(&pillar));
        assert_eq!(
            store.grains(&web).unwrap().as_deref(),
            Some(&grains("Arch"))
        );
    }
}

#[test]
fn stock_reads_what_is_written_and_we_read_what_stock_writes() {
    const SCRIPT: &str = "
import json, sys
import salt.cache, salt.config, salt.utils.minions
opts = dict(salt.config.DEFAULT_MASTER_OPTS, cachedir=sys.argv[1], extension_modules='')
cache = salt.cache.factory(opts)
banks = sys.argv[2] == '3008.3'
mine = ('mine', 'web1') if banks else ('minions/web1', 'mine')
answer = [salt.utils.minions.get_minion_data('web1', opts), cache.fetch(*mine),
          sorted(cache.list('grains' if banks else 'minions'))]
mine_data = cache.fetch(*mine)
mine_data['by.stock'] = {'list': [1, 'x', None]}
cache.store(*mine, mine_data)
print(json.dumps(answer))
";
    for (compat, version) in [
        (Compat::V3006, "3006.28"),
        (Compat::V3007, "3007.15"),
        (Compat::V3008, "3008.3"),
    ] {
        let (_dir, cachedir, store) = place(compat);
        let pillar = Value::map([("p", Value::map([("q", true)]))]);
        store
            .store_grains_and_pillar(&id("web1"), &grains("Debian"), &pillar)
            .unwrap();
        let mine = Value::map([("net.ips", vec![Value::from("10.0.0.1")])]);
        store.mine_update(&id("web1"), &mine, false).unwrap();
        let output = Command::new(saltern_stock::python(version))
            .args(["-W", "ignore", "-c", SCRIPT])
            .arg(&cachedir)
            .arg(version)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{version}: {errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        let answer: serde_json::Value =
            serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap();
        let expected = serde_json::json!([
            ["web1", {"os": "Debian", "größe": [1, null], "ratio": 0.5}, {"p": {"q": true}}],
            {"net.ips": ["10.0.0.1"]},
            ["web1"],
        ]);
        assert_eq!(answer, expected, "{version}");
        let mine = store.mine(&id("web1")).unwrap().unwrap();
        let by_stock = mine.get("by.stock").and_then(|entry| entry.get("list"));
        assert_eq!(
            by_stock,
            Some(&vec![1_i64.into(), "x".into(), Value::Nil].into())
        );
    }
}

#[test]
fn oversized_grains_are_cut_when_kept_and_when_read() {
    for compat in Compat::ALL {
        let (_dir, cachedir, store) = place(compat);
        let entry = |number| {
            (
                Value::from(format!("grain{number}")),
                Value::from("a value"),
            )
        };
        let mut entries: Vec<(Value, Value)> = (0..100_000).map(entry).collect();
        entries.insert(0, ("os".into(), "Debian".into()));
        let (large, pillar) = (Value::Map(entries), Value::map([("secret", "x")]));
        let kept = store.store_grains_and_pillar(&id("a"), &large, &pillar);
        let kept = kept.unwrap();
        assert!(kept.left_out > 80_000 && kept.is_large, "{kept:?}");
        let read = store.grains(&id("a")).unwrap().unwrap();
        assert_eq!(read.get("os"), Some(&"Debian".into()));
        assert_eq!(read.as_map().unwrap().len(), 100_001 - kept.left_out);
        assert_eq!(store.pillar(&id("a")).unwrap().as_deref(), Some(&pillar));
        let kept = store.store_grains(&id("a"), &grains("Debian")).unwrap();
        assert!(kept.left_out == 0 && !kept.is_large);
        // As an earlier release has written it.
        let (name, content) = match compat {
            Compat::V3008 => ("grains/a.p", large),
            _ => ("minions/a/data.p", Value::map([("grains", large)])),
        };
        fs::write(cachedir.join(name), encode(&content, Dialect::Bin)).unwrap();
        let read = store.grains(&id("a")).unwrap().unwrap();
        assert!(read.as_map().unwrap().len() < 20_000, "{compat:?}");
    }
}

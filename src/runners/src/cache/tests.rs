//! Each function on the data of a few minions; `tests/e2e/runners.rs` compares with stock.

use std::net::IpAddr;
use std::sync::Arc;

use saltern_model::{Compat, MinionId, Standing, Target, TargetType};
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

use crate::Fleet;
use crate::testing::{TestSite, list};

/// `m1`, `m2` and `new`, which has no cached data.
struct Minions;

const IDS: [&str; 3] = ["m1", "m2", "new"];

impl Fleet for Minions {
    fn matching(&self, target: &Target) -> Result<Vec<MinionId>, StoreError> {
        let Target::Expression(TargetType::Glob, pattern) = target else {
            return Ok(Vec::new());
        };
        let is_meant = |id: &&&str| pattern == "*" || pattern == **id;
        Ok(IDS.iter().filter(is_meant).map(|name| id(name)).collect())
    }

    fn standing(&self, _: &MinionId) -> Standing {
        Standing::Known
    }

    fn last_heard(&self, _: &MinionId) -> Option<i64> {
        None
    }

    fn address(&self, _: &MinionId) -> Option<IpAddr> {
        None
    }

    fn version(&self, _: &MinionId) -> Option<String> {
        None
    }
}

fn id(name: &str) -> MinionId {
    MinionId::parse(name).unwrap()
}

fn site(compat: Compat) -> TestSite {
    let site = TestSite::with_fleet(compat, "", Arc::new(Minions));
    let data = &site.master().minion_data;
    for name in ["m1", "m2"] {
        let grains = Value::map([("os", name)]);
        let pillar = Value::map([("secret", name)]);
        data.store_grains_and_pillar(&id(name), &grains, &pillar)
            .unwrap();
        let mine = Value::map([("net.ip", name), ("other", name)]);
        data.mine_update(&id(name), &mine, false).unwrap();
    }
    site
}

#[test]
fn cached_data_is_returned_by_minion() {
    for compat in Compat::ALL {
        let site = site(compat);
        let ask =
            |fun: &str, tgt: &str| site.runner_value(&format!("cache.{fun}"), &[tgt.into()], &[]);
        let m1 = Value::map([("m1", Value::map([("os", "m1")]))]);
        assert_eq!(ask("grains", "m1"), m1);
        assert_eq!(ask("grains", "nobody"), Value::Map(Vec::new()));
        let pillars = ask("pillar", "*");
        assert_eq!(pillars.get("new"), Some(&Value::Map(Vec::new())));
        assert_eq!(pillars.get("m2"), Some(&Value::map([("secret", "m2")])));
        let all = site.runner_value("cache.mine", &[], &[]);
        assert_eq!(all.as_map().unwrap().len(), 2, "{compat:?}");
        let (ran, _) = site.runner("cache.grains", &[], &[]);
        assert!(ran.value.as_str().unwrap().contains("'tgt'"));
    }
}

#[test]
fn clear_removes_named_data_only() {
    let cases: [(&str, [bool; 3]); 4] = [
        ("clear_grains", [false, true, true]),
        ("clear_pillar", [true, false, true]),
        ("clear_mine", [true, true, false]),
        ("clear_all", [false, false, false]),
    ];
    for compat in Compat::ALL {
        for (fun, left) in cases {
            let site = site(compat);
            let fun = format!("cache.{fun}");
            assert_eq!(site.runner_value(&fun, &["m1".into()], &[]), true.into());
            let data = &site.master().minion_data;
            let kept = |id: &MinionId| {
                [
                    data.grains(id).unwrap().is_some(),
                    data.pillar(id).unwrap().is_some(),
                    data.mine(id).unwrap().is_some(),
                ]
            };
            assert_eq!(kept(&id("m1")), left, "{compat:?} {fun}");
            assert_eq!(kept(&id("m2")), [true; 3], "{compat:?} {fun}");
            assert_eq!(site.runner_value(&fun, &[], &[]), false.into());
        }
        let site = site(compat);
        let named = [("clear_mine_func_flag", "net.ip".into())];
        let cleared = site.runner_value("cache.clear_mine_func", &["m1".into()], &named);
        assert_eq!(cleared, true.into());
        let mine = site.master().minion_data.mine(&id("m1")).unwrap().unwrap();
        assert_eq!(*mine, Value::map([("other", "m1")]));
        let cleared = site.runner_value("cache.clear_mine_func", &["m1".into()], &[]);
        assert_eq!(cleared, false.into());
    }
}

#[test]
fn stored_bank_value_is_fetched() {
    let site = site(Compat::V3008);
    let run = |fun: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments.iter().map(|text| Value::from(*text)).collect();
        site.runner_value(&format!("cache.{fun}"), &arguments, &[])
    };
    let nothing = Value::Map(Vec::new());
    assert_eq!(run("fetch", &["my/bank", "key"]), nothing);
    assert_eq!(run("store", &["my/bank", "key", "value"]), Value::Nil);
    assert_eq!(run("fetch", &["my/bank", "key"]), "value".into());
    assert_eq!(run("list", &["my/bank"]), list(&["key"]));
    assert_eq!(run("list", &["grains"]), list(&["m1", "m2"]));
    assert_eq!(run("fetch", &["grains", "m1"]), Value::map([("os", "m1")]));
    // A bank may also be a file.
    assert_eq!(run("fetch", &["grains/m1", "os"]), "m1".into());
    assert_eq!(run("flush", &["my/bank", "key"]), true.into());
    assert_eq!(run("flush", &["my/bank", "key"]), false.into());
    assert_eq!(run("flush", &["my/bank"]), true.into());
    assert_eq!(run("flush", &["my/bank"]), false.into());
    assert_eq!(run("list", &["my/bank"]), list(&[]));
}

#[test]
fn path_outside_banks_is_refused() {
    let site = site(Compat::V3008);
    site.write("victim.p", "kept");
    site.write("cache/tokens/t.p", "kept");
    for (bank, key) in [
        ("..", "victim"),
        ("grains/../..", "victim"),
        ("grains", "../../victim"),
        ("/etc", "passwd"),
        ("grains", "/etc/passwd"),
        ("tokens", "t"),
        ("./tokens", "t"),
        ("grains/../tokens", "t"),
        ("jobs/00", "x"),
        ("sessions", "m1"),
        (".", "tokens/t"),
        ("", "tokens/t"),
        ("grains", "../tokens/t"),
        ("grains\0", "t"),
    ] {
        let arguments = [bank.into(), key.into(), Value::from("new")];
        for (fun, count) in [("store", 3), ("fetch", 2), ("flush", 2)] {
            let (ran, _) = site.runner(
                &format!("cache.{fun}"),
                arguments.get(..count).unwrap(),
                &[],
            );
            assert_eq!(
                ran.retcode,
                Some(1),
                "{fun} {bank:?} {key:?}: {:?}",
                ran.value
            );
        }
        if !matches!(bank, "grains") {
            for fun in ["list", "flush"] {
                let (ran, _) = site.runner(&format!("cache.{fun}"), &arguments[..1], &[]);
                assert_eq!(ran.retcode, Some(1), "{fun} {bank:?}");
            }
        }
    }
    let elsewhere = [("cachedir", "/etc".into())];
    let (ran, _) = site.runner("cache.list", &["ssl".into()], &elsewhere);
    assert_eq!(ran.retcode, Some(1));
    assert_eq!(site.read("victim.p").as_deref(), Some("kept"));
    assert_eq!(site.read("cache/tokens/t.p").as_deref(), Some("kept"));
}

#[test]
fn clear_git_lock_removes_no_lock() {
    let site = site(Compat::V3008);
    let clear = |role: &str, named: &[(&str, Value)]| {
        let (ran, _) = site.runner("cache.clear_git_lock", &[role.into()], named);
        ran.value.as_str().unwrap().to_owned()
    };
    assert_eq!(clear("gitfs", &[]), "No locks were removed");
    assert!(clear("x", &[]).contains("Passed invalid arguments: Invalid role 'x'"));
    let named = [
        ("type", "update".into()),
        ("a", 1.into()),
        ("b", "c".into()),
    ];
    assert!(clear("gitfs", &named).contains("are not valid: a=1, b=c\n"));
}

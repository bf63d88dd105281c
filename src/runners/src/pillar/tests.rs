//! Each function on a small pillar; `tests/e2e/runners.rs` compares with stock.

use std::net::IpAddr;
use std::sync::Arc;

use saltern_content::pillar::PillarRequest;
use saltern_model::{Compat, MinionId, Standing, Target};
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

use crate::Fleet;
use crate::testing::{Named, TestSite};

/// `m1` alone.
struct One;

impl Fleet for One {
    fn matching(&self, target: &Target) -> Result<Vec<MinionId>, StoreError> {
        let is_meant = matches!(target, Target::Expression(_, text) if text == "*" || text == "m1");
        Ok(is_meant.then(m1).into_iter().collect())
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

fn m1() -> MinionId {
    MinionId::parse("m1").unwrap()
}

fn site(compat: Compat, options: &str) -> TestSite {
    let site = TestSite::with_fleet(compat, options, Arc::new(One));
    site.write(
        "pillar/top.sls",
        "base:\n  'm*':\n    - match: glob\n    - common\n\
         \x20 'os:Debian':\n    - match: grain\n    - debian\n",
    );
    site.write(
        "pillar/common.sls",
        "who: {{ grains.get('fqdn', 'known') }}\n",
    );
    site.write("pillar/debian.sls", "is_debian: true\n");
    let grains = Value::map([("id", "m1"), ("os", "Debian")]);
    let pillar = Value::map([("kept", "pillar")]);
    let data = &site.master().minion_data;
    data.store_grains_and_pillar(&m1(), &grains, &pillar)
        .unwrap();
    site
}

#[test]
fn show_top_returns_merged_top_file() {
    for compat in Compat::ALL {
        let site = site(compat, "");
        let targets = Value::map([
            (
                "m*",
                Value::Array(vec![Value::map([("match", "glob")]), "common".into()]),
            ),
            (
                "os:Debian",
                Value::Array(vec![Value::map([("match", "grain")]), "debian".into()]),
            ),
        ]);
        let top = Value::map([("base", targets)]);
        for named in [&[][..], &[("minion", Value::from("m1"))]] {
            assert_eq!(site.runner_value("pillar.show_top", &[], named), top);
        }
    }
}

#[test]
fn show_top_reports_a_broken_top_file() {
    let site = site(Compat::V3008, "");
    site.write("pillar/top.sls", "base: {{ nonsense\n");
    let (ran, notices) = site.runner("pillar.show_top", &["m1".into()], &[]);
    assert_eq!(
        ran.value.as_array().map(<[Value]>::len),
        Some(1),
        "{:?}",
        ran.value
    );
    assert_eq!(notices.len(), 1);
}

#[test]
fn show_pillar_compiles_for_named_minion() {
    for compat in Compat::ALL {
        let site = site(compat, "");
        let show = |named: Named<'_>| site.runner_value("pillar.show_pillar", &[], named);
        let pillar = show(&[("minion", "m1".into())]);
        assert_eq!(
            pillar,
            Value::map([("who", Value::from("known")), ("is_debian", true.into())])
        );
        // An unknown minion.
        let pillar = show(&[("minion", "m2".into())]);
        assert_eq!(pillar, Value::map([("who", "m2")]));
        let pillar = show(&[("minion", "m2".into()), ("os", "Debian".into())]);
        assert_eq!(pillar.get("is_debian"), Some(&true.into()));
        let pillar = show(&[("minion", "m1".into()), ("pillarenv", "none".into())]);
        assert_eq!(pillar, Value::Map(Vec::new()));
        let (ran, _) = site.runner("pillar.show_pillar", &["../x".into()], &[]);
        assert_eq!(ran.retcode, Some(1));
    }
}

#[test]
fn cached_pillar_is_shown_and_cleared() {
    let site = site(Compat::V3008, "");
    let run = |fun: &str| site.runner_value(&format!("pillar.{fun}"), &[], &[]);
    let kept = Value::map([("m1", Value::map([("kept", "pillar")]))]);
    assert_eq!(run("show_pillar_cache"), kept);
    assert_eq!(run("clear_pillar_cache"), true.into());
    assert_eq!(run("show_pillar_cache"), Value::Map(Vec::new()));
}

#[test]
fn show_pillar_cache_before_3008_needs_pillar_cache() {
    let without = site(Compat::V3007, "");
    let run = |site: &TestSite, fun: &str| site.runner_value(&format!("pillar.{fun}"), &[], &[]);
    assert_eq!(run(&without, "show_pillar_cache"), false.into());
    assert_eq!(run(&without, "clear_pillar_cache"), false.into());
    let with = site(Compat::V3007, "pillar_cache: True\n");
    let nothing = Value::Map(Vec::new());
    assert_eq!(run(&with, "show_pillar_cache"), nothing);
    let request = PillarRequest::new(m1(), Arc::new(Value::map([("os", "Debian")])));
    with.master().pillars.compile(&request);
    let shown = run(&with, "show_pillar_cache");
    let kept = shown.get("m1").and_then(|pillar| pillar.get("is_debian"));
    assert_eq!(kept, Some(&true.into()));
    assert_eq!(run(&with, "clear_pillar_cache"), nothing);
    assert_eq!(run(&with, "show_pillar_cache"), nothing);
}

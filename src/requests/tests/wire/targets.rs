//! Resolution of published targets, with cached grains and pillars: every kind of target, and
//! targets in error.

use saltern_model::MinionId;
use saltern_requests::{Effect, Topics};
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, Minion, clear, published_by_root};
use crate::wire::site::{Site, decode, tags};

const NODEGROUPS: &str = "nodegroups:\n  webs: L@web1,web2\n  nested: N@webs and not G@os:Debian\n  \
                          spaced: ['G@place:New York', or, db1]\n";

/// Three minions with cached data and one without, `bare`; `gone` has data but no key.
fn site(options: &str) -> Site {
    let site = Site::new(&format!("user: root\n{NODEGROUPS}{options}"));
    for id in ["web1", "web2", "db1", "bare"] {
        site.accept(id, "minion");
    }
    let rows = [
        ("web1", "Debian", "New York", "10.0.1.1", "web"),
        ("web2", "Ubuntu", "Paris", "10.0.2.1", "web"),
        ("db1", "Debian", "Paris", "fe80::1", "db"),
        ("gone", "Debian", "Paris", "10.0.1.9", "web"),
    ];
    for (id, os, place, address, role) in rows {
        let family = if address.contains(':') {
            "ipv6"
        } else {
            "ipv4"
        };
        let grains = Value::map([
            ("os", Value::from(os)),
            ("place", place.into()),
            (family, Value::Array(vec![address.into()])),
            ("url", "http://x".into()),
        ]);
        let pillar = Value::map([("app", Value::map([("role", role)]))]);
        let id = MinionId::parse(id).unwrap();
        let data = &site.services.minions.data;
        data.store_grains_and_pillar(&id, &grains, &pillar).unwrap();
    }
    site
}

fn publish(site: &Site, kind: &str, tgt: impl Into<Value>) -> Load {
    published_by_root(site, "")
        .set("tgt", tgt)
        .set("tgt_type", kind)
        .set("jid", "")
}

/// The minions that the master expects, with missing names behind a `|`.
fn found(site: &Site, load: Load) -> String {
    let answer = decode(&site.ask(clear(load, 3)).reply);
    let answer = answer.get("load").expect("the master answers with a load");
    let joined = |name: &str| {
        let names = answer.get(name).and_then(Value::as_array);
        let names = names.unwrap_or_default().iter().filter_map(Value::as_str);
        names.collect::<Vec<_>>().join(",")
    };
    match joined("missing").as_str() {
        "" => joined("minions"),
        missing => format!("{}|{missing}", joined("minions")),
    }
}

#[test]
fn every_target_type_matches_expected_minions() {
    let table = [
        ("glob", "web*", "web1,web2"),
        ("pcre", "web[1]", "web1"),
        ("list", "web1,ghost", "web1|ghost"),
        ("grain", "os:Debian", "db1,web1"),
        ("grain", "os:deb*", "db1,web1"),
        ("grain_pcre", "os:(Ubu|X).*", "web2"),
        ("pillar", "app:role:w*", "web1,web2"),
        ("pillar_pcre", "app:role:(db|x)", "db1"),
        ("pillar_exact", "app:role:web", "web1,web2"),
        ("pillar_exact", "app:role:w*", ""),
        // Greedy: an unknown minion might have the address.
        ("ipcidr", "10.0.1.0/24", "bare,web1"),
        ("ipcidr", "fe80::/64", "bare,db1"),
        ("nodegroup", "webs", "web1,web2"),
        ("nodegroup", "nested", "web2"),
        ("nodegroup", "spaced", "db1,web1"),
        ("nodegroup", "unknown", ""),
        // As stock without a range server.
        ("range", "web[1-9]", ""),
        ("compound", "G@os:Debian and not db*", "web1"),
        (
            "compound",
            "( I@app:role:web or J|@app|role|d. ) and E@.*1",
            "db1,web1",
        ),
        ("compound", "N@webs and L@web2,ghost", "web2|ghost"),
        ("compound", "S@10.0.2.1 or P@place:New.*", "bare,web1,web2"),
        ("compound", "M@web1", "web1"),
        ("compound", "*", "bare,db1,web1,web2"),
    ];
    let site = site("");
    for (kind, tgt, minions) in table {
        assert_eq!(
            found(&site, publish(&site, kind, tgt)),
            minions,
            "{kind} {tgt}"
        );
    }
}

#[test]
fn malformed_target_matches_no_minion() {
    let list =
        |names: &[&str]| Value::from(names.iter().map(|n| Value::from(*n)).collect::<Vec<_>>());
    let table: [(&str, Value); 13] = [
        ("compound", "G@os:Debian and".into()),
        ("compound", ") web1".into()),
        ("compound", "web1 web2".into()),
        ("compound", "and".into()),
        ("compound", Value::Array(vec!["web1".into(), 5_i64.into()])),
        ("pcre", "(".into()),
        ("ipcidr", "not an address".into()),
        ("range", "%cluster".into()),
        ("grain", "os".into()),
        ("grain", list(&["os:Debian"])),
        ("pillar", Value::map([("a", "b")])),
        ("Grain", "os:Debian".into()),
        ("nodegroup", list(&["webs"])),
    ];
    let site = site("");
    for (kind, tgt) in table {
        let shown = format!("{kind} {tgt:?}");
        let reply = site.ask_in_vain(&shown, clear(publish(&site, kind, tgt), 3));
        let answer = decode(&reply);
        let error = answer.get("load").and_then(|load| load.get("error"));
        let text = error.and_then(Value::as_str).unwrap_or_default();
        assert!(
            text.starts_with("Master could not resolve minions for target"),
            "{shown}: {text}"
        );
    }
}

#[test]
fn target_lists_are_split_and_matched() {
    let words = |words: &[&str]| {
        Value::from(
            words
                .iter()
                .map(|word| Value::from(*word))
                .collect::<Vec<_>>(),
        )
    };
    let site = site("");
    // The form in which a client sends the nodegroup "spaced".
    let spaced = words(&["G@place:New York", "or", "db1"]);
    assert_eq!(found(&site, publish(&site, "compound", spaced)), "db1,web1");
    let globs = || words(&["web*", "db1"]);
    assert_eq!(
        found(&site, publish(&site, "glob", globs())),
        "db1,web1,web2"
    );
    let older = self::site("salt_compat: 3007\n");
    assert_eq!(found(&older, publish(&older, "glob", globs())), "");
}

#[test]
fn target_delimiter_is_the_clients() {
    let site = site("");
    let with = |delimiter: Value| {
        let kwargs = Value::map([("delimiter", delimiter)]);
        publish(&site, "grain", "url|http://x").set("kwargs", kwargs)
    };
    assert_eq!(found(&site, with("|".into())), "db1,web1,web2");
    assert_eq!(found(&site, with(":".into())), "");
    assert_eq!(found(&site, with("".into())), "");
    assert_eq!(found(&site, with(5_i64.into())), "");
}

#[test]
fn target_without_cache_matches_all_candidates() {
    let site = site("minion_data_cache: False\n");
    let everybody = "bare,db1,web1,web2";
    for (kind, tgt) in [
        ("grain", "os:Debian"),
        ("pillar", "a:b"),
        ("compound", "G@a:b"),
    ] {
        assert_eq!(found(&site, publish(&site, kind, tgt)), everybody, "{kind}");
    }
}

#[test]
fn target_that_minions_evaluate_is_broadcast() {
    let site = site("");
    let topics = |kind: &str, tgt: &str| {
        let outcome = site.ask(clear(publish(&site, kind, tgt), 3));
        match outcome.effects.into_iter().next() {
            Some(Effect::StartJob(start)) => start.publication.topics,
            _ => panic!("{kind} {tgt} starts no job"),
        }
    };
    assert_eq!(topics("grain", "os:Debian"), Topics::Broadcast);
    assert!(matches!(topics("list", "web1"), Topics::Minions(_)));
}

#[test]
fn changed_and_deleted_minions_are_matched_at_once() {
    let site = site("");
    let debian = || found(&site, publish(&site, "grain", "os:Debian"));
    assert_eq!(debian(), "db1,web1");
    let web2 = MinionId::parse("web2").unwrap();
    let data = &site.services.minions.data;
    let grains = Value::map([("os", "Debian")]);
    data.store_grains_and_pillar(&web2, &grains, &Value::Map(Vec::new()))
        .unwrap();
    assert_eq!(debian(), "db1,web1,web2");
    std::fs::remove_file(site.path("pki/minions/web1")).unwrap();
    assert_eq!(debian(), "db1,web2");
}

#[test]
fn registered_resources_are_targets() {
    let site = site("");
    let web1 = Minion::signed_in(&site, "web1");
    let list = |texts: &[&str]| {
        Value::from(
            texts
                .iter()
                .map(|text| Value::from(*text))
                .collect::<Vec<_>>(),
        )
    };
    let register = |resources: Value, grains: Value| {
        let load = web1.load("_register_resources").set("resources", resources);
        let outcome = site.ask(web1.sealed(load.set("resource_grains", grains), 3));
        (web1.open(&outcome.reply, 3), tags(&outcome))
    };
    let fired = vec!["resource/refresh/web1".to_owned()];
    let nothing = || Value::map::<&str, Value>([]);
    assert_eq!(register(nothing(), nothing()), (true.into(), fired.clone()));
    let switches = || Value::map([("switch", list(&["sw1", "sw2"]))]);
    let grains = Value::map([("switch:sw1", Value::map([("os", "Debian")]))]);
    assert_eq!(register(switches(), grains), (true.into(), fired));
    let ask = |kind: &str, tgt: &str| found(&site, publish(&site, kind, tgt));
    assert_eq!(ask("compound", "T@switch"), "sw1,sw2");
    assert_eq!(ask("compound", "T@switch:sw2 or db1"), "db1,sw2");
    assert_eq!(ask("grain", "os:Debian"), "db1,sw1,web1");
    assert_eq!(ask("glob", "web1*"), "sw1,sw2,web1");
    assert_eq!(ask("glob", "sw1"), "sw1");
    let state = publish(&site, "glob", "web1*").set("fun", "state.apply");
    assert_eq!(found(&site, state), "web1");
    let outcome = site.ask(clear(publish(&site, "glob", "sw1"), 3));
    let Some(Effect::StartJob(start)) = outcome.effects.first() else {
        panic!("it starts no job");
    };
    assert_eq!(
        start.publication.topics,
        Topics::Broadcast,
        "its minion listens"
    );
    // Minion ids and paths cannot be registered.
    for bad in [
        Value::map([("switch", list(&["db1"]))]),
        Value::map([("../x", list(&["a"]))]),
        Value::map([("switch", list(&["../a"]))]),
    ] {
        assert_eq!(register(bad, nothing()), ("".into(), Vec::new()));
    }
    assert_eq!(
        ask("compound", "T@switch"),
        "sw1,sw2",
        "what was registered stays"
    );
    site.ask(web1.sealed(web1.load("revoke_auth"), 3));
    assert_eq!(ask("compound", "T@switch"), "", "it goes with the minion");
}

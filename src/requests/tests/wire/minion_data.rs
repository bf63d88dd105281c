//! Cached data of minions: the mine with its four commands, the cache behind targets, and the purge
//! of both when a key goes.

use saltern_crypto::SigAlgo;
use saltern_model::{KeyState, MinionId};
use saltern_requests::Outcome;
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::wire::client::{Load, Minion, clear};
use crate::wire::site::{Site, data, events, tags};

fn ask(site: &Site, id: &str, cmd: &str, change: impl FnOnce(Load) -> Load) -> Value {
    let minion = Minion::signed_in(site, id);
    let outcome = site.ask(minion.sealed(change(minion.load(cmd)), 3));
    assert!(outcome.effects.is_empty(), "{cmd}");
    minion.open(&outcome.reply, 3)
}

fn send(site: &Site, id: &str, data: Value) -> Value {
    ask(site, id, "_mine", |load| load.set("data", data))
}

fn get(site: &Site, id: &str, tgt: &str, fun: impl Into<Value>) -> Value {
    let fun = fun.into();
    ask(site, id, "_mine_get", |load| {
        load.set("tgt", tgt).set("fun", fun)
    })
}

fn of<const N: usize>(entries: [(&str, &str); N]) -> Value {
    Value::map(entries)
}

fn guarded(data: &str, allow_tgt: impl Into<Value>, kind: &str) -> Value {
    Value::map([
        ("__saltmine_acl__", Value::from(1_i64)),
        ("__data__", data.into()),
        ("allow_tgt", allow_tgt.into()),
        ("allow_tgt_type", kind.into()),
    ])
}

#[test]
fn replaced_key_clears_what_does_not_know_its_age() {
    let site = Site::new("pillar_cache: True\npillar_cache_backend: memory\n");
    let minion = Minion::signed_in(&site, "m1");
    let load = minion.load("_pillar").set("ver", "2");
    site.ask(minion.sealed(load.set("grains", Value::map([("os", "Debian")])), 3));
    let id = MinionId::parse("m1").unwrap();
    let (pillars, minions) = (&site.services.content.pillars, &site.services.minions);
    assert!(pillars.kept(&id, None).is_some());
    let key = site.services.keys.pki.version(&id, KeyState::Accepted);
    let key = key.unwrap().unwrap();
    assert!(
        !minions.forget_replaced(&id, &key).unwrap(),
        "the data is younger than the key"
    );
    assert!(minions.data.grains(&id).unwrap().is_some());
    assert!(pillars.kept(&id, None).is_none());
}

/// Options with which every memory is kept.
const ALL_MEMORIES: &str = "pillar_cache: True\norder_masters: True\n\
     saltern_syndic_inventory: True\nsaltern_syndic_frames: True\n";

/// Has a syndic announce a minion below it, and send a frame of returns.
fn announce_below(site: &Site, syndic: &Minion) {
    let reply = site.ask(clear(syndic.auth(), 3)).reply;
    let keys = syndic.verified(&reply, SigAlgo::Pkcs1v15Sha1);
    let below = format!("below-{}", syndic.id);
    let entry = Value::Array(vec![below.as_str().into(), Value::Nil, Value::Nil]);
    let load = syndic
        .load("saltern_syndic_inventory")
        .set(
            "epoch",
            keys.get("saltern_syndic_inventory").unwrap().clone(),
        )
        .set("list", 1_i64)
        .set("part", 0_i64)
        .set("last", true)
        .set("minions", Value::Array(vec![entry]))
        .set("gone", Value::Array(Vec::new()));
    site.ask(syndic.sealed(load, 3));
    let agreed = keys.get("saltern_syndic_frames").unwrap();
    let load = syndic
        .load("saltern_syndic_frame")
        .set("epoch", agreed.get("epoch").unwrap().clone())
        .set("stream", 0_i64)
        .set("session", 1_i64)
        .set("number", 1_i64)
        .set("load", Value::Array(Vec::new()));
    site.ask(syndic.sealed(load, 3));
}

/// Gives a minion something in every memory; a new one has its line here.
fn fill_every_memory(site: &Site, id: &MinionId) {
    let minions = &site.services.minions;
    let minion = Minion::signed_in(site, id.as_str());
    let load = minion.load("_pillar").set("ver", "2");
    site.ask(minion.sealed(load.set("grains", Value::map([("os", "Debian")])), 3));
    let resources = Value::map([("switch", Value::Array(vec!["sw1".into()]))]);
    let load = minion.load("_register_resources");
    site.ask(minion.sealed(load.set("resources", resources), 3));
    minions.syndics.register(id).unwrap();
    announce_below(site, &minion);
    let (filled, all) = (minions.memories_with(id).unwrap(), minions.memory_names());
    assert_eq!(filled, all, "fill every memory before it is cleared");
}

#[test]
fn deleted_key_clears_every_memory() {
    let site = Site::new(ALL_MEMORIES);
    let minions = &site.services.minions;
    let (m1, m2) = (
        MinionId::parse("m1").unwrap(),
        MinionId::parse("m2").unwrap(),
    );
    let kept = |id: &MinionId| minions.memories_with(id).unwrap();
    fill_every_memory(&site, &m1);
    assert!(minions.forget(&m1), "there was cached data");
    assert_eq!(kept(&m1), [""; 0], "deleted while the master runs");
    fill_every_memory(&site, &m1);
    assert_eq!(minions.forget_all_but(|known| *known == m1).unwrap(), 0);
    assert_eq!(kept(&m1), minions.memory_names());
    fill_every_memory(&site, &m2);
    assert_eq!(minions.forget_all_but(|known| *known == m1).unwrap(), 1);
    assert_eq!(kept(&m2), [""; 0], "deleted while the master was stopped");
    assert_eq!(kept(&m1), minions.memory_names());
}

/// A `pki_dir` that is not mounted says nothing about a minion's key.
#[test]
fn lost_directory_of_keys_ends_nothing_that_is_kept_of_a_minion() {
    for options in ["", "auto_accept: True\n", "open_mode: True\n"] {
        let site = Site::new(&(ALL_MEMORIES.to_owned() + options));
        let id = MinionId::parse("m1").unwrap();
        fill_every_memory(&site, &id);
        let minions = &site.services.minions;
        let (pki, aside) = (site.path("pki"), site.path("aside"));
        std::fs::rename(&pki, &aside).unwrap();
        for state in KeyState::ALL {
            std::fs::create_dir_all(pki.join(state.directory())).unwrap();
        }
        let minion = Minion::new("m1", "minion");
        let reply = site.ask_in_vain("lost", clear(minion.auth(), 3));
        let inner = minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        assert_eq!(inner.get("ret"), Some(&true.into()), "it waits");
        assert_eq!(minions.memories_with(&id).unwrap(), minions.memory_names());
        std::fs::remove_dir_all(&pki).unwrap();
        std::fs::rename(&aside, &pki).unwrap();
        let reply = site.ask(clear(minion.auth(), 3)).reply;
        let inner = minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        assert!(inner.get("session").is_some(), "{options}");
        assert_eq!(minions.memories_with(&id).unwrap(), minions.memory_names());
    }
}

/// Memories that alone do not go with a replaced key, each with the reason.
const OUTLASTS_A_REPLACED_KEY: [(&str, &str); 2] = [
    ("session", "replaced when the new owner authenticates"),
    (
        "registration as a syndic",
        "ends when the new owner acts as a minion",
    ),
];

/// Each memory has to clear itself where no data shows by its age that the key is younger.
#[test]
fn replaced_key_clears_each_memory_without_the_help_of_others() {
    let site = Site::new(ALL_MEMORIES);
    let id = MinionId::parse("m1").unwrap();
    let minions = &site.services.minions;
    fill_every_memory(&site, &id);
    minions.data.purge(&id).unwrap();
    minions.resources.register(&id, Vec::new(), false).unwrap();
    let key = site.services.keys.pki.version(&id, KeyState::Accepted);
    assert!(
        !minions
            .forget_replaced(&id, &key.unwrap().unwrap())
            .unwrap()
    );
    let mut kept = minions.memories_with(&id).unwrap();
    let mut expected = OUTLASTS_A_REPLACED_KEY.map(|(name, _)| name);
    kept.sort_unstable();
    expected.sort_unstable();
    assert_eq!(kept, expected);
}

#[test]
fn mine_entries_are_stored_read_and_deleted() {
    for (compat, file) in [
        ("3006", "cache/minions/m1/mine.p"),
        ("3007", "cache/minions/m1/mine.p"),
        ("3008", "cache/mine/m1.p"),
    ] {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        assert_eq!(send(&site, "m1", of([("a", "1"), ("b", "2")])), true.into());
        assert_eq!(send(&site, "m1", of([("b", "3")])), true.into());
        let stored = std::fs::read(site.path(file)).expect("where stock keeps it");
        assert_eq!(stored, encode(&of([("a", "1"), ("b", "3")]), Dialect::Bin));
        assert_eq!(get(&site, "m2", "*", "a"), of([("m1", "1")]));
        assert_eq!(get(&site, "m2", "m1", "b"), of([("m1", "3")]));
        let both = Value::map([("a", of([("m1", "1")])), ("b", of([("m1", "3")]))]);
        assert_eq!(get(&site, "m2", "*", "a,b"), both);
        let delete = |fun: &str| ask(&site, "m1", "_mine_delete", |load| load.set("fun", fun));
        assert_eq!(delete("a"), true.into());
        assert_eq!(delete("a"), true.into(), "what is not there is no failure");
        assert_eq!(get(&site, "m2", "*", "a"), of([]));
        let cleared = |load: Load| load.set("data", of([("c", "4")])).set("clear", true);
        assert_eq!(ask(&site, "m1", "_mine", cleared), true.into());
        assert_eq!(get(&site, "m1", "*", "b"), of([]), "stock fails here");
        assert_eq!(ask(&site, "m1", "_mine_flush", |load| load), true.into());
        assert_eq!(ask(&site, "m1", "_mine_flush", |load| load), false.into());
        assert_eq!(get(&site, "m2", "*", "c"), of([]));
        assert!(!site.path(file).exists());
    }
}

#[test]
fn malformed_mine_loads_get_stocks_answers() {
    let site = Site::new("");
    let bare = |cmd: &str| ask(&site, "m1", cmd, |load| load);
    for cmd in ["_mine", "_mine_get", "_mine_delete"] {
        assert_eq!(bare(cmd), of([]), "{cmd}");
    }
    for data in [Value::Nil, "text".into(), Value::Array(Vec::new())] {
        assert_eq!(send(&site, "m1", data), "".into());
    }
    for fun in [Value::Nil, 5_i64.into(), of([])] {
        assert_eq!(get(&site, "m1", "*", fun), of([]));
    }
    assert_eq!(bare("verify_minion"), "".into());
    assert_eq!(bare("_ext_nodes"), of([]), "no version since 3006 has it");
}

#[test]
fn allow_tgt_limits_readers_of_mine_entry() {
    let site = Site::new("");
    let grains = |id: &str, role: &str| {
        let grains = Value::map([("role", role)]);
        let id = MinionId::parse(id).unwrap();
        let store = &site.services.minions.data;
        store
            .store_grains_and_pillar(&id, &grains, &of([]))
            .unwrap();
    };
    grains("web1", "web");
    grains("db1", "db");
    site.accept("bare", "minion");
    let mine = Value::map([
        ("open", "o".into()),
        ("byname", guarded("n", "web*", "glob")),
        ("bygrain", guarded("g", "role:web", "grain")),
        (
            "bylist",
            guarded("l", Value::Array(vec!["db1".into()]), "list"),
        ),
        ("byaddress", guarded("s", "10.0.0.0/8", "ipcidr")),
        ("nobody", guarded("x", "ghost", "glob")),
        ("odd", guarded("x", 5_i64, "glob")),
    ]);
    assert_eq!(send(&site, "owner", mine), true.into());
    let all = "open,byname,bygrain,bylist,byaddress,nobody,odd";
    for (asker, functions) in [
        ("web1", &["bygrain", "byname", "open"][..]),
        ("db1", &["bylist", "open"]),
        ("bare", &["open"]),
        ("owner", &["open"]),
    ] {
        let answer = get(&site, asker, "owner", all);
        let entries = answer.as_map().unwrap().iter();
        let got: Vec<&str> = entries.map(|(name, _)| name.as_str().unwrap()).collect();
        assert_eq!(got, functions, "{asker}");
    }
}

#[test]
fn mine_get_option_limits_functions() {
    let site = Site::new("mine_get: {'web.*': [op.*], db1: [shut]}\n");
    send(&site, "owner", of([("open", "o"), ("shut", "s")]));
    let got = |asker: &str, fun: &str| get(&site, asker, "*", fun);
    assert_eq!(got("web1", "open"), of([("owner", "o")]));
    assert_eq!(got("web1", "shut"), of([]));
    assert_eq!(got("db1", "shut"), of([("owner", "s")]));
    assert_eq!(got("other", "open"), of([]));
}

#[test]
fn mine_get_by_pillar_needs_exact_match() {
    let site = Site::new("");
    let m1 = MinionId::parse("m1").unwrap();
    let pillar = Value::map([("secret", "s3cret")]);
    let grains = Value::map([("os", "Debian")]);
    site.services
        .minions
        .data
        .store_grains_and_pillar(&m1, &grains, &pillar)
        .unwrap();
    send(&site, "m1", of([("f", "1")]));
    let ask = |kind: &str, tgt: &str| {
        let load = |load: Load| load.set("tgt", tgt).set("fun", "f").set("tgt_type", kind);
        self::ask(&site, "m2", "_mine_get", load) == of([("m1", "1")])
    };
    assert!(ask("grain", "os:Deb*"));
    assert!(ask("compound", "G@os:Debian and not m2"));
    assert!(ask("pillar", "secret:s3cret"));
    for guess in [
        ("pillar", "secret:s*"),
        ("pillar_pcre", "secret:s.*"),
        ("compound", "I@secret:s*"),
    ] {
        assert!(!ask(guess.0, guess.1), "{guess:?}: a guess is not answered");
    }
    assert!(!ask("nonsense", "m1") && !ask("compound", "m1 and ("));
}

#[test]
fn costly_mine_requests_get_nothing() {
    let site = Site::new("");
    send(&site, "m1", of([("f", "1")]));
    let ask = |kind: &str, tgt: String, fun: &str| {
        let load = |load: Load| load.set("tgt", tgt).set("fun", fun).set("tgt_type", kind);
        self::ask(&site, "m2", "_mine_get", load)
    };
    let chain = format!("G|@x|{}a", "*:".repeat(10_000));
    let digits = format!("x[{}1-3]", "0".repeat(60_000));
    let names = format!("{}[1-99999]", "x".repeat(5_000));
    for (kind, tgt) in [
        ("compound", chain),
        ("compound", format!("R@{digits}")),
        ("range", digits),
        ("range", names),
        ("glob", "*".repeat(100_000)),
        ("pcre", r"(m\g<1>\g<1>\g<1>|m1)".to_owned()),
    ] {
        assert_eq!(ask(kind, tgt, "f"), of([]), "{kind}");
    }
    assert_eq!(ask("glob", "*".to_owned(), &"f,".repeat(300)), of([]));
    assert_eq!(ask("glob", "*".to_owned(), "f"), of([("m1", "1")]));
}

#[test]
fn mines_without_cache_are_kept_with_enforce_mine_cache() {
    let site = Site::new("minion_data_cache: False\n");
    assert_eq!(send(&site, "m1", of([("f", "1")])), true.into());
    assert_eq!(get(&site, "m2", "*", "f"), of([]));
    let site = Site::new("minion_data_cache: False\nenforce_mine_cache: True\n");
    assert_eq!(send(&site, "m1", of([("f", "1")])), true.into());
    assert_eq!(get(&site, "m2", "*", "f"), of([("m1", "1")]));
}

fn pillar(site: &Site, id: &str) -> Outcome {
    let minion = Minion::signed_in(site, id);
    let grains = Value::map([("os", "Debian"), ("id", "forged")]);
    site.ask(minion.sealed(minion.load("_pillar").set("grains", grains), 3))
}

#[test]
fn pillar_request_caches_grains_for_targets() {
    let site = Site::new("");
    let outcome = pillar(&site, "m1");
    assert_eq!(tags(&outcome), ["minion/refresh/m1"]);
    let fired = data(&events(&outcome)[0]);
    assert_eq!(fired, of([("Minion data cache refresh", "m1")]));
    let m1 = MinionId::parse("m1").unwrap();
    let grains = site.services.minions.data.grains(&m1).unwrap().unwrap();
    assert_eq!(
        *grains,
        of([("os", "Debian"), ("id", "m1")]),
        "the id is the channel's"
    );
    let quiet = Site::new("minion_data_cache_events: False\n");
    assert_eq!(tags(&pillar(&quiet, "m1")), Vec::<String>::new());
    assert!(quiet.services.minions.data.grains(&m1).unwrap().is_some());
    let none = Site::new("minion_data_cache: False\n");
    assert_eq!(tags(&pillar(&none, "m1")), Vec::<String>::new());
    assert!(none.services.minions.data.grains(&m1).unwrap().is_none());
}

#[test]
fn revoke_auth_deletes_key_and_cached_data() {
    for (compat, content) in [
        ("3006", ""),
        ("3007", "host_master"),
        ("3008", "host_master"),
    ] {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        // Stock takes the id for a wildcard; these two would go with "m*".
        for id in ["m10", "m2"] {
            site.accept(id, "large");
        }
        pillar(&site, "m1");
        send(&site, "m1", of([("f", "1")]));
        let m1 = Minion::signed_in(&site, "m1");
        let outcome = site.ask(m1.sealed(m1.load("revoke_auth"), 3));
        assert_eq!(m1.open(&outcome.reply, 3), true.into());
        assert_eq!(tags(&outcome), ["salt/key"]);
        let fired = data(&events(&outcome)[0]);
        assert_eq!(fired.get("id"), Some(&"m1".into()));
        assert_eq!(fired.get("act"), Some(&"delete".into()));
        assert!(site.read("pki/minions/m1").is_none());
        assert!(site.read("pki/minions/m10").is_some() && site.read("pki/minions/m2").is_some());
        assert_eq!(site.read("cache/.dfn").as_deref(), Some(content));
        let id = MinionId::parse("m1").unwrap();
        let kept = &site.services.minions.data;
        assert!(kept.grains(&id).unwrap().is_none() && kept.mine(&id).unwrap().is_none());
        let again = site.ask(m1.sealed(m1.load("_mine").set("data", of([])), 3));
        assert!(again.effects.is_empty());
        assert!(
            kept.mine(&id).unwrap().is_none(),
            "the next message is refused already"
        );
    }
    let site = Site::new("allow_minion_key_revoke: False\n");
    let m1 = Minion::signed_in(&site, "m1");
    let outcome = site.ask(m1.sealed(m1.load("revoke_auth"), 3));
    let answer = m1.open(&outcome.reply, 3);
    assert_eq!(
        answer.get("cmd"),
        Some(&"revoke_auth".into()),
        "stock answers with the load"
    );
    assert!(site.read("pki/minions/m1").is_some() && outcome.effects.is_empty());
    let kept = Site::new("rotate_aes_key: False\npreserve_minion_cache: True\n");
    send(&kept, "m1", of([("f", "1")]));
    let m1 = Minion::signed_in(&kept, "m1");
    kept.ask(m1.sealed(m1.load("revoke_auth"), 3));
    assert!(kept.read("cache/.dfn").is_none());
    let id = MinionId::parse("m1").unwrap();
    assert!(kept.services.minions.data.mine(&id).unwrap().is_some());
}

#[test]
fn new_key_under_old_id_inherits_nothing() {
    for options in [
        "",
        "open_mode: True\n",
        "auto_accept: True\n",
        "salt_compat: 3007\n",
    ] {
        let site = Site::new(options);
        send(&site, "m1", of([("f", "1")]));
        pillar(&site, "m1");
        if !options.starts_with("open_mode") {
            std::fs::remove_file(site.path("pki/minions/m1")).unwrap();
        }
        let stranger = Minion::new("m1", "large");
        site.ask(clear(stranger.auth(), 3));
        let id = MinionId::parse("m1").unwrap();
        let kept = &site.services.minions.data;
        assert!(kept.grains(&id).unwrap().is_none(), "{options}");
        assert!(kept.mine(&id).unwrap().is_none(), "{options}");
    }
}

#[test]
fn denied_key_removes_no_data() {
    let site = Site::new("");
    send(&site, "m1", of([("f", "1")]));
    site.ask(clear(Minion::new("m1", "large").auth(), 3));
    let id = MinionId::parse("m1").unwrap();
    assert!(site.services.minions.data.mine(&id).unwrap().is_some());
}

#[test]
fn master_tops_adds_states() {
    let tops = |options: &str| {
        let site = Site::new(options);
        ask(&site, "m1", "_master_tops", |load| {
            // The minion's own claims are ignored.
            load.set("opts", of([("id", "forged")]))
        })
    };
    assert_eq!(tops(""), of([]));
    assert_eq!(tops("master_tops: {}\n"), of([]));
    let classifier = "sh -c \"echo classes: [common, only-$1]\" sh";
    let answer = tops(&format!("master_tops: {{ext_nodes: '{classifier}'}}\n"));
    let states = Value::Array(vec!["common".into(), "only-m1".into()]);
    assert_eq!(answer, Value::map([("base", states)]));
    let failing = "master_tops: {ext_nodes: /no/such/program}\n";
    assert_eq!(tops(failing), of([]), "as stock, which logs the error");
    let other = "master_tops: {ext_nodes: 'true', reclass: {}}\n";
    assert_eq!(tops(other), "".into(), "half of the states is none");
}

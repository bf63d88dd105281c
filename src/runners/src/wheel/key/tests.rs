//! Each function on a small tree of keys; `tests/e2e/wheels.rs` compares with stock.

use saltern_model::Compat;
use saltern_wire::msgpack::Value;

use crate::Notice;
use crate::testing::{Named, TestSite, key, list};

const DIRECTORIES: [&str; 4] = [
    "minions",
    "minions_pre",
    "minions_rejected",
    "minions_denied",
];

/// Keys as `state/id`.
fn site(compat: Compat, keys: &[&str]) -> TestSite {
    let site = TestSite::new(compat, "");
    let pem = key("minion", "public");
    for key in keys {
        site.write(&format!("pki/{key}"), &pem);
    }
    site
}

/// All keys as `state/id`, in the order of the states.
fn keys(site: &TestSite) -> Vec<String> {
    let mut found = Vec::new();
    for directory in DIRECTORIES {
        let entries = std::fs::read_dir(site.path("pki").join(directory)).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let names = entries.map(|entry| name(entry).into_string().unwrap());
        let mut names: Vec<String> = names.map(|name| format!("{directory}/{name}")).collect();
        names.sort();
        found.extend(names);
    }
    found
}

/// The notices, in short.
fn reported(notices: &[Notice]) -> Vec<String> {
    let short = |notice: &Notice| match notice {
        Notice::Event(tag, data) => {
            let text = |name| data.get(name).and_then(Value::as_str).unwrap_or("-");
            let pem = if data.get("pub").is_some() {
                " pub"
            } else {
                ""
            };
            format!("{tag} {} {}{pem}", text("act"), text("id"))
        }
        Notice::KeyGone(minion) => format!("gone {minion}"),
        Notice::Progress(_) => "progress".to_owned(),
        Notice::Began => "began".to_owned(),
    };
    notices.iter().map(short).collect()
}

fn flag(name: &str) -> (&str, Value) {
    (name, true.into())
}

#[test]
fn keys_are_listed_by_state_whatever_their_case() {
    let keys = [
        "minions/b",
        "minions/A",
        "minions_pre/c",
        "minions_denied/b",
    ];
    let names = [
        "minions",
        "minions_pre",
        "minions_rejected",
        "minions_denied",
    ];
    for compat in Compat::ALL {
        let site = site(compat, &keys);
        let all = site.wheel_value("key.list_all", &[]);
        let expected = [list(&["A", "b"]), list(&["c"]), list(&[]), list(&["b"])];
        for (name, expected) in names.iter().zip(&expected) {
            assert_eq!(all.get(name), Some(expected), "{compat:?} {name}");
        }
        let local = list(&["master.pem", "master.pub"]);
        assert_eq!(all.get("local"), Some(&local), "{compat:?}");
        for (kind, name) in [
            ("acc", "minions"),
            ("pre", "minions_pre"),
            ("un", "minions_pre"),
            ("rejected", "minions_rejected"),
            ("den", "minions_denied"),
        ] {
            let listed = site.wheel_value("key.list", &[("match", kind.into())]);
            let expected = Value::map([(name, all.get(name).unwrap().clone())]);
            assert_eq!(listed, expected, "{kind}");
        }
        assert_eq!(
            site.wheel_value("key.list", &[("match", "all".into())]),
            all
        );
        let nothing = Value::Map(Vec::new());
        assert_eq!(
            site.wheel_value("key.list", &[("match", "x".into())]),
            nothing
        );
    }
}

#[test]
fn patterns_find_keys_in_every_state() {
    let site = site(
        Compat::V3008,
        &["minions/m1", "minions_pre/m2", "minions/x"],
    );
    let found = |value: Value| site.wheel_value("key.name_match", &[("match", value)]);
    let both = Value::map([("minions_pre", list(&["m2"])), ("minions", list(&["m1"]))]);
    assert_eq!(found("m*".into()), both);
    assert_eq!(found("m1,m2".into()), both);
    assert_eq!(found(list(&["m1", "m2"])), both);
    // Stock names a key once for each pattern that means it.
    assert_eq!(
        found("x,[xy]".into()),
        Value::map([("minions", list(&["x", "x"]))])
    );
    assert_eq!(found("none".into()), Value::Map(Vec::new()));
}

#[test]
fn key_list_of_3008_has_one_state_per_minion() {
    let all = [
        "minions/m",
        "minions_pre/m",
        "minions_rejected/m",
        "minions_denied/m",
    ];
    let found = |compat, keys: &[&str]| {
        let named: Named<'_> = &[("match", "m".into())];
        let found = site(compat, keys).wheel_value("key.name_match", named);
        let names = found.as_map().unwrap().iter();
        let mut names: Vec<String> = names
            .map(|(name, _)| name.as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(found(Compat::V3007, &all).len(), 4);
    assert_eq!(
        found(Compat::V3008, &all),
        ["minions_denied", "minions_rejected"]
    );
    assert_eq!(found(Compat::V3008, &all[..2]), ["minions_pre"]);
}

#[test]
fn key_change_moves_file_and_fires_event() {
    type Case<'a> = (
        &'a str,
        Named<'a>,
        &'a [&'a str],
        &'a [&'a str],
        &'a [&'a str],
    );
    let with = |more: &'static str| [("match", Value::from("m")), flag(more)];
    let (denied, rejected) = (with("include_denied"), with("include_rejected"));
    let accepted = with("include_accepted");
    let plain = [("match", Value::from("m"))];
    let cases: [Case<'_>; 7] = [
        (
            "accept",
            &plain,
            &["minions_pre/m"],
            &["minions/m"],
            &["accept m"],
        ),
        (
            "accept",
            &plain,
            &["minions_rejected/m"],
            &["minions_rejected/m"],
            &[],
        ),
        (
            "accept",
            &rejected,
            &["minions_rejected/m"],
            &["minions/m"],
            &["accept m"],
        ),
        (
            "accept",
            &denied,
            &["minions_denied/m"],
            &["minions/m"],
            &["accept m"],
        ),
        (
            "reject",
            &plain,
            &["minions_pre/m"],
            &["minions_rejected/m"],
            &["reject m"],
        ),
        ("reject", &plain, &["minions/m"], &["minions/m"], &[]),
        (
            "reject",
            &accepted,
            &["minions/m"],
            &["minions_rejected/m"],
            &["reject m"],
        ),
    ];
    for compat in Compat::ALL {
        for (fun, named, before, after, events) in cases {
            let site = site(compat, before);
            let (ran, notices) = site.wheel(&format!("key.{fun}"), named);
            assert!(ran.success, "{:?}", ran.value);
            assert_eq!(keys(&site), after, "{compat:?} {fun} {before:?}");
            let expected: Vec<String> = events
                .iter()
                .map(|event| match (compat, event.split_once(' ').unwrap()) {
                    (Compat::V3008, (act, id)) => format!("salt/key {act}ed {id} pub"),
                    (_, (act, id)) => format!("salt/key {act} {id}"),
                })
                .collect();
            assert_eq!(reported(&notices), expected, "{compat:?} {fun}");
            let (state, _) = after.first().unwrap().split_once('/').unwrap();
            assert_eq!(ran.value, Value::map([(state, list(&["m"]))]));
            let asks_for_rotation = fun == "reject" && !events.is_empty();
            assert_eq!(site.path("cache/.dfn").exists(), asks_for_rotation);
        }
    }
}

#[test]
fn malformed_key_is_not_accepted() {
    for compat in Compat::ALL {
        let site = site(compat, &[]);
        site.write("pki/minions_pre/m", "no key");
        let (ran, notices) = site.wheel("key.accept", &[("match", "m".into())]);
        assert!(ran.success && notices.is_empty());
        assert_eq!(keys(&site), ["minions_pre/m"]);
    }
}

#[test]
fn accepting_another_key_ends_session_of_first() {
    for compat in Compat::ALL {
        let site = site(compat, &["minions/m"]);
        site.write("pki/minions_denied/m", &key("large", "public"));
        let named = [("match", "m".into()), flag("include_denied")];
        let (_, notices) = site.wheel("key.accept", &named);
        assert_eq!(keys(&site), ["minions/m"]);
        assert!(
            reported(&notices).contains(&"gone m".to_owned()),
            "{notices:?}"
        );
        let now = site.read("pki/minions/m").unwrap();
        assert_eq!(now.trim(), key("large", "public").trim());
    }
}

#[test]
fn deleted_keys_are_removed_and_reported() {
    for compat in Compat::ALL {
        let site = site(compat, &["minions/m1", "minions_pre/m2", "minions/kept"]);
        let (ran, notices) = site.wheel("key.delete", &[("match", "m*".into())]);
        assert_eq!(ran.value, Value::Map(Vec::new()));
        assert_eq!(keys(&site), ["minions/kept"]);
        let mut reported = reported(&notices);
        reported.sort();
        let expected = [
            "gone m1",
            "gone m2",
            "salt/key delete m1",
            "salt/key delete m2",
        ];
        assert_eq!(reported, expected, "{compat:?}");
        assert!(site.path("cache/.dfn").exists());
    }
}

#[test]
fn mapping_selects_keys_by_state() {
    for compat in [Compat::V3006, Compat::V3008] {
        let site = site(compat, &["minions/m1", "minions_pre/m2", "minions_pre/m3"]);
        let mapping = Value::map([("minions_pre", list(&["m2", "m4"]))]);
        let (ran, _) = site.wheel("key.accept_dict", &[("match", mapping)]);
        assert_eq!(ran.value, Value::map([("minions", list(&["m2"]))]));
        assert_eq!(keys(&site), ["minions/m1", "minions/m2", "minions_pre/m3"]);
        let mapping = Value::map([("minions_pre", list(&["m3"])), ("minions", list(&["m2"]))]);
        let (ran, _) = site.wheel("key.delete_dict", &[("match", mapping)]);
        assert_eq!(ran.value, Value::Map(Vec::new()));
        assert_eq!(keys(&site), ["minions/m1"]);
        let nothing = site.wheel_value("key.reject_dict", &[("match", "m1".into())]);
        assert_eq!(nothing, Value::Map(Vec::new()));
    }
}

#[test]
fn mapping_name_cannot_leave_key_tree() {
    for compat in Compat::ALL {
        let site = site(compat, &["minions/m1"]);
        site.write("pki/victim.pub", "kept");
        let before = keys(&site);
        for (state, id) in [
            ("minions", "../victim.pub"),
            ("minions", "../../conf/master"),
            ("minions/..", "victim.pub"),
            ("..", "conf/master"),
            ("local", "master.pem"),
            ("minions_pre", "/etc/hostname"),
        ] {
            let mapping = Value::map([(state, list(&[id]))]);
            for fun in ["accept_dict", "reject_dict", "delete_dict"] {
                let named = [("match", mapping.clone()), flag("include_denied")];
                let named = if fun == "delete_dict" {
                    &named[..1]
                } else {
                    &named
                };
                let (_, notices) = site.wheel(&format!("key.{fun}"), named);
                assert!(notices.is_empty(), "{fun} {state} {id}");
            }
        }
        assert_eq!(keys(&site), before);
        assert_eq!(site.read("pki/victim.pub").as_deref(), Some("kept"));
        assert!(site.path("conf/master").exists() && site.path("pki/master.pem").exists());
    }
}

#[test]
fn gen_accept_makes_pair_for_new_minion() {
    for compat in Compat::ALL {
        let site = site(compat, &["minions_pre/m1"]);
        let named = [("id_", "m1".into())];
        let (ran, notices) = site.wheel("key.gen_accept", &named);
        if compat == Compat::V3008 {
            // There, a key that waits is one, too.
            assert_eq!(ran.value, Value::Map(Vec::new()));
            continue;
        }
        assert!(notices.is_empty());
        let text = |name| ran.value.get(name).and_then(Value::as_str).unwrap();
        assert!(text("priv").starts_with("-----BEGIN RSA PRIVATE KEY-----"));
        assert_eq!(site.read("pki/minions/m1").as_deref(), Some(text("pub")));
        let again = site.wheel_value("key.gen_accept", &named);
        assert_eq!(again, Value::Map(Vec::new()));
        let (ran, notices) = site.wheel("key.gen_accept", &[named[0].clone(), flag("force")]);
        assert!(ran.value.get("pub").is_some());
        assert_eq!(reported(&notices), ["gone m1"]);
    }
    let site = site(Compat::V3008, &[]);
    let (ran, _) = site.wheel("key.gen_accept", &[("id_", "../..".into())]);
    assert_eq!(ran.retcode, Some(1), "{:?}", ran.value);
}

#[test]
fn fingerprints_are_those_of_the_files() {
    let named = [("match", Value::from("m1"))];
    for compat in Compat::ALL {
        let site = site(compat, &["minions/m1"]);
        let shown = site.wheel_value("key.finger", &named);
        let finger = shown.get("minions").and_then(|it| it.get("m1"));
        let length = finger.and_then(Value::as_str).map(str::len);
        assert_eq!(length, Some(32 * 3 - 1), "{compat:?}");
        let md5 = [named[0].clone(), ("hash_type", "md5".into())];
        let shown = site.wheel_value("key.finger", &md5);
        let finger = shown.get("minions").and_then(|it| it.get("m1"));
        assert_eq!(
            finger.and_then(Value::as_str).map(str::len),
            Some(16 * 3 - 1)
        );
        let (ran, _) = site.wheel("key.finger", &[named[0].clone(), ("hash_type", "x".into())]);
        assert_eq!(ran.retcode, Some(1));
        let shown = site.wheel_value("key.print", &named);
        let text = shown.get("minions").and_then(|it| it.get("m1"));
        assert_eq!(text, Some(&key("minion", "public").into()));
    }
}

#[test]
fn oversize_keysize_is_refused() {
    for compat in Compat::ALL {
        let site = TestSite::new(compat, "");
        for fun in ["key.gen", "key.gen_accept"] {
            let named = [("id_", "m1".into()), ("keysize", 4097.into())];
            let (ran, _) = site.wheel(fun, &named);
            assert!(!ran.success, "{fun}");
            assert!(ran.value.as_str().unwrap().contains("4096"), "{fun}");
        }
        assert!(!site.path("pki/minions/m1").exists());
    }
}

//! The tables of options against what stock has, and against each other.

use std::collections::{BTreeMap, BTreeSet};

use saltern_config::options::{OURS, Status, all, nearest, ours, status, stock};
use saltern_model::Compat;
use serde_json::Value;

type Stock = BTreeMap<String, BTreeMap<String, BTreeMap<String, Value>>>;

/// What `tests/vectors/make_options.py` found, by version and name.
fn found() -> Stock {
    serde_json::from_str(include_str!("../../../tests/vectors/options.json")).unwrap()
}

#[test]
fn every_option_of_every_version_is_in_the_table_with_its_default() {
    let mut names = BTreeSet::new();
    for (version, options) in found() {
        let compat = Compat::parse(&version).unwrap();
        for (name, facts) in options {
            let option = stock(&name).unwrap_or_else(|| panic!("{version} has {name}"));
            assert!(option.is_known_to(compat), "{version} has {name}");
            let default: Option<Value> = option
                .default(compat)
                .map(|text| serde_json::from_str(text).unwrap());
            assert_eq!(default.as_ref(), facts.get("default"), "{version} {name}");
            names.insert(name);
        }
    }
    let table: BTreeSet<String> = all().iter().map(|option| option.name.to_owned()).collect();
    assert_eq!(table, names);
    assert!(all().is_sorted_by_key(|option| option.name));
}

#[test]
fn every_option_has_a_status() {
    let undecided: Vec<&str> = all()
        .iter()
        .map(|option| option.name)
        .filter(|name| status(name).is_none())
        .collect();
    assert!(undecided.is_empty(), "no status: {undecided:?}");
    let honoured = all()
        .iter()
        .filter(|option| status(option.name) == Some(Status::Honoured))
        .count();
    assert!(honoured > 60, "{honoured}");
    assert_eq!(status("no_such_option"), None);
}

#[test]
fn our_options_differ_from_those_of_stock() {
    for option in OURS {
        assert!(stock(option.name).is_none(), "{}", option.name);
        assert!(
            serde_json::from_str::<Value>(option.default).is_ok(),
            "{}",
            option.name
        );
        assert!(option.doc.ends_with('.'), "{}", option.name);
    }
    assert!(ours("salt_compat").is_some());
}

#[test]
fn misspelt_names_find_the_right_one() {
    let table = [
        ("worker_thread", Some("worker_threads")),
        ("auto_acept", Some("auto_accept")),
        ("Interface", Some("interface")),
        ("publish-port", Some("publish_port")),
        ("saltern_max_conections", Some("saltern_max_connections")),
        ("file_root", Some("file_roots")),
        ("our_own_data", None),
        ("x", None),
    ];
    for (name, expected) in table {
        assert_eq!(nearest(name), expected, "{name}");
    }
}

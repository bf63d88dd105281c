//! The tables of options against what stock has, and against each other.

use std::collections::{BTreeMap, BTreeSet};

use saltern_config::options::{
    Kind, OURS, Origin, Reload, Status, all, nearest, ours, reference, reload_of, stock,
};
use saltern_model::Compat;
use serde_json::Value;

type Stock = BTreeMap<String, BTreeMap<String, BTreeMap<String, Value>>>;

/// The options that `tests/vectors/make_options.py` found, by version and name.
fn found() -> Stock {
    serde_json::from_str(include_str!("../../../tests/vectors/options.json")).unwrap()
}

fn kind(name: &str) -> Kind {
    match name {
        "str" => Kind::Str,
        "bool" => Kind::Bool,
        "int" => Kind::Int,
        "float" => Kind::Float,
        "list" => Kind::List,
        "dict" => Kind::Map,
        "null" => Kind::Null,
        other => panic!("{other} is no type"),
    }
}

/// Stock's declaration of an option, by the facts of its versions.
fn origin(facts: &[&BTreeMap<String, Value>]) -> Origin {
    let is = |name: &str| {
        let mut facts = facts.iter();
        facts.any(|facts| facts.get(name) == Some(&Value::Bool(true)))
    };
    match () {
        () if is("master") => Origin::Master,
        () if is("minion") => Origin::Minion,
        () if is("undeclared") => Origin::Undeclared,
        () => Origin::Schema,
    }
}

#[test]
fn every_row_of_stock_says_what_stock_has() {
    let found = found();
    let mut names = BTreeSet::new();
    for (version, options) in &found {
        let compat = Compat::parse(version).unwrap();
        for (name, facts) in options {
            let option = stock(name).unwrap_or_else(|| panic!("{version} has {name}"));
            assert!(option.is_known_to(compat), "{version} has {name}");
            let default: Option<Value> = option
                .default(compat)
                .map(|text| serde_json::from_str(text).unwrap());
            assert_eq!(default.as_ref(), facts.get("default"), "{version} {name}");
            names.insert(name.to_owned());
        }
    }
    for option in all() {
        let facts: Vec<_> = found.values().filter_map(|v| v.get(option.name)).collect();
        let known = option.known.iter().filter(|known| **known).count();
        assert_eq!(known, facts.len(), "{}", option.name);
        assert_eq!(option.origin, origin(&facts), "{}", option.name);
        let types = facts.last().and_then(|facts| facts["types"].as_array());
        let types = types.into_iter().flatten().filter_map(Value::as_str);
        assert_eq!(
            option.types,
            types.map(kind).collect::<Vec<_>>(),
            "{}",
            option.name
        );
    }
    let table: BTreeSet<String> = all().iter().map(|option| option.name.to_owned()).collect();
    assert_eq!(table, names);
    assert!(all().is_sorted_by_key(|option| option.name));
}

#[test]
fn every_row_has_its_meaning() {
    for option in all().iter().chain(OURS) {
        let name = option.name;
        match option.status {
            Status::NoEffect(why) => assert!(!why.is_empty() && option.doc.is_empty(), "{name}"),
            _ => assert!(option.doc.ends_with('.'), "{name}"),
        }
        let is_idle = matches!(option.status, Status::NoEffect(_));
        assert!(!is_idle || option.reload == Reload::NoEffect, "{name}");
        assert!(
            !option.is_handed_on || option.reload != Reload::InEffect,
            "{name}"
        );
    }
    assert_eq!(reload_of("auto_accept"), Reload::InEffect);
    assert_eq!(reload_of("worker_threads"), Reload::NeedsRestart);
    assert_eq!(reload_of("saltern_disk_low"), Reload::NeedsRestart);
    assert_eq!(reload_of("mworker_niceness"), Reload::NoEffect);
    assert_eq!(reload_of("what_nobody_knows"), Reload::NeedsRestart);
}

#[test]
fn our_options_differ_from_those_of_stock() {
    for option in OURS {
        assert!(stock(option.name).is_none(), "{}", option.name);
        let default = option.default(Compat::V3008).unwrap();
        let default = serde_json::from_str::<Value>(default);
        assert!(default.is_ok(), "{}", option.name);
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

#[test]
fn reference_of_options_says_what_the_rows_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");
    let page = reference();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let differs = page
        .lines()
        .zip(written.lines())
        .find(|(row, line)| row != line);
    assert_eq!(differs, None, "write docs/options.md anew with UPDATE=1");
    assert_eq!(
        page.len(),
        written.len(),
        "write docs/options.md anew with UPDATE=1"
    );
}

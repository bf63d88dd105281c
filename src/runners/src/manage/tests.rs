use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use saltern_config::load_master;
use saltern_model::{Absence, Doubt, Jid};
use saltern_store::StoreError;
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};

use super::*;
use crate::{Arguments, Call, Ran, Runners};

const CLOSED: Standing = Standing::Away(Absence::Closed {
    at: 1_795_244_782_637_714,
});

/// Minions with their standings and versions.
struct Known(BTreeMap<&'static str, (Standing, Option<&'static str>)>);

impl Known {
    fn of(&self, minion: &MinionId) -> (Standing, Option<&'static str>) {
        *self.0.get(minion.as_str()).expect("one of the fleet")
    }
}

impl Fleet for Known {
    fn matching(&self, target: &Target) -> Result<Vec<MinionId>, StoreError> {
        let is_meant = |id: &&&str| match target {
            Target::Expression(TargetType::Glob, pattern) => pattern == "*" || pattern == **id,
            Target::Expression(TargetType::List, names) => names.split(',').any(|it| it == **id),
            Target::List(names) => names.iter().any(|name| name == **id),
            other => panic!("{other:?}"),
        };
        let ids = self.0.keys().filter(is_meant);
        Ok(ids.map(|id| MinionId::parse(id).unwrap()).collect())
    }

    fn standing(&self, minion: &MinionId) -> Standing {
        self.of(minion).0
    }

    fn last_heard(&self, minion: &MinionId) -> Option<i64> {
        (self.standing(minion) != Standing::Known).then_some(1_795_244_782_637_714)
    }

    fn address(&self, minion: &MinionId) -> Option<IpAddr> {
        let is_present = self.standing(minion).is_present();
        is_present.then(|| IpAddr::from([192, 0, 2, 1]))
    }

    fn version(&self, minion: &MinionId) -> Option<String> {
        self.of(minion).1.map(str::to_owned)
    }
}

fn fleet() -> Arc<Known> {
    let stale = Standing::Stale(Doubt::AddressShared);
    Arc::new(Known(BTreeMap::from([
        ("away", (CLOSED, Some("3008.3"))),
        ("known", (Standing::Known, None)),
        ("new", (Standing::Connected, Some("3009.0"))),
        ("old", (stale, Some("3006.28+12.g1a2b3c4"))),
        ("same", (Standing::Connected, Some("3008.3"))),
    ])))
}

fn run(fleet: Option<Arc<Known>>, fun: &str, named: &[(&str, Value)]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("master"), "id: m\n").unwrap();
    let config = load_master(dir.path()).map_err(|errors| errors.to_string());
    let config = Arc::new(config.unwrap().config);
    let path = dir.path().join("jobs.sqlite");
    let database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
    let mut context = RunnerContext::new(config, database.reader().unwrap());
    if let Some(fleet) = fleet {
        context = context.with_fleet(fleet);
    }
    let named = named.iter();
    let call = Call {
        jid: Jid::parse("20260102030405060708").unwrap(),
        fun: format!("manage.{fun}"),
        arguments: Arguments {
            positional: Vec::new(),
            named: named
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        },
        user: "me".to_owned(),
    };
    Runners::new(context).run(&call, &mut Notices::new(&mut |_| {}))
}

fn value(fun: &str, named: &[(&str, Value)]) -> Value {
    let ran = run(Some(fleet()), fun, named);
    assert!(ran.success, "{:?}", ran.value);
    ran.value
}

fn list(ids: &[&str]) -> Value {
    Value::Array(ids.iter().map(|id| Value::from(*id)).collect())
}

#[test]
fn possibly_connected_minion_counts_as_up() {
    let (up, down) = (list(&["new", "old", "same"]), list(&["away", "known"]));
    let status = Value::map([("up", up.clone()), ("down", down.clone())]);
    assert_eq!(value("status", &[]), status);
    assert_eq!(value("up", &[]), up);
    assert_eq!(value("down", &[]), down);
    for name in [
        "present",
        "list_state",
        "joined",
        "allowed",
        "alived",
        "reaped",
    ] {
        assert_eq!(value(name, &[]), up, "{name}");
        let not = match name {
            "list_state" => "list_not_state".to_owned(),
            other => format!("not_{other}"),
        };
        assert_eq!(value(&not, &[]), down, "{not}");
    }
}

#[test]
fn target_and_subset_narrow_status() {
    type Named<'a> = &'a [(&'a str, Value)];
    let table: [(&str, Named<'_>, Value); 6] = [
        ("up", &[("tgt", "old".into())], list(&["old"])),
        (
            "down",
            &[("tgt", "away,new".into()), ("tgt_type", "list".into())],
            list(&["away"]),
        ),
        (
            "up",
            &[("tgt", list(&["new"])), ("tgt_type", "list".into())],
            list(&["new"]),
        ),
        ("up", &[("tgt_type", "nonsense".into())], list(&[])),
        (
            "present",
            &[("subset", list(&["same", "away"]))],
            list(&["same"]),
        ),
        (
            "not_present",
            &[("subset", "same, away".into())],
            list(&["away"]),
        ),
    ];
    for (fun, named, expected) in table {
        assert_eq!(value(fun, named), expected, "{fun} {named:?}");
    }
    let with_addresses = Value::map([("same", "192.0.2.1")]);
    let named = [("subset", list(&["same"])), ("show_ip", true.into())];
    assert_eq!(value("present", &named), with_addresses);
}

#[test]
fn standing_has_reason_and_time() {
    let away = value("standing", &[("tgt", "away".into())]);
    let about = Value::map([
        ("standing", Value::from("away: it closed its connection")),
        ("since", "2026-11-21T07:06:22Z".into()),
        ("last_heard", "2026-11-21T07:06:22Z".into()),
        ("address", Value::Nil),
    ]);
    assert_eq!(away, Value::map([("away", about)]));
}

#[test]
fn versions_are_grouped_as_in_stock() {
    let group = |id: &str, version: Value| Value::Map(vec![(id.into(), version)]);
    let offline = [("away", false), ("known", false)];
    let expected = Value::map([
        ("Master", Value::from("3008.3")),
        ("Minion offline", Value::map(offline)),
        (
            "Minion requires update",
            group("old", "3006.28+12.g1a2b3c4".into()),
        ),
        ("Up to date", group("same", "3008.3".into())),
        ("Minion newer than master", group("new", "3009.0".into())),
    ]);
    assert_eq!(value("versions", &[]), expected);
}

#[test]
fn removekeys_and_missing_fleet_are_refused() {
    let ran = run(Some(fleet()), "down", &[("removekeys", true.into())]);
    assert!(!ran.success && ran.value.as_str().unwrap().contains("salt-key -d"));
    let ran = run(None, "up", &[]);
    assert!(!ran.success && ran.value.as_str().unwrap().contains("ask the master"));
}

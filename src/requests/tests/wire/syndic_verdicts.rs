//! Verdicts of syndics on silent minions: who may say them, of whom, and how much.

use std::sync::Arc;

use saltern_crypto::SigAlgo;
use saltern_model::{Jid, JobRecord, MinionId, Packed};
use saltern_requests::explain::missing_of_ended;
use saltern_requests::{Effect, SyndicVerdict, minions_moved};
use saltern_store::jobs::{JobNotes, LostReason, SyndicSays};
use saltern_store::{JobState, Write};
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::wire::client::{JID, Load, Minion, clear};
use crate::wire::site::{Site, list};
use crate::wire::syndic_inventory::{OPTIONS, Relay};

fn verdict(depth: i64, text: Value, minions: Value) -> Value {
    Value::Array(vec![JID.into(), Value::Int(depth), text, minions])
}

fn request(minion: &Minion, verdicts: Vec<Value>) -> Load {
    let load = minion.load("saltern_syndic_verdicts");
    load.set("verdicts", Value::Array(verdicts))
}

/// The result of a request, and the verdicts that were taken.
fn ask(site: &Site, relay: &Relay<'_>, load: Load) -> (String, Vec<SyndicVerdict>) {
    let outcome = site.ask(relay.minion.sealed(load, 3));
    let answer = relay.minion.open(&outcome.reply, 3);
    let result = answer.get("result").and_then(Value::as_str).unwrap();
    let taken = outcome.effects.into_iter().flat_map(|effect| match effect {
        Effect::TakeVerdicts(verdicts) => verdicts,
        _ => panic!("nothing else"),
    });
    (result.to_owned(), taken.collect())
}

fn minions(verdict: &SyndicVerdict) -> Option<Vec<&str>> {
    let minions = verdict.minions.as_ref()?.iter();
    Some(minions.map(|minion| minion.as_str()).collect())
}

#[test]
fn verdicts_are_asked_for_where_inventories_are_taken() {
    let off = "order_masters: True\nsaltern_syndic_inventory: False\n";
    for (options, is_asked) in [
        (OPTIONS, true),
        (off, false),
        ("saltern_syndic_inventory: True\n", false),
    ] {
        let site = Site::new(options);
        let minion = Minion::signed_in(&site, "relay");
        let reply = site.ask(clear(minion.auth(), 3)).reply;
        let keys = minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        let said = keys.get("saltern_syndic_verdicts");
        assert_eq!(said, is_asked.then_some(&Value::Bool(true)), "{options}");
    }
}

#[test]
fn verdict_names_its_syndic_and_the_ones_before() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    relay.announce(&[("a", "x"), ("b", "x")]);
    let verdicts = vec![
        verdict(0, "unknown: no answer".into(), list(&["a", "b"])),
        verdict(1, "syndic \"low\" says: \u{1b}[31m".into(), list(&["a"])),
        verdict(0, Value::Nil, list(&["b"])),
        verdict(0, "refused".into(), Value::Nil),
    ];
    let (result, taken) = ask(&site, &relay, request(&relay.minion, verdicts));
    assert_eq!(result, "taken");
    let [first, relayed, withdrawn, of_all] = taken.as_slice() else {
        panic!("{taken:?}")
    };
    let text = |verdict: &SyndicVerdict| verdict.text.as_deref().map(str::to_owned);
    let says = |text: &str| Some(format!("syndic \"relay\" says: {text}"));
    assert_eq!(text(first), says("unknown: no answer"));
    assert_eq!((first.depth, minions(first)), (1, Some(vec!["a", "b"])));
    let nested = "syndic \"low\" says: \\u{1b}[31m";
    assert_eq!((text(relayed), relayed.depth), (says(nested), 2));
    assert_eq!(
        (text(withdrawn), minions(withdrawn)),
        (None, Some(vec!["b"]))
    );
    assert_eq!(minions(of_all), None);
    assert!(taken.iter().all(|it| it.syndic.as_str() == "relay"));
}

#[test]
fn verdicts_are_taken_of_syndics_alone_and_on_minions_below_them() {
    let site = Site::new(OPTIONS);
    site.accept("own", "large");
    let on = |names: &[&str]| vec![verdict(0, "gone".into(), list(names))];
    let stranger = Relay::signed_in(&site, "stranger");
    let refused = site.refused();
    let (result, taken) = ask(&site, &stranger, request(&stranger.minion, on(&["own"])));
    assert_eq!((result.as_str(), taken.len()), ("refused", 0));
    assert_eq!(site.refused(), refused + 1);

    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    one.announce(&[("a", "x")]);
    two.announce(&[("b", "x")]);
    let refused = site.refused();
    let of_one = |names: &[&str]| ask(&site, &one, request(&one.minion, on(names)));
    let (result, taken) = of_one(&["own", "b", "a", "unheard-of", "one"]);
    assert_eq!((result.as_str(), taken.len()), ("taken", 1));
    assert_eq!(taken.first().and_then(minions), Some(vec!["a"]));
    assert_eq!(site.refused(), refused + 1, "the others are left out");
    assert!(of_one(&["b"]).1.is_empty());
    let claimed = site
        .services
        .minions
        .syndics
        .claimant(&MinionId::parse("unheard-of").unwrap());
    assert_eq!(claimed, None, "a verdict claims no minion");
}

#[test]
fn malformed_and_large_verdicts_are_left_out_one_by_one() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    relay.announce(&[("a", "x")]);
    let good = || verdict(0, "gone".into(), list(&["a"]));
    let with = |bad: Value| vec![bad, good()];
    let text = |length: usize| verdict(0, "x".repeat(length).into(), list(&["a"]));
    let names = |count: usize| verdict(0, "gone".into(), list(&vec!["a"; count]));
    for (what, verdicts, taken, left_out) in [
        ("good", vec![good()], 1, 0),
        ("longest text", with(text(400)), 2, 0),
        ("too long a text", with(text(401)), 1, 1),
        ("most minions", with(names(9_999)), 2, 0),
        ("no room for a second one", with(names(10_000)), 1, 1),
        ("too many minions", with(names(10_001)), 1, 1),
        ("most verdicts", vec![good(); 1_000], 1_000, 0),
        ("depth", with(verdict(7, "x".into(), list(&["a"]))), 2, 0),
        ("too deep", with(verdict(8, "x".into(), list(&["a"]))), 1, 1),
        (
            "negative",
            with(verdict(-1, "x".into(), list(&["a"]))),
            1,
            1,
        ),
        (
            "no text",
            with(verdict(0, Value::Int(1), list(&["a"]))),
            1,
            1,
        ),
        ("no list", with(verdict(0, "x".into(), "a".into())), 1, 1),
        (
            "no minion",
            with(verdict(0, "x".into(), list(&["../x"]))),
            1,
            1,
        ),
        ("no verdict", vec![Value::Nil, good(), Value::Nil], 1, 2),
        ("no jid", with(list(&["x", "x", "x", "x"])), 1, 1),
    ] {
        let refused = site.refused();
        let (result, verdicts) = ask(&site, &relay, request(&relay.minion, verdicts));
        assert_eq!(result, "taken", "{what}");
        assert_eq!(verdicts.len(), taken, "{what}");
        assert_eq!(site.refused() - refused, left_out, "{what}");
    }
    let too_many = request(&relay.minion, vec![good(); 1_001]);
    assert_eq!(ask(&site, &relay, too_many).0, "refused");
    let none = relay.minion.load("saltern_syndic_verdicts");
    assert_eq!(ask(&site, &relay, none).0, "refused");
}

#[test]
fn verdicts_on_all_minions_are_one_a_job_and_count_for_many() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    relay.announce(&[("a", "x")]);
    let of_job = |number: usize, text: &str| {
        let jid = format!("202601020304050{number:05}");
        Value::Array(vec![
            jid.as_str().into(),
            Value::Int(0),
            text.into(),
            Value::Nil,
        ])
    };
    let same = (0..1_000).map(|number| of_job(1, &format!("t{number}")));
    let (_, taken) = ask(&site, &relay, request(&relay.minion, same.collect()));
    let texts: Vec<_> = taken.iter().map(|it| it.text.as_deref()).collect();
    assert_eq!(texts, [Some("syndic \"relay\" says: t999")], "the last");

    let refused = site.refused();
    let mut others: Vec<Value> = (0..11).map(|number| of_job(number, "refused")).collect();
    let (_, taken) = ask(&site, &relay, request(&relay.minion, others.clone()));
    assert_eq!((taken.len(), site.refused() - refused), (10, 1));
    others.truncate(9);
    let names = |count: usize| verdict(0, "gone".into(), list(&vec!["a"; count]));
    let with = |last: Value| [others.clone(), vec![last]].concat();
    let (_, taken) = ask(&site, &relay, request(&relay.minion, with(names(1_000))));
    assert_eq!(taken.len(), 10);
    let (_, taken) = ask(&site, &relay, request(&relay.minion, with(names(1_001))));
    assert_eq!(taken.len(), 9);
}

#[test]
fn explanation_of_an_ended_job_has_verdicts_and_what_inventories_say_at_this_moment() {
    let site = Site::new(OPTIONS);
    site.accept("own", "large");
    let relay = Relay::started(&site, "relay");
    relay.announce(&[("a", "x"), ("b", "x")]);
    let id = |name: &str| MinionId::parse(name).unwrap();
    let jid = Jid::parse("20261121070622000001").unwrap();
    let says = SyndicSays {
        syndic: id("relay"),
        depth: 1,
        text: Arc::from("syndic \"relay\" says: it slept"),
    };
    let notes = JobNotes {
        lost: vec![(id("a"), LostReason::NoAnswer)],
        below: vec![(id("a"), says.clone()), (id("own"), says)],
        ..JobNotes::default()
    };
    let job = JobRecord {
        jid: jid.clone(),
        created: 1,
        user: "root".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: "*".to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(encode(&Value::Map(Vec::new()), Dialect::Bin)),
        minions: ["a", "b", "own"].map(id).to_vec(),
        nocache: false,
    };
    let commit = |write: Write| site.database.lock().commit(&[write]).unwrap();
    let state = |state: JobState| Write::JobState {
        jid: jid.clone(),
        state,
        at: 2,
        notes: Some(notes.pack()),
    };
    commit(Write::Job(job));
    let explained = || {
        let missing = missing_of_ended(&jid, &site.services).unwrap()?;
        let missing = missing.into_iter();
        let lines = missing.map(|one| format!("{}: {}", one.state, one.why));
        Some(lines.collect::<Vec<_>>())
    };
    assert_eq!(explained(), None, "it is open");
    commit(state(JobState::Expired));
    let stored = [
        "unknown: it did not answer when it was asked; syndic \"relay\" says: it slept",
        "expected: nothing is written down of it",
        "expected: nothing is written down of it",
    ];
    assert_eq!(explained().unwrap(), stored, "\"own\" is below it no more");
    relay.is_away_since(site.clock.unix_micros());
    let now = explained().unwrap();
    let away = "; at this moment it is below the syndic \"relay\", which is away";
    for (now, stored) in now.iter().zip(stored).take(2) {
        assert!(now.starts_with(&format!("{stored}{away}")), "{now}");
    }
    assert_eq!(now[2], stored[2], "it is below none");
}

/// The syndics of all ways of a minion may say why the minion is silent. That by which jobs for it go counts; what the
/// other one says is left out, and is no fault of it.
#[test]
fn verdicts_count_of_the_way_that_is_the_route_and_are_left_out_in_silence_of_another() {
    let site = Site::new(OPTIONS);
    let (one, two) = Relay::two_ways(&site);
    let refused = site.refused();
    let says = |relay: &Relay<'_>| {
        let verdict = verdict(0, "away".into(), list(&["a"]));
        let load = request(&relay.minion, vec![verdict]);
        let (result, verdicts) = ask(&site, relay, load);
        assert_eq!(result, "taken");
        verdicts.len()
    };
    let moved = |syndic: &str| {
        let [minion, syndic] = ["a", syndic].map(|name| MinionId::parse(name).unwrap());
        !minions_moved(vec![minion], &syndic, &site.services).is_empty()
    };
    assert_eq!([says(&one), says(&two)], [1, 0]);
    assert_eq!(["one", "two"].map(moved), [false, true]);
    one.is_away_since(site.clock.unix_micros());
    assert_eq!([says(&one), says(&two)], [0, 1], "it is the route");
    assert_eq!(["one", "two"].map(moved), [true, false]);
    assert_eq!(site.refused(), refused);
}

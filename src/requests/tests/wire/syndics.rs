//! Syndics: `_syndic_return`, their events, and publications that go through them.

use std::time::Duration;

use saltern_crypto::SigAlgo;
use saltern_model::MinionId;
use saltern_requests::{
    Effect, JobRelation, NO_ANSWER, Outcome, ReceivedReturn, SyndicMinions, Topics,
};
use saltern_wire::msgpack::Value;

use crate::wire::client::{JID, Load, Minion, clear, published_by_root};
use crate::wire::site::{Site, data, decode, events, list, names, sent, started, tags};

const ABOVE: &str = "order_masters: True\n";

/// Stock's return of one minion below a syndic.
fn one(retcode: i64) -> Value {
    Value::map([
        ("return", Value::from("pong")),
        ("retcode", retcode.into()),
        ("success", true.into()),
        ("fun_args", list(&[])),
    ])
}

/// Aggregate of one job, as stock's syndic puts it together.
fn aggregate(returns: &[(&str, Value)], load: Value) -> Load {
    let returns = returns.iter().cloned();
    Load::new()
        .set("id", "relay")
        .set("jid", JID)
        .set("fun", "test.ping")
        .set("arg", Value::Nil)
        .set("tgt", Value::Nil)
        .set("tgt_type", Value::Nil)
        .set("load", load)
        .set("return", Value::map(returns))
        .set("master_id", "upper")
}

fn request(syndic: &Minion, aggregates: Vec<Load>) -> Load {
    let aggregates = aggregates.into_iter().map(Load::value).collect();
    syndic
        .load("_syndic_return")
        .set("load", Value::Array(aggregates))
}

/// A minion that sent the start event of a syndic.
fn syndic(site: &Site, id: &str) -> Minion {
    let syndic = Minion::signed_in(site, id);
    let load = started_as("syndic", &syndic);
    site.ask(syndic.sealed(load, 3));
    syndic
}

fn started_as(what: &str, minion: &Minion) -> Load {
    let tag = format!("salt/{what}/{}/start", minion.id);
    minion
        .load("_minion_event")
        .set("data", "started")
        .set("tag", tag.as_str())
}

fn ask(site: &Site, syndic: &Minion, load: Load) -> Outcome {
    let outcome = site.ask(syndic.sealed(load, 3));
    assert_eq!(syndic.open(&outcome.reply, 3), Value::Nil);
    outcome
}

fn stored(outcome: &Outcome) -> Vec<&ReceivedReturn> {
    let effects = outcome.effects.iter();
    let stored = effects.map(|effect| match effect {
        Effect::StoreReturn(stored) => &**stored,
        _ => panic!("returns are stored, and nothing else"),
    });
    stored.collect()
}

fn ids(names: &[&str]) -> Vec<MinionId> {
    names
        .iter()
        .map(|id| MinionId::parse(id).unwrap())
        .collect()
}

#[test]
fn minions_below_syndic_return_as_local_and_first_brings_job() {
    let site = Site::new(ABOVE);
    let relay = syndic(&site, "relay");
    let load = Load::new()
        .set("fun", "test.ping")
        .set("tgt", list(&["a", "b", "c"]))
        .set("tgt_type", "list")
        .set("user", "somebody")
        .set("Minions", list(&["a", "b", "c", "../x"]));
    let returns = [("a", one(0)), ("b", one(3))];
    let outcome = ask(
        &site,
        &relay,
        request(&relay, vec![aggregate(&returns, load.value())]),
    );
    assert_eq!(decode(&outcome.reply_if_not_stored), NO_ANSWER.into());
    let kept = stored(&outcome);
    let records = kept.iter().map(|one| {
        let record = &one.record;
        (record.jid.as_str(), record.minion.as_str(), record.retcode)
    });
    assert_eq!(records.collect::<Vec<_>>(), [(JID, "a", 0), (JID, "b", 3)]);
    assert!(
        kept.iter()
            .all(|one| one.forwarded && one.keep && !one.standalone)
    );
    let job = &kept[0].job;
    assert_eq!(
        (job.user.as_str(), job.fun.as_str(), job.tgt.as_str()),
        ("syndic:relay", "test.ping", "a,b,c")
    );
    assert_eq!(job.minions, ids(&["a", "b", "c"]));
    assert_eq!(decode(job.load.bytes()).get("Minions"), None);
    assert_eq!(
        tags(&outcome),
        [
            format!("salt/job/{JID}/ret/a"),
            format!("salt/job/{JID}/ret/b")
        ]
    );
    let order = [
        "jid",
        "id",
        "return",
        "retcode",
        "success",
        "fun_args",
        "master_id",
        "fun",
    ];
    assert_eq!(names(&data(&events(&outcome)[1])), order, "as stock");
    assert!(site.path("cache/syndics/relay").exists());
    assert!(!site.path("cache/syndics/a").exists());
}

/// Returns of a job with that mark go to the master above of that name, and to no other.
#[test]
fn job_that_a_syndic_brings_is_never_marked_as_one_of_a_master_above() {
    let site = Site::new(ABOVE);
    let relay = syndic(&site, "relay");
    let marked = Value::map([
        ("saltern_upper", Value::from("top:4506")),
        ("metadata", "m".into()),
        ("saltern_upper", "other:4506".into()),
    ]);
    let load = Load::new().set("fun", "test.ping").set("kwargs", marked);
    let brought = aggregate(&[("a", one(0))], load.value());
    let outcome = ask(&site, &relay, request(&relay, vec![brought]));
    let stored = decode(stored(&outcome)[0].job.load.bytes());
    let kwargs = stored.get("kwargs");
    assert_eq!(kwargs, Some(&Value::map([("metadata", "m")])));
}

#[test]
fn old_syndic_sends_one_job_as_the_request() {
    let site = Site::new(ABOVE);
    let relay = syndic(&site, "relay");
    let load = relay
        .load("_syndic_return")
        .set("jid", JID)
        .set("fun", "test.ping")
        .set("load", Value::map([("fun", "test.ping")]))
        .set("return", Value::map([("a", one(0))]));
    assert_eq!(stored(&ask(&site, &relay, load)).len(), 1);
}

#[test]
fn syndic_cannot_speak_for_minion_with_local_key() {
    let site = Site::new(ABOVE);
    let relay = syndic(&site, "relay");
    site.accept("mine", "minion");
    let returns = [
        ("mine", one(0)),
        ("relay", one(0)),
        ("a/../b", one(0)),
        ("a", Value::from("no map")),
        ("b", Value::map([("retcode", 0_i64)])),
    ];
    let outcome = ask(
        &site,
        &relay,
        request(&relay, vec![aggregate(&returns, Value::Nil)]),
    );
    let minions = stored(&outcome)
        .into_iter()
        .map(|one| one.record.minion.as_str());
    assert_eq!(
        minions.collect::<Vec<_>>(),
        ["relay"],
        "its own name is its own"
    );
    assert_eq!(site.refused(), 4);
    let lenient = Site::new("order_masters: True\nsaltern_strict_minion_events: False\n");
    let relay = syndic(&lenient, "relay");
    lenient.accept("mine", "minion");
    let outcome = ask(
        &lenient,
        &relay,
        request(&relay, vec![aggregate(&[("mine", one(0))], Value::Nil)]),
    );
    assert_eq!(stored(&outcome).len(), 1);
}

#[test]
fn malformed_syndic_return_is_dropped() {
    let with = |options: &str, change: &dyn Fn(Load) -> Load| {
        let site = Site::new(options);
        let relay = syndic(&site, "relay");
        let aggregate = change(aggregate(&[("a", one(0))], Value::Nil));
        let outcome = ask(&site, &relay, request(&relay, vec![aggregate]));
        (stored(&outcome).len(), site.refused())
    };
    let same = |load: Load| load;
    assert_eq!(with(ABOVE, &same), (1, 0));
    assert_eq!(with("", &same), (0, 1), "there are no syndics here");
    assert_eq!(with(ABOVE, &|load| load.without("jid")), (0, 1));
    assert_eq!(with(ABOVE, &|load| load.set("jid", "req")), (0, 1));
    assert_eq!(
        with(ABOVE, &|load| load.set("return", list(&["a"]))),
        (0, 1)
    );
    let signed = format!("{ABOVE}require_minion_sign_messages: True\n");
    assert_eq!(with(&signed, &same), (0, 1));
    let checked = format!("{ABOVE}drop_messages_signature_fail: True\n");
    assert_eq!(with(&checked, &|load| load.set("sig", "x")), (0, 1));
}

fn forwarded(syndic: &Minion, tag: &str, data: Load) -> Load {
    syndic
        .load("_minion_event")
        .set("pretag", format!("syndic/{}", syndic.id).as_str())
        .set("events", Value::Array(vec![event(tag, data)]))
}

/// The minions that a request announces for a job.
fn announced(outcome: &Outcome) -> Vec<MinionId> {
    let leaves = outcome.effects.iter().filter_map(|effect| match effect {
        Effect::ExpectSyndicMinions(leaves) => {
            Some(leaves.iter().flat_map(|one| one.minions.clone()))
        }
        _ => None,
    });
    leaves.flatten().collect()
}

#[test]
fn whoever_sends_what_only_syndics_send_is_a_syndic() {
    let returns = |it: &Minion| request(it, vec![aggregate(&[("a", one(0))], Value::Nil)]);
    let event = |it: &Minion| forwarded(it, JID, Load::new().set("minions", list(&["a"])));
    let site = Site::new(ABOVE);
    let (m1, m2) = (
        Minion::signed_in(&site, "m1"),
        Minion::signed_in(&site, "m2"),
    );
    assert_eq!(stored(&ask(&site, &m1, returns(&m1))).len(), 1);
    let b = forwarded(&m2, JID, Load::new().set("minions", list(&["b"])));
    assert_eq!(announced(&ask(&site, &m2, b)), ids(&["b"]));
    for id in ["m1", "m2"] {
        assert!(site.path(&format!("cache/syndics/{id}")).exists(), "{id}");
    }
    assert_eq!(site.refused(), 0);
    let outcome = site.ask(clear(publish(&site), 3));
    assert!(started(&outcome).job.minions.is_empty(), "none is a minion");
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    for load in [returns(&m1), event(&m1)] {
        let outcome = ask(&site, &m1, load);
        let is_stored = |effect: &Effect| !matches!(effect, Effect::Fire(_));
        assert!(!outcome.effects.iter().any(is_stored), "no order_masters");
    }
    assert!(!site.path("cache/syndics/m1").exists());
}

/// Requests that only minions send.
fn minion_acts(minion: &Minion) -> [Load; 2] {
    let plain = minion.load("_return").set("jid", JID);
    let plain = plain.set("fun", "test.ping").set("return", true);
    [started_as("minion", minion), plain]
}

fn advance(site: &Site, seconds: u64) {
    let inventories = &site.services.minions.inventories;
    inventories.advance(Duration::from_secs(seconds));
}

fn id_of(minion: &Minion) -> MinionId {
    MinionId::parse(&minion.id).unwrap()
}

fn is_syndic(site: &Site, minion: &Minion) -> bool {
    let is_known = site.services.minions.syndics.has(&id_of(minion));
    let file = site.path(&format!("cache/syndics/{}", minion.id));
    assert_eq!(is_known, file.exists());
    is_known
}

#[test]
fn minion_with_the_id_of_a_syndic_takes_nothing_from_it() {
    let site = Site::new(ABOVE);
    let relay = syndic(&site, "relay");
    site.ask(relay.sealed(inventory(&site, &relay, "a"), 3));
    let minions = &site.services.minions;
    let kept = || {
        let claims = minions.syndics.claimed_by(&id_of(&relay));
        (
            is_syndic(&site, &relay),
            claims,
            minions.inventories.has(&id_of(&relay)),
        )
    };
    assert_eq!(kept(), (true, 1, true));
    for as_minion in minion_acts(&relay) {
        ask(&site, &relay, as_minion);
        assert_eq!(kept(), (true, 1, true));
        let outcome = site.ask(clear(publish(&site), 3));
        let start = started(&outcome);
        assert_eq!(start.job.minions, ids(&["relay", "a"]), "it is both");
        assert!(start.expects_all);
        let Topics::Exactly(recipients) = &start.publication.topics else {
            panic!("all inventories are whole");
        };
        assert_eq!(*recipients, ids(&["relay"]), "once");
    }
    let returns = request(&relay, vec![aggregate(&[("a", one(0))], Value::Nil)]);
    assert_eq!(stored(&ask(&site, &relay, returns)).len(), 1);
}

/// Seconds for which a syndic has to be silent before it may be a minion alone: one with an inventory, and any other.
const SILENCE: [(bool, u64); 2] = [(true, 600), (false, 7 * 24 * 3_600)];

#[test]
fn syndic_that_is_silent_as_one_is_a_minion_when_it_goes_on_acting_as_one() {
    for (has_inventory, silence) in SILENCE {
        for number in [0, 1] {
            let site = Site::new(ABOVE);
            let relay = syndic(&site, "relay");
            if has_inventory {
                site.ask(relay.sealed(inventory(&site, &relay, "a"), 3));
            } else {
                let returns = aggregate(&[("a", one(0))], Value::Nil);
                ask(&site, &relay, request(&relay, vec![returns]));
            }
            let act = || ask(&site, &relay, minion_acts(&relay)[number].clone());
            advance(&site, silence - 10);
            act();
            advance(&site, 10);
            act();
            advance(&site, 110);
            act();
            assert!(is_syndic(&site, &relay), "the minion may be back first");
            advance(&site, 10);
            act();
            assert!(!is_syndic(&site, &relay), "{has_inventory}");
            let minions = &site.services.minions;
            assert_eq!(minions.syndics.claimed_by(&id_of(&relay)), 0);
            assert!(!minions.inventories.has(&id_of(&relay)));
            let outcome = site.ask(clear(publish(&site), 3));
            assert_eq!(started(&outcome).job.minions, ids(&["relay"]));
        }
    }
}

#[test]
fn syndic_that_comes_back_after_its_minion_is_still_one() {
    let site = Site::new(ABOVE);
    let relay = syndic(&site, "relay");
    site.ask(relay.sealed(inventory(&site, &relay, "a"), 3));
    let returned = || {
        let [_, returned] = minion_acts(&relay);
        ask(&site, &relay, returned);
    };
    for _ in 0..3 {
        advance(&site, 3_600);
        returned();
        advance(&site, 60);
        site.ask(relay.sealed(inventory(&site, &relay, "a"), 3));
        advance(&site, 60);
        returned();
        assert!(is_syndic(&site, &relay));
    }
}

#[test]
fn syndic_that_starts_is_a_minion_only_if_it_lately_acted_as_one() {
    let site = Site::new(ABOVE);
    let relay = syndic(&site, "relay");
    let [_, returned] = minion_acts(&relay);
    ask(&site, &relay, returned);
    let is_expected = || {
        let outcome = site.ask(clear(publish(&site), 3));
        started(&outcome).job.minions == ids(&["relay"])
    };
    advance(&site, 590);
    ask(&site, &relay, started_as("syndic", &relay));
    assert!(is_expected());
    advance(&site, 20);
    assert!(is_expected());
    ask(&site, &relay, started_as("syndic", &relay));
    assert!(!is_expected());
}

#[test]
fn claim_of_syndic_whose_machine_is_a_minion_now_ends() {
    let site = Site::new(ABOVE);
    let (relay, other) = (syndic(&site, "relay"), syndic(&site, "other"));
    site.ask(relay.sealed(inventory(&site, &relay, "a"), 3));
    let by_other = || {
        let returns = aggregate(&[("a", one(0))], Value::Nil);
        !stored(&ask(&site, &other, request(&other, vec![returns]))).is_empty()
    };
    advance(&site, 590);
    assert!(!by_other());
    advance(&site, 10);
    assert!(by_other(), "nothing came of it as a syndic for ten minutes");
}

/// Instances come and go, with new ids.
#[test]
fn claims_to_minions_that_are_gone_make_room() {
    let site = Site::new(ABOVE);
    let relay = syndic(&site, "relay");
    let claimed = || site.services.minions.syndics.claimed_by(&id_of(&relay));
    let part = |(number, part): (i64, i64), names: &[String], is_last: bool| {
        let entry = |id: &String| {
            Value::Array(vec![id.as_str().into(), Value::Nil, Value::Map(Vec::new())])
        };
        let load = inventory(&site, &relay, "x")
            .set("list", number)
            .set("part", part);
        let minions = names.iter().map(entry).collect();
        let load = load
            .set("minions", Value::Array(minions))
            .set("last", is_last);
        let answer = relay.open(&site.ask(relay.sealed(load, 3)).reply, 3);
        assert_eq!(answer.get("result"), Some(&"taken".into()));
    };
    let names: Vec<String> = (0..100_000).map(|number| format!("n{number}")).collect();
    for (number, chunk) in (0..).zip(names.chunks(10_000)) {
        part((1, number), chunk, number == 9);
    }
    assert_eq!(claimed(), 100_000);
    let is_stored = |minion: &str| {
        let returns = aggregate(&[(minion, one(0))], Value::Nil);
        !stored(&ask(&site, &relay, request(&relay, vec![returns]))).is_empty()
    };
    assert!(!is_stored("new"), "all of them are there");
    part((2, 0), &names[..10], true);
    assert_eq!(claimed(), 100_000, "they stand while there is room");
    assert!(!is_stored("new"), "claims were searched a moment ago");
    advance(&site, 60);
    assert!(is_stored("new"));
    assert_eq!(claimed(), 11);
}

#[test]
fn only_first_syndic_speaks_for_minion_below() {
    let with = |options: &str| {
        let site = Site::new(options);
        let (relay, other) = (syndic(&site, "relay"), syndic(&site, "other"));
        let minions = |names: &[&str]| Load::new().set("minions", list(names));
        let outcome = ask(&site, &relay, forwarded(&relay, JID, minions(&["a", "b"])));
        assert_eq!(announced(&outcome), ids(&["a", "b"]));
        let outcome = ask(&site, &other, forwarded(&other, JID, minions(&["b", "c"])));
        let heard = announced(&outcome);
        let load = Load::new()
            .set("fun", "test.ping")
            .set("Minions", list(&["a", "c"]));
        let returns = aggregate(&[("a", one(0)), ("c", one(0))], load.value());
        let outcome = ask(&site, &other, request(&other, vec![returns]));
        let kept = stored(&outcome);
        let names = kept.iter().map(|one| one.record.minion.clone());
        (
            heard,
            names.collect::<Vec<_>>(),
            kept[0].job.minions.clone(),
            site.refused(),
        )
    };
    let c = || ids(&["c"]);
    assert_eq!(with(ABOVE), (c(), c(), c(), 4));
    let lenient = format!("{ABOVE}saltern_strict_minion_events: False\n");
    let (heard, names, minions, refused) = with(&lenient);
    assert_eq!((heard, names), (ids(&["b", "c"]), ids(&["a", "c"])));
    assert_eq!((minions, refused), (ids(&["a", "c"]), 0));
}

/// An inventory with one minion.
fn inventory(site: &Site, syndic: &Minion, minion: &str) -> Load {
    let reply = site.ask(clear(syndic.auth(), 3)).reply;
    let keys = syndic.verified(&reply, SigAlgo::Pkcs1v15Sha1);
    let epoch = keys.get("saltern_syndic_inventory").unwrap();
    let minion = Value::Array(vec![minion.into(), Value::Nil, Value::Map(Vec::new())]);
    syndic
        .load("saltern_syndic_inventory")
        .set("epoch", epoch.clone())
        .set("list", 1_i64)
        .set("part", 0_i64)
        .set("last", true)
        .set("partial", false)
        .set("minions", Value::Array(vec![minion]))
        .set("gone", list(&[]))
}

/// Whether another syndic may speak for a minion of one that is away for long: in a list, and with a
/// return.
#[test]
fn claim_of_syndic_that_is_away_ends_by_a_return_and_never_by_a_list() {
    let ends = |options: &str, announcing: Option<&str>| {
        let site = Site::new(options);
        let (relay, other) = (syndic(&site, "relay"), syndic(&site, "other"));
        for by in [&relay, &other] {
            if announcing == Some(by.id.as_str()) {
                let minion = if by.id == "relay" { "a" } else { "b" };
                site.ask(by.sealed(inventory(&site, by, minion), 3));
            }
        }
        let returning = |by: &Minion| {
            let returns = aggregate(&[("a", one(0))], Value::Nil);
            !stored(&ask(&site, by, request(by, vec![returns]))).is_empty()
        };
        assert!(returning(&relay), "it claims");
        let since = site.clock.unix_micros();
        let relay = MinionId::parse("relay").unwrap();
        site.around.closed.lock().push((relay, since));
        site.clock.advance(Duration::from_secs(601));
        if announcing == Some("other") {
            // Parts come all the time; without any it has no inventory any more.
            site.ask(other.sealed(inventory(&site, &other, "b"), 3));
        }
        let minions = Load::new().set("minions", list(&["a"]));
        let outcome = ask(&site, &other, forwarded(&other, JID, minions));
        let by_event = !announced(&outcome).is_empty();
        let load = Load::new()
            .set("fun", "test.ping")
            .set("Minions", list(&["a"]));
        let returns = aggregate(&[("b", one(0))], load.value());
        let outcome = ask(&site, &other, request(&other, vec![returns]));
        let by_job = !stored(&outcome)[0].job.minions.is_empty();
        (by_event, by_job, returning(&other))
    };
    for announcing in ["relay", "other"] {
        let ends = ends(ABOVE, Some(announcing));
        assert_eq!(ends, (false, false, true), "{announcing}");
    }
    let never = (false, false, false);
    assert_eq!(ends(ABOVE, None), never, "both are stock's");
    let without = format!("{ABOVE}saltern_syndic_inventory: False\n");
    assert_eq!(ends(&without, None), never, "without inventories");
}

#[test]
fn syndic_request_is_bounded() {
    let site = Site::new(ABOVE);
    let relay = syndic(&site, "relay");
    let names: Vec<String> = (0..100_001).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let announcement = forwarded(&relay, JID, Load::new().set("minions", list(&names)));
    assert_eq!(announced(&ask(&site, &relay, announcement)).len(), 100_000);
    let many: Vec<(&str, Value)> = names.iter().take(50_001).map(|id| (*id, one(0))).collect();
    let returns = request(&relay, vec![aggregate(&many, Value::Nil)]);
    assert_eq!(stored(&ask(&site, &relay, returns)).len(), 50_000);
    // Entries that returns share count for each of them.
    let large = "x".repeat(1 << 20);
    let large = aggregate(&many[..200], Value::Nil).set("fun_args", list(&[&large]));
    let kept = stored(&ask(&site, &relay, request(&relay, vec![large]))).len();
    assert!((100..=129).contains(&kept), "{kept}");
    let jobs = vec![aggregate(&many[..1], Value::Nil); 10_001];
    let outcome = ask(&site, &relay, request(&relay, jobs));
    assert_eq!(stored(&outcome).len(), 10_000);
}

fn event(tag: &str, data: Load) -> Value {
    Load::new().set("tag", tag).set("data", data).value()
}

#[test]
fn syndic_announcement_is_stored_before_answer() {
    let announced = |options: &str, pretag: &str| {
        let site = Site::new(options);
        let relay = syndic(&site, "relay");
        site.accept("mine", "minion");
        let minions = |names: &[&str]| Load::new().set("minions", list(names));
        let other = "20260102030405060709";
        let items = vec![
            event(JID, minions(&["b", "a"])),
            event(
                &format!("salt/job/{JID}/new"),
                minions(&["b", "mine"]).set("jid", JID),
            ),
            event(&format!("syndic/low/{JID}"), minions(&["c", "../d"])),
            event(other, minions(&[])),
            event("salt/auth", Load::new().set("id", "a")),
            event("my/tag", minions(&["e"])),
        ];
        let load = relay
            .load("_minion_event")
            .set("pretag", pretag)
            .set("events", Value::Array(items));
        let outcome = ask(&site, &relay, load);
        let leaves = outcome.effects.iter().find_map(|effect| match effect {
            Effect::ExpectSyndicMinions(leaves) => Some(leaves.clone()),
            _ => None,
        });
        (leaves, tags(&outcome))
    };
    let (leaves, fired) = announced(ABOVE, "syndic/relay");
    let expected = SyndicMinions {
        jid: saltern_model::Jid::parse(JID).unwrap(),
        syndic: MinionId::parse("relay").unwrap(),
        minions: ids(&["a", "b", "c"]),
    };
    assert_eq!(leaves, Some(vec![expected]));
    for tag in [
        JID,
        &format!("syndic/relay/{JID}"),
        &format!("syndic/relay/syndic/low/{JID}"),
    ] {
        assert!(fired.iter().any(|fired| fired == tag), "{tag} in {fired:?}");
    }
    assert!(fired.contains(&"syndic/relay/salt/auth".to_owned()));
    assert!(
        !fired.contains(&"salt/auth".to_owned()),
        "reactors act on it"
    );
    for (options, pretag) in [("", "syndic/relay"), (ABOVE, "syndic/other"), (ABOVE, "x")] {
        let (leaves, _) = announced(options, pretag);
        assert_eq!(leaves, None, "{options} {pretag}");
    }
}

/// The load of stock's `LocalClient` above syndics.
fn publish(site: &Site) -> Load {
    published_by_root(site, "*").set("to", 5_i64)
}

#[test]
fn job_above_syndics_is_sent_without_local_match() {
    let site = Site::new(ABOVE);
    syndic(&site, "relay");
    site.accept("mine", "minion");
    let outcome = site.ask(clear(publish(&site), 3));
    assert_eq!(
        started(&outcome).job.minions,
        ids(&["mine"]),
        "a syndic is no minion"
    );
    let load = sent(started(&outcome));
    assert_eq!(load.get("to"), Some(&5_i64.into()));
    assert_eq!(load.get("auth_list"), Some(&list(&[])));
    let outcome = site.ask(clear(publish(&site).set("tgt", "leaf"), 3));
    assert!(started(&outcome).job.minions.is_empty());
    let poll = publish(&site)
        .set("fun", "saltutil.find_job")
        .set("tgt", list(&["leaf", "relay", "mine"]))
        .set("tgt_type", "list")
        .set("arg", list(&["20260102030405060701"]));
    let outcome = site.ask(clear(poll, 3));
    let start = started(&outcome);
    assert!(matches!(start.about, Some(JobRelation::Running(_))));
    assert_eq!(
        start.job.minions,
        ids(&["leaf", "mine"]),
        "who is asked for by name"
    );
}

#[test]
fn auth_list_is_passed_on_with_master_key_only() {
    let site = Site::new("order_masters: True\npublisher_acl: {root: [.*], nobody: [.*]}\n");
    site.accept("mine", "minion");
    let rights = Value::Array(vec![Value::map([("mine*", list(&["test.*"]))])]);
    let kwargs = Load::new().set("auth_list", rights.clone());
    let keyed = |user: &str| {
        let key = site
            .services
            .users
            .rules()
            .users
            .key(user)
            .unwrap()
            .expose()
            .to_owned();
        let load = publish(&site)
            .set("tgt", "mine*")
            .set("key", key.as_str())
            .set("kwargs", kwargs.clone());
        site.ask(clear(load, 3))
    };
    let own = keyed(&site.services.config.user.clone());
    let own = started(&own);
    assert_eq!(sent(own).get("auth_list"), Some(&rights));
    let again = saltern_requests::publication_again(&own.job, &site.services).unwrap();
    assert_eq!(
        again.packed, own.publication.packed,
        "also when it is sent again"
    );
    let limited = publish(&site)
        .set("jid", "")
        .set("user", "nobody")
        .set(
            "key",
            site.services
                .users
                .rules()
                .users
                .key("nobody")
                .unwrap()
                .expose(),
        )
        .set("kwargs", kwargs.clone());
    let limited = site.ask(clear(limited, 3));
    assert_eq!(
        sent(started(&limited)).get("auth_list"),
        Some(&list(&[".*"])),
        "the rules that hold here hold below too"
    );
    let other = keyed("nobody");
    assert!(
        other
            .effects
            .iter()
            .all(|effect| matches!(effect, Effect::Fire(_)))
    );
    let none = publish(&site).set("kwargs", Load::new().set("auth_list", list(&[])));
    let none = none.set("jid", "");
    let outcome = site.ask(clear(none, 3));
    let stored = decode(started(&outcome).job.load.bytes());
    assert_eq!(stored.get("kwargs"), Some(&Load::new().value()), "as stock");
}

#[test]
fn has_syndic_needs_a_named_syndic_master() {
    let table = [
        ("", false),
        ("syndic_master: masterofmasters\n", false),
        ("syndic_master: ''\n", false),
        ("syndic_master: above.example.com\n", true),
        ("syndic_master: [above1, above2]\n", true),
    ];
    for (options, expected) in table {
        assert_eq!(
            Site::new(options).services.site.has_syndic,
            expected,
            "{options}"
        );
    }
}

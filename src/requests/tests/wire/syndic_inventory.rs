//! Inventories of syndics: who may announce which minions, and what targets then mean.
//!
//! Longer than 500 lines because it is a list: one rule of inventories a test.

use std::time::Duration;

use saltern_crypto::SigAlgo;
use saltern_model::{Jid, JobRecord, MinionId, Packed};
use saltern_requests::{Effect, Outcome, Topics, absence_below, inventories_are_whole};
use saltern_store::Write;
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::wire::client::{JID, Load, Minion, clear, published_by_root};
use crate::wire::site::{Site, data, decode, events, list, started};

pub(super) const OPTIONS: &str = "order_masters: True\nsaltern_syndic_inventory: True\n";

/// A syndic, and the epoch that its inventory has to bear.
pub(super) struct Relay<'a> {
    site: &'a Site,
    id: String,
    pub(super) minion: Minion,
    epoch: Option<String>,
}

impl<'a> Relay<'a> {
    pub(super) fn signed_in(site: &'a Site, id: &str) -> Self {
        let minion = Minion::signed_in(site, id);
        let reply = site.ask(clear(minion.auth(), 3)).reply;
        let keys = minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        let epoch = keys.get("saltern_syndic_inventory").and_then(Value::as_str);
        Self {
            site,
            id: id.to_owned(),
            epoch: epoch.map(str::to_owned),
            minion,
        }
    }

    pub(super) fn started(site: &'a Site, id: &str) -> Self {
        let relay = Self::signed_in(site, id);
        relay.start();
        relay
    }

    fn start(&self) {
        let load = self.start_event().set("saltern_syndic_inventory", true);
        self.site.ask(self.minion.sealed(load, 3));
    }

    /// The start event of stock's syndic.
    fn start_event(&self) -> Load {
        let load = self.minion.load("_minion_event").set("data", "started");
        let tag = format!("salt/syndic/{}/start", self.id);
        load.set("tag", tag.as_str())
    }

    fn part(&self, minions: &[(&str, &str)]) -> Load {
        let minions = minions.iter().map(|(id, os)| {
            let grains = Value::map([("os", *os)]);
            Value::Array(vec![(*id).into(), Value::Nil, grains])
        });
        self.minion
            .load("saltern_syndic_inventory")
            .set("epoch", self.epoch.as_deref().unwrap_or("x"))
            .set("list", 1_i64)
            .set("part", 0_i64)
            .set("last", true)
            .set("partial", false)
            .set("minions", Value::Array(minions.collect()))
            .set("gone", list(&[]))
    }

    fn ask(&self, part: Load) -> String {
        self.ask_and_hear(part).0
    }

    /// The result of a part, and the data of the events that it leads to.
    fn ask_and_hear(&self, part: Load) -> (String, Vec<Value>) {
        let outcome = self.site.ask(self.minion.sealed(part, 3));
        let events = events(&outcome);
        assert_eq!(outcome.effects.len(), events.len(), "nothing else");
        let answer = self.minion.open(&outcome.reply, 3);
        let result = answer.get("result").and_then(Value::as_str).unwrap();
        (result.to_owned(), events.iter().map(data).collect())
    }

    fn id(&self) -> MinionId {
        MinionId::parse(&self.id).unwrap()
    }

    /// Two syndics that announce the same minion "a" with the same key.
    pub(super) fn two_ways(site: &'a Site) -> (Self, Self) {
        let ways = (Self::started(site, "one"), Self::started(site, "two"));
        ways.0.announce_with_key("a", 1);
        ways.1.announce_with_key("a", 1);
        ways
    }

    /// Announces one minion, with a digest of its key.
    pub(super) fn announce_with_key(&self, minion: &str, key: u8) {
        let part = self.part(&[(minion, "x")]).set("keys", keys(&[key]));
        assert_eq!(self.ask(part), "taken");
    }

    /// Announces an empty list of this number.
    fn announce_anew(&self, number: i64) {
        assert_eq!(self.ask(self.part(&[]).set("list", number)), "taken");
    }

    /// Whether a return of [`JID`] by this minion, which comes by this syndic, is stored.
    fn returns_for(&self, minion: &str) -> bool {
        self.returns(JID, minion)
    }

    fn returns(&self, jid: &str, minion: &str) -> bool {
        self.returns_function(jid, minion, "test.ping")
    }

    fn returns_function(&self, jid: &str, minion: &str, fun: &str) -> bool {
        let outcome = self.returned(jid, minion, fun);
        let mut effects = outcome.effects.iter();
        effects.any(|effect| matches!(effect, Effect::StoreReturn(_)))
    }

    fn returned(&self, jid: &str, minion: &str, fun: &str) -> Outcome {
        let pong = Value::map([("return", "pong")]);
        let job = Load::new().set("jid", jid).set("fun", fun);
        let job = job.set("return", Value::map([(minion, pong)])).value();
        let load = self.minion.load("_syndic_return");
        let load = load.set("load", Value::Array(vec![job]));
        self.site.ask(self.minion.sealed(load, 3))
    }

    /// A return by "a" of each of these jobs.
    fn returns_of(jids: &[String]) -> Value {
        let jobs = jids.iter().map(|jid| {
            let pong = Value::map([("return", "pong")]);
            let job = Load::new().set("jid", jid.as_str()).set("fun", "test.ping");
            job.set("return", Value::map([("a", pong)])).value()
        });
        Value::Array(jobs.collect())
    }

    /// The outcome of a request with these, without a frame.
    fn returned_all(&self, jids: &[String]) -> Outcome {
        let load = self.minion.load("_syndic_return");
        let load = load.set("load", Self::returns_of(jids));
        self.site.ask(self.minion.sealed(load, 3))
    }

    /// The outcome of a frame with a return by "a" of each of these jobs, and the answer.
    fn frame(&self, number: i64, jids: &[String]) -> (Outcome, Value) {
        let reply = self.site.ask(clear(self.minion.auth(), 3)).reply;
        let keys = self.minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        let agreed = keys.get("saltern_syndic_frames").unwrap();
        let epoch = agreed.get("epoch").and_then(Value::as_str).unwrap();
        let load = self.minion.load("saltern_syndic_frame");
        let load = load.set("epoch", epoch).set("stream", 0_i64);
        let load = load.set("session", 1_000_i64).set("number", number);
        let load = load.set("load", Self::returns_of(jids));
        let outcome = self.site.ask(self.minion.sealed(load, 3));
        let answer = self.minion.open(&outcome.reply, 3);
        (outcome, answer)
    }

    /// The syndic is away since `at`, in microseconds since 1970.
    pub(super) fn is_away_since(&self, at: i64) {
        let closed = &mut *self.site.around.closed.lock();
        closed.push((self.id(), at));
    }

    pub(super) fn announce(&self, minions: &[(&str, &str)]) {
        assert_eq!(self.ask(self.part(minions)), "taken");
    }
}

fn below(site: &Site) -> Vec<String> {
    let ids = site.services.minions.inventories.ids();
    ids.sorted().iter().map(ToString::to_string).collect()
}

/// Stores a job of this master, as it was published for a target; it expects these minions.
fn stored(site: &Site, jid: &str, target: (&str, &str), minions: &[&str]) {
    let job = published(jid, target, minions);
    site.database.lock().commit(&[job]).unwrap();
}

fn published(jid: &str, (kind, tgt): (&str, &str), minions: &[&str]) -> Write {
    let load = Value::map([("tgt", tgt), ("tgt_type", kind)]);
    let minions = minions.iter().map(|id| MinionId::parse(id).unwrap());
    let job = JobRecord {
        jid: Jid::parse(jid).unwrap(),
        created: 1,
        user: "root".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: tgt.to_owned(),
        tgt_type: kind.to_owned(),
        load: Packed::new(encode(&load, Dialect::Bin)),
        minions: minions.collect(),
        nocache: false,
    };
    Write::JobPart(job)
}

/// The minions that a job expects, and the recipients of its publication.
fn expected(site: &Site, tgt: &str, kind: &str) -> Option<(Vec<String>, Topics)> {
    let load = published_by_root(site, tgt).set("tgt_type", kind);
    let outcome = site.ask(clear(load, 3));
    let is_started = |effect: &Effect| matches!(effect, Effect::StartJob(_));
    outcome.effects.iter().find(|effect| is_started(effect))?;
    let start = started(&outcome);
    let minions = start.job.minions.iter().map(ToString::to_string);
    Some((minions.collect(), start.publication.topics.clone()))
}

/// Whether a job for these minions waits for syndics, as the answer to the client and the tracker have it.
fn waits_for_syndics(site: &Site, tgt: &str, kind: &str) -> bool {
    let load = published_by_root(site, tgt).set("tgt_type", kind);
    let outcome = site.ask(clear(load, 3));
    let answer = decode(&outcome.reply);
    let said = answer.get("load").unwrap().get("saltern_expects_all");
    let expects_all = started(&outcome).expects_all;
    assert_eq!(
        said,
        expects_all.then_some(&Value::Bool(true)),
        "{kind} {tgt}"
    );
    !expects_all
}

fn exactly(ids: &[&str]) -> Topics {
    let ids = ids.iter().map(|id| MinionId::parse(id).unwrap());
    Topics::Exactly(ids.collect())
}

#[test]
fn epoch_stands_in_the_signed_answer_where_inventories_are_taken() {
    for (options, is_there) in [
        (OPTIONS, true),
        ("order_masters: True\n", true),
        (
            "order_masters: True\nsaltern_syndic_inventory: False\n",
            false,
        ),
        ("saltern_syndic_inventory: True\n", false),
    ] {
        let site = Site::new(options);
        let relay = Relay::signed_in(&site, "relay");
        assert_eq!(relay.epoch.is_some(), is_there, "{options}");
    }
}

#[test]
fn targets_mean_minions_of_inventories_and_nobody_else() {
    let site = Site::new(OPTIONS);
    site.accept("own", "large");
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    one.announce(&[("a", "Debian"), ("b", "Arch")]);
    let (minions, topics) = expected(&site, "b,zzz", "list").unwrap();
    assert_eq!(minions, ["b"]);
    assert!(
        matches!(topics, Topics::Minions(_)),
        "\"two\" has not announced any yet, so it may have some"
    );
    two.announce(&[("c", "Debian")]);
    for (kind, tgt, minions, sent_to) in [
        ("list", "own,b,zzz", vec!["own", "b"], vec!["own", "one"]),
        ("glob", "c", vec!["c"], vec!["two"]),
        ("pcre", "a|c", vec!["a", "c"], vec!["one", "two"]),
    ] {
        let (found, topics) = expected(&site, tgt, kind).unwrap();
        assert_eq!(found, minions, "{kind} {tgt}");
        assert_eq!(topics, exactly(&sent_to), "{kind} {tgt}");
    }
    let grains = |tgt: &str, kind: &str| expected(&site, tgt, kind).map(|(minions, _)| minions);
    let of_both = ["a".to_owned(), "c".to_owned()];
    assert_eq!(grains("os:Debian", "grain").unwrap(), of_both);
    assert_eq!(
        grains("G@os:Debian and not b", "compound").unwrap(),
        of_both
    );
    assert!(grains("os:Plan9", "grain").unwrap().is_empty());
    let (nobody, topics) = expected(&site, "zzz", "list").unwrap();
    assert!(nobody.is_empty() && matches!(topics, Topics::Minions(_)));
    // Pillars stay below: the syndics find out.
    assert!(grains("role:db", "pillar").unwrap().is_empty());
    assert!(grains("I@role:db and a", "compound").unwrap().is_empty());
}

#[test]
fn only_syndics_announce_and_only_minions_that_they_may_return_for() {
    let site = Site::new(OPTIONS);
    site.accept("own", "large");
    let stranger = Relay::signed_in(&site, "stranger");
    assert_eq!(stranger.ask(stranger.part(&[("a", "x")])), "refused");
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    one.announce(&[("a", "x"), ("own", "x"), ("one", "x"), ("two", "x")]);
    assert_eq!(below(&site), ["a"]);
    two.announce(&[("a", "x"), ("b", "x")]);
    let found = site
        .services
        .minions
        .inventories
        .find(&MinionId::parse("a").unwrap());
    assert_eq!(found.unwrap().syndic.as_str(), "one");
    assert_eq!(below(&site), ["a", "b"]);
    let off = Site::new("order_masters: True\nsaltern_syndic_inventory: False\n");
    let relay = Relay::started(&off, "relay");
    assert_eq!(relay.ask(relay.part(&[("a", "x")])), "refused");
}

#[test]
fn part_of_another_process_begins_anew_and_malformed_one_is_refused() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    let of_another = relay.part(&[("a", "x")]).set("epoch", "other");
    assert_eq!(relay.ask(of_another), "begin_anew");
    let missing = relay.part(&[("a", "x")]).set("part", 1_i64);
    assert_eq!(relay.ask(missing), "begin_anew");
    let refused = site.refused();
    for (name, value) in [
        ("minions", Value::from("x")),
        ("minions", list(&["a"])),
        ("minions", Value::Array(vec![list(&["../x", "y", "z"])])),
        ("minions", Value::Array(vec![Value::Nil; 10_001])),
        ("gone", list(&["../x"])),
        ("list", "x".into()),
        ("last", Value::Nil),
    ] {
        relay.announce(&[("a", "x")]);
        assert_eq!(
            relay.ask(relay.part(&[]).set(name, value)),
            "refused",
            "{name}"
        );
        assert!(below(&site).is_empty(), "it may not be believed any more");
    }
    assert_eq!(site.refused(), refused + 7);
    assert!(below(&site).is_empty());
}

#[test]
fn inventory_goes_with_the_syndic_that_becomes_a_minion() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    relay.announce(&[("a", "x")]);
    assert_eq!(below(&site), ["a"]);
    let acts = || {
        let load = relay.minion.load("_minion_event").set("data", "started");
        let load = load.set("tag", "salt/minion/relay/start");
        site.ask(relay.minion.sealed(load, 3));
    };
    acts();
    assert_eq!(below(&site), ["a"], "it may be both");
    advance(&site, 600);
    acts();
    advance(&site, 120);
    acts();
    assert!(below(&site).is_empty());
}

/// Moves time forward, but not the time of day.
fn advance(site: &Site, seconds: u64) {
    let inventories = &site.services.minions.inventories;
    inventories.advance(Duration::from_secs(seconds));
}

/// Inventories that were forgotten because their syndics announce none any more.
fn forgotten(site: &Site) -> u64 {
    site.services.metrics.inventories_forgotten.get()
}

#[test]
fn inventory_goes_after_the_start_of_a_syndic_that_announces_none() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    relay.announce(&[("a", "x")]);
    // As the minion of that machine does.
    site.ask(clear(relay.minion.auth(), 3));
    relay.start();
    assert_eq!((below(&site), forgotten(&site)), (vec!["a".to_owned()], 0));

    let start = || site.ask(relay.minion.sealed(relay.start_event(), 3));
    // As an earlier release of ours does, whose parts follow.
    start();
    let heartbeat = relay.part(&[]).set("part", 1_i64).set("last", false);
    assert_eq!(relay.ask(heartbeat), "begin_anew");
    advance(&site, 60);
    start();
    assert_eq!((below(&site), forgotten(&site)), (vec!["a".to_owned()], 0));

    for _ in 0..2 {
        advance(&site, 60);
        start();
        assert!(below(&site).is_empty());
        assert_eq!(forgotten(&site), 1, "once");
    }
    let (minions, topics) = expected(&site, "a", "list").unwrap();
    assert!(minions.is_empty() && matches!(topics, Topics::Minions(_)));
    let heartbeat = relay.part(&[]).set("part", 1_i64).set("last", false);
    assert_eq!(
        relay.ask(heartbeat),
        "begin_anew",
        "one of an earlier build"
    );
    relay.announce(&[("a", "x")]);
    assert_eq!(below(&site), ["a"]);
}

#[test]
fn start_event_is_fired_without_what_is_for_this_master_alone() {
    let site = Site::new(OPTIONS);
    let relay = Relay::signed_in(&site, "relay");
    let fired = |load: Load| {
        let outcome = site.ask(relay.minion.sealed(load, 3));
        let fired = events(&outcome);
        assert_eq!(fired.len(), 1, "one event");
        fired.first().map(data).unwrap()
    };
    let plain = fired(relay.start_event());
    let marked = relay.start_event().set("saltern_syndic_inventory", true);
    assert_eq!(fired(marked).get("saltern_syndic_inventory"), None);
    assert_eq!(plain.get("data"), Some(&Value::from("started")));
}

#[test]
fn inventory_goes_with_returns_and_events_of_a_syndic_that_sends_no_part_for_long() {
    // The clock of the site is set, and that of the syndic is not.
    let site = Site::new(&format!("{OPTIONS}saltern_replay_window: 0\n"));
    let relay = Relay::started(&site, "relay");
    let minion = &relay.minion;
    let events = || {
        let load = minion.load("_minion_event").set("pretag", "syndic/relay");
        load.set("events", list(&[]))
    };
    let returns = || minion.load("_syndic_return").set("load", list(&[]));
    let requests: [&dyn Fn() -> Load; 2] = [&events, &returns];
    for load in requests {
        relay.announce(&[("a", "x")]);
        let before = forgotten(&site);
        site.clock.advance(Duration::from_secs(3_600));
        for _ in 0..2 {
            advance(&site, 299);
            site.ask(minion.sealed(load(), 3));
            assert_eq!(below(&site), ["a"], "it may be late with a part");
            let next = relay.part(&[]).set("part", 1_i64).set("last", false);
            assert_eq!(relay.ask(next), "taken");
        }
        advance(&site, 300);
        site.ask(minion.sealed(load(), 3));
        assert_eq!(below(&site), ["a"], "a part may follow");
        advance(&site, 60);
        site.ask(clear(minion.auth(), 3));
        assert_eq!(below(&site), ["a"], "whoever signs in may be the minion");
        site.ask(minion.sealed(load(), 3));
        assert!(below(&site).is_empty());
        assert_eq!(forgotten(&site), before + 1);
    }
}

#[test]
fn job_takes_second_way_where_minion_may_have_one() {
    let site = Site::new(OPTIONS);
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    one.announce(&[("a", "x")]);
    two.announce(&[("b", "x")]);
    assert_eq!(expected(&site, "a", "list").unwrap().1, exactly(&["one"]));
    let part = two.part(&[("a", "x"), ("b", "x")]).set("list", 2_i64);
    assert_eq!(two.ask(part), "taken");
    let (minions, topics) = expected(&site, "a", "list").unwrap();
    assert_eq!(minions, ["a"], "it stands in one inventory");
    assert_eq!(topics, exactly(&["one", "two"]));
    let part = two.part(&[("b", "x")]).set("list", 3_i64);
    assert_eq!(two.ask(part), "taken");
    assert_eq!(expected(&site, "a", "list").unwrap().1, exactly(&["one"]));

    site.around
        .away
        .lock()
        .push(MinionId::parse("one").unwrap());
    let (_, topics) = expected(&site, "a", "list").unwrap();
    assert!(
        matches!(topics, Topics::Minions(_)),
        "another syndic may have it by now"
    );
    assert_eq!(expected(&site, "b", "list").unwrap().1, exactly(&["two"]));
}

#[test]
fn job_goes_to_all_while_an_inventory_is_outdated() {
    let site = Site::new(OPTIONS);
    let one = Relay::started(&site, "one");
    let topics = || expected(&site, "a", "list").unwrap().1;
    one.announce(&[("a", "x")]);
    assert_eq!(topics(), exactly(&["one"]));
    site.clock.advance(Duration::from_secs(61));
    assert!(matches!(topics(), Topics::Minions(_)));
    let heartbeat = one.part(&[]).set("part", 1_i64).set("last", false);
    assert_eq!(one.ask(heartbeat), "taken");
    assert_eq!(topics(), exactly(&["one"]));
    one.start();
    assert!(matches!(topics(), Topics::Minions(_)));
    let heartbeat = one.part(&[]).set("part", 2_i64).set("last", false);
    assert_eq!(one.ask(heartbeat), "begin_anew");
    assert_eq!(one.ask(one.part(&[("a", "x")]).set("list", 2_i64)), "taken");
    assert_eq!(topics(), exactly(&["one"]));
}

#[test]
fn job_waits_for_syndics_unless_all_inventories_are_whole() {
    let site = Site::new(OPTIONS);
    site.accept("own", "large");
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    let waits = |tgt: &str| waits_for_syndics(&site, tgt, "list");
    one.announce(&[("a", "x")]);
    assert!(waits("a"), "\"two\" may have others");
    two.announce(&[("b", "x")]);
    assert!(!waits("a") && !waits("own,a,b") && !waits("own"));
    assert!(waits("zzz"), "it may be below and new");

    let partial = |part: i64, is_partial: bool| {
        let part = two.part(&[]).set("part", part).set("last", false);
        assert_eq!(two.ask(part.set("partial", is_partial)), "taken");
    };
    partial(1, true);
    assert!(waits("a") && matches!(expected(&site, "a", "list").unwrap().1, Topics::Minions(_)));
    partial(2, false);
    assert!(!waits("a"));
    let unsaid = two.part(&[]).set("part", 3_i64).set("last", false);
    assert_eq!(two.ask(unsaid.without("partial")), "taken");
    assert!(waits("a"), "an earlier build does not say it");
    partial(4, false);
    assert!(!waits("a"));

    let second_way = two.part(&[("a", "x"), ("b", "x")]).set("list", 2_i64);
    assert_eq!(two.ask(second_way), "taken");
    assert!(waits("b"), "a syndic announces more than it has");
    assert_eq!(two.ask(two.part(&[("b", "x")]).set("list", 3_i64)), "taken");
    assert!(!waits("b"));

    site.around
        .away
        .lock()
        .push(MinionId::parse("one").unwrap());
    assert!(waits("a") && !waits("b"));
    site.clock.advance(Duration::from_secs(61));
    assert!(waits("b"), "no inventory is current");
}

#[test]
fn job_waits_for_syndics_while_none_is_known_and_the_master_has_just_begun() {
    let site = Site::new(OPTIONS);
    site.accept("own", "large");
    let topics = || expected(&site, "own", "list").unwrap().1;
    assert!(waits_for_syndics(&site, "own", "list"), "one may come back");
    assert!(matches!(topics(), Topics::Minions(_)));
    assert!(!inventories_are_whole(&site.services));
    advance(&site, 110);
    assert!(waits_for_syndics(&site, "own", "list"));
    advance(&site, 10);
    assert!(!waits_for_syndics(&site, "own", "list"));
    assert_eq!(topics(), exactly(&["own"]));
    assert!(inventories_are_whole(&site.services));
}

#[test]
fn start_event_of_a_syndic_that_only_connects_anew_keeps_its_inventory_full() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    relay.announce(&[("a", "x")]);
    let again = relay.start_event().set("saltern_syndic_inventory", true);
    let again = again.set("saltern_syndic_again", true);
    let outcome = site.ask(relay.minion.sealed(again, 3));
    let fired = events(&outcome);
    let fired = fired.first().map(data).unwrap();
    assert_eq!(fired.get("saltern_syndic_again"), None);
    assert!(!waits_for_syndics(&site, "a", "list"));
    relay.start();
    assert!(waits_for_syndics(&site, "a", "list"), "another process");
}

#[test]
fn minion_with_the_id_of_a_syndic_stays_one_when_the_syndic_only_connects_anew() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    let syndics = &site.services.minions.syndics;
    for (is_again, is_only_syndic) in [(true, false), (false, true)] {
        let started = relay.minion.load("_minion_event").set("data", "started");
        let started = started.set("tag", "salt/minion/relay/start");
        site.ask(relay.minion.sealed(started, 3));
        assert!(!syndics.is_only_syndic(&relay.id()));
        site.services
            .minions
            .inventories
            .advance(Duration::from_secs(3_600));
        let start = relay.start_event().set("saltern_syndic_inventory", true);
        let start = start.set("saltern_syndic_again", is_again);
        site.ask(relay.minion.sealed(start, 3));
        let is_only = syndics.is_only_syndic(&relay.id());
        assert_eq!(is_only, is_only_syndic, "{is_again}");
    }
}

#[test]
fn refused_part_of_a_peer_that_is_not_known_says_so() {
    let site = Site::new(OPTIONS);
    let class = |relay: &Relay<'_>, part: Load| {
        let outcome = site.ask(relay.minion.sealed(part, 3));
        let answer = relay.minion.open(&outcome.reply, 3);
        let class = answer.get("class").and_then(Value::as_str);
        class.unwrap().to_owned()
    };
    let relay = Relay::signed_in(&site, "relay");
    assert_eq!(class(&relay, relay.part(&[])), "not_syndic");
    relay.start();
    assert_eq!(class(&relay, relay.part(&[])), "");
    let malformed = relay.part(&[]).set("last", Value::Nil);
    assert_eq!(class(&relay, malformed), "content");
}

/// Targets with grains, which mean "a" where its "os" is "x" and that of "b" is another.
const WITH_GRAINS: [(&str, &str); 7] = [
    ("grain", "os:x"),
    ("grain", "os:x*"),
    ("grain_pcre", "os:x"),
    ("compound", "G@os:x"),
    ("compound", "a or P@os:x"),
    ("compound", "* and not ( G@os:y )"),
    ("compound", "a or S@10.0.0.0/8"),
];

/// A master below without the grains of a minion announces it with none; a minion that has them returns.
#[test]
fn job_whose_target_has_grains_waits_for_syndics_while_those_of_one_minion_are_missing() {
    let site = Site::new(OPTIONS);
    let one = Relay::started(&site, "one");
    let no_grains = Value::Map(Vec::new());
    let lacking = Value::Array(vec!["b".into(), Value::Nil, no_grains]);
    let known = Value::Array(vec!["a".into(), Value::Nil, Value::map([("os", "x")])]);
    let part = one
        .part(&[])
        .set("minions", Value::Array(vec![known, lacking]));
    assert_eq!(one.ask(part), "taken");
    let (minions, _) = expected(&site, "os:x", "grain").unwrap();
    assert_eq!(minions, ["a"], "what is known is expected all the same");
    for (kind, tgt) in WITH_GRAINS {
        assert!(waits_for_syndics(&site, tgt, kind), "{kind} {tgt}");
    }
    for (kind, tgt) in [
        ("glob", "*"),
        ("list", "a,b"),
        ("pcre", "a|b"),
        ("compound", "( L@a,b and not E@b.* ) or a*"),
    ] {
        assert!(!waits_for_syndics(&site, tgt, kind), "{kind} {tgt}");
    }
}

#[test]
fn job_whose_target_has_grains_ends_with_its_last_return_where_all_are_known() {
    let site = Site::new(OPTIONS);
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    one.announce(&[("a", "x")]);
    assert!(
        waits_for_syndics(&site, "os:x", "grain"),
        "no inventory of \"two\""
    );
    two.announce(&[("b", "y")]);
    for (kind, tgt) in WITH_GRAINS {
        assert!(!waits_for_syndics(&site, tgt, kind), "{kind} {tgt}");
    }
    let (minions, topics) = expected(&site, "os:x", "grain").unwrap();
    assert_eq!(minions, ["a"]);
    assert_eq!(topics, Topics::Broadcast);
    for (kind, tgt) in [
        ("grain", "os:Plan9"),
        ("pillar", "os:x"),
        ("compound", "G@os:x or I@role:db"),
        ("compound", "G@os:x or S@nowhere"),
    ] {
        assert!(waits_for_syndics(&site, tgt, kind), "{kind} {tgt}");
    }
}

#[test]
fn reason_of_an_absence_stays_on_its_line() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    let unknown = Value::Map(Vec::new());
    let away = Value::Array(vec!["a".into(), "x\n\u{1b}[2J".into(), unknown]);
    let part = relay.part(&[]).set("minions", Value::Array(vec![away]));
    assert_eq!(relay.ask(part), "taken");
    let inventories = &site.services.minions.inventories;
    let found = inventories.find(&MinionId::parse("a").unwrap()).unwrap();
    assert_eq!(found.away.as_deref(), Some("x\\n\\u{1b}[2J"));
}

/// The syndic that jobs for a minion go by.
fn route(site: &Site, minion: &str) -> Option<String> {
    let minion = MinionId::parse(minion).unwrap();
    let found = site.services.minions.inventories.find(&minion);
    found.map(|below| below.syndic.to_string())
}

#[test]
fn minion_below_two_syndics_is_announced_once_for_each_pair() {
    for options in ["", "saltern_strict_minion_events: False\n"] {
        let site = Site::new(&format!("{OPTIONS}{options}"));
        site.accept("own", "large");
        let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
        one.announce(&[("a", "x"), ("b", "x")]);
        let both = || two.part(&[("a", "x"), ("b", "x"), ("c", "x"), ("own", "x")]);
        let (result, events) = two.ask_and_hear(both());
        assert_eq!((result.as_str(), events.len()), ("taken", 1), "{options}");
        for (name, expected) in [
            ("route", Value::from("one")),
            ("other", "two".into()),
            ("minions", list(&["a", "b"])),
            ("count", 2_i64.into()),
        ] {
            assert_eq!(events[0].get(name), Some(&expected), "{options}");
        }
        assert_eq!(route(&site, "a").as_deref(), Some("one"), "{options}");
        let again = two.ask_and_hear(both().set("list", 2_i64));
        assert_eq!(again, ("taken".to_owned(), Vec::new()), "{options}");
        let three = Relay::started(&site, "three");
        let (_, events) = three.ask_and_hear(three.part(&[("a", "x")]));
        assert_eq!(events.len(), 1, "it is another pair: {options}");
    }
}

/// Digests of the public keys of minions, of one byte.
fn keys(bytes: &[u8]) -> Value {
    let digests = bytes.iter().map(|byte| Value::from(&[*byte; 32][..]));
    Value::Array(digests.collect())
}

/// A minion that is connected to the masters of two syndics may return by either, and that is shown by its key alone:
/// a syndic that announces the minion of another one does not know it.
#[test]
fn syndic_returns_for_the_minion_of_another_where_both_announce_the_same_key() {
    let same = keys(&[1]);
    for (of_two, is_proved) in [
        (same.clone(), true),
        (keys(&[2]), false),
        (keys(&[]), false),
        (Value::Array(vec![Value::Nil]), false),
        (Value::Array(vec![Value::from(&[1_u8; 31][..])]), false),
        ("x".into(), false),
    ] {
        let site = Site::new(OPTIONS);
        let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
        let part = one.part(&[("a", "x")]).set("keys", same.clone());
        assert_eq!(one.ask(part), "taken");
        let part = two.part(&[("a", "x")]).set("keys", of_two.clone());
        let (result, events) = two.ask_and_hear(part);
        assert_eq!((result.as_str(), events.len()), ("taken", 1));
        assert_eq!(route(&site, "a").as_deref(), Some("one"));

        stored(&site, JID, ("glob", "a"), &["a"]);
        let (refused, unannounced) = (site.refused(), site.services.metrics.unannounced.get());
        for (relay, is_taken) in [(&one, true), (&two, is_proved), (&one, true)] {
            assert_eq!(relay.returns_for("a"), is_taken, "{} {of_two:?}", relay.id);
        }
        let is_refused = site.refused() > refused;
        assert_eq!(is_refused, !is_proved, "{of_two:?}");
        let is_flagged = site.services.metrics.unannounced.get() > unannounced;
        assert!(!is_flagged, "{of_two:?}");

        // While the first is away, it is the route.
        site.around.away.lock().push(one.id());
        let minion = MinionId::parse("a").unwrap();
        let is_away = absence_below(&minion, &site.services).unwrap().is_some();
        assert_eq!(is_away, !is_proved, "{of_two:?}");
    }
}

/// A minion's public key is enough to make its digest: with that alone a syndic may not return what it likes.
#[test]
fn second_way_returns_only_jobs_of_this_master_for_the_minion_while_the_first_is_open() {
    let site = Site::new(OPTIONS);
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    let part = one
        .part(&[("a", "x"), ("b", "x")])
        .set("keys", keys(&[1, 2]));
    assert_eq!(one.ask(part), "taken");
    two.announce_with_key("a", 1);
    let jid = |number: usize| format!("202601020304050{number:05}");
    for (number, (kind, tgt), expects, is_taken) in [
        (1, ("glob", "a"), &["a"][..], true),
        (2, ("list", "b"), &["b"], false),
        (3, ("list", "b,a"), &[], true),
        (4, ("glob", "b*"), &["a"], true),
        (5, ("grain", "os:y"), &[], true),
        (6, ("pillar", "role:db"), &["b"], true),
        (7, ("compound", "b or L@c"), &[], false),
    ] {
        stored(&site, &jid(number), (kind, tgt), expects);
        assert_eq!(two.returns(&jid(number), "a"), is_taken, "{kind} {tgt}");
        assert!(
            !two.returns(&jid(number), "b"),
            "it does not announce that one"
        );
    }
    // Such a job is of the master below, or somebody has made it up.
    assert!(!two.returns(&jid(8), "a"));
    let reporter = Some(two.id());
    let job = Jid::parse(&jid(1)).unwrap();
    let job = site
        .services
        .jobs
        .reader
        .load(&job)
        .unwrap()
        .unwrap()
        .record;
    let job = JobRecord {
        jid: Jid::parse(&jid(9)).unwrap(),
        ..job
    };
    let reported = Write::ClosedJob { job, reporter };
    site.database.lock().commit(&[reported]).unwrap();
    assert!(!two.returns(&jid(9), "a"), "a minion has reported it");
    // Probes are not stored, and whoever takes their answers knows them.
    let answers = |number: usize, minion: &str| {
        two.returns_function(&jid(number), minion, "saltutil.running")
    };
    assert!(answers(8, "a") && !answers(8, "b") && !answers(9, "a") && !answers(2, "a"));
    let confirms_only = |relay: &Relay<'_>, jid: &str, fun: &str| {
        let outcome = relay.returned(jid, "a", fun);
        match outcome.effects.as_slice() {
            [Effect::StoreReturn(returned)] => returned.confirms_only,
            _ => panic!("one return of {jid}"),
        }
    };
    let probe = "saltutil.running";
    assert!(confirms_only(&two, &jid(8), probe), "the first way is open");
    assert!(!confirms_only(&one, &jid(8), probe) && !confirms_only(&two, &jid(1), probe));
    assert!(one.returns(&jid(8), "a") && one.returns(&jid(9), "a"));

    site.around.away.lock().push(one.id());
    assert!(two.returns(&jid(8), "a"), "there is no other way");
    assert!(!confirms_only(&two, &jid(8), probe));
    assert!(!two.returns(&jid(8), "b"));
    site.around.away.lock().clear();
    let away = Value::Array(vec!["a".into(), "no connection".into(), Value::Nil]);
    let part = one.part(&[]).set("part", 1_i64).set("last", false);
    let part = part.set("minions", Value::Array(vec![away]));
    assert_eq!(one.ask(part.set("keys", keys(&[1]))), "taken");
    assert!(two.returns(&jid(8), "a"), "it is away from the first");
}

fn text<'a>(answer: &'a Value, name: &str) -> Option<&'a str> {
    answer.get(name).and_then(Value::as_str)
}

/// Nothing of the request is refused for good: it comes again.
#[test]
fn returns_by_a_second_way_come_again_when_their_job_cannot_be_read() {
    let site = Site::new(OPTIONS);
    let (_one, two) = Relay::two_ways(&site);
    stored(&site, JID, ("glob", "a"), &["a"]);
    let jids = [JID.to_owned()];
    let files = ["jobs.sqlite", "jobs.sqlite-wal"];
    let files = files.map(|name| site.services.config.cachedir.join(name));
    let contents = files.clone().map(|file| std::fs::read(file).unwrap());
    for file in &files {
        std::fs::write(file, []).unwrap();
    }
    let refused = site.refused();
    let (outcome, answer) = two.frame(1, &jids);
    assert_eq!(text(&answer, "result"), Some("not_stored"));
    assert_eq!(answer.get("number"), Some(&Value::from(1_i64)));
    assert!(outcome.effects.is_empty());
    assert!(!two.returns_for("a"));
    assert_eq!(site.refused(), refused, "none is refused");
    for (file, content) in files.iter().zip(contents) {
        std::fs::write(file, content).unwrap();
    }
    let (outcome, answer) = two.frame(2, &jids);
    assert_eq!(text(&answer, "result"), Some("stored"));
    assert_eq!(outcome.effects.len(), 1);
    assert!(two.returns_for("a"));
}

/// A frame of an outbox has the returns of up to 4,000 jobs.
#[test]
fn second_way_returns_very_many_jobs_at_once() {
    let site = Site::new(OPTIONS);
    let (_one, two) = Relay::two_ways(&site);
    let jid = |number: usize| format!("202601020304050{number:05}");
    let all = |from: usize, target| {
        let jids: Vec<String> = (from..from + 1_001).map(jid).collect();
        let jobs = jids.iter().map(|jid| published(jid, target, &["a"]));
        let jobs: Vec<Write> = jobs.collect();
        site.database.lock().commit(&jobs).unwrap();
        jids
    };
    let meant = all(0, ("glob", "a*"));
    let (outcome, answer) = two.frame(1, &meant);
    assert_eq!(answer.get("returns"), Some(&Value::from(1_001_i64)));
    assert_eq!(outcome.effects.len(), 1_001);
    // Where the target does not say it, the minions of each job are read.
    let expected = all(2_000, ("glob", "b*"));
    let (_, answer) = two.frame(2, &expected);
    assert_eq!(answer.get("returns"), Some(&Value::from(1_001_i64)));
}

/// Jobs with large loads are read once for all returns of a request, and no more of them than a worker has time for.
#[test]
fn second_way_has_to_send_fewer_returns_of_jobs_with_large_loads() {
    let site = Site::new(OPTIONS);
    let (_one, two) = Relay::two_ways(&site);
    let jid = |number: usize| format!("202601020304050{number:05}");
    let names = "b0123456789,".repeat(500_000);
    let jobs = (0..4).map(|number| published(&jid(number), ("list", &names), &["a"]));
    let jobs: Vec<Write> = jobs.collect();
    site.database.lock().commit(&jobs).unwrap();
    drop(jobs);
    let refused = site.refused();
    let unknown = jid(9);
    let all: Vec<String> = std::iter::once(unknown).chain((0..4).map(jid)).collect();
    let (outcome, answer) = two.frame(1, &all);
    assert_eq!(text(&answer, "class"), Some("content"), "{answer:?}");
    assert!(outcome.effects.is_empty());
    assert_eq!(
        site.refused(),
        refused + 1,
        "the frame, and no return of it"
    );
    let outcome = two.returned_all(&all);
    assert!(outcome.effects.is_empty());
    let answer = two.minion.open(&outcome.reply, 3);
    assert_eq!(answer, Value::Bool(false), "our syndics send fewer then");
    assert_eq!(site.refused(), refused + 1);
    // Each job alone is decided, however large it is, and however often it comes.
    let huge = jid(4);
    let names = "b0123456789,".repeat(1_500_000);
    let job = published(&huge, ("list", &names), &["a"]);
    site.database.lock().commit(&[job]).unwrap();
    for (number, jid) in (2..).zip(all[1..].iter().chain([&huge])) {
        let many = vec![jid.clone(); 3_000];
        let (outcome, answer) = two.frame(number, &many);
        assert_eq!(text(&answer, "result"), Some("stored"), "{answer:?}");
        assert_eq!(outcome.effects.len(), 3_000);
    }
    let (_, answer) = two.frame(9, &all[..1]);
    assert_eq!(answer.get("returns"), Some(&Value::from(0_i64)));
    assert_eq!(
        site.refused(),
        refused + 2,
        "it is counted when it is decided"
    );
}

/// It returns for the minion, and names it in no list: jobs expect it by the first way.
#[test]
fn second_way_names_no_minion_of_a_job() {
    let site = Site::new(OPTIONS);
    let (one, two) = Relay::two_ways(&site);
    site.around.away.lock().push(one.id());
    let refused = site.refused();
    for (relay, is_named) in [(&one, true), (&two, false)] {
        let named = Value::map([("jid", Value::from(JID)), ("minions", list(&["a"]))]);
        let event = Value::map([("tag", Value::from(JID)), ("data", named)]);
        let load = relay.minion.load("_minion_event");
        let load = load.set("pretag", format!("syndic/{}", relay.id).as_str());
        let outcome = site.ask(
            relay
                .minion
                .sealed(load.set("events", Value::Array(vec![event])), 3),
        );
        let mut effects = outcome.effects.iter();
        let names = effects.any(|effect| matches!(effect, Effect::ExpectSyndicMinions(_)));
        assert_eq!(names, is_named, "{}", relay.id);
    }
    assert_eq!(site.refused(), refused, "it is no fault of the second one");
}

/// The proof that a minion is below a second syndic ends with that syndic's words.
#[test]
fn second_way_of_a_minion_ends_when_its_syndic_has_it_no_more() {
    let site = Site::new(OPTIONS);
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    let announced = |relay: &Relay<'_>| relay.part(&[("a", "x")]).set("keys", keys(&[1]));
    one.ask(announced(&one));
    two.ask(announced(&two));
    stored(&site, JID, ("glob", "a"), &["a"]);
    assert!(two.returns_for("a"));
    let gone = two.part(&[]).set("part", 1_i64).set("last", false);
    assert_eq!(two.ask(gone.set("gone", list(&["a"]))), "taken");
    assert!(!two.returns_for("a"), "it says that it is gone");
    two.ask(announced(&two).set("list", 2_i64));
    assert!(two.returns_for("a"));
    two.announce_anew(3);
    assert!(!two.returns_for("a"), "it stands in no list of it");
    two.ask(announced(&two).set("list", 4_i64));
    let other = one.part(&[("a", "x")]).set("keys", keys(&[2]));
    one.ask(other.set("list", 2_i64));
    assert!(!two.returns_for("a"), "it has another key now");
    assert!(one.returns_for("a"));
}

#[test]
fn minion_that_has_moved_is_below_the_other_syndic_at_its_next_part() {
    let site = Site::new(OPTIONS);
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    one.announce(&[("a", "x"), ("b", "x")]);
    two.announce(&[("a", "x")]);
    let gone = one.part(&[]).set("part", 1_i64).set("last", false);
    assert_eq!(one.ask(gone.set("gone", list(&["a"]))), "taken");
    assert_eq!(route(&site, "a"), None);
    let next = || two.part(&[("a", "x")]).set("last", false);
    assert_eq!(two.ask(next().set("part", 1_i64)), "begin_anew");
    let (result, events) = two.ask_and_hear(two.part(&[("a", "x")]).set("list", 2_i64));
    assert_eq!((result.as_str(), events), ("taken", Vec::new()));
    assert_eq!(expected(&site, "a", "list").unwrap().1, exactly(&["two"]));
    assert_eq!(expected(&site, "b", "list").unwrap().1, exactly(&["one"]));
}

/// Each part takes minions over, and none of them makes the list begin anew.
#[test]
fn list_that_takes_minions_over_ends_in_one_pass() {
    let site = Site::new(OPTIONS);
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    let all = [("a", "x"), ("b", "x"), ("c", "x")];
    one.announce(&all);
    two.announce(&all);
    one.is_away_since(site.clock.unix_micros());
    site.clock.advance(Duration::from_secs(600));
    for (number, minion) in (0_i64..).zip(all) {
        let part = two.part(&[minion]).set("list", 2_i64);
        let part = part.set("part", number).set("last", number == 2);
        assert_eq!(two.ask(part), "taken", "part {number}");
        assert_eq!(route(&site, minion.0).as_deref(), Some("two"));
    }
    let next = two.part(&[]).set("list", 2_i64).set("part", 3_i64);
    assert_eq!(two.ask(next.set("last", false)), "taken");
}

#[test]
fn claim_of_a_syndic_that_is_away_for_long_ends() {
    let site = Site::new(OPTIONS);
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    one.announce(&[("a", "x")]);
    let refused = site.refused();
    one.is_away_since(site.clock.unix_micros());
    site.clock.advance(Duration::from_secs(599));
    two.announce(&[("a", "x")]);
    assert_eq!(route(&site, "a").as_deref(), Some("one"));
    assert_eq!(site.refused(), refused + 1, "it is not the syndic's");
    site.clock.advance(Duration::from_secs(1));
    let again = two.part(&[("a", "x")]).set("list", 2_i64);
    assert_eq!(two.ask(again), "taken");
    assert_eq!(route(&site, "a").as_deref(), Some("two"));
    assert_eq!(site.refused(), refused + 1);
}

/// A minion that came back to its first syndic, which was away for long, is below that one again as soon as
/// the second one has it no more.
#[test]
fn minion_is_below_its_first_syndic_again_when_the_second_has_it_no_more() {
    let site = Site::new(OPTIONS);
    let (one, two) = (Relay::started(&site, "one"), Relay::started(&site, "two"));
    one.announce(&[("a", "x")]);
    one.is_away_since(site.clock.unix_micros());
    site.clock.advance(Duration::from_secs(600));
    two.announce(&[("a", "x"), ("b", "x")]);
    assert_eq!(route(&site, "a").as_deref(), Some("two"));
    site.around.closed.lock().clear();
    one.start();
    let again = || one.part(&[("a", "x")]).set("list", 2_i64);
    assert_eq!(one.ask(again()), "taken");
    assert_eq!(route(&site, "a").as_deref(), Some("two"), "it keeps it");
    let gone = two.part(&[]).set("part", 1_i64).set("last", false);
    assert_eq!(two.ask(gone.set("gone", list(&["a"]))), "taken");
    let next = one.part(&[]).set("list", 2_i64).set("part", 1_i64);
    assert_eq!(one.ask(next.set("last", false)), "begin_anew");
    assert_eq!(one.ask(again().set("list", 3_i64)), "taken");
    assert_eq!(route(&site, "a").as_deref(), Some("one"));
    assert_eq!(expected(&site, "a", "list").unwrap().1, exactly(&["one"]));
}

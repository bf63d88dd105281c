//! Frames of returns of syndics: who may send them, which numbers are taken, and what they bring.

use saltern_crypto::SigAlgo;
use saltern_requests::{Effect, Outcome};
use saltern_store::jobs::says_the_same;
use saltern_wire::msgpack::Value;

use crate::wire::client::{JID, Load, Minion, clear};
use crate::wire::site::Site;

const OPTIONS: &str = "order_masters: True\nsaltern_syndic_frames: True\n";

/// A syndic, and the epoch that its frames have to bear.
struct Relay<'a> {
    site: &'a Site,
    minion: Minion,
    epoch: Option<String>,
    /// The masters of its path to the top.
    path: Vec<Value>,
}

impl<'a> Relay<'a> {
    fn signed_in(site: &'a Site, id: &str) -> Self {
        let minion = Minion::signed_in(site, id);
        let reply = site.ask(clear(minion.auth(), 3)).reply;
        let keys = minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        let agreed = keys.get("saltern_syndic_frames");
        let epoch = agreed.and_then(|agreed| agreed.get("epoch")?.as_str());
        Self {
            site,
            epoch: epoch.map(str::to_owned),
            path: keys
                .get("saltern_syndic_path")
                .and_then(Value::as_array)
                .map_or_else(Vec::new, <[Value]>::to_vec),
            minion,
        }
    }

    fn started(site: &'a Site, id: &str) -> Self {
        let relay = Self::signed_in(site, id);
        let load = relay.minion.load("_minion_event").set("data", "started");
        let tag = format!("salt/syndic/{id}/start");
        site.ask(relay.minion.sealed(load.set("tag", tag.as_str()), 3));
        relay
    }

    fn frame(&self, number: i64, returns: &[(&str, Value)]) -> Load {
        let returns = Value::map(returns.iter().cloned());
        let job = Load::new().set("jid", JID).set("fun", "test.ping");
        let job = job.set("return", returns).value();
        self.minion
            .load("saltern_syndic_frame")
            .set("epoch", self.epoch.as_deref().unwrap_or("x"))
            .set("stream", 0_i64)
            .set("session", 1_000_i64)
            .set("number", number)
            .set("load", Value::Array(vec![job]))
    }

    /// The outcome of a frame, and the answer to it.
    fn ask(&self, frame: Load) -> (Outcome, Value) {
        let outcome = self.site.ask(self.minion.sealed(frame, 3));
        let answer = self.minion.open(&outcome.reply, 3);
        (outcome, answer)
    }

    /// The result of a frame, which is stored if it is `stored`.
    fn result(&self, frame: Load) -> String {
        let (outcome, answer) = self.ask(frame);
        let result = text(&answer, "result");
        assert_eq!(result == "stored", !outcome.effects.is_empty(), "{result}");
        result
    }
}

fn text(answer: &Value, name: &str) -> String {
    let text = answer.get(name).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn pong() -> Value {
    Value::map([("return", Value::from("pong")), ("retcode", 0_i64.into())])
}

#[test]
fn epoch_and_size_stand_in_the_signed_answer_where_frames_are_taken() {
    for (options, is_there) in [
        (OPTIONS, true),
        ("order_masters: True\n", true),
        ("order_masters: True\nsaltern_syndic_frames: False\n", false),
        ("saltern_syndic_frames: True\n", false),
    ] {
        let site = Site::new(options);
        let relay = Relay::signed_in(&site, "relay");
        assert_eq!(relay.epoch.is_some(), is_there, "{options}");
        // Inventories are on by default, and say the path, too.
        let has_path = options.contains("order_masters");
        assert_eq!(relay.path.len(), usize::from(has_path), "{options}");
    }
}

#[test]
fn frames_are_agreed_only_with_room_for_a_mebibyte() {
    for (size, is_agreed) in [(1 << 20, true), ((1 << 20) - 1, false)] {
        let options = format!(
            "{OPTIONS}saltern_max_unauthenticated_size: 65536\nsaltern_max_message_size: {size}\n"
        );
        let site = Site::new(&options);
        let relay = Relay::signed_in(&site, "relay");
        assert_eq!(relay.epoch.is_some(), is_agreed, "{size}");
    }
}

#[test]
fn frame_is_answered_when_its_returns_are_stored() {
    let site = Site::new(OPTIONS);
    site.accept("own", "large");
    let relay = Relay::started(&site, "relay");
    let returns = [("a", pong()), ("b", pong()), ("own", pong())];
    let (outcome, answer) = relay.ask(relay.frame(1, &returns));
    let stored = outcome.effects.iter().map(|effect| match effect {
        Effect::StoreReturn(stored) => stored.record.minion.as_str(),
        _ => panic!("returns are stored, and nothing else"),
    });
    assert_eq!(stored.collect::<Vec<_>>(), ["a", "b"]);
    let expected = Value::map([
        ("result", Value::from("stored")),
        ("number", 1_i64.into()),
        ("returns", 2_i64.into()),
    ]);
    assert_eq!(answer, expected, "\"own\" is not the syndic's");
    let failed = relay.minion.open(&outcome.reply_if_not_stored, 3);
    assert_eq!(text(&failed, "result"), "not_stored");
}

/// Both outboxes of a syndic may bring a return of which the publication came late. The store keeps the first, and fires
/// the events of no second one that says the same (`repeated_return_fires_its_events_once_until_the_store_restarts`).
#[test]
fn return_that_comes_in_both_streams_is_acknowledged_twice_and_says_the_same() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    let brought = [0_i64, 1].map(|stream| {
        let frame = relay.frame(1, &[("a", pong())]).set("stream", stream);
        let (mut outcome, answer) = relay.ask(frame);
        assert_eq!(text(&answer, "result"), "stored");
        assert_eq!(answer.get("returns"), Some(&Value::from(1_i64)));
        match outcome.effects.pop() {
            Some(Effect::StoreReturn(returned)) => returned.record,
            _ => panic!("a return is stored, and nothing else"),
        }
    });
    let [first, second] = &brought;
    assert_eq!((&first.jid, &first.minion), (&second.jid, &second.minion));
    assert!(says_the_same(first.load.bytes(), second.load.bytes()));
}

#[test]
fn frame_is_refused_unless_it_is_of_a_syndic_and_in_order() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    let first = || relay.frame(1, &[("a", pong())]);
    assert_eq!(relay.result(first()), "stored");
    assert_eq!(relay.result(first()), "stored", "its answer may be lost");
    assert_eq!(relay.result(first().set("epoch", "other")), "begin_anew");
    let (_, answer) = relay.ask(first().set("session", 999_i64));
    assert_eq!(text(&answer, "result"), "begin_anew");
    assert_eq!(answer.get("session"), Some(&1_000_i64.into()));
    let (_, answer) = relay.ask(first().set("number", 66_i64));
    assert_eq!(text(&answer, "result"), "begin_anew", "beyond the window");
    let refused = site.refused();
    let rows = [
        ("number", Value::from(0_i64)),
        ("number", (-1_i64).into()),
        ("number", "x".into()),
        ("stream", 2_i64.into()),
        ("stream", Value::Nil),
        ("session", Value::Nil),
        ("epoch", Value::Nil),
        ("load", Value::Nil),
        ("load", Value::map([("jid", JID)])),
    ];
    let count = rows.len() as u64;
    for (name, value) in rows {
        let result = relay.result(first().set(name, value.clone()));
        assert_eq!(result, "refused", "{name}: {value:?}");
    }
    assert_eq!(site.refused(), refused + count);
    let stranger = Relay::signed_in(&site, "stranger");
    let frame = stranger.frame(1, &[("a", pong())]);
    assert_eq!(stranger.result(frame), "refused");
}

#[test]
fn refused_frame_names_its_class() {
    let class = |options: &str, is_started: bool, change: (&str, Value)| {
        let site = Site::new(options);
        let relay = match is_started {
            true => Relay::started(&site, "relay"),
            false => Relay::signed_in(&site, "relay"),
        };
        let frame = relay.frame(1, &[("a", pong())]).set(change.0, change.1);
        let (outcome, answer) = relay.ask(frame);
        assert!(outcome.effects.is_empty());
        assert_eq!(text(&answer, "result"), "refused");
        text(&answer, "class")
    };
    let same = || ("stream", Value::from(0_i64));
    assert_eq!(class(OPTIONS, true, ("load", Value::Nil)), "content");
    let large = ("session", Value::from(i64::MAX));
    assert_eq!(class(OPTIONS, true, large), "not_agreed");
    let without_frames = "order_masters: True\nsaltern_syndic_frames: False\n";
    assert_eq!(class(without_frames, true, same()), "not_agreed");
    assert_eq!(class(OPTIONS, false, same()), "not_syndic");
    let off = "saltern_syndic_frames: True\n";
    assert_eq!(class(off, true, same()), "not_syndic");
}

#[test]
fn large_frame_is_refused_unless_it_has_one_return() {
    let site = Site::new(OPTIONS);
    let relay = Relay::started(&site, "relay");
    let large = "x".repeat(17 << 20);
    let large = Value::map([("return", Value::from(large.as_str()))]);
    let two = relay.frame(1, &[("a", pong()), ("b", large.clone())]);
    let (_, answer) = relay.ask(two);
    assert_eq!(text(&answer, "reason"), "it is larger than frames are");
    assert_eq!(relay.result(relay.frame(1, &[("b", large)])), "stored");
}

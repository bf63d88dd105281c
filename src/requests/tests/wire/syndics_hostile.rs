//! A syndic that lies: what it can bring about, by either way that returns come up.

use saltern_crypto::SigAlgo;
use saltern_model::MinionId;
use saltern_requests::Effect;
use saltern_wire::msgpack::Value;

use crate::wire::client::{JID, Load, Minion, clear};
use crate::wire::site::{Site, list};

const OPTIONS: &str =
    "order_masters: True\nsaltern_syndic_inventory: True\nsaltern_syndic_frames: True\n";

/// A syndic with the epochs that the master wants.
struct Relay {
    minion: Minion,
    inventory: Value,
    frames: Value,
}

impl Relay {
    fn started(site: &Site, id: &str) -> Self {
        let minion = Minion::signed_in(site, id);
        let reply = site.ask(clear(minion.auth(), 3)).reply;
        let keys = minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        let tag = format!("salt/syndic/{id}/start");
        let load = minion.load("_minion_event").set("data", "started");
        site.ask(minion.sealed(load.set("tag", tag.as_str()), 3));
        let frames = keys.get("saltern_syndic_frames").unwrap();
        Self {
            minion,
            inventory: keys.get("saltern_syndic_inventory").unwrap().clone(),
            frames: frames.get("epoch").unwrap().clone(),
        }
    }

    fn part(&self, part: i64, is_last: bool, minions: Vec<Value>) -> Load {
        self.minion
            .load("saltern_syndic_inventory")
            .set("epoch", self.inventory.clone())
            .set("list", 1_i64)
            .set("part", part)
            .set("last", is_last)
            .set("partial", false)
            .set("minions", Value::Array(minions))
            .set("gone", list(&[]))
    }

    fn announce(&self, site: &Site, minions: &[&str]) {
        let part = self.part(0, true, minions.iter().map(|id| entry(id)).collect());
        assert_eq!(result(site, self, part), "taken");
    }

    /// A return of one minion, in a request of this command.
    fn returning(&self, command: &str, minion: &str) -> Load {
        let pong = Value::map([("return", "pong")]);
        let job = Load::new().set("jid", JID).set("fun", "test.ping");
        let job = job.set("return", Value::map([(minion, pong)])).value();
        self.minion
            .load(command)
            .set("epoch", self.frames.clone())
            .set("stream", 0_i64)
            .set("session", 1_i64)
            .set("number", 1_i64)
            .set("load", Value::Array(vec![job]))
    }
}

fn entry(id: &str) -> Value {
    Value::Array(vec![id.into(), Value::Nil, Value::Map(Vec::new())])
}

fn result(site: &Site, relay: &Relay, load: Load) -> String {
    let outcome = site.ask(relay.minion.sealed(load, 3));
    let answer = relay.minion.open(&outcome.reply, 3);
    let result = answer.get("result").and_then(Value::as_str);
    result.unwrap_or_default().to_owned()
}

#[test]
fn forged_return_is_refused_where_another_speaks_and_flagged_where_nobody_does() {
    for command in ["_syndic_return", "saltern_syndic_frame"] {
        let site = Site::new(OPTIONS);
        site.accept("own", "large");
        let (relay, other) = (
            Relay::started(&site, "relay"),
            Relay::started(&site, "other"),
        );
        relay.announce(&site, &["a"]);
        other.announce(&site, &["b"]);
        for (minion, is_stored, is_refused, is_flagged) in [
            ("a", true, false, false),
            ("relay", true, false, false),
            ("own", false, true, false),
            ("b", false, true, false),
            ("../x", false, true, false),
            ("unheard-of", true, false, true),
        ] {
            let flagged = || site.services.metrics.unannounced.get();
            let (refused_before, flagged_before) = (site.refused(), flagged());
            let request = relay.minion.sealed(relay.returning(command, minion), 3);
            let outcome = site.ask(request.clone());
            let is_return = |effect: &Effect| matches!(effect, Effect::StoreReturn(_));
            let stored = outcome.effects.iter().filter(|it| is_return(it)).count();
            assert_eq!(stored == 1, is_stored, "{command} {minion}");
            let refused = site.refused() > refused_before;
            assert_eq!(refused, is_refused, "{command} {minion}");
            let flagged = flagged() > flagged_before;
            assert_eq!(flagged, is_flagged, "{command} {minion}");
            let reply = site.ask_in_vain("replayed", request);
            assert_eq!(&reply[..], b"\xa8bad load", "{command} {minion}");
        }
    }
}

/// Outcome for a syndic that announces more minions than the bound of 100,000: with strict events
/// it may not speak for any more, else its inventory is dropped as a whole.
#[test]
fn minions_beyond_the_bound_are_not_kept() {
    for (options, last, kept) in [
        ("", "taken", 100_000),
        ("saltern_strict_minion_events: False\n", "refused", 0),
    ] {
        let site = Site::new(&format!("{OPTIONS}{options}"));
        let relay = Relay::started(&site, "relay");
        let refused = site.refused();
        let mut results = Vec::new();
        for part in 0..11_i64 {
            let names = (0..10_000).map(|number| entry(&format!("n{part}-{number}")));
            let part = relay.part(part, false, names.collect());
            results.push(result(&site, &relay, part));
        }
        let (end, before) = results.split_last().unwrap();
        assert!(before.iter().all(|result| result == "taken"), "{results:?}");
        assert_eq!(end, last, "{options}");
        let ids = site.services.minions.inventories.ids();
        assert_eq!(ids.sorted().len(), kept, "{options}");
        assert!(site.refused() > refused, "{options}");
        let id = MinionId::parse("relay").unwrap();
        let claimed = site.services.minions.syndics.claimed_by(&id);
        assert!(claimed <= 100_000, "{options}: {claimed}");
    }
}

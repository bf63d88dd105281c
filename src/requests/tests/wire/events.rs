//! `_minion_event` in both its forms.

use saltern_requests::Outcome;
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, Minion};
use crate::wire::site::{Site, data, events, names, tags};

fn ask(site: &Site, load: Load) -> Outcome {
    let m1 = Minion::signed_in(site, "m1");
    let outcome = site.ask(m1.sealed(load, 3));
    assert_eq!(m1.open(&outcome.reply, 3), Value::Nil);
    outcome
}

fn event(site: &Site) -> Load {
    Minion::signed_in(site, "m1").load("_minion_event")
}

fn item(tag: &str) -> Value {
    Value::map([
        ("tag", Value::from(tag)),
        ("data", Value::map([("of", tag)])),
    ])
}

#[test]
fn single_event_carries_whole_load() {
    let site = Site::new("");
    let load = event(&site)
        .set("pretag", Value::Nil)
        .set("data", "text")
        .set("tag", "my/tag");
    let outcome = ask(&site, load);
    assert_eq!(tags(&outcome), ["my/tag"]);
    let fired = data(&events(&outcome)[0]);
    assert_eq!(
        names(&fired),
        ["cmd", "id", "ts", "pretag", "data", "tag"],
        "no token, no nonce"
    );
    for lacking in ["data", "tag"] {
        let load = event(&site)
            .set("data", "x")
            .set("tag", "x")
            .without(lacking);
        assert_eq!(tags(&ask(&site, load)), Vec::<String>::new(), "{lacking}");
    }
    for tag in ["", "a\nb"] {
        let load = event(&site).set("data", "x").set("tag", tag);
        assert_eq!(tags(&ask(&site, load)), Vec::<String>::new(), "{tag:?}");
    }
}

#[test]
fn listed_events_are_filtered_and_copied_as_each_release_does() {
    let listed = || {
        Value::Array(vec![
            item("mine"),
            item("salt/key"),
            item("salt/job/20260102030405060708/new"),
            Value::map([("tag", "bare")]),
        ])
    };
    let older = ["mine", "p/mine", "bare", "p/bare"];
    // Stock's also has the copy of the job, which the command line would take for the job itself.
    let newer = ["p/mine", "mine", "p/salt/key", "p/bare", "bare"];
    for (compat, expected) in [("3006", &older[..]), ("3007", &older), ("3008", &newer)] {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        let load = event(&site).set("events", listed()).set("pretag", "p");
        let outcome = ask(&site, load);
        assert_eq!(tags(&outcome), expected, "{compat}");
        let events = events(&outcome);
        for event in &events[..2] {
            let of_mine = Value::map([("of", "mine")]);
            assert_eq!(data(event), of_mine, "the item's data alone");
        }
    }
    let site = Site::new("");
    let load = event(&site).set("events", Value::Array(vec![item("mine")]));
    assert_eq!(tags(&ask(&site, load.clone())), ["mine"]);
    assert_eq!(
        tags(&ask(&site, load.clone().set("pretag", Value::Nil))),
        ["mine"]
    );
    assert_eq!(
        tags(&ask(&site, load.set("pretag", ""))),
        ["mine", "mine"],
        "as tagify joins"
    );
}

#[test]
fn malformed_event_items_do_not_drop_the_others() {
    let site = Site::new("");
    let no_map = Value::map([("tag", "x"), ("data", "text")]);
    let items = vec![
        5_i64.into(),
        Value::map([("data", "x")]),
        no_map,
        item("good"),
    ];
    let outcome = ask(&site, event(&site).set("events", Value::Array(items)));
    assert_eq!(tags(&outcome), ["good"]);
    for wrong in [Value::Nil, 5_i64.into(), "x".into()] {
        let outcome = ask(&site, event(&site).set("events", wrong));
        assert_eq!(tags(&outcome), Vec::<String>::new());
    }
}

#[test]
fn minion_event_cannot_forge_tags_of_master_or_other_minion() {
    let forged = [
        ("salt/job/20260102030405060708/ret/m2", "event_reserved"),
        ("salt/auth", "event_reserved"),
        ("20260102030405060708", "event_reserved"),
        ("salt/minion/m2/start", "event_foreign"),
        ("minion/refresh/m2", "event_foreign"),
        ("salt/key", "event_reserved"),
        ("salt/batch/20260102030405060708/stop", "event_reserved"),
        ("salt/reactors/manage/add", "event_reserved"),
        ("my/salt/reactors/manage/add", "event_reserved"),
        ("salt/event/exit", "event_reserved"),
        ("my/salt/job/20260102030405060708/ret/m2", "event_reserved"),
        (
            "syndic/m1/salt/job/20260102030405060708/ret/m2",
            "event_reserved",
        ),
    ];
    let site = Site::new("");
    let refused = |reason: &str| {
        let metrics = &site.services.metrics.refused;
        metrics.with_label_values(&[reason]).get()
    };
    for (tag, reason) in forged {
        let before = refused(reason);
        let single = event(&site).set("data", "x").set("tag", tag);
        assert_eq!(tags(&ask(&site, single)), Vec::<String>::new(), "{tag}");
        assert_eq!(refused(reason), before + 1, "{tag}");
        let listed = Value::Array(vec![item(tag), item("own")]);
        let listed = event(&site).set("events", listed);
        assert_eq!(tags(&ask(&site, listed)), ["own"], "{tag}");
        // The tag in two halves, which only 3008 joins after its check.
        if let Some((head, tail)) = tag.rsplit_once('/').filter(|(_, tail)| *tail != "key") {
            let halves = event(&site)
                .set("events", Value::Array(vec![item(tail)]))
                .set("pretag", head);
            assert_eq!(tags(&ask(&site, halves)), [tail], "{tag}");
        }
    }
    let own = event(&site)
        .set("data", "x")
        .set("tag", "salt/minion/m1/start");
    assert_eq!(tags(&ask(&site, own)), ["salt/minion/m1/start"]);
    let lax = Site::new("saltern_strict_minion_events: False\n");
    for (tag, _) in forged {
        let single = event(&lax).set("data", "x").set("tag", tag);
        assert_eq!(
            tags(&ask(&lax, single)),
            [tag],
            "as in stock: this form is not filtered"
        );
    }
}

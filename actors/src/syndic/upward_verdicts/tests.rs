use saltern_base::metrics::{Registry, counter};
use saltern_model::{Packed, Tag};
use saltern_wire::msgpack::{Dialect, encode};

use super::*;

const JID: &str = "20260102030405060708";

fn jid() -> Jid {
    Jid::parse(JID).unwrap()
}

fn queue() -> UpwardVerdicts {
    UpwardVerdicts::new(counter(&Registry::new(), "dropped_total", "Dropped."))
}

fn event(what: &str, data: Value) -> Event {
    Event {
        tag: Tag::parse(&format!("saltern/job/{JID}/{what}")).unwrap(),
        data: Packed::new(encode(&data, Dialect::Bin)),
    }
}

fn text(text: &str) -> Value {
    Value::from(text)
}

/// An event with minions that were given up and are back.
fn judged_event() -> Event {
    let change = |verdict: &str, is: &str, reason: &str| {
        Value::map([("verdict", verdict), ("is", is), ("reason", reason)])
    };
    let minions = Value::map([
        ("a", change("unknown", "unknown", "no answer")),
        ("b", change("unknown", "unknown", "no answer")),
        ("c", change("back", "running", "")),
        ("d", change("late", "returned", "")),
        ("e", change("unreachable", "unreachable", "away")),
    ]);
    event("verdict", Value::map([("minions", minions)]))
}

/// The verdicts that wait: how many syndics they came through, their text and minions.
fn said(queue: &UpwardVerdicts) -> Vec<(i64, Option<String>, String)> {
    let waiting = queue.next();
    let verdicts = waiting.iter().flat_map(Waiting::verdicts);
    let said = verdicts.map(|verdict| {
        assert_eq!(verdict.jid, jid());
        let minions = verdict.minions.map_or("all".to_owned(), |it| it.join(","));
        (verdict.depth, verdict.text, minions)
    });
    said.collect()
}

#[test]
fn minions_with_the_same_verdict_go_up_together_and_late_returns_by_themselves() {
    let queue = queue();
    queue.hear(&judged_event());
    let some = |text: &str| Some(text.to_owned());
    let expected = [
        (0, None, "c".to_owned()),
        (0, some("unknown: no answer"), "a,b".to_owned()),
        (0, some("unreachable: away"), "e".to_owned()),
    ];
    assert_eq!(said(&queue), expected);
}

#[test]
fn verdict_of_a_syndic_below_is_relayed_with_the_syndics_it_came_through() {
    let queue = queue();
    let below = |says: Value| {
        let said = Value::map([
            ("minions", Value::Array(vec![text("a"), text("b")])),
            ("depth", Value::Int(1)),
            ("says", says),
        ]);
        event("below", Value::map([("said", Value::Array(vec![said]))]))
    };
    queue.hear(&below(text("syndic \"low\" says: unknown")));
    queue.hear(&below(Value::Nil));
    let expected = [
        (
            1,
            Some("syndic \"low\" says: unknown".to_owned()),
            "a,b".to_owned(),
        ),
        (1, None, "a,b".to_owned()),
    ];
    assert_eq!(said(&queue), expected);
}

#[test]
fn job_that_ends_without_returns_says_all_that_are_missing() {
    let queue = queue();
    let ending = |state: &str| {
        let one = |minion: &str, reason: &str| Value::map([(minion, reason)]);
        let data = Value::map([
            ("state", text(state)),
            ("returned", Value::Array(vec![text("z")])),
            ("unreachable", one("a", "away")),
            ("unknown", one("b", "no answer")),
            ("awaited", one("c", "it runs the job")),
        ]);
        event("finished", data)
    };
    queue.hear(&ending("complete"));
    assert!(said(&queue).is_empty());
    queue.hear(&ending("expired"));
    let said = said(&queue);
    let said: Vec<String> = said
        .into_iter()
        .map(|(_, text, minions)| format!("{minions} {}", text.unwrap_or_default()))
        .collect();
    let expected = [
        "c not waited for any more: it runs the job",
        "b unknown: no answer",
        "a unreachable: away",
    ];
    assert_eq!(said, expected);
}

#[test]
fn refused_publication_is_a_verdict_on_all_minions_below() {
    let queue = queue();
    queue.push(Waiting::NotPublished(jid(), "é".repeat(MAX_VERDICT_TEXT)));
    let said = said(&queue);
    let [(0, Some(text), minions)] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert_eq!(minions, "all");
    assert!(text.starts_with("the job was not published: é"), "{text}");
    assert!((MAX_VERDICT_TEXT - 1..=MAX_VERDICT_TEXT).contains(&text.len()));
}

#[test]
fn other_events_say_nothing() {
    let queue = queue();
    for what in ["progress", "state", "verdict/x"] {
        queue.hear(&event(what, Value::Nil));
    }
    let data = Packed::new(Vec::new());
    for tag in ["saltern/job/x/verdict", "salt/job/20260102030405060708/new"] {
        let tag = Tag::parse(tag).unwrap();
        let data = data.clone();
        queue.hear(&Event { tag, data });
    }
    queue.hear(&event("verdict", Value::Nil));
    assert_eq!(queue.next().len(), 1);
    assert!(said(&queue).is_empty(), "it cannot be read");
}

#[test]
fn queue_is_bounded_in_events_and_bytes_and_keeps_what_has_no_answer() {
    let queue = queue();
    for _ in 0..MAX_WAITING + 3 {
        queue.push(Waiting::NotPublished(jid(), "x".to_owned()));
    }
    assert_eq!(queue.dropped.get(), 3);
    assert_eq!(queue.next().len(), MAX_TOGETHER);
    assert_eq!(queue.next(), queue.next(), "until they are done");
    for _ in 0..MAX_WAITING {
        queue.done(queue.next().len());
    }
    assert!(queue.next().is_empty());
    let half = || Waiting::NotPublished(jid(), "x".repeat(MAX_WAITING_BYTES / 2));
    for _ in 0..3 {
        queue.push(half());
    }
    assert_eq!((queue.next().len(), queue.dropped.get()), (2, 4));
    queue.done(2);
    queue.push(half());
    assert_eq!(queue.next().len(), 1, "there is room again");
}

#[test]
fn nothing_waits_for_a_master_that_takes_no_verdicts() {
    let queue = queue();
    queue.hear(&judged_event());
    queue.agree(false);
    assert!(queue.next().is_empty());
    queue.hear(&judged_event());
    assert!(queue.next().is_empty());
    queue.agree(true);
    queue.hear(&judged_event());
    assert_eq!(queue.next().len(), 1);
}

#[test]
fn requests_are_bounded_in_verdicts_and_minions() {
    let verdict = |minions: usize| Verdict {
        jid: jid(),
        depth: 0,
        text: None,
        minions: Some(vec!["a".to_owned(); minions]),
    };
    let sizes = |verdicts: &[Verdict]| -> Vec<u64> {
        let requests = requests(verdicts);
        requests.into_iter().map(|(count, _)| count).collect()
    };
    assert!(sizes(&[]).is_empty());
    assert_eq!(sizes(&vec![verdict(1); MAX_VERDICTS + 1]), [500, 1]);
    let half = MAX_MINIONS / 2;
    assert_eq!(sizes(&[verdict(half), verdict(half), verdict(1)]), [2, 1]);
    let names = (0..MAX_MINIONS + 1).map(|number| (format!("m{number}"), "gone"));
    let names: Vec<(String, &str)> = names.collect();
    let names = names.iter().map(|(name, reason)| (name.as_str(), *reason));
    let data = Value::map([("state", text("expired")), ("unknown", Value::map(names))]);
    let ended = Waiting::of(&event("finished", data)).unwrap();
    assert_eq!(sizes(&ended.verdicts()), [1, 1]);
}

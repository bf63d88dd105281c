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
    let (_, waiting) = queue.next(MAX_WAITING);
    let verdicts = waiting.into_iter().flat_map(|one| one.verdicts);
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
    queue.not_published(&jid(), &"é".repeat(MAX_VERDICT_TEXT));
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
    assert!(said(&queue).is_empty(), "it cannot be read");
}

/// A job from above, by its number.
fn numbered(number: usize) -> Jid {
    Jid::parse(&format!("202601020304050{number:05}")).unwrap()
}

fn jids(waiting: &[Waiting]) -> Vec<&Jid> {
    waiting.iter().map(|one| &one.jid).collect()
}

#[test]
fn queue_is_bounded_and_its_oldest_are_dropped() {
    let queue = queue();
    for number in 0..MAX_WAITING + 3 {
        queue.not_published(&numbered(number), "x");
    }
    assert_eq!(queue.dropped.get(), 3);
    let (_, waiting) = queue.next(1);
    assert_eq!(jids(&waiting), [&numbered(3)]);
    assert_eq!(queue.next(5), queue.next(5), "until they are done");
    let (end, _) = queue.next(MAX_WAITING);
    queue.done(end);
    assert!(queue.next(1).1.is_empty());
    let half = |number: usize| {
        Waiting::of_all(
            &numbered(number),
            Some("x".repeat(MAX_WAITING_BYTES / 2 - OVERHEAD)),
        )
    };
    for number in 0..3 {
        queue.push(half(number));
    }
    let (_, waiting) = queue.next(5);
    assert_eq!(jids(&waiting), [&numbered(1), &numbered(2)]);
    assert_eq!(queue.dropped.get(), 4);
    queue.push(Waiting::of_all(
        &jid(),
        Some("x".repeat(MAX_WAITING_BYTES + 1)),
    ));
    assert!(queue.next(5).1.is_empty(), "it is too large alone");
}

#[test]
fn answer_for_those_that_were_dropped_meanwhile_removes_no_others() {
    let queue = queue();
    queue.not_published(&numbered(1), "x");
    queue.not_published(&numbered(2), "x");
    let (end, _) = queue.next(2);
    // The connection is made anew, with a master that takes none and then again with one that does.
    queue.agree(false);
    queue.agree(true);
    queue.not_published(&numbered(3), "x");
    queue.done(end);
    assert_eq!(jids(&queue.next(5).1), [&numbered(3)]);
    let (end, _) = queue.next(1);
    for number in 4..MAX_WAITING + 4 {
        queue.not_published(&numbered(number), "x");
    }
    queue.done(end);
    assert_eq!(jids(&queue.next(1).1), [&numbered(4)]);
    let (end, _) = queue.next(1);
    let dropped = queue.dropped.get();
    queue.give_up(end);
    assert_eq!(jids(&queue.next(1).1), [&numbered(5)]);
    assert_eq!(queue.dropped.get(), dropped + 1);
}

#[test]
fn job_that_is_published_after_all_withdraws_that_it_was_not() {
    let queue = queue();
    queue.published(&jid());
    assert!(said(&queue).is_empty(), "nothing was said");
    queue.not_published(&jid(), "refused");
    queue.published(&jid());
    queue.published(&jid());
    let expected = [
        (
            0,
            Some("the job was not published: refused".to_owned()),
            "all".to_owned(),
        ),
        (0, None, "all".to_owned()),
    ];
    assert_eq!(said(&queue), expected);
    for number in 0..=MAX_NOT_PUBLISHED {
        queue.not_published(&numbered(number), "x");
    }
    let (end, _) = queue.next(MAX_WAITING);
    queue.done(end);
    queue.published(&numbered(0));
    assert!(said(&queue).is_empty(), "it is not remembered");
    queue.published(&numbered(1));
    assert_eq!(queue.next(5).1.len(), 1);
}

#[test]
fn what_has_no_answer_goes_up_in_smaller_batches_and_alone_is_dropped() {
    let mut batch = SendBatch::default();
    let mut sizes = vec![batch.most];
    let mut attempts = 1;
    while !batch.fail() {
        attempts += 1;
        if sizes.last() != Some(&batch.most) {
            sizes.push(batch.most);
        }
    }
    assert_eq!(sizes, [50, 25, 12, 6, 3, 1]);
    assert_eq!(attempts, sizes.len() as u32 * MAX_ATTEMPTS);
    assert_eq!(batch.most, MAX_TOGETHER, "the next ones go together");
}

#[test]
fn returned_minions_of_an_ended_job_are_not_kept() {
    let queue = queue();
    let names: Vec<Value> = (0..1_000)
        .map(|number| text(&format!("m{number}")))
        .collect();
    let data = Value::map([
        ("state", text("expired")),
        ("returned", Value::Array(names)),
        ("unknown", Value::map([("a", "x")])),
    ]);
    queue.hear(&event("finished", data));
    let expected = "unknown: x".len() + "a".len() + 2 * OVERHEAD;
    assert_eq!(queue.queue.lock().bytes, expected);
}

#[test]
fn nothing_waits_for_a_master_that_takes_no_verdicts() {
    let queue = queue();
    queue.hear(&judged_event());
    queue.agree(false);
    assert!(queue.next(5).1.is_empty());
    queue.hear(&judged_event());
    assert!(queue.next(5).1.is_empty());
    queue.agree(true);
    queue.hear(&judged_event());
    assert_eq!(queue.next(5).1.len(), 1);
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
    assert_eq!(sizes(&ended.verdicts), [1, 1]);
    let of_all = Waiting::of_all(&jid(), None).verdicts.into_iter();
    let of_all: Vec<Verdict> = of_all.cycle().take(6).collect();
    assert_eq!(sizes(&of_all), [5, 1], "each counts for many");
}

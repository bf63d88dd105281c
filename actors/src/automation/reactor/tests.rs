//! Tests of the event queues: limits, order, bounds.

use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_config::{MasterConfig, load_master};

use super::*;
use crate::events::bus::Tap;
use crate::shared::testing::closed;
use crate::shared::testing::event;

fn config(options: &str) -> (tempfile::TempDir, MasterConfig) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display();
    let text = format!("root_dir: {root}\nuser: root\n{options}");
    std::fs::write(dir.path().join("master"), text).unwrap();
    let loaded = load_master(dir.path());
    let loaded = loaded.map_err(|errors| errors.to_string()).unwrap();
    (dir, loaded.config)
}

fn queue(options: &str) -> (tempfile::TempDir, Arc<ReactionQueue>) {
    let (dir, config) = config(options);
    let queue = ReactionQueue::open(&config, &Clock::system(), closed(), &Registry::new());
    (dir, queue.unwrap().expect("a reactor is asked for"))
}

/// Takes the events that can be taken now: their tags and places.
fn taken(queue: &Arc<ReactionQueue>) -> Vec<(String, InFlightEvent)> {
    let next = || {
        queue
            .pop()
            .map(|(item, place)| (item.event.tag.to_string(), place))
    };
    std::iter::from_fn(next).collect()
}

fn tags(taken: &[(String, InFlightEvent)]) -> Vec<&str> {
    taken.iter().map(|(tag, _)| tag.as_str()).collect()
}

fn dropped(queue: &ReactionQueue) -> Option<Value> {
    Some(reasons(&queue.dropped_event()?))
}

fn reasons(event: &saltern_model::Event) -> Value {
    let data = decode(event.data.as_ref(), &Limits::WIRE).unwrap();
    assert_eq!(data.get("user"), Some(&USER.into()));
    data.get("reasons").cloned().unwrap()
}

fn count(dropped: i64, total: i64) -> Value {
    Value::map([("dropped", dropped), ("total", total)])
}

const RULES: &str = "reactor: [{'a/*': /nowhere.sls}, {'b/*': /nowhere.sls}]\n";

#[test]
fn reactor_needs_rules_or_an_engine() {
    let opened = |options| {
        let (_dir, config) = config(options);
        let queue = ReactionQueue::open(&config, &Clock::system(), closed(), &Registry::new());
        queue.unwrap().is_some()
    };
    assert!(!opened("reactor: []\n"));
    assert!(!opened("engines: [test: {}]\n"));
    assert!(opened("engines: [reactor]\n"));
    assert!(opened("engines: [reactor: {worker_hwm: 5}]\n"));
    assert!(opened(RULES));
}

#[tokio::test]
async fn matching_events_are_queued_in_order() {
    let (_dir, queue) = queue(RULES);
    for tag in [
        "a/1",
        "c/1",
        "b/1",
        "salt/reactors/manage/list-results",
        "a/2",
    ] {
        queue.hear(&event(tag));
    }
    queue.hear(&event("x/salt/reactors/manage/list"));
    assert_eq!(
        tags(&taken(&queue)),
        ["a/1", "b/1", "a/2", "x/salt/reactors/manage/list"]
    );
    assert_eq!(dropped(&queue), None);
}

#[tokio::test]
async fn overflow_is_counted_exactly_and_reported_once() {
    let (_dir, queue) = queue(&format!("{RULES}reactor_worker_hwm: 3\n"));
    for number in 0..10 {
        queue.hear(&event(&format!("a/{number}")));
    }
    assert_eq!(dropped(&queue), Some(Value::map([("queue", count(7, 7))])));
    assert_eq!(dropped(&queue), None);
    assert_eq!(tags(&taken(&queue)), ["a/0", "a/1", "a/2"]);
    queue.hear(&event("a/10"));
    queue.close();
    queue.hear(&event("a/11"));
    let expected = Value::map([("stop", count(1, 1))]);
    let news: Vec<Value> = queue.take_news().iter().map(reasons).collect();
    assert_eq!(news, [expected]);
    assert_eq!(dropped(&queue), Some(Value::map([("queue", count(1, 8))])));
    assert!(taken(&queue).is_empty());
}

#[tokio::test(start_paused = true)]
async fn rate_limit_holds_for_its_own_tags() {
    let (_dir, queue) = queue(&format!(
        "{RULES}saltern_reactor_limits: {{'a/*': {{rate: 2}}}}\n"
    ));
    for _ in 0..5 {
        queue.hear(&event("a/1"));
        queue.hear(&event("b/1"));
    }
    assert_eq!(dropped(&queue), Some(Value::map([("rate", count(3, 3))])));
    assert_eq!(taken(&queue).len(), 7);
    tokio::time::advance(Duration::from_millis(500)).await;
    queue.hear(&event("a/2"));
    queue.hear(&event("a/3"));
    assert_eq!(tags(&taken(&queue)), ["a/2"]);
}

#[tokio::test]
async fn event_over_its_concurrency_limit_waits_while_others_pass() {
    let (_dir, queue) = queue(&format!(
        "{RULES}saltern_reactor_limits: {{'a/*': {{concurrency: 1}}}}\n"
    ));
    for tag in ["a/1", "a/2", "b/1"] {
        queue.hear(&event(tag));
    }
    let first = taken(&queue);
    assert_eq!(tags(&first), ["a/1", "b/1"]);
    assert!(taken(&queue).is_empty());
    drop(first);
    assert_eq!(tags(&taken(&queue)), ["a/2"]);
}

#[test]
fn invalid_limits_are_refused() {
    let (_dir, wrong) = config(&format!("{RULES}saltern_reactor_limits: [1]\n"));
    assert!(ReactionQueue::open(&wrong, &Clock::system(), closed(), &Registry::new()).is_err());
}

/// Events about failed reactions: the end of the tag and the data.
fn reports(queue: &ReactionQueue) -> Vec<(String, Value)> {
    let news = queue.take_news().into_iter();
    let news = news.map(|event| {
        let data = decode(event.data.as_ref(), &Limits::WIRE).unwrap();
        (event.tag.to_string(), data)
    });
    news.collect()
}

fn key(number: u32) -> reactor::ReactionKey {
    reactor::ReactionKey {
        state: "local".to_owned(),
        number,
        name: "n".to_owned(),
    }
}

fn reaction() -> reactor::Reaction {
    reactor::Reaction {
        id: "r".to_owned(),
        sls: "/a.sls".to_owned(),
        key: key(2),
        call: reactor::ReactionCall::Local(Value::map([("fun", "test.ping")])),
    }
}

#[tokio::test]
async fn dropped_watch_reports_its_reaction_which_can_be_replayed() {
    let (_dir, queue) = queue(RULES);
    queue.hear(&event("a/1"));
    let (item, place) = queue.pop().unwrap();
    let watch = Watch::new(&queue, &item.event, &reaction(), &Arc::new(place));
    drop(watch);
    let reports = reports(&queue);
    let [(tag, data)] = reports.as_slice() else {
        panic!("{reports:?} is not one event");
    };
    assert_eq!(tag, "saltern/reactor/lost");
    let text = |name| data.get(name).and_then(Value::as_str);
    assert_eq!(text("tag"), Some("a/1"));
    assert_eq!((text("sls"), text("id")), (Some("/a.sls"), Some("r")));
    assert_eq!(text("user"), Some(USER));
    let dead_letter = text("letter").unwrap();
    assert!(queue.replay("00000000000000000000").is_err());
    let _asked = queue.replay(dead_letter).unwrap();
    let (item, _place) = queue.pop().unwrap();
    assert_eq!(item.event.tag.as_str(), "a/1");
    let again = ReplaySelection {
        dead_letter: dead_letter.to_owned(),
        sls: Some("/a.sls".to_owned()),
        id: Some("r".to_owned()),
        key: Some(key(2)),
    };
    assert_eq!(item.kind, Kind::ReplaySelection(again));
    queue.remove_letter(dead_letter).unwrap();
    assert!(queue.remove_letter(dead_letter).is_err());
    assert!(queue.replay(dead_letter).is_err());
}

#[tokio::test]
async fn success_is_not_reported() {
    let (_dir, queue) = queue(RULES);
    queue.hear(&event("a/1"));
    let (item, place) = queue.pop().unwrap();
    let place = Arc::new(place);
    let watch = || Watch::new(&queue, &item.event, &reaction(), &place);
    watch().settle(End::Done);
    watch().meant_nobody();
    watch().dropped();
    assert!(reports(&queue).is_empty());
    watch().settle(End::Failed("no".to_owned()));
    let reports = reports(&queue);
    assert_eq!(reports[0].0, "saltern/reactor/failed");
    assert_eq!(reports[0].1.get("reason"), Some(&"no".into()));
    assert_eq!(dropped(&queue), Some(Value::map([("calls", count(1, 1))])));
}

#[tokio::test]
async fn report_has_the_counts_of_rules_and_files_and_the_latest_ends() {
    let (_dir, queue) = queue(RULES);
    queue.hear(&event("a/1"));
    let (item, place) = queue.pop().unwrap();
    let files = queue.matched("a/1");
    let place = Arc::new(place);
    let jid = saltern_model::Jid::parse("20261121070622637714").unwrap();
    let mut watch = Watch::new(&queue, &item.event, &reaction(), &place);
    watch.leads_to(Some(&jid));
    watch.settle(End::Done);
    let failed = Watch::new(&queue, &item.event, &reaction(), &place);
    failed.settle(End::Failed("no".to_owned()));
    let report = saltern_runners::Reactor::report(&*queue);
    let rule = report.rules.iter().find(|rule| rule.events > 0).unwrap();
    assert_eq!(
        (rule.events, rule.references.as_slice()),
        (1, files.as_slice())
    );
    let file = &report.files[0];
    assert_eq!(
        (file.sls.as_str(), file.done, file.failed),
        ("/a.sls", 1, 1)
    );
    let ends = report.latest.iter();
    let ends: Vec<_> = ends
        .map(|row| {
            (
                row.outcome.as_str(),
                row.reason.as_deref(),
                row.jid.as_ref(),
            )
        })
        .collect();
    assert_eq!(
        ends,
        [("failed", Some("no"), None), ("done", None, Some(&jid))]
    );
    let letters = saltern_runners::Reactor::dead_letters(&*queue, None, 10);
    assert_eq!((letters.total, letters.next), (1, None));
    assert_eq!(letters.letters[0].reaction.reason.as_deref(), Some("no"));
}

#[tokio::test]
async fn log_lasts_over_a_restart_and_a_damaged_one_is_empty() {
    let (dir, config) = config(RULES);
    let open = || {
        let queue = ReactionQueue::open(&config, &Clock::system(), closed(), &Registry::new());
        queue.unwrap().expect("a reactor is asked for")
    };
    let queue = open();
    assert!(!queue.has_news_of_log());
    queue.hear(&event("a/1"));
    let (item, place) = queue.pop().unwrap();
    queue.matched("a/1");
    let place = Arc::new(place);
    let watch = || Watch::new(&queue, &item.event, &reaction(), &place);
    watch().settle(End::Done);
    watch().settle(End::Failed("no".to_owned()));
    assert!(queue.has_news_of_log());
    queue.save_log();
    assert!(!queue.has_news_of_log());

    let before = saltern_runners::Reactor::report(&*queue);
    assert_eq!((before.files.len(), before.latest.len()), (1, 2));
    let next = open();
    assert_eq!(saltern_runners::Reactor::report(&*next), before);
    next.matched("a/1");
    let rules = saltern_runners::Reactor::report(&*next).rules;
    assert!(rules.iter().any(|rule| rule.events == 2), "{rules:?}");

    let file = config.cachedir.join("saltern").join("reactor_history");
    assert!(file.starts_with(dir.path()));
    std::fs::write(file, "x").unwrap();
    let report = saltern_runners::Reactor::report(&*open());
    assert!(report.files.is_empty() && report.latest.is_empty());
}

#[tokio::test]
async fn event_lost_before_its_plan_is_reported_as_a_whole() {
    let (_dir, queue) = queue(RULES);
    let event = event("a/1");
    Lost::new(&queue, &event).settled();
    assert!(reports(&queue).is_empty());
    drop(Lost::new(&queue, &event));
    let reports = reports(&queue);
    assert_eq!(reports[0].0, "saltern/reactor/lost");
    assert!(reports[0].1.get("sls").is_none());
}

#[tokio::test]
async fn runner_calls_change_the_rules() {
    use saltern_runners::Reactor;
    let (_dir, queue) = queue(RULES);
    let files = Value::Array(vec!["/c.sls".into()]);
    let added = queue.add("c/*", &files);
    assert_eq!(added.get("status"), Some(&true.into()));
    assert_eq!(queue.add("c/*", &files).get("status"), Some(&false.into()));
    queue.hear(&event("c/1"));
    assert_eq!(tags(&taken(&queue)), ["c/1"]);
    assert_eq!(queue.delete("c/*").get("status"), Some(&true.into()));
    assert_eq!(queue.delete("c/*").get("status"), Some(&false.into()));
    queue.set_leader(false);
    queue.hear(&event("a/1"));
    assert!(taken(&queue).is_empty() && !queue.is_leader());
}

#[tokio::test]
async fn reload_changes_the_rules_but_not_the_leader() {
    use saltern_runners::Reactor;
    let (_dir, queue) = queue(RULES);
    queue.set_leader(false);
    let (_other, fresh) = config("reactor: [{'c/*': /nowhere.sls}]\n");
    queue.follow(&fresh);
    queue.refresh_rules();
    assert!(!queue.is_leader());
    queue.hear(&event("c/1"));
    assert!(taken(&queue).is_empty());
    queue.set_leader(true);
    queue.hear(&event("a/1"));
    queue.hear(&event("c/1"));
    assert_eq!(tags(&taken(&queue)), ["c/1"]);
}

#[tokio::test]
async fn unreadable_rule_file_keeps_the_rules_until_it_is_readable() {
    let (dir, queue) = queue(RULES);
    let path = dir.path().join("rules");
    let (_other, fresh) = config(&format!("reactor: {}\n", path.display()));
    let meant = |tags: &[&str]| {
        tags.iter().for_each(|tag| queue.hear(&event(tag)));
        taken(&queue)
            .into_iter()
            .map(|(tag, _)| tag)
            .collect::<Vec<_>>()
    };
    queue.follow(&fresh);
    assert_eq!(meant(&["a/1", "c/1"]), ["a/1"]);
    for (text, expected) in [("[", "a/1"), ("[{'c/*': /nowhere.sls}]", "c/1")] {
        std::fs::write(&path, text).unwrap();
        queue.refresh_rules();
        assert_eq!(meant(&["a/1", "c/1"]), [expected]);
    }
}

#[test]
fn dead_letter_selects_its_own_reaction_or_fails() {
    let plan = || {
        let of = |sls: &str, number| reactor::Reaction {
            sls: sls.to_owned(),
            key: key(number),
            ..reaction()
        };
        reactor::Plan {
            reactions: vec![of("/a.sls", 1), of("/a.sls", 2), of("/b.sls", 2)],
            problems: Vec::new(),
        }
    };
    let again = |sls: &str, key| ReplaySelection {
        sls: Some(sls.to_owned()),
        id: Some("r".to_owned()),
        key,
        ..ReplaySelection::default()
    };
    let left = |again: &ReplaySelection, files: &[String]| {
        let reactions = again.of(plan(), files)?.reactions.into_iter();
        let left = reactions.map(|reaction| (reaction.sls, reaction.key.number));
        Ok::<Vec<_>, ReplayError>(left.collect())
    };
    let one = left(&again("/a.sls", Some(key(2))), &[]).unwrap();
    assert_eq!(one, [("/a.sls".to_owned(), 2)]);
    let pattern = left(&again("/b*", Some(key(2))), &["/b.sls".to_owned()]).unwrap();
    assert_eq!(pattern, [("/b.sls".to_owned(), 2)]);
    assert_eq!(left(&ReplaySelection::default(), &[]).unwrap().len(), 3);
    assert!(left(&again("/a.sls", Some(key(3))), &[]).is_err());
    assert!(left(&again("/c.sls", None), &[]).is_err());
}

#[tokio::test]
async fn bytes_of_calls_are_bounded() {
    let (_dir, queue) = queue(RULES);
    let large = queue.hold(1 << 30).unwrap();
    assert!(queue.hold(1).is_none());
    drop(large);
    let held: Vec<_> = std::iter::from_fn(|| queue.hold(1 << 20)).collect();
    assert_eq!(held.len(), 64);
    drop(held);
    assert!(queue.hold(1).is_some());
}

#[tokio::test(start_paused = true)]
async fn after_a_burst_losses_are_named_and_failures_counted() {
    let (_dir, queue) = queue(RULES);
    let event = event("a/1");
    let subject = || Subject {
        event: event.clone(),
        sls: None,
        id: None,
        key: None,
        call: None,
    };
    for _ in 0..1_003 {
        queue.failed(&subject(), "no".to_owned());
    }
    queue.lost(&subject());
    let reports = reports(&queue);
    assert_eq!(reports.len(), 1_001);
    assert_eq!(reports[1_000].0, "saltern/reactor/lost");
    assert!(reports[1_000].1.get("letter").is_some());
    let rest = queue.unreported_event().unwrap();
    let rest = decode(rest.data.as_ref(), &Limits::WIRE).unwrap();
    assert_eq!(rest.get("times"), Some(&3.into()));
    assert!(queue.unreported_event().is_none());
}

//! Events that wait: limits, order, room.

use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_config::{MasterConfig, load_master};

use super::*;
use crate::bus::Tap;
use crate::testing::event;

fn config(options: &str) -> MasterConfig {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display();
    let text = format!("root_dir: {root}\nuser: root\n{options}");
    std::fs::write(dir.path().join("master"), text).unwrap();
    let loaded = load_master(dir.path());
    loaded.map_err(|errors| errors.to_string()).unwrap().config
}

fn desk(options: &str) -> Arc<Desk> {
    let desk = Desk::open(&config(options), &Clock::system(), &Registry::new());
    desk.unwrap().expect("a reactor is asked for")
}

/// The tags of the events that can be taken now, with their places.
fn taken(desk: &Arc<Desk>) -> Vec<(String, Place)> {
    let next = || {
        desk.pop()
            .map(|(item, place)| (item.event.tag.to_string(), place))
    };
    std::iter::from_fn(next).collect()
}

fn tags(taken: &[(String, Place)]) -> Vec<&str> {
    taken.iter().map(|(tag, _)| tag.as_str()).collect()
}

fn dropped(desk: &Desk) -> Option<Value> {
    let event = desk.tell_dropped()?;
    let data = decode(event.data.as_ref(), &Limits::WIRE).unwrap();
    assert_eq!(data.get("user"), Some(&USER.into()));
    data.get("reasons").cloned()
}

fn count(dropped: i64, total: i64) -> Value {
    Value::map([("dropped", dropped), ("total", total)])
}

const RULES: &str = "reactor: [{'a/*': /nowhere.sls}, {'b/*': /nowhere.sls}]\n";

#[test]
fn without_rules_and_without_an_engine_there_is_no_reactor() {
    let opened = |options| {
        let desk = Desk::open(&config(options), &Clock::system(), &Registry::new());
        desk.unwrap().is_some()
    };
    assert!(!opened("reactor: []\n"));
    assert!(!opened("engines: [test: {}]\n"));
    assert!(opened("engines: [reactor]\n"));
    assert!(opened("engines: [reactor: {worker_hwm: 5}]\n"));
    assert!(opened(RULES));
}

#[tokio::test]
async fn only_events_that_match_wait_in_their_order() {
    let desk = desk(RULES);
    for tag in [
        "a/1",
        "c/1",
        "b/1",
        "salt/reactors/manage/list-results",
        "a/2",
    ] {
        desk.hear(&event(tag));
    }
    desk.hear(&event("x/salt/reactors/manage/list"));
    assert_eq!(
        tags(&taken(&desk)),
        ["a/1", "b/1", "a/2", "x/salt/reactors/manage/list"]
    );
    assert_eq!(dropped(&desk), None);
}

#[tokio::test]
async fn what_finds_no_room_is_counted_exactly_and_told_once() {
    let desk = desk(&format!("{RULES}reactor_worker_hwm: 3\n"));
    for number in 0..10 {
        desk.hear(&event(&format!("a/{number}")));
    }
    assert_eq!(dropped(&desk), Some(Value::map([("queue", count(7, 7))])));
    assert_eq!(dropped(&desk), None);
    assert_eq!(tags(&taken(&desk)), ["a/0", "a/1", "a/2"]);
    desk.hear(&event("a/10"));
    desk.close();
    desk.hear(&event("a/11"));
    let reasons = Value::map([("queue", count(1, 8)), ("stop", count(1, 1))]);
    assert_eq!(dropped(&desk), Some(reasons));
    assert!(taken(&desk).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rate_holds_for_its_tags_alone() {
    let desk = desk(&format!(
        "{RULES}saltern_reactor_limits: {{'a/*': {{rate: 2}}}}\n"
    ));
    for _ in 0..5 {
        desk.hear(&event("a/1"));
        desk.hear(&event("b/1"));
    }
    assert_eq!(dropped(&desk), Some(Value::map([("rate", count(3, 3))])));
    assert_eq!(taken(&desk).len(), 7);
    tokio::time::advance(Duration::from_millis(500)).await;
    desk.hear(&event("a/2"));
    desk.hear(&event("a/3"));
    assert_eq!(tags(&taken(&desk)), ["a/2"]);
}

#[tokio::test]
async fn beyond_its_concurrency_an_event_waits_while_others_pass() {
    let desk = desk(&format!(
        "{RULES}saltern_reactor_limits: {{'a/*': {{concurrency: 1}}}}\n"
    ));
    for tag in ["a/1", "a/2", "b/1"] {
        desk.hear(&event(tag));
    }
    let first = taken(&desk);
    assert_eq!(tags(&first), ["a/1", "b/1"]);
    assert!(taken(&desk).is_empty());
    drop(first);
    assert_eq!(tags(&taken(&desk)), ["a/2"]);
}

#[test]
fn limits_that_cannot_be_used_are_refused() {
    let wrong = config(&format!("{RULES}saltern_reactor_limits: [1]\n"));
    assert!(Desk::open(&wrong, &Clock::system(), &Registry::new()).is_err());
}

use std::time::{Duration, SystemTime};

use super::*;

const AT: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 40_000);

fn id(text: &str) -> MinionId {
    MinionId::parse(text).unwrap()
}

fn ids(texts: &[&str]) -> Arc<AcceptedIds> {
    Arc::new(AcceptedIds::new(
        texts.iter().map(|text| id(text)).collect(),
    ))
}

fn presence(registry: &Registry) -> (Arc<Presence>, Clock) {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000));
    let presence = Presence::new(false, clock.clone(), registry);
    assert!(presence.accept(&ids(&["m1", "m2"])).is_empty());
    (presence, clock)
}

#[tokio::test(start_paused = true)]
async fn who_was_heard_when_does_not_follow_the_clock() {
    let (presence, clock) = presence(&Registry::new());
    assert_eq!(presence.last_heard(&id("m1")), None);
    presence.heard(&id("m1"), AT.ip());
    let heard = clock.unix_micros();
    tokio::time::advance(Duration::from_secs(5)).await;
    clock.advance(Duration::from_secs(5));
    assert_eq!(presence.last_heard(&id("m1")), Some(heard));
    // The clock is set back by an hour: it was heard five seconds ago all the same.
    clock.set(clock.now() - Duration::from_secs(3600));
    let five_ago = clock.unix_micros() - 5_000_000;
    assert_eq!(presence.last_heard(&id("m1")), Some(five_ago));
    presence.heard(&id("m1"), AT.ip());
    assert_eq!(presence.last_heard(&id("m1")), Some(clock.unix_micros()));
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_once() {
    let (presence, _) = presence(&Registry::new());
    let change = |present: &[&str], new: &[&str], lost: &[&str]| {
        let ids = |texts: &[&str]| texts.iter().map(|text| id(text)).collect();
        let [present, new, lost] = [present, new, lost].map(ids);
        Change { present, new, lost }
    };
    assert_eq!(presence.change(), change(&[], &[], &[]));
    SubscriberWatch::subscribed(&*presence, 1, AT, b"");
    presence.heard(&id("m1"), AT.ip());
    assert_eq!(presence.change(), change(&["m1"], &["m1"], &[]));
    assert_eq!(presence.change(), change(&["m1"], &[], &[]));
    presence.left(1, Close::PeerClosed);
    assert_eq!(presence.change(), change(&[], &[], &["m1"]));
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_for_the_connection_that_was_asked() {
    let registry = Registry::new();
    let (presence, clock) = presence(&registry);
    let jid = |number: u8| Jid::parse(&format!("202601020304050607{number:02}")).unwrap();
    for (connection, minion) in [(1, "m1"), (2, "m2")] {
        SubscriberWatch::subscribed(&*presence, connection, AT, b"");
        presence.heard(&id(minion), AT.ip());
    }
    presence.left(1, Close::Heartbeat);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(!presence.is_answer(&id("m2"), jid(1).as_str()));
    let asked = presence.to_ask(10, || jid(1));
    assert_eq!(asked, [(2, jid(1))]);
    assert!(!presence.is_answer(&id("m2"), jid(2).as_str()), "a job");
    assert!(presence.is_answer(&id("m2"), jid(1).as_str()));
    assert_eq!(presence.state(&id("m2")), Standing::Connected);
    let at = clock.unix_micros();
    let lost = Standing::Away(Absence::Lost { at });
    assert_eq!(presence.state(&id("m1")), lost);

    let families = registry.gather();
    let family = families.iter().find(|it| it.name() == "saltern_minions");
    let standings = family.expect("registered").get_metric();
    let away = standings.iter().find(|metric| {
        let labels = metric.get_label();
        labels.iter().any(|label| label.value() == "away")
    });
    assert_eq!(away.expect("set").get_gauge().get_value(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_with_a_new_key_is_seen_again() {
    let (presence, _) = presence(&Registry::new());
    SubscriberWatch::subscribed(&*presence, 1, AT, b"");
    presence.heard(&id("m1"), AT.ip());
    assert_eq!(presence.accept(&ids(&["m2"])), [1]);
    assert_eq!(presence.last_heard(&id("m1")), None);
    assert!(presence.connected().is_empty());
    presence.accept(&ids(&["m1", "m2"]));
    presence.heard(&id("m1"), AT.ip());
    assert_eq!(presence.state(&id("m1")), Standing::Connected);
}

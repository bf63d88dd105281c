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

/// A master with its directory.
struct Site {
    dir: tempfile::TempDir,
    clock: Clock,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("root_dir: {}\nid: m\n", dir.path().display());
        std::fs::write(dir.path().join("master"), text).unwrap();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        Self {
            dir,
            clock: Clock::manual(start),
        }
    }

    /// Starts the presence of a master with these accepted minions.
    fn starts(&self, registry: &Registry, accepted: &[&str]) -> Arc<Presence> {
        let loaded = saltern_config::load_master(self.dir.path());
        let config = loaded.map_err(|errors| errors.to_string()).unwrap().config;
        let presence = Presence::new(&config, self.clock.clone(), registry);
        presence.begin(&ids(accepted));
        presence
    }

    /// Addresses that a starting master knows to be those of these minions.
    fn knows(&self, accepted: &[&str]) -> Vec<IpAddr> {
        self.starts(&Registry::new(), &[]).begin(&ids(accepted))
    }
}

fn presence(registry: &Registry) -> (Arc<Presence>, Clock) {
    let site = Site::new();
    (site.starts(registry, &["m1", "m2"]), site.clock)
}

#[tokio::test(start_paused = true)]
async fn recent_minion_addresses_survive_a_restart() {
    let site = Site::new();
    let first = site.starts(&Registry::new(), &["m1", "m2", "m3", "m4"]);
    let from = |last: u8| IpAddr::from([192, 0, 2, last]);
    for (last, minion) in [(1, "m1"), (2, "m2"), (3, "m3"), (4, "m4")] {
        first.heard(&id(minion), from(last));
        tokio::time::advance(Duration::from_secs(1)).await;
        site.clock.advance(Duration::from_secs(1));
    }
    // The first stays connected, and the last loses its key.
    first.subscribed(1, SocketAddr::new(from(1), 40_000), b"");
    first.remember();
    let accepted = ["m1", "m2", "m3"];
    assert_eq!(site.knows(&accepted), [from(3), from(2), from(1)]);
    site.clock.advance(Duration::from_secs(86_400 - 3));
    assert_eq!(site.knows(&accepted), [from(3), from(1)]);
    site.clock.advance(Duration::from_secs(86_400));
    assert_eq!(site.knows(&accepted), [from(1)]);
}

/// A minion that is connected may send nothing for days.
#[tokio::test(start_paused = true)]
async fn network_of_idle_connected_minion_stays_known() {
    let (presence, _) = presence(&Registry::new());
    let known = KnownNetworks::default();
    let gone = IpAddr::from([192, 0, 2, 2]);
    presence.subscribed(1, AT, b"");
    for (minion, from) in [("m1", AT.ip()), ("m2", gone)] {
        presence.heard(&id(minion), from);
        known.remember(from);
    }
    for _ in 0..30 {
        tokio::time::advance(Duration::from_secs(3600)).await;
        presence.extend(&known);
    }
    assert!(known.contains(AT.ip()));
    assert!(!known.contains(gone), "it is not connected");
}

/// Idle minions reconnect within seconds, which a master that is restarted twice does not have.
#[tokio::test(start_paused = true)]
async fn minions_are_remembered_over_two_restarts_at_once() {
    let site = Site::new();
    let first = site.starts(&Registry::new(), &["m1", "m2"]);
    for (connection, minion) in [(1, "m1"), (2, "m2")] {
        first.subscribed(connection, AT, b"");
        first.heard(&id(minion), AT.ip());
    }
    first.write_down();
    site.clock.advance(Duration::from_secs(2 * 86_400));
    let accepted = ["m1", "m2"];
    site.starts(&Registry::new(), &accepted).write_down();
    assert_eq!(site.knows(&accepted), [AT.ip(), AT.ip()]);
    // One that has had its time is remembered no longer.
    let third = site.starts(&Registry::new(), &accepted);
    tokio::time::advance(RECONNECT_GRACE).await;
    assert_eq!(third.change().lost, [id("m1"), id("m2")]);
    third.write_down();
    assert!(site.knows(&accepted).is_empty());
}

#[tokio::test(start_paused = true)]
async fn master_restart_is_no_presence_change() {
    let site = Site::new();
    let first = site.starts(&Registry::new(), &["m1", "m2", "m3"]);
    for (connection, minion) in [(1, "m1"), (2, "m2"), (3, "m3")] {
        first.subscribed(connection, AT, b"");
        first.heard(&id(minion), AT.ip());
    }
    let heard = site.clock.unix_micros();
    first.remember();
    drop(first);

    site.clock.advance(Duration::from_secs(10));
    let second = site.starts(&Registry::new(), &["m1", "m2"]);
    assert_eq!(second.state(&id("m1")), Standing::Known);
    assert_eq!(second.last_heard(&id("m1")), Some(heard));
    let none = Vec::new();
    let change = second.change();
    let lost = [id("m3")];
    assert_eq!(
        (&change.new, &change.lost[..]),
        (&none, &lost[..]),
        "no key"
    );
    // They send nothing when they connect, and are known by their addresses.
    second.subscribed(1, AT, b"");
    second.subscribed(2, AT, b"");
    assert_eq!(second.state(&id("m1")), Standing::Connected);
    let change = second.change();
    assert_eq!((change.new, change.lost), (Vec::new(), Vec::new()));
    // One that does not come back is reported lost after a while, and not before.
    drop(second);
    let third = site.starts(&Registry::new(), &["m1", "m2", "m3"]);
    assert_eq!(third.change().lost, none);
    tokio::time::advance(RECONNECT_GRACE).await;
    assert_eq!(third.change().lost, [id("m1"), id("m2"), id("m3")]);
    assert_eq!(third.state(&id("m1")), Standing::Known);
}

#[tokio::test(start_paused = true)]
async fn clock_step_does_not_move_the_last_request() {
    let (presence, clock) = presence(&Registry::new());
    assert_eq!(presence.last_heard(&id("m1")), None);
    presence.heard(&id("m1"), AT.ip());
    let heard = clock.unix_micros();
    tokio::time::advance(Duration::from_secs(5)).await;
    clock.advance(Duration::from_secs(5));
    assert_eq!(presence.last_heard(&id("m1")), Some(heard));
    // The clock is set back by an hour: the last request is five seconds old all the same.
    clock.set(clock.now() - Duration::from_secs(3600));
    let five_ago = clock.unix_micros() - 5_000_000;
    assert_eq!(presence.last_heard(&id("m1")), Some(five_ago));
    presence.heard(&id("m1"), AT.ip());
    assert_eq!(presence.last_heard(&id("m1")), Some(clock.unix_micros()));
}

#[tokio::test(start_paused = true)]
async fn changes_are_reported_once() {
    let (presence, _) = presence(&Registry::new());
    let change = |present: &[&str], new: &[&str], lost: &[&str]| {
        let ids = |texts: &[&str]| texts.iter().map(|text| id(text)).collect();
        let [present, new, lost] = [present, new, lost].map(ids);
        Change { present, new, lost }
    };
    assert_eq!(presence.change(), change(&[], &[], &[]));
    presence.subscribed(1, AT, b"");
    presence.heard(&id("m1"), AT.ip());
    assert_eq!(presence.change(), change(&["m1"], &["m1"], &[]));
    assert_eq!(presence.change(), change(&["m1"], &[], &[]));
    presence.left(1, Close::PeerClosed);
    assert_eq!(presence.change(), change(&[], &[], &["m1"]));
}

#[tokio::test(start_paused = true)]
async fn probe_answer_counts_for_the_probed_connection() {
    let registry = Registry::new();
    let (presence, clock) = presence(&registry);
    let jid = |number: u8| Jid::parse(&format!("202601020304050607{number:02}")).unwrap();
    for (connection, minion) in [(1, "m1"), (2, "m2")] {
        presence.subscribed(connection, AT, b"");
        presence.heard(&id(minion), AT.ip());
    }
    presence.left(1, Close::Heartbeat);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(!presence.is_answer(&id("m2"), jid(1).as_str()));
    let asked = presence.take_unasked(10, || jid(1));
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
async fn unsent_probe_is_sent_another_time() {
    let (presence, _) = presence(&Registry::new());
    let jid = |number: u8| Jid::parse(&format!("202601020304050607{number:02}")).unwrap();
    presence.subscribed(1, AT, b"");
    presence.heard(&id("m1"), AT.ip());
    presence.heard(&id("m2"), AT.ip());
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(presence.take_unasked(10, || jid(1)), [(1, jid(1))]);
    presence.not_asked(&jid(1));
    assert!(!presence.is_answer(&id("m1"), jid(1).as_str()));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(presence.take_unasked(10, || jid(2)), [(1, jid(2))]);
    assert!(presence.is_answer(&id("m1"), jid(2).as_str()));
    assert_eq!(presence.state(&id("m1")), Standing::Connected);
}

#[tokio::test(start_paused = true)]
async fn minion_with_a_new_key_is_present_again() {
    let (presence, _) = presence(&Registry::new());
    presence.subscribed(1, AT, b"");
    presence.heard(&id("m1"), AT.ip());
    assert_eq!(presence.accept(&ids(&["m2"])), [1]);
    assert_eq!(presence.last_heard(&id("m1")), None);
    assert!(presence.connected().is_empty());
    presence.accept(&ids(&["m1", "m2"]));
    presence.heard(&id("m1"), AT.ip());
    assert_eq!(presence.state(&id("m1")), Standing::Connected);
}

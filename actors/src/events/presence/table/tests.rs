//! Tests of the connection table, by hand and against a plain model.
//!
//! Longer than 500 lines because it is a list: one test for each guarantee.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::asking::{AGAIN, ANSWER, SETTLED};
use super::*;

const CLOSED: Absence = Absence::Closed { at: 7 };
const LOST: Absence = Absence::Lost { at: 8 };

fn minion(number: u8) -> MinionId {
    MinionId::parse(&format!("m{number}")).unwrap()
}

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

fn topic(number: u8) -> Box<[u8]> {
    let topic = saltern_crypto::sha1_hex(minion(number).as_str().as_bytes());
    topic.into_bytes().into()
}

/// A table, and its current time.
struct At {
    table: Table,
    now: Instant,
}

impl At {
    /// A table that knows the minions of these numbers.
    fn with(numbers: impl IntoIterator<Item = u8>) -> Self {
        let mut at = Self {
            table: Table::new(),
            now: Instant::now(),
        };
        at.accept(numbers);
        at
    }

    fn accept(&mut self, numbers: impl IntoIterator<Item = u8>) -> Vec<u64> {
        let numbers: Vec<u8> = numbers.into_iter().collect();
        let mut ids: Vec<MinionId> = numbers.iter().copied().map(minion).collect();
        ids.sort_unstable();
        let topics = numbers
            .iter()
            .map(|number| (topic(*number), minion(*number)));
        let ids = Arc::new(AcceptedIds::new(ids));
        let mut ended = self.table.accept(ids, topics.collect(), self.now);
        ended.sort_unstable();
        self.check();
        ended
    }

    fn opens(&mut self, connection: u64, from: u8) {
        self.subscribes(connection, from, b"");
    }

    fn subscribes(&mut self, connection: u64, from: u8, topic: &[u8]) {
        let table = &mut self.table;
        table.subscribed(connection, address(from), topic, self.now);
        self.check();
    }

    fn closes(&mut self, connection: u64) {
        self.table.left(connection, CLOSED, self.now);
        self.check();
    }

    fn heard(&mut self, number: u8, from: u8) {
        self.table.heard(&minion(number), address(from), self.now);
        self.check();
    }

    fn answers(&mut self, connection: u64, number: u8) {
        self.table.answered(connection, &minion(number), self.now);
        self.check();
    }

    fn asks(&mut self) -> Vec<u64> {
        let mut asked = self.table.take_unasked(usize::MAX, self.now);
        asked.sort_unstable();
        self.check();
        asked
    }

    fn passes(&mut self, time: Duration) {
        self.now += time;
    }

    fn of(&self, number: u8) -> Standing {
        self.table.standing(&minion(number), self.now)
    }

    /// Checks that every connection and every minion is listed exactly once.
    fn check(&self) {
        let table = &self.table;
        for (number, connection) in &table.connections {
            let place = table.places.get(&connection.address);
            let is_untied = place.is_some_and(|place| place.connections.contains(number));
            let should = connection.minion.is_none() && connection.asked != Asked::Stranger;
            assert_eq!(is_untied, should, "connection {number}");
            if let Some(owner) = &connection.minion {
                assert!(
                    table.seats[owner].held.contains(number),
                    "{number} of {owner}"
                );
            }
        }
        for (minion, seat) in &table.seats {
            let place = seat.address.and_then(|address| table.places.get(&address));
            let is_untied = place.is_some_and(|place| place.minions.contains(minion));
            let should = seat.held.is_empty() && seat.address.is_some();
            assert_eq!(is_untied, should, "minion {minion}");
            for held in &seat.held {
                assert_eq!(table.connections[held].minion.as_ref(), Some(minion));
            }
        }
        for (address, place) in &table.places {
            assert!(!place.connections.is_empty() || !place.minions.is_empty());
            assert_eq!(place.unclear.is_some(), table.unclear.contains(address));
            let is_counted = |minion| table.seats.contains_key(minion);
            assert!(place.minions.iter().all(is_counted));
            let is_open = |number| table.connections.contains_key(number);
            assert!(place.connections.iter().all(is_open));
        }
    }
}

#[test]
fn connection_from_a_minions_own_address_is_its_own() {
    let mut at = At::with([1]);
    assert_eq!(at.of(1), Standing::Known);
    assert_eq!(at.of(2), Standing::Away(Absence::NoKey));
    at.opens(10, 1);
    assert_eq!(
        at.of(1),
        Standing::Known,
        "no key vouched for the connection"
    );
    at.heard(1, 1);
    assert_eq!(at.of(1), Standing::Connected);
    at.heard(1, 2);
    assert_eq!(at.of(1), Standing::Known, "the connection may be its own");
    at.passes(SETTLED);
    assert_eq!(at.asks(), [10]);
    at.passes(ANSWER);
    assert!(at.asks().is_empty());
    assert_eq!(at.of(1), Standing::Away(Absence::NeverConnected));
    at.opens(11, 2);
    at.closes(11);
    assert_eq!(at.of(1), Standing::Away(CLOSED));
}

#[test]
fn topic_subscription_ties() {
    let mut at = At::with([1, 2]);
    at.subscribes(10, 1, b"broadcast");
    at.subscribes(10, 1, &topic(1));
    assert_eq!((at.of(1), at.of(2)), (Standing::Connected, Standing::Known));
    at.heard(2, 1);
    let never = Standing::Away(Absence::NeverConnected);
    assert_eq!(at.of(2), never, "the connection is another's");
    // The third is accepted after it has subscribed.
    at.subscribes(11, 1, &topic(3));
    assert_eq!(at.of(3), Standing::Away(Absence::NoKey));
    at.accept([1, 2, 3]);
    assert_eq!(at.of(3), Standing::Connected);
    at.table.left(11, LOST, at.now);
    assert_eq!(at.of(3), Standing::Away(LOST));
}

#[test]
fn registration_ties_before_the_key_is_accepted() {
    let mut at = At::with([1]);
    at.opens(10, 1);
    at.table.registered(10, &minion(1), at.now);
    assert_eq!(at.of(1), Standing::Connected);
    at.opens(11, 1);
    at.table.registered(11, &minion(2), at.now);
    assert_eq!(at.of(2), Standing::Away(Absence::NoKey));
    at.accept([1, 2]);
    at.heard(2, 1);
    assert_eq!(at.of(2), Standing::Connected);
    at.closes(10);
    assert_eq!(at.of(1), Standing::Away(CLOSED), "the other is not its own");
    assert_eq!(at.of(2), Standing::Connected);
}

#[test]
fn counts_decide_until_a_connection_of_the_address_ends() {
    let mut at = At::with([1, 2, 3]);
    for number in 1..=3 {
        at.opens(u64::from(number), 9);
        at.heard(number, 9);
    }
    assert!((1..=3).all(|number| at.of(number) == Standing::Connected));
    assert!(at.asks().is_empty(), "nothing is unclear");

    at.closes(2);
    let stale = Standing::Stale(Doubt::AddressShared);
    assert!((1..=3).all(|number| at.of(number) == stale));
    assert!(at.asks().is_empty(), "others may still come and go");
    at.passes(SETTLED);
    assert_eq!(at.asks(), [1, 3]);
    at.answers(3, 3);
    assert_eq!(
        (at.of(3), at.of(1), at.of(2)),
        (Standing::Connected, stale, stale)
    );
    at.answers(1, 1);
    assert_eq!(at.of(1), Standing::Connected);
    assert_eq!(at.of(2), Standing::Away(CLOSED));

    // The next one to end is known at once.
    at.closes(3);
    assert_eq!(at.of(3), Standing::Away(CLOSED));
    assert_eq!(at.of(1), Standing::Connected);
    // And a connection that comes then is probed, because it may be either.
    at.opens(4, 9);
    assert_eq!(at.of(3), stale);
    at.passes(SETTLED);
    assert_eq!(at.asks(), [4]);
    at.answers(4, 3);
    assert_eq!(
        (at.of(3), at.of(2)),
        (Standing::Connected, Standing::Away(CLOSED))
    );
}

#[test]
fn unanswered_connection_counts_for_no_minion() {
    let stale = Standing::Stale(Doubt::AddressShared);
    for (is_tied, meanwhile) in [(false, Standing::Connected), (true, stale)] {
        let mut at = At::with([1]);
        at.opens(10, 9);
        at.heard(1, 9);
        if is_tied {
            at.answers(10, 1);
        }
        at.opens(66, 9);
        at.closes(10);
        assert_eq!(at.of(1), meanwhile);
        at.passes(SETTLED);
        assert_eq!(at.asks(), [66]);
        at.passes(ANSWER);
        assert!(at.asks().is_empty());
        assert_eq!(at.of(1), Standing::Away(CLOSED));
        assert_eq!(at.table.counts(at.now).strangers, 1);
        at.answers(66, 1);
        assert_eq!(at.of(1), Standing::Connected, "late, but it is the answer");
    }
}

#[test]
fn minion_is_known_while_a_spare_connection_may_be_its_own() {
    let mut at = At::with([1, 2, 3]);
    let never = Standing::Away(Absence::NeverConnected);
    // Requests come from the minions' own addresses, all connections from that of a balancer.
    for number in 1..=3 {
        at.heard(number, number);
    }
    assert_eq!(at.of(1), never);
    at.opens(10, 9);
    at.opens(20, 9);
    assert!((1..=3).all(|number| at.of(number) == Standing::Known));
    assert!(at.asks().is_empty(), "more may come");
    at.passes(SETTLED);
    assert_eq!(at.asks(), [10, 20]);
    at.answers(10, 1);
    assert_eq!(at.of(1), Standing::Connected);
    assert_eq!((at.of(2), at.of(3)), (Standing::Known, Standing::Known));
    at.answers(20, 2);
    assert_eq!((at.of(2), at.of(3)), (Standing::Connected, never));
    // It is lost there, and comes back there without a word.
    at.table.left(10, LOST, at.now);
    assert_eq!(at.of(1), Standing::Away(LOST));
    at.opens(11, 9);
    assert_eq!(at.of(1), Standing::Known);
    at.passes(SETTLED);
    assert_eq!(at.asks(), [11]);
    at.answers(11, 1);
    assert_eq!((at.of(1), at.of(3)), (Standing::Connected, never));
    at.answers(12, 3);
    assert_eq!(at.of(3), never, "there is no such connection");
}

#[test]
fn unanswered_connection_is_probed_again_rarely() {
    let mut at = At::with([1, 2]);
    at.opens(10, 9);
    at.heard(1, 9);
    at.heard(2, 9);
    at.passes(SETTLED);
    assert_eq!(at.asks(), [10]);
    at.passes(ANSWER);
    assert!(at.asks().is_empty());
    let never = Standing::Away(Absence::NeverConnected);
    assert_eq!(at.of(1), never);
    at.passes(AGAIN - Duration::from_secs(1));
    assert!(at.asks().is_empty());
    for _ in 0..2 {
        at.passes(AGAIN);
        assert_eq!(at.asks(), [10]);
        assert!(at.asks().is_empty());
    }
    assert_eq!(at.of(1), never, "until it answers");
    at.answers(10, 1);
    at.passes(AGAIN);
    assert_eq!((at.of(1), at.asks()), (Standing::Connected, Vec::new()));
}

#[test]
fn spare_connections_are_not_probed_while_no_minion_is_missing() {
    let mut at = At::with([1]);
    at.opens(10, 1);
    at.heard(1, 1);
    at.opens(20, 2);
    at.passes(SETTLED);
    assert!(at.asks().is_empty());
}

#[test]
fn probes_are_limited_and_sent_once() {
    let mut at = At::with(1..=10);
    for number in 1..=10 {
        at.opens(u64::from(number), 9);
        at.heard(number, 9);
    }
    at.closes(1);
    at.passes(SETTLED);
    let mut asked = Vec::new();
    for expected in [4, 4, 1, 0] {
        let now = at.table.take_unasked(4, at.now);
        assert_eq!(now.len(), expected);
        asked.extend(now);
    }
    asked.sort_unstable();
    assert_eq!(asked, (2..=10).collect::<Vec<_>>());
}

#[test]
fn connection_with_an_unanswered_ping_is_stale() {
    let mut at = At::with([1]);
    at.opens(10, 1);
    at.heard(1, 1);
    at.table.silent(10, at.now);
    assert_eq!(at.of(1), Standing::Connected, "an answer takes its time");
    at.passes(SILENCE);
    assert_eq!(at.of(1), Standing::Stale(Doubt::Silent));
    at.table.alive(10);
    assert_eq!(at.of(1), Standing::Connected);
    at.answers(10, 1);
    at.table.silent(10, at.now);
    at.passes(SILENCE);
    assert_eq!(at.of(1), Standing::Stale(Doubt::Silent), "tied or not");
    at.table.left(10, LOST, at.now);
    assert_eq!(at.of(1), Standing::Away(LOST));
}

#[test]
fn minion_without_key_is_removed_and_its_connections_given() {
    let mut at = At::with([1, 2, 3]);
    at.subscribes(10, 1, &topic(1));
    at.opens(20, 2);
    at.heard(2, 2);
    at.opens(30, 3);
    at.heard(3, 3);
    assert_eq!(at.accept([3]), [10, 20]);
    assert_eq!(at.of(1), Standing::Away(Absence::NoKey));
    assert_eq!(at.of(2), Standing::Away(Absence::NoKey));
    assert_eq!(at.of(3), Standing::Connected);
    at.closes(10);
    at.closes(20);
    at.accept([1, 2, 3]);
    assert_eq!((at.of(1), at.of(2)), (Standing::Known, Standing::Known));
}

#[test]
fn counts_add_up() {
    let mut at = At::with([1, 2, 3, 4]);
    at.subscribes(10, 1, &topic(1));
    at.heard(2, 2);
    at.opens(30, 3);
    at.heard(3, 3);
    let counts = Counts {
        known: 1,
        connected: 2,
        away: 1,
        tied: 1,
        untied: 1,
        ..Counts::default()
    };
    assert_eq!(at.table.counts(at.now), counts);
    let present = at.table.present(at.now);
    assert_eq!(present, [minion(1), minion(3)]);
    let are_more_than = |limit| at.table.are_more_present_than(limit, at.now);
    assert_eq!([1, 2, 3].map(are_more_than), [true, false, false]);
}

/// Event of a fleet behind few addresses.
#[derive(Clone, Debug)]
enum Step {
    /// It connects, before or after its old connection ends, and sends a request.
    Connects {
        number: u8,
        is_late_to_leave: bool,
    },
    SyndicMinions(u8),
    Speaks(u8),
    Passes(u16),
    Ask,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0..12_u8;
    let step = prop_oneof![
        (number.clone(), any::<bool>()).prop_map(|(number, is_late_to_leave)| Step::Connects {
            number,
            is_late_to_leave
        }),
        number.clone().prop_map(Step::SyndicMinions),
        number.prop_map(Step::Speaks),
        (0..3000_u16).prop_map(Step::Passes),
        Just(Step::Ask),
    ];
    prop::collection::vec(step, 0..80)
}

/// The ground truth beside the table.
struct Fleet {
    at: At,
    /// The connections of each minion; no entry for one that was never there.
    held: HashMap<u8, Vec<u64>>,
    next: u64,
}

impl Fleet {
    fn home(number: u8) -> u8 {
        number % 3
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Connects {
                number,
                is_late_to_leave,
            } => {
                if !is_late_to_leave {
                    self.step(&Step::SyndicMinions(number));
                }
                let old = self.held.remove(&number).unwrap_or_default();
                self.next += 1;
                self.at.opens(self.next, Self::home(number));
                self.held.insert(number, vec![self.next]);
                self.step(&Step::Speaks(number));
                old.into_iter().for_each(|old| self.at.closes(old));
            }
            Step::SyndicMinions(number) => {
                for old in self
                    .held
                    .get_mut(&number)
                    .map(std::mem::take)
                    .into_iter()
                    .flatten()
                {
                    self.at.closes(old);
                }
            }
            Step::Speaks(number) if self.is_connected(number) => {
                self.at.heard(number, Self::home(number));
            }
            Step::Speaks(_) => {}
            Step::Passes(millis) => self.at.passes(Duration::from_millis(millis.into())),
            Step::Ask => self.ask(),
        }
    }

    /// Answers every probe.
    fn ask(&mut self) {
        for connection in self.at.asks() {
            let owner = self
                .held
                .iter()
                .find(|(_, held)| held.contains(&connection));
            if let Some((number, _)) = owner {
                self.at.answers(connection, *number);
            }
        }
    }

    fn is_connected(&self, number: u8) -> bool {
        self.held.get(&number).is_some_and(|held| !held.is_empty())
    }
}

proptest! {
    /// A present minion is never reported away; and once every probe is answered, the table is
    /// exactly right about each.
    #[test]
    fn present_minion_is_never_away_and_answered_probes_are_exact(steps in steps()) {
        let mut fleet = Fleet { at: At::with(0..12), held: HashMap::new(), next: 0 };
        for step in &steps {
            fleet.step(step);
            for number in 0..12 {
                let standing = fleet.at.of(number);
                if fleet.is_connected(number) {
                    prop_assert!(standing.is_present(), "{} is {:?}", number, standing);
                }
            }
        }
        for _ in 0..3 {
            fleet.at.passes(SETTLED);
            fleet.ask();
        }
        for number in 0..12 {
            let standing = fleet.at.of(number);
            match fleet.held.get(&number).map(Vec::is_empty) {
                None => prop_assert_eq!(standing, Standing::Known),
                Some(true) => prop_assert_eq!(standing, Standing::Away(CLOSED)),
                Some(false) => prop_assert_eq!(standing, Standing::Connected),
            }
        }
    }
}

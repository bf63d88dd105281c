//! The pool of pending keys against a list of them, its steps as tables, and the reserved ids.

#![allow(clippy::indexing_slicing, reason = "tests; a failure shows where")]

use super::*;

/// Some time in seconds since 1970.
const NOW: i64 = 1_800_000_000;

fn id(name: impl ToString) -> MinionId {
    MinionId::parse(&name.to_string()).unwrap()
}

fn network(address: &str) -> Network {
    Network::of(address.parse().unwrap())
}

/// A pool whose files have just been listed, for want of room, too.
fn listed() -> Pool {
    Pool {
        listed: Some(NOW),
        listed_when_full: Some(NOW),
        ..Pool::default()
    }
}

fn step(pool: &mut Pool, name: &str, from: &str, (most, state): (usize, KeyState)) -> Step {
    pool.step(&id(name), network(from), (most, state), NOW)
}

fn admission(step: Step) -> Admission {
    match step {
        Step::Done(admission) => admission,
        Step::List { .. } => panic!("the files were listed"),
    }
}

/// Admits a pending key where there is room.
fn admit(pool: &mut Pool, name: &str, from: &str) {
    let admitted = admission(step(pool, name, from, (usize::MAX, KeyState::Pending)));
    assert_eq!(admitted, Admission::Admitted, "{name}");
}

#[test]
fn network_is_a_24_of_ipv4_and_a_48_of_ipv6() {
    let table = [
        ("10.1.2.3", "10.1.2.0", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.0", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1::", "2001:db8:1:2::"),
    ];
    for (address, block, own) in table {
        let expected = Network {
            block: block.parse().unwrap(),
            own: own.parse().unwrap(),
        };
        assert_eq!(network(address), expected, "{address}");
    }
}

#[test]
fn origin_is_shown_as_address_or_network() {
    let admission = KeyAdmission::new(10);
    admission.heard(&id("four"), "10.1.2.3".parse().unwrap());
    admission.heard(&id("six"), "2001:db8:1:2:3:4:5:6".parse().unwrap());
    // The first word counts.
    admission.heard(&id("four"), "10.9.9.9".parse().unwrap());
    let origin = |name: &str| admission.origin(&id(name), KeyState::Pending);
    assert_eq!(origin("four").as_deref(), Some("10.1.2.3"));
    assert_eq!(origin("six").as_deref(), Some("2001:db8:1:2::/64"));
    assert_eq!(origin("other"), None);
    assert_eq!(admission.origin(&id("four"), KeyState::Rejected), None);
    let unbounded = KeyAdmission::new(0);
    unbounded.heard(&id("four"), "10.1.2.3".parse().unwrap());
    assert_eq!(unbounded.origin(&id("four"), KeyState::Pending), None);
}

#[test]
fn listing_counts_for_its_second() {
    let table = [
        (None, true),
        (Some(NOW - 1), true),
        (Some(NOW), false),
        (Some(NOW + 1), false),
        (Some(NOW + 2), true),
    ];
    for (at, is_listed_again) in table {
        let mut pool = Pool {
            listed: at,
            ..listed()
        };
        let found = step(&mut pool, "a", "10.0.0.1", (4, KeyState::Pending));
        let lists = matches!(found, Step::List { is_full: false });
        assert_eq!(lists, is_listed_again, "{at:?}");

        let mut pool = Pool {
            listed_when_full: at,
            keys: 4,
            ..listed()
        };
        let found = step(&mut pool, "a", "10.0.0.1", (4, KeyState::Pending));
        let lists = matches!(found, Step::List { is_full: true });
        assert_eq!(lists, is_listed_again, "{at:?}, for want of room");
    }
}

#[test]
fn block_has_half_of_the_places_and_one_at_least() {
    for (most, share) in [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)] {
        let mut pool = listed();
        for number in 0..share {
            let step = step(
                &mut pool,
                &format!("m{number}"),
                &format!("10.0.0.{number}"),
                (most, KeyState::Rejected),
            );
            assert_eq!(admission(step), Admission::Admitted, "{most}, {number}");
        }
        let one_more = step(&mut pool, "more", "10.0.0.200", (most, KeyState::Rejected));
        assert_eq!(admission(one_more), Admission::Full, "{most}");
        let elsewhere = step(&mut pool, "far", "10.0.1.1", (most, KeyState::Rejected));
        let expected = match most {
            1 => Admission::Full,
            _ => Admission::Admitted,
        };
        assert_eq!(admission(elsewhere), expected, "{most}");
    }
}

/// Keys of unknown network count together as those of one block.
#[test]
fn newest_key_of_unknown_network_gives_way_to_a_smaller_block() {
    // Unknown keys, keys of the newcomer's block, keys of another block, who gives way.
    let table = [
        (1, 0, 0, None),
        (2, 0, 0, Some("u1")),
        (2, 1, 0, None),
        (3, 1, 0, Some("u2")),
        // The other block has as many.
        (2, 0, 2, Some("b1")),
        (3, 0, 2, Some("u2")),
        (2, 0, 3, Some("b2")),
    ];
    for (unknown, own, other, victim) in table {
        let mut pool = listed();
        for number in 0..own {
            admit(
                &mut pool,
                &format!("a{number}"),
                &format!("10.0.0.{number}"),
            );
        }
        for number in 0..other {
            admit(&mut pool, &format!("b{number}"), "10.0.1.1");
        }
        let times = (0..unknown).map(|number| (id(format!("u{number}")), i64::from(number)));
        pool.unknown = times.collect();
        pool.keys = 20;
        let found = step(&mut pool, "new", "10.0.0.200", (20, KeyState::Pending));
        let expected = match victim {
            Some(victim) => Admission::InPlaceOf(id(victim)),
            None => Admission::Full,
        };
        assert_eq!(admission(found), expected, "{unknown} {own} {other}");
        let has_gone = victim.is_some_and(|victim| !pool.unknown.contains_key(&id(victim)));
        assert_eq!(has_gone, victim.is_some());
    }
}

#[test]
fn key_of_a_new_listing_counts_and_one_that_is_gone_does_not() {
    let mut pool = listed();
    for (name, from) in [
        ("a", "10.0.0.1"),
        ("b", "10.0.0.1"),
        ("c", "10.0.0.2"),
        ("d", "10.0.1.1"),
    ] {
        admit(&mut pool, name, from);
    }
    let there = ["a", "c", "old"].map(id);
    pool.take(&there, HashMap::from([(id("old"), 7), (id("a"), 8)]));
    assert_eq!(pool.keys, 3);
    let unknown = HashMap::from([(id("old"), 7)]);
    assert_eq!(pool.unknown, unknown, "\"a\" is known");
    let mut known: Vec<_> = pool.origins.keys().cloned().collect();
    known.sort_unstable();
    assert_eq!(known, ["a", "c"].map(id));
    let block: IpAddr = "10.0.0.0".parse().unwrap();
    assert_eq!(pool.blocks, HashMap::from([(block, 2)]));
    assert_eq!(pool.networks.len(), 2);
    assert_eq!(pool.networks[&network("10.0.0.1")], [id("a")]);
    assert_eq!(pool.networks[&network("10.0.0.2")], [id("c")]);
}

#[test]
fn key_that_moves_or_goes_leaves_nothing_behind() {
    let mut pool = listed();
    admit(&mut pool, "a", "10.0.0.1");
    admit(&mut pool, "b", "10.0.0.1");
    pool.add(&id("a"), network("10.0.1.1"));
    assert_eq!(pool.networks[&network("10.0.0.1")], [id("b")]);
    assert_eq!(pool.networks[&network("10.0.1.1")], [id("a")]);
    assert_eq!(pool.blocks.len(), 2);
    pool.unknown.insert(id("u"), 1);
    for name in ["a", "b", "u", "stranger"] {
        pool.forget(&id(name));
    }
    assert!(pool.origins.is_empty() && pool.networks.is_empty());
    assert!(pool.blocks.is_empty() && pool.unknown.is_empty());
}

/// The pool as a list of its keys, in the order in which they came.
#[derive(Default)]
struct Listed(Vec<(MinionId, Network)>);

impl Listed {
    fn of_block(&self, block: IpAddr) -> usize {
        let keys = self.0.iter().filter(|(_, network)| network.block == block);
        keys.count()
    }

    fn of(&self, network: Network) -> usize {
        self.0.iter().filter(|(_, one)| *one == network).count()
    }

    /// The most keys of a network of this block.
    fn largest_of(&self, block: IpAddr) -> usize {
        let networks = self.0.iter().filter(|(_, network)| network.block == block);
        let sizes = networks.map(|(_, network)| self.of(*network));
        sizes.max().unwrap_or(0)
    }

    fn largest_block(&self) -> usize {
        let sizes = self
            .0
            .iter()
            .map(|(_, network)| self.of_block(network.block));
        sizes.max().unwrap_or(0)
    }

    /// Whether the newest key of a network gives way to one more of the newcomer's.
    fn may_give_way(&self, victim: Network, newcomer: Network, is_over_share: bool) -> bool {
        let (theirs, ours) = (self.of_block(victim.block), self.of_block(newcomer.block));
        let is_of_largest_network = self.of(victim) == self.largest_of(victim.block);
        let is_of_largest_block = is_over_share || theirs == self.largest_block();
        let leaves_no_fewer = match victim.block == newcomer.block {
            true => self.of(victim) > self.of(newcomer) + 1,
            false => !is_over_share && theirs > ours + 1,
        };
        is_of_largest_network && is_of_largest_block && leaves_no_fewer
    }

    fn newest_of(&self, network: Network) -> Option<&MinionId> {
        let mut keys = self.0.iter().rev();
        keys.find(|(_, one)| *one == network).map(|(id, _)| id)
    }
}

/// The rules at the head of the file hold, whoever comes.
#[test]
fn pool_of_pending_keys_is_fair_whoever_comes() {
    let mut random = 1_u64;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005);
        random = random.wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (mut replaced, mut refused) = (0, 0);
    for most in [1, 2, 3, 5, 8, 12] {
        for round in 0..40 {
            let (mut pool, mut model) = (listed(), Listed::default());
            let blocks = 1 + next(4);
            for number in 0..4 * most {
                let from = format!("10.0.{}.{}", next(blocks), next(3));
                let (name, from) = (id(format!("m{number}")), network(&from));
                let is_over_share = model.of_block(from.block) >= (most / 2).max(1);
                let has_room = model.0.len() < most && !is_over_share;
                let about = format!("{most} {round} {number}");
                let step = pool.step(&name, from, (most, KeyState::Pending), NOW);
                match admission(step) {
                    Admission::Admitted => assert!(has_room, "{about}"),
                    Admission::InPlaceOf(victim) => {
                        assert!(!has_room, "{about}");
                        let place = model.0.iter().position(|(id, _)| *id == victim).unwrap();
                        let (_, of) = model.0[place];
                        assert_eq!(model.newest_of(of), Some(&victim), "{about}");
                        assert!(model.may_give_way(of, from, is_over_share), "{about}");
                        model.0.remove(place);
                        replaced += 1;
                    }
                    Admission::Full => {
                        assert!(!has_room, "{about}");
                        // Among equally large blocks any may be looked at, and one has no key to give.
                        let all = model.0.iter();
                        let largest = all.filter(|(_, of)| match is_over_share {
                            true => of.block == from.block,
                            false => model.of_block(of.block) == model.largest_block(),
                        });
                        let blocks: HashSet<IpAddr> = largest.map(|(_, of)| of.block).collect();
                        let gives_none = |block: &IpAddr| {
                            let mut keys = model.0.iter().filter(|(_, of)| of.block == *block);
                            !keys.any(|(_, of)| model.may_give_way(*of, from, is_over_share))
                        };
                        assert!(blocks.iter().any(gives_none), "{about}");
                        refused += 1;
                        continue;
                    }
                }
                model.0.push((name, from));
                assert_eq!(pool.keys, model.0.len(), "{about}");
                assert!(model.0.len() <= most, "{about}");
            }
        }
    }
    assert!(replaced > 50 && refused > 50, "{replaced} {refused}");
}

#[test]
fn id_of_evicted_key_is_reserved_for_one_to_two_hours() {
    let table = [
        (0, true),
        (RESERVED_FOR - 1, true),
        (RESERVED_FOR, true),
        (2 * RESERVED_FOR - 1, true),
        (2 * RESERVED_FOR, false),
        // A clock that was set back.
        (-1, true),
    ];
    for (after, is_reserved) in table {
        let mut evicted = EvictedKeys::default();
        evicted.add(id("a"), "a key\n", (10, NOW));
        assert_eq!(
            evicted.is_of_another(&id("a"), "another key", NOW + after),
            is_reserved,
            "{after}"
        );
    }
    let mut evicted = EvictedKeys::default();
    evicted.add(id("a"), "two\nlines\n", (10, NOW));
    assert!(
        !evicted.is_of_another(&id("a"), " two\r\nlines", NOW),
        "its own key"
    );
    assert!(!evicted.is_of_another(&id("b"), "another key", NOW));
    // With a question in each hour the older generation ends with its time, too.
    for (after, is_reserved) in [(RESERVED_FOR, true), (2 * RESERVED_FOR, false)] {
        let is_of_another = evicted.is_of_another(&id("a"), "another key", NOW + after);
        assert_eq!(is_of_another, is_reserved, "{after}");
    }
}

#[test]
fn reserved_ids_are_bounded() {
    let mut evicted = EvictedKeys::default();
    for number in 0..7 {
        evicted.add(id(number), "a key", (3, NOW));
        assert!(evicted.current.len() <= 3 && evicted.previous.len() <= 3);
    }
    let reserved = (0..7).filter(|number| evicted.is_of_another(&id(number), "other", NOW));
    assert_eq!(reserved.collect::<Vec<_>>(), [3, 4, 5, 6]);
}

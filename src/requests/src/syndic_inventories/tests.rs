//! Inventories and second ways without requests. Longer than 500 lines because it is a list: one rule a test.

use saltern_wire::msgpack::{Dialect, encode};

use super::*;

fn id(name: &str) -> MinionId {
    MinionId::parse(name).unwrap()
}

fn state() -> State {
    State::new(InventoryLimits {
        minions: (3, 4),
        bytes: (60, 80),
        second_ways: (2, 3),
        announced: 2,
    })
}

const NOW: i64 = 1_000;

fn take(state: &mut State, syndic: &MinionId, part: InventoryPart) -> PartResult {
    state.take(syndic, part, NOW).0
}

fn announced(name: &str, os: &str) -> Announced {
    let grains = Value::map([("os", os)]);
    Announced {
        id: id(name),
        away: None,
        grains: Some(encode(&grains, Dialect::Bin).into()),
        key: None,
    }
}

fn part(list: u64, part: u64, names: &[&str]) -> InventoryPart {
    InventoryPart {
        list,
        part,
        minions: names.iter().map(|name| announced(name, "x")).collect(),
        ..InventoryPart::default()
    }
}

/// The same, with a reason why its minions are away.
fn away(mut part: InventoryPart) -> InventoryPart {
    for minion in &mut part.minions {
        minion.away = Some("gone home".into());
    }
    part
}

fn last(part: InventoryPart) -> InventoryPart {
    InventoryPart {
        is_last: true,
        ..part
    }
}

fn names(state: &State) -> Vec<&str> {
    state.below.keys().map(MinionId::as_str).collect()
}

#[test]
fn list_is_complete_with_its_last_part_and_then_changes() {
    let (mut state, relay) = (state(), id("relay"));
    let is_complete = |state: &State| state.lists.get(&id("relay")).unwrap().is_complete;
    assert_eq!(
        take(&mut state, &relay, part(7, 0, &["a", "b"])),
        PartResult::Taken
    );
    assert!(!is_complete(&state));
    assert_eq!(
        take(&mut state, &relay, last(part(7, 1, &["c"]))),
        PartResult::Taken
    );
    assert!(is_complete(&state));
    assert_eq!(names(&state), ["a", "b", "c"]);
    let mut change = part(7, 2, &[]);
    change.gone = vec![id("b")];
    assert_eq!(take(&mut state, &relay, change), PartResult::Taken);
    assert_eq!(names(&state), ["a", "c"]);
}

#[test]
fn part_that_comes_twice_counts_once_and_gap_begins_anew() {
    let (mut state, relay) = (state(), id("relay"));
    assert_eq!(
        take(&mut state, &relay, part(7, 1, &["a"])),
        PartResult::BeginAnew
    );
    for _ in 0..2 {
        assert_eq!(
            take(&mut state, &relay, part(7, 0, &["a"])),
            PartResult::Taken
        );
    }
    assert_eq!(
        take(&mut state, &relay, part(7, 2, &["c"])),
        PartResult::BeginAnew
    );
    assert_eq!(
        take(&mut state, &relay, part(6, 1, &["c"])),
        PartResult::BeginAnew
    );
    assert_eq!(names(&state), ["a"]);
}

#[test]
fn new_list_replaces_the_old_one_when_it_is_full() {
    let (mut state, relay) = (state(), id("relay"));
    take(&mut state, &relay, last(part(7, 0, &["a", "b"])));
    take(&mut state, &relay, part(8, 0, &["b"]));
    assert_eq!(names(&state), ["a", "b"], "the old list holds meanwhile");
    assert!(state.lists.get(&relay).unwrap().is_complete);
    take(&mut state, &relay, last(part(8, 1, &["c"])));
    assert_eq!(names(&state), ["b", "c"]);
}

#[test]
fn inventory_that_is_too_large_is_dropped_as_a_whole() {
    let (mut state, relay, other) = (state(), id("relay"), id("other"));
    take(&mut state, &relay, last(part(7, 0, &["a", "b", "c"])));
    assert!(matches!(
        take(&mut state, &relay, part(7, 1, &["d"])),
        PartResult::Refused(..)
    ));
    assert!(names(&state).is_empty() && !state.lists.contains_key(&relay));
    assert_eq!(state.bytes, 0);
    let mut large = part(7, 0, &[]);
    large.minions = vec![announced("a", &"x".repeat(60))];
    assert!(matches!(
        take(&mut state, &relay, large),
        PartResult::Refused(..)
    ));
    take(&mut state, &relay, last(part(8, 0, &["a", "b", "c"])));
    take(&mut state, &other, part(1, 0, &["d"]));
    assert!(matches!(
        take(&mut state, &other, part(1, 1, &["e"])),
        PartResult::Refused(..)
    ));
    assert_eq!(names(&state), ["a", "b", "c"], "others keep theirs");
}

#[test]
fn minion_stands_in_the_inventory_that_had_it_first() {
    let (mut state, relay, other) = (state(), id("relay"), id("other"));
    take(&mut state, &relay, last(part(7, 0, &["a"])));
    assert_eq!(
        take(&mut state, &other, last(part(1, 0, &["a"]))),
        PartResult::Taken
    );
    assert_eq!(state.below.get(&id("a")).unwrap().syndic, relay);
    let mut gone = part(1, 1, &[]);
    gone.gone = vec![id("a")];
    take(&mut state, &other, gone);
    assert_eq!(names(&state), ["a"], "it is not the other's to remove");
    state.forget(&relay);
    assert!(names(&state).is_empty());
}

#[test]
fn grains_stay_until_they_change_and_readers_learn_of_each_change() {
    let (mut state, relay) = (state(), id("relay"));
    take(&mut state, &relay, last(part(7, 0, &["a", "b"])));
    let seen = state.generation;
    let mut change = part(7, 1, &[]);
    change.minions = vec![
        Announced {
            id: id("a"),
            away: Some("gone home".into()),
            grains: None,
            key: None,
        },
        announced("b", "y"),
    ];
    take(&mut state, &relay, change);
    assert_eq!(
        state.below.get(&id("a")).unwrap().away.as_deref(),
        Some("gone home")
    );
    let changes = state.changes(Some(seen));
    assert_eq!(changes.changed, Changed::These(vec![id("b")]));
    assert_eq!(state.changes(None).changed, Changed::Everything);
    let grains = Grains(Arc::new(RwLock::new(state)));
    let os = |name: &str| grains.grains(&id(name)).unwrap().get("os").cloned();
    assert_eq!((os("a"), os("b")), (Some("x".into()), Some("y".into())));
}

#[test]
fn inventory_is_current_for_a_minute_after_each_part() {
    let (mut state, relay) = (state(), id("relay"));
    take(&mut state, &relay, away(last(part(7, 0, &["a"]))));
    let away = |state: &State, now: i64| {
        let below = state.find(&id("a"), now).unwrap();
        assert_eq!(below.is_current, below.away.is_some());
        below.away
    };
    assert!(away(&state, NOW + CURRENT_SECONDS).is_some());
    assert!(away(&state, NOW + CURRENT_SECONDS + 1).is_none());
    assert!(
        away(&state, NOW - CURRENT_SECONDS - 1).is_none(),
        "set back"
    );
    let later = NOW + 600;
    state.take(&relay, part(7, 1, &[]), later);
    assert!(away(&state, later + CURRENT_SECONDS).is_some());
}

#[test]
fn start_of_syndic_ends_its_list_until_next_full_one() {
    let (mut state, relay) = (state(), id("relay"));
    take(&mut state, &relay, last(part(7, 0, &["a"])));
    state.expect_anew(&relay, Duration::ZERO);
    let is_complete = |state: &State| state.lists.get(&id("relay")).unwrap().is_complete;
    assert!(!is_complete(&state) && !state.find(&id("a"), NOW).unwrap().is_current);
    assert_eq!(names(&state), ["a"], "it is still expected");
    for next in [1, 2] {
        let result = take(&mut state, &relay, part(7, next, &["b"]));
        assert_eq!(result, PartResult::BeginAnew);
    }
    take(&mut state, &relay, last(part(8, 0, &["b"])));
    assert!(is_complete(&state) && state.find(&id("b"), NOW).unwrap().is_current);
    assert_eq!(names(&state), ["b"]);
}

#[test]
fn inventory_without_parts_is_doubted_before_it_goes_with_another_request_of_its_syndic() {
    let (mut state, relay) = (state(), id("relay"));
    let at = Duration::from_secs;
    assert!(!state.forget_doubtful(&relay, at(300)), "there is none");
    take(&mut state, &relay, last(part(7, 0, &["a"])));
    state.hear(&relay, at(0));
    assert!(!state.needs_look(&relay, at(299)) && state.needs_look(&relay, at(300)));
    assert!(!state.needs_look(&id("other"), at(300)));
    // The first request after a long cut; a part follows.
    assert!(!state.forget_doubtful(&relay, at(10_000)), "it is doubted");
    assert!(!state.forget_doubtful(&relay, at(10_059)));
    state.hear(&relay, at(10_059));
    assert!(!state.forget_doubtful(&relay, at(10_060)), "a part came");
    assert_eq!(names(&state), ["a"]);
    assert!(state.lists.get(&relay).unwrap().is_complete);
    assert!(!state.forget_doubtful(&relay, at(10_359)), "doubted anew");
    assert!(!state.forget_doubtful(&relay, at(10_418)));
    assert!(state.forget_doubtful(&relay, at(10_419)));
    assert!(names(&state).is_empty() && !state.forget_doubtful(&relay, at(20_000)));
    let next = take(&mut state, &relay, part(7, 1, &["a"]));
    assert_eq!(next, PartResult::BeginAnew);
}

#[test]
fn start_that_announces_no_inventory_raises_doubts_that_further_starts_do_not_renew() {
    let (mut state, relay) = (state(), id("relay"));
    let at = Duration::from_secs;
    state.doubt(&relay, at(0));
    assert!(state.lists.is_empty());
    take(&mut state, &relay, last(part(7, 0, &["a"])));
    state.hear(&relay, at(0));
    state.doubt(&relay, at(1));
    state.doubt(&relay, at(40));
    assert!(!state.lists.get(&relay).unwrap().is_complete);
    assert!(!state.forget_doubtful(&relay, at(60)));
    assert!(state.forget_doubtful(&relay, at(61)));

    // An earlier release of ours, which begins anew.
    take(&mut state, &relay, last(part(7, 0, &["a"])));
    state.doubt(&relay, at(100));
    assert_eq!(
        take(&mut state, &relay, part(7, 1, &[])),
        PartResult::BeginAnew
    );
    state.hear(&relay, at(110));
    assert!(!state.forget_doubtful(&relay, at(400)));
    state.expect_anew(&relay, at(401));
    assert!(
        !state.forget_doubtful(&relay, at(460)),
        "its start ends doubts"
    );
    assert_eq!(names(&state), ["a"]);
}

#[test]
fn bytes_of_ids_and_reasons_count_until_their_minion_is_gone() {
    let (mut state, relay) = (state(), id("relay"));
    take(&mut state, &relay, away(part(7, 0, &["abc"])));
    let with_reason = state.bytes;
    take(&mut state, &relay, part(7, 1, &["abc"]));
    assert_eq!(with_reason - state.bytes, "gone home".len());
    let grains = announced("abc", "x").grains.unwrap();
    assert_eq!(state.bytes, "abc".len() + grains.len());
    let mut gone = part(7, 2, &[]);
    gone.gone = vec![id("abc")];
    take(&mut state, &relay, gone);
    assert_eq!(state.bytes, 0);
}

#[test]
fn inventories_were_not_whole_where_a_part_came_while_minions_were_looked_for() {
    let (mut state, relay) = (state(), id("relay"));
    let whole = |state: &State, since: u64| {
        [false, true]
            .map(|with_grains| state.were_whole_since(since, &[id("relay")], with_grains, NOW))
    };
    take(&mut state, &relay, part(7, 0, &["a"]));
    let since = state.generation;
    assert_eq!(whole(&state, since), [false; 2], "the list is under way");
    take(&mut state, &relay, last(part(7, 1, &["b"])));
    assert_eq!(whole(&state, since), [false; 2], "\"b\" was not seen");

    let since = state.generation;
    state.expect_anew(&relay, Duration::ZERO);
    take(&mut state, &relay, part(8, 0, &["a", "b"]));
    assert_eq!(whole(&state, since), [false; 2]);
    take(&mut state, &relay, last(part(8, 1, &[])));
    assert_eq!(whole(&state, since), [true; 2], "both were seen");

    let mut lacking = part(8, 2, &["b"]);
    for minion in &mut lacking.minions {
        minion.grains = Some(Bytes::new());
    }
    take(&mut state, &relay, lacking);
    let since = state.generation;
    assert_eq!(whole(&state, since), [true, false]);
    take(&mut state, &relay, part(8, 3, &["b"]));
    assert_eq!(
        whole(&state, since),
        [false; 2],
        "it was not seen by its grains"
    );
    assert_eq!(whole(&state, state.generation), [true; 2]);
}

#[test]
fn minions_without_grains_are_counted_until_these_are_known_or_they_are_gone() {
    let (mut state, relay) = (state(), id("relay"));
    let with = |name: &str, grains: Option<Bytes>| Announced {
        grains,
        ..announced(name, "x")
    };
    let known = announced("a", "x").grains;
    let mut next = 0;
    let mut announce = |minions: Vec<Announced>, gone: Vec<MinionId>| {
        let part = InventoryPart {
            minions,
            gone,
            ..part(7, next, &[])
        };
        next += 1;
        assert_eq!(take(&mut state, &relay, part), PartResult::Taken);
        state.without_grains
    };
    let lacking = || Some(Bytes::new());
    let all = vec![
        with("a", lacking()),
        with("b", lacking()),
        announced("c", "x"),
    ];
    assert_eq!(announce(all, Vec::new()), 2);
    assert_eq!(announce(vec![with("a", None)], Vec::new()), 2);
    assert_eq!(announce(vec![with("a", known.clone())], Vec::new()), 1);
    assert_eq!(announce(vec![with("a", None)], Vec::new()), 1);
    assert_eq!(announce(vec![with("a", lacking())], Vec::new()), 2);
    assert_eq!(announce(vec![with("a", known)], vec![id("b")]), 0);
    assert_eq!(announce(vec![with("c", lacking())], Vec::new()), 1);
    state.forget(&relay);
    assert_eq!(state.without_grains, 0);
}

#[test]
fn list_without_the_grains_of_a_minion_that_is_not_kept_begins_with_all_of_them() {
    let (mut state, relay) = (state(), id("relay"));
    take(&mut state, &relay, last(part(7, 0, &["a", "b"])));
    let as_before = |mut part: InventoryPart| {
        for minion in &mut part.minions {
            minion.grains = None;
        }
        part
    };
    state.expect_anew(&relay, Duration::ZERO);
    let result = take(&mut state, &relay, part(7, 1, &[]));
    assert_eq!(result, PartResult::BeginAnew);
    let again = last(as_before(part(8, 0, &["a", "b"])));
    assert_eq!(take(&mut state, &relay, again), PartResult::Taken);
    assert_eq!(state.without_grains, 0, "they are as before");
    assert!(state.are_complete(std::slice::from_ref(&relay), NOW));

    state.remove(&id("b"), &relay);
    let lacking = as_before(part(8, 1, &["b"]));
    assert_eq!(
        take(&mut state, &relay, lacking),
        PartResult::BeginWithGrains
    );
    assert!(!state.are_complete(std::slice::from_ref(&relay), NOW));
    assert_eq!(names(&state), ["a"]);
    assert_eq!(
        take(&mut state, &relay, part(8, 2, &[])),
        PartResult::BeginAnew
    );
    let all = last(part(9, 0, &["a", "b"]));
    assert_eq!(take(&mut state, &relay, all), PartResult::Taken);
    assert_eq!(state.without_grains, 0);
}

/// The same part, with a digest of the keys of its minions.
fn with_key(mut part: InventoryPart, byte: u8) -> InventoryPart {
    for minion in &mut part.minions {
        minion.key = Some([byte; 32]);
    }
    part
}

/// Room for what these tests are not about.
fn large_state() -> State {
    let mut state = state();
    (state.limits.minions, state.limits.bytes) = ((10, 10), (1_000, 2_000));
    state
}

/// The new second ways that a part names, and how many are not kept.
fn noted(state: &mut State, syndic: &MinionId, part: InventoryPart) -> (Vec<String>, u64) {
    let (result, ways) = state.take(syndic, part, NOW);
    assert_eq!(result, PartResult::Taken);
    let new = ways.new.iter().map(|way| way.minion.to_string());
    (new.collect(), ways.dropped)
}

/// The ways that are kept: of all, and by each of these syndics.
fn ways(state: &State, syndics: [&MinionId; 2]) -> (usize, [usize; 2]) {
    let ways: usize = state.duplicates.values().map(BTreeMap::len).sum();
    assert_eq!(state.second_ways.all, ways);
    assert!(state.duplicates.values().all(|others| !others.is_empty()));
    let lists = state.lists.values();
    let unproved: usize = lists.map(|list| list.second_ways.unproved).sum();
    assert_eq!(state.second_ways.unproved, unproved);
    let by = |syndic| {
        let list = state.lists.get(syndic);
        list.map_or(0, |list| list.second_ways.all)
    };
    (ways, syndics.map(by))
}

#[test]
fn minion_that_has_another_key_has_changed() {
    let (mut state, relay) = (large_state(), id("relay"));
    let mut seen = state.generation;
    for (next, byte, is_change) in [(0, 1, true), (1, 1, false), (2, 2, true)] {
        take(&mut state, &relay, with_key(part(7, next, &["a"]), byte));
        let changes = state.changes(Some(seen)).changed;
        let expected = if is_change { vec![id("a")] } else { Vec::new() };
        assert_eq!(changes, Changed::These(expected), "part {next}");
        seen = state.generation;
    }
}

/// A syndic that has become the first way of a minion is not its second one, too.
#[test]
fn way_of_a_syndic_ends_when_the_minion_stands_in_its_inventory() {
    let (mut state, relay, other) = (large_state(), id("relay"), id("other"));
    // It was announced beside a claim, while it stood nowhere.
    let mut beside = last(part(1, 0, &[]));
    let announced = Announced {
        key: Some([1; 32]),
        ..announced("a", "x")
    };
    beside.duplicates = vec![Duplicate::new(&announced, relay.clone())];
    take(&mut state, &other, beside);
    assert_eq!(ways(&state, [&relay, &other]), (1, [0, 1]));
    take(&mut state, &other, with_key(part(1, 1, &["a"]), 1));
    assert!(!state.is_proved_way(&id("a"), &other));
    assert_eq!(ways(&state, [&relay, &other]), (0, [0, 0]));
}

/// A minion that was claimed and stood in no inventory is announced anew by those that had announced it in vain.
#[test]
fn second_way_is_taken_up_when_the_claim_of_the_first_ends() {
    let (mut state, relay, other) = (large_state(), id("relay"), id("other"));
    let mut beside = last(part(1, 0, &[]));
    beside.duplicates = vec![Duplicate::new(&announced("a", "x"), relay.clone())];
    take(&mut state, &other, beside);
    state.release(&id("a"), &relay, None);
    let next = take(&mut state, &other, part(1, 1, &[]));
    assert_eq!(next, PartResult::BeginAnew);
    assert_eq!(ways(&state, [&relay, &other]), (0, [0, 0]));
}

/// One that has named the minion in the list that is under way cannot name it again before the next one.
#[test]
fn list_that_is_under_way_is_finished_before_a_second_way_is_taken_up() {
    let (mut state, relay, other) = (large_state(), id("relay"), id("other"));
    take(&mut state, &relay, last(part(7, 0, &["a", "b"])));
    let mut begin = |number: u64| take(&mut state, &other, part(number, 0, &["a"]));
    assert_eq!(begin(1), PartResult::Taken);
    let mut gone = part(7, 1, &[]);
    gone.gone = vec![id("a")];
    take(&mut state, &relay, gone);
    for (next, expected) in [
        (last(part(1, 1, &["b"])), PartResult::Taken),
        (part(1, 2, &[]), PartResult::BeginAnew),
        (last(part(2, 0, &["a", "b"])), PartResult::Taken),
        (part(2, 1, &[]), PartResult::Taken),
    ] {
        assert_eq!(take(&mut state, &other, next), expected);
    }
    assert_eq!(state.below.get(&id("a")).unwrap().syndic, other);
    // The one that takes it over with its part goes on.
    take(&mut state, &other, part(3, 0, &["b"]));
    state.release(&id("b"), &relay, Some(&other));
    let rest = last(part(3, 1, &["a", "b"]));
    assert_eq!(take(&mut state, &other, rest), PartResult::Taken);
    let next = take(&mut state, &other, part(3, 2, &[]));
    assert_eq!(next, PartResult::Taken);
}

/// The answer to a part is lost in a cut that also ends the claim of the first syndic: the part comes again, and takes the
/// minion over.
#[test]
fn part_that_comes_again_puts_minions_that_were_released_since() {
    let (mut state, relay, other) = (large_state(), id("relay"), id("other"));
    take(&mut state, &relay, last(part(7, 0, &["a", "b"])));
    for again in [
        last(part(1, 0, &["a"])),
        part(1, 1, &["b"]),
        part(2, 0, &["b"]),
    ] {
        let names = again.minions.iter().map(|it| it.id.clone());
        let names: Vec<MinionId> = names.collect();
        assert_eq!(take(&mut state, &other, again.clone()), PartResult::Taken);
        for name in &names {
            state.release(name, &relay, Some(&other));
            assert_eq!(take(&mut state, &other, again.clone()), PartResult::Taken);
            assert_eq!(state.below.get(name).unwrap().syndic, other);
        }
        // For the next round.
        state.remove(&id("b"), &other);
        take(&mut state, &relay, last(part(8, 0, &["b"])));
    }
    assert!(state.lists.get(&other).unwrap().is_under_way);
    // A part without its grains cannot put it.
    let mut without = part(2, 1, &["b"]);
    without.minions.iter_mut().for_each(|one| one.grains = None);
    assert_eq!(take(&mut state, &other, without.clone()), PartResult::Taken);
    state.release(&id("b"), &relay, Some(&other));
    assert_eq!(
        take(&mut state, &other, without),
        PartResult::BeginWithGrains
    );
}

#[test]
fn part_that_is_not_taken_changes_no_way() {
    let (mut state, relay, other) = (large_state(), id("relay"), id("other"));
    take(&mut state, &relay, last(with_key(part(7, 0, &["a"]), 1)));
    let gap = with_key(part(1, 1, &["a"]), 1);
    assert_eq!(take(&mut state, &other, gap), PartResult::BeginAnew);
    assert_eq!(ways(&state, [&relay, &other]), (0, [0, 0]));
    take(&mut state, &other, last(with_key(part(1, 0, &["a"]), 1)));
    assert!(state.is_proved_way(&id("a"), &other));
    let gap = with_key(part(1, 2, &["a"]), 2);
    assert_eq!(take(&mut state, &other, gap), PartResult::BeginAnew);
    assert!(state.is_proved_way(&id("a"), &other), "as it was announced");
    let names: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let large = part(1, 1, &names);
    assert!(matches!(
        take(&mut state, &other, large),
        PartResult::Refused(..)
    ));
    assert_eq!(
        ways(&state, [&relay, &other]),
        (0, [0, 0]),
        "its all are gone"
    );
}

#[test]
fn second_ways_are_bounded_for_each_syndic_and_counted_beyond() {
    let (mut state, relay) = (large_state(), id("relay"));
    let (other, third) = (id("other"), id("third"));
    let proved = |part: InventoryPart| with_key(part, 1);
    let all = || proved(last(part(7, 0, &["a", "b", "c"])));
    take(&mut state, &relay, all());
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let all = || proved(last(part(1, 0, &["a", "b", "c"])));
    assert_eq!(noted(&mut state, &other, all()), (names(&["a", "b"]), 1));
    let again = proved(last(part(2, 0, &["a", "b", "c"])));
    assert_eq!(noted(&mut state, &other, again), (Vec::new(), 1));
    // One is left of all, and "c" is the third minion: no event names it.
    let second = proved(last(part(1, 0, &["c", "a"])));
    assert_eq!(noted(&mut state, &third, second), (Vec::new(), 1));
    assert_eq!(ways(&state, [&other, &third]), (3, [2, 1]));
    let mut gone = part(2, 1, &[]);
    gone.gone = vec![id("a"), id("b")];
    assert_eq!(noted(&mut state, &other, gone), (Vec::new(), 0));
    assert_eq!(ways(&state, [&other, &third]), (1, [0, 1]));
    let again = proved(part(2, 2, &["b"]));
    assert_eq!(noted(&mut state, &other, again), (names(&["b"]), 0));
    state.forget(&third);
    assert_eq!(ways(&state, [&other, &third]), (1, [1, 0]));
    state.remove(&id("b"), &relay);
    assert_eq!(ways(&state, [&other, &third]), (0, [0, 0]));
}

/// A syndic may announce what it likes: those by which minions may return keep their room.
#[test]
fn second_ways_without_the_key_have_half_of_the_room() {
    let (mut state, relay) = (large_state(), id("relay"));
    let (other, third) = (id("other"), id("third"));
    take(
        &mut state,
        &relay,
        with_key(last(part(7, 0, &["a", "b", "c"])), 1),
    );
    let wrong = with_key(last(part(1, 0, &["a", "b", "c"])), 2);
    assert_eq!(noted(&mut state, &other, wrong), (vec!["a".to_owned()], 2));
    let none = last(part(1, 0, &["b"]));
    assert_eq!(noted(&mut state, &third, none), (Vec::new(), 1), "of all");
    let right = with_key(part(1, 1, &["b", "a"]), 1);
    assert_eq!(noted(&mut state, &other, right), (vec!["b".to_owned()], 0));
    assert!(state.is_proved_way(&id("a"), &other) && state.is_proved_way(&id("b"), &other));
    let none = part(1, 1, &["b"]);
    assert_eq!(noted(&mut state, &third, none), (vec!["b".to_owned()], 0));
    assert_eq!(ways(&state, [&other, &third]), (3, [2, 1]));
    state.forget(&third);
    state.forget(&other);
    assert_eq!(ways(&state, [&other, &third]), (0, [0, 0]));
}

#[test]
fn route_to_a_minion_is_its_second_way_while_the_first_is_closed() {
    let (mut state, relay, other) = (large_state(), id("relay"), id("other"));
    let none = HashSet::new();
    let is_away = HashSet::from([relay.clone()]);
    let minion = id("a");
    take(&mut state, &relay, last(with_key(part(7, 0, &["a"]), 1)));
    assert_eq!(
        state.route(&minion, &is_away, NOW),
        Some(&relay),
        "there is no other"
    );
    take(&mut state, &other, last(with_key(part(1, 0, &["a"]), 1)));
    assert_eq!(state.route(&minion, &none, NOW), Some(&relay));
    assert_eq!(state.route(&minion, &is_away, NOW), Some(&other));
    take(&mut state, &relay, away(with_key(part(7, 1, &["a"]), 1)));
    assert_eq!(
        state.route(&minion, &none, NOW),
        Some(&other),
        "it has no connection"
    );
    let both = HashSet::from([relay.clone(), other.clone()]);
    assert_eq!(state.route(&minion, &both, NOW), Some(&relay));
    take(&mut state, &other, away(with_key(part(1, 1, &["a"]), 1)));
    assert_eq!(state.route(&minion, &none, NOW), Some(&relay));
    take(&mut state, &other, with_key(part(1, 2, &["a"]), 2));
    assert_eq!(
        state.route(&minion, &is_away, NOW),
        Some(&relay),
        "it is not proved"
    );
    assert_eq!(state.route(&id("b"), &none, NOW), None);
}

use saltern_wire::msgpack::{Dialect, encode};

use super::*;

fn id(name: &str) -> MinionId {
    MinionId::parse(name).unwrap()
}

fn state() -> State {
    State {
        limits: InventoryLimits {
            minions: (3, 4),
            bytes: (60, 80),
        },
        lists: HashMap::new(),
        below: BTreeMap::new(),
        bytes: 0,
        generation: 1,
        changed: VecDeque::new(),
        ids: None,
    }
}

fn announced(name: &str, os: &str) -> Announced {
    let grains = Value::map([("os", os)]);
    Announced {
        id: id(name),
        away: None,
        grains: Some(encode(&grains, Dialect::Bin).into()),
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
        state.take(&relay, part(7, 0, &["a", "b"])),
        PartResult::Taken
    );
    assert!(!is_complete(&state));
    assert_eq!(
        state.take(&relay, last(part(7, 1, &["c"]))),
        PartResult::Taken
    );
    assert!(is_complete(&state));
    assert_eq!(names(&state), ["a", "b", "c"]);
    let mut change = part(7, 2, &[]);
    change.gone = vec![id("b")];
    assert_eq!(state.take(&relay, change), PartResult::Taken);
    assert_eq!(names(&state), ["a", "c"]);
}

#[test]
fn part_that_comes_twice_counts_once_and_gap_begins_anew() {
    let (mut state, relay) = (state(), id("relay"));
    assert_eq!(
        state.take(&relay, part(7, 1, &["a"])),
        PartResult::BeginAnew
    );
    for _ in 0..2 {
        assert_eq!(state.take(&relay, part(7, 0, &["a"])), PartResult::Taken);
    }
    assert_eq!(
        state.take(&relay, part(7, 2, &["c"])),
        PartResult::BeginAnew
    );
    assert_eq!(
        state.take(&relay, part(6, 1, &["c"])),
        PartResult::BeginAnew
    );
    assert_eq!(names(&state), ["a"]);
}

#[test]
fn new_list_replaces_the_old_one_when_it_is_full() {
    let (mut state, relay) = (state(), id("relay"));
    state.take(&relay, last(part(7, 0, &["a", "b"])));
    state.take(&relay, part(8, 0, &["b"]));
    assert_eq!(names(&state), ["a", "b"], "the old list holds meanwhile");
    assert!(state.lists.get(&relay).unwrap().is_complete);
    state.take(&relay, last(part(8, 1, &["c"])));
    assert_eq!(names(&state), ["b", "c"]);
}

#[test]
fn inventory_that_is_too_large_is_dropped_as_a_whole() {
    let (mut state, relay, other) = (state(), id("relay"), id("other"));
    state.take(&relay, last(part(7, 0, &["a", "b", "c"])));
    assert!(matches!(
        state.take(&relay, part(7, 1, &["d"])),
        PartResult::Refused(_)
    ));
    assert!(names(&state).is_empty() && !state.lists.contains_key(&relay));
    assert_eq!(state.bytes, 0);
    let mut large = part(7, 0, &[]);
    large.minions = vec![announced("a", &"x".repeat(60))];
    assert!(matches!(state.take(&relay, large), PartResult::Refused(_)));
    state.take(&relay, last(part(8, 0, &["a", "b", "c"])));
    state.take(&other, part(1, 0, &["d"]));
    assert!(matches!(
        state.take(&other, part(1, 1, &["e"])),
        PartResult::Refused(_)
    ));
    assert_eq!(names(&state), ["a", "b", "c"], "others keep theirs");
}

#[test]
fn minion_stands_in_the_inventory_that_had_it_first() {
    let (mut state, relay, other) = (state(), id("relay"), id("other"));
    state.take(&relay, last(part(7, 0, &["a"])));
    assert_eq!(
        state.take(&other, last(part(1, 0, &["a"]))),
        PartResult::Taken
    );
    assert_eq!(state.below.get(&id("a")).unwrap().syndic, relay);
    let mut gone = part(1, 1, &[]);
    gone.gone = vec![id("a")];
    state.take(&other, gone);
    assert_eq!(names(&state), ["a"], "it is not the other's to remove");
    state.forget(&relay);
    assert!(names(&state).is_empty());
}

#[test]
fn grains_stay_until_they_change_and_readers_learn_of_each_change() {
    let (mut state, relay) = (state(), id("relay"));
    state.take(&relay, last(part(7, 0, &["a", "b"])));
    let seen = state.generation;
    let mut change = part(7, 1, &[]);
    change.minions = vec![
        Announced {
            id: id("a"),
            away: Some("gone home".into()),
            grains: None,
        },
        announced("b", "y"),
    ];
    state.take(&relay, change);
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

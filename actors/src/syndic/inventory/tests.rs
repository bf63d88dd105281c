use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;

/// Minions with why they are away and with a grain.
type Fleet = Rc<RefCell<BTreeMap<MinionId, (Option<String>, String)>>>;

/// The fleet; borrowed for writing, it cannot be listed. With the key of those of which one is known.
struct Below(Fleet, Rc<Cell<Option<u8>>>);

impl MinionsBelow for Below {
    type Cursor = ();

    fn ids(&self) -> Option<Vec<MinionId>> {
        Some(self.0.try_borrow().ok()?.keys().cloned().collect())
    }

    fn is_partial(&self) -> bool {
        // A minion of this name stands for one that is in no inventory.
        let fleet = self.0.try_borrow();
        fleet.is_ok_and(|fleet| fleet.contains_key(&id("below-stock")))
    }

    fn away(&self, minion: &MinionId) -> Option<String> {
        self.0.borrow().get(minion).and_then(|it| it.0.clone())
    }

    fn grains(&self, minion: &MinionId) -> Option<Value> {
        let fleet = self.0.borrow();
        let os = fleet.get(minion)?.1.as_str();
        (!os.is_empty()).then(|| Value::map([("os", os)]))
    }

    fn key(&self, minion: &MinionId) -> Option<KeyDigest> {
        let is_known = minion.as_str().starts_with("known");
        self.1.get().filter(|_| is_known).map(|byte| [byte; 32])
    }

    fn changes(&self, _: Option<&()>) -> MinionChanges<()> {
        MinionChanges {
            grains: Changed::Everything,
            keys: Changed::Everything,
            cursor: (),
        }
    }
}

fn id(name: &str) -> MinionId {
    MinionId::parse(name).unwrap()
}

fn fleet(names: &[&str]) -> Fleet {
    let minions = names.iter().map(|name| (id(name), (None, "x".to_owned())));
    Rc::new(RefCell::new(minions.collect()))
}

fn taken() -> Value {
    Value::map([("result", "taken")])
}

fn names(part: &InventoryPart) -> Vec<String> {
    let ids = part.minions.iter().map(|entry| match entry {
        Value::Array(fields) => fields[0].as_str().unwrap().to_owned(),
        other => panic!("no entry: {other:?}"),
    });
    ids.collect()
}

fn agreed(fleet: &Fleet) -> InventorySender<Below> {
    agreed_with_key(fleet, &Rc::new(Cell::new(Some(7))))
}

fn agreed_with_key(fleet: &Fleet, key: &Rc<Cell<Option<u8>>>) -> InventorySender<Below> {
    let mut sender = InventorySender::new(Below(fleet.clone(), key.clone()));
    assert_eq!(sender.next(Instant::now()), None, "nobody agreed");
    sender.agree("one", Some(1), 1);
    sender
}

#[test]
fn full_list_goes_up_in_bounded_parts_and_then_changes() {
    let many: Vec<String> = (0..MAX_MINIONS + 1).map(|at| format!("m{at:04}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (fleet, now) = (fleet(&many), Instant::now());
    let mut sender = agreed(&fleet);
    let first = sender.next(now).unwrap();
    assert_eq!((first.minions.len(), first.is_last), (MAX_MINIONS, false));
    assert_eq!(sender.next(now), Some(first), "until it is answered");
    assert_eq!(sender.answered(&taken(), 2, now), Answered::Taken);
    let second = sender.next(now).unwrap();
    assert_eq!((second.part, second.is_last), (1, true));
    assert_eq!(names(&second), [*many.last().unwrap()]);
    sender.answered(&taken(), 2, now);
    assert_eq!(sender.next(now), None, "nothing has changed");

    fleet.borrow_mut().remove(&id("m0001"));
    fleet.borrow_mut().insert(id("new"), (None, "y".to_owned()));
    fleet.borrow_mut().get_mut(&id("m0002")).unwrap().0 = Some("away".to_owned());
    let change = sender.next(now).unwrap();
    assert_eq!(change.gone, [Value::from("m0001")]);
    assert_eq!(names(&change), ["m0002", "new"]);
    let of_known = Value::Array(vec!["m0002".into(), "away".into(), Value::Nil]);
    assert_eq!(change.minions[0], of_known, "its grains are as before");
    assert!(!change.is_last);
}

#[test]
fn digest_of_a_key_goes_up_with_its_minion() {
    let fleet = fleet(&["known", "lost"]);
    let part = agreed(&fleet).next(Instant::now()).unwrap();
    assert_eq!(names(&part), ["known", "lost"]);
    let of_known = Value::from(&[7_u8; 32][..]);
    assert_eq!(part.keys, [of_known, Value::Nil]);
    let fields = part.fields();
    let sent = fields.iter().find(|(name, _)| *name == "keys");
    assert_eq!(sent.map(|(_, keys)| keys), Some(&Value::Array(part.keys)));
}

/// The key of a minion is accepted or replaced after it was announced.
#[test]
fn late_or_other_digest_of_a_key_goes_up_when_it_is_there() {
    let (fleet, now) = (fleet(&["known", "other"]), Instant::now());
    let key = Rc::new(Cell::new(None));
    let mut sender = agreed_with_key(&fleet, &key);
    assert_eq!(sender.next(now).unwrap().keys, [Value::Nil, Value::Nil]);
    sender.answered(&taken(), 2, now);
    assert_eq!(sender.next(now), None, "nothing has changed");
    for byte in [7, 8] {
        key.set(Some(byte));
        let part = sender.next(now).unwrap();
        assert_eq!(names(&part), ["known"]);
        assert_eq!(part.keys, [Value::from(&[byte; 32][..])]);
        let without_grains = vec!["known".into(), Value::Nil, Value::Nil];
        assert_eq!(part.minions, [Value::Array(without_grains)]);
        sender.answered(&taken(), 2, now);
        assert_eq!(sender.next(now), None, "it is announced");
    }
}

#[test]
fn list_is_partial_until_all_minions_of_a_whole_fleet_have_gone_up() {
    let many: Vec<String> = (0..MAX_MINIONS + 1).map(|at| format!("m{at:04}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (fleet, now) = (fleet(&many), Instant::now());
    let mut sender = agreed(&fleet);
    let mut next = || {
        let part = sender.next(now);
        sender.answered(&taken(), 2, now);
        part.map(|part| (part.minions.len(), part.is_last, part.is_partial))
    };
    assert_eq!(next(), Some((MAX_MINIONS, false, true)));
    assert_eq!(next(), Some((1, true, false)));
    assert_eq!(next(), None);
    let stock = (None, "x".to_owned());
    fleet.borrow_mut().insert(id("below-stock"), stock);
    assert_eq!(next(), Some((1, false, true)));
    assert_eq!(next(), None);
    fleet.borrow_mut().remove(&id("below-stock"));
    assert_eq!(next(), Some((0, false, false)));
    assert_eq!(next(), None);
}

#[test]
fn empty_part_finds_out_that_the_master_above_is_another() {
    let (fleet, now) = (fleet(&["a"]), Instant::now());
    let mut sender = agreed(&fleet);
    sender.next(now).unwrap();
    sender.answered(&taken(), 2, now);
    assert_eq!(sender.next(now), None);
    let later = now + HEARTBEAT;
    let heartbeat = sender.next(later).unwrap();
    assert!(heartbeat.minions.is_empty() && !heartbeat.is_last);
    let anew = Value::map([("result", "begin_anew"), ("epoch", "two")]);
    assert_eq!(sender.answered(&anew, 5, later), Answered::Anew);
    let full = sender.next(later).unwrap();
    assert_eq!((full.epoch.as_str(), full.list, full.part), ("two", 5, 0));
    assert_eq!((names(&full), full.is_last), (vec!["a".to_owned()], true));
    sender.answered(&taken(), 6, later);

    sender.agree("one", Some(1), 7);
    assert_eq!(sender.next(later), None, "the session is the same");
    sender.agree("one", Some(2), 8);
    assert!(sender.next(later).is_some(), "the connection is another");
}

#[test]
fn refused_inventory_is_not_sent_before_a_pause_or_the_next_connection() {
    let (fleet, now) = (fleet(&["a"]), Instant::now());
    let mut sender = agreed(&fleet);
    sender.next(now).unwrap();
    for answer in [Value::map([("result", "refused")]), Value::Nil] {
        assert_eq!(sender.answered(&answer, 2, now), Answered::Refused);
        assert_eq!(sender.next(now + HEARTBEAT), None);
    }
    sender.agree("one", Some(1), 3);
    assert_eq!(sender.next(now), None);
    sender.agree("one", Some(2), 4);
    let anew = sender.next(now).unwrap();
    assert_eq!((anew.list, anew.part), (4, 0));
    sender.answered(&Value::map([("result", "refused")]), 5, now);
    assert_eq!(sender.next(now + HEARTBEAT), None);
    let anew = sender.next(now + PAUSE_AFTER_REFUSAL).unwrap();
    assert_eq!((anew.list, anew.part), (5, 0));
    assert_eq!(names(&anew), ["a"]);
}

#[test]
fn inventory_goes_again_at_once_to_a_master_that_did_not_know_the_syndic() {
    let (fleet, now) = (fleet(&["a"]), Instant::now());
    let mut sender = agreed(&fleet);
    sender.next(now).unwrap();
    let unknown = Value::map([("result", "refused"), ("class", "not_syndic")]);
    assert_eq!(sender.answered(&unknown, 2, now), Answered::NotSyndic);
    let anew = sender.next(now).unwrap();
    assert_eq!((anew.part, anew.is_last), (0, true));
    assert_eq!(names(&anew), ["a"]);
    assert_eq!(sender.answered(&unknown, 3, now), Answered::NotSyndic);
    let before = now + PAUSE_UNKNOWN - Duration::from_millis(1);
    assert_eq!(sender.next(before), None, "the start event did not help");
    let later = now + PAUSE_UNKNOWN;
    assert!(sender.next(later).is_some());
    assert_eq!(sender.answered(&taken(), 4, later), Answered::Taken);
    assert_eq!(sender.answered(&unknown, 5, later), Answered::NotSyndic);
    assert!(sender.next(later).is_some());
}

#[test]
fn master_below_without_minions_announces_that() {
    let (fleet, now) = (fleet(&[]), Instant::now());
    let mut sender = agreed(&fleet);
    let only = sender.next(now).unwrap();
    assert!(only.is_last && only.minions.is_empty());
}

#[test]
fn minions_that_are_gone_go_up_in_bounded_parts() {
    let many: Vec<String> = (0..MAX_MINIONS + 1).map(|at| format!("m{at:04}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (fleet, now) = (fleet(&many), Instant::now());
    let mut sender = agreed(&fleet);
    for _ in 0..2 {
        sender.next(now).unwrap();
        sender.answered(&taken(), 2, now);
    }
    fleet.borrow_mut().clear();
    for gone in [MAX_MINIONS, 1] {
        assert_eq!(sender.next(now).unwrap().gone.len(), gone);
        sender.answered(&taken(), 2, now);
    }
    assert_eq!(sender.next(now), None);
}

#[test]
fn nothing_goes_up_while_minions_cannot_be_listed() {
    let (fleet, now) = (fleet(&["a"]), Instant::now());
    let mut sender = agreed(&fleet);
    let unlisted = |sender: &mut InventorySender<Below>, now: Instant| {
        let _held = fleet.borrow_mut();
        assert_eq!(sender.next(now), None);
    };
    unlisted(&mut sender, now);
    assert_eq!(names(&sender.next(now).unwrap()), ["a"]);
    sender.answered(&taken(), 2, now);
    let later = now + HEARTBEAT;
    unlisted(&mut sender, later);
    assert!(sender.next(later).unwrap().gone.is_empty());
}

#[test]
fn grains_that_are_not_known_go_up_once_as_an_empty_map() {
    let (fleet, now) = (fleet(&["a"]), Instant::now());
    fleet.borrow_mut().get_mut(&id("a")).unwrap().1 = String::new();
    let mut sender = agreed(&fleet);
    let mut next = || {
        let part = sender.next(now)?;
        sender.answered(&taken(), 2, now);
        part.minions
            .first()
            .and_then(Value::as_array)
            .map(|entry| entry[2].clone())
    };
    assert_eq!(next(), Some(Value::Map(Vec::new())));
    assert_eq!(next(), None, "nothing has changed");
    fleet.borrow_mut().get_mut(&id("a")).unwrap().1 = "x".to_owned();
    assert_eq!(next(), Some(Value::map([("os", "x")])));
}

/// The minions of a part, and whether each has grains in it.
fn with_grains(part: &InventoryPart) -> Vec<(String, bool)> {
    let entries = part.minions.iter().map(|entry| match entry {
        Value::Array(fields) => {
            let id = fields[0].as_str().unwrap().to_owned();
            (id, fields[2] != Value::Nil)
        }
        other => panic!("no entry: {other:?}"),
    });
    entries.collect()
}

#[test]
fn list_after_a_lost_connection_has_no_grains_that_the_master_has_kept() {
    let (fleet, now) = (fleet(&["a", "b"]), Instant::now());
    let mut sender = agreed(&fleet);
    sender.next(now).unwrap();
    sender.answered(&taken(), 2, now);
    // "c" is in a part whose answer is lost.
    fleet.borrow_mut().insert(id("c"), (None, "x".to_owned()));
    assert_eq!(names(&sender.next(now).unwrap()), ["c"]);
    fleet.borrow_mut().get_mut(&id("b")).unwrap().1 = "y".to_owned();
    sender.agree("one", Some(2), 3);
    let anew = |has_grains: bool| {
        Value::map([
            ("result", Value::from("begin_anew")),
            ("epoch", "one".into()),
            ("with_grains", Value::Bool(!has_grains)),
        ])
    };
    assert_eq!(sender.answered(&anew(true), 4, now), Answered::Anew);
    let list = sender.next(now).unwrap();
    assert_eq!((list.list, list.part, list.is_last), (4, 0, true));
    let of = |id: &str, has_grains: bool| (id.to_owned(), has_grains);
    assert_eq!(
        with_grains(&list),
        [of("a", false), of("b", true), of("c", true)]
    );

    // It lacks some all the same.
    assert_eq!(sender.answered(&anew(false), 5, now), Answered::Anew);
    let list = sender.next(now).unwrap();
    assert_eq!(
        with_grains(&list),
        [of("a", true), of("b", true), of("c", true)]
    );
}

#[test]
fn minion_that_a_list_after_a_lost_connection_left_out_is_announced_when_it_comes_again() {
    let (fleet, now) = (fleet(&["a", "b"]), Instant::now());
    let mut sender = agreed(&fleet);
    sender.next(now).unwrap();
    sender.answered(&taken(), 2, now);
    let before = fleet.borrow_mut().remove(&id("b")).unwrap();
    let anew = Value::map([
        ("result", Value::from("begin_anew")),
        ("epoch", "one".into()),
        ("with_grains", Value::Bool(false)),
    ]);
    assert_eq!(sender.answered(&anew, 3, now), Answered::Anew);
    let list = sender.next(now).unwrap();
    assert_eq!((names(&list), list.is_last), (vec!["a".to_owned()], true));
    fleet.borrow_mut().insert(id("b"), before);
    sender.answered(&taken(), 4, now);
    let change = sender.next(now).unwrap();
    assert_eq!(with_grains(&change), [("b".to_owned(), true)]);
    assert!(change.gone.is_empty());
}

/// Bytes of the packed fields of a part.
fn bytes_of(part: &InventoryPart) -> usize {
    let fields = part.fields();
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| name.len() + 1 + packed(value).len());
    fields.sum()
}

#[test]
fn minion_costs_its_grains_once_and_then_nothing_until_it_changes() {
    const MINIONS: usize = 200;
    const GRAINS: usize = 5_000;
    let names: Vec<String> = (0..MINIONS).map(|at| format!("m{at:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (fleet, now) = (fleet(&names), Instant::now());
    for (_, grain) in fleet.borrow_mut().values_mut() {
        *grain = "x".repeat(GRAINS);
    }
    let mut sender = agreed(&fleet);
    let send = |sender: &mut InventorySender<Below>, now: Instant| {
        let parts = std::iter::from_fn(|| {
            let part = sender.next(now)?;
            sender.answered(&taken(), 2, now);
            Some(bytes_of(&part))
        });
        parts.collect::<Vec<usize>>()
    };
    let full = send(&mut sender, now);
    let (total, largest) = (full.iter().sum::<usize>(), full.iter().max());
    assert!(full.len() >= MINIONS * GRAINS / MAX_BYTES, "{full:?}");
    assert!(
        largest.is_some_and(|bytes| *bytes < MAX_BYTES + 2 * GRAINS),
        "{full:?}"
    );
    let of_one = total / MINIONS - GRAINS;
    assert!(of_one < 30, "{of_one} bytes beside the grains of a minion");

    fleet.borrow_mut().get_mut(&id("m0001")).unwrap().0 = Some("away".to_owned());
    let [change] = send(&mut sender, now)[..] else {
        panic!("one part")
    };
    assert!(change < 200, "{change} bytes for a minion that is away");
    assert!(send(&mut sender, now).is_empty());
    let [empty] = send(&mut sender, now + HEARTBEAT)[..] else {
        panic!("one part")
    };
    assert!(empty < 200, "{empty} bytes of an empty part");

    let anew = Value::map([
        ("result", Value::from("begin_anew")),
        ("epoch", "one".into()),
        ("with_grains", Value::Bool(false)),
    ]);
    sender.next(now + 2 * HEARTBEAT).unwrap();
    sender.answered(&anew, 3, now);
    let again: usize = send(&mut sender, now).iter().sum();
    assert!(again < MINIONS * 20 + 200, "{again} bytes without grains");
}

//! Merging one mapping into another: `salt/utils/dictupdate.py`, by value.
//!
//! Only mappings are merged; what a pillar is before and after is decided elsewhere. Keys and
//! items are compared as Python compares them (`1`, `1.0` and `True` are one key).

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::LazyLock;

use saltern_wire::msgpack::Value;

/// How two pillars become one: `pillar_source_merging_strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Stock chooses by the renderer: [`Strategy::Recurse`] for all but `yamlex`, which only
    /// Python can run.
    Smart,
    /// Stock aggregates what `yamlex` marked; without it the update replaces whole values of the
    /// outermost mapping.
    Aggregate,
    /// Mappings are merged at every depth.
    Recurse,
    /// Values of the outermost mapping are replaced.
    Overwrite,
    /// Two values under one key become a list of both. Keys that only the update has are dropped,
    /// as in stock.
    List,
    /// As [`Strategy::Recurse`], but lists are never merged. Stock also reads one environment
    /// only, which is not this file's business.
    None,
}

impl Strategy {
    /// The strategy of this name. Stock takes an unknown one for `recurse` without merging of
    /// lists, and so does the caller with the `None` that is given here.
    pub fn parse(name: &str) -> Option<Strategy> {
        Some(match name {
            "smart" => Strategy::Smart,
            "aggregate" => Strategy::Aggregate,
            "recurse" => Strategy::Recurse,
            "overwrite" => Strategy::Overwrite,
            "list" => Strategy::List,
            "none" => Strategy::None,
            _ => return None,
        })
    }
}

/// Merges `update` into `base`. With `merge_lists`, the strategies that recurse add the items of a
/// list that are not in the other yet. If one of the two is no mapping, `base` is given back:
/// stock raises an error, so callers look first.
pub fn merge(base: Value, update: Value, strategy: Strategy, merge_lists: bool) -> Value {
    let (mut base, update) = match (base, update) {
        (Value::Map(base), Value::Map(update)) => (base, update),
        (base, _) => return base,
    };
    match strategy {
        Strategy::Smart | Strategy::Recurse => recurse(&mut base, update, merge_lists),
        Strategy::None => recurse(&mut base, update, false),
        Strategy::Aggregate | Strategy::Overwrite => replace(&mut base, update),
        Strategy::List => both(&mut base, update),
    }
    Value::Map(base)
}

type Entries = Vec<(Value, Value)>;

/// From this many values on, one is found through a table.
const INDEXED: usize = 24;

/// Keyed anew in each process: keys come from minions, who must not be able to choose equal hashes.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Positions of values in a row that only grows at its end: the first one of each hash.
struct Index(Option<HashMap<u64, usize>>);

impl Index {
    /// An index, if looking for so many values is worth one.
    fn of<'a>(values: impl ExactSizeIterator<Item = &'a Value>, searches: usize) -> Index {
        let is_worth_it = values.len() > INDEXED && searches > 2;
        let mut index = Index(is_worth_it.then(|| HashMap::with_capacity(values.len())));
        if is_worth_it {
            for (at, value) in values.enumerate() {
                index.add(value, at);
            }
        }
        index
    }

    fn add(&mut self, value: &Value, at: usize) {
        if let Some(places) = &mut self.0 {
            places.entry(HASHER.hash_one(Alike(value))).or_insert(at);
        }
    }

    /// The place of a value; `get` gives the one at a place.
    fn find<'a>(&self, value: &Value, get: impl Fn(usize) -> Option<&'a Value>) -> Option<usize> {
        let is_found = |at: &usize| get(*at).is_some_and(|found| equal(found, value));
        if let Some(places) = &self.0 {
            let at = places.get(&HASHER.hash_one(Alike(value))).copied()?;
            if is_found(&at) {
                return Some(at);
            }
            // Another value has the same hash.
        }
        (0..).take_while(|at| get(*at).is_some()).find(is_found)
    }
}

/// Hashes values that [`equal`] calls equal to the same number.
struct Alike<'a>(&'a Value);

impl Hash for Alike<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match (self.0, number(self.0)) {
            (_, Some(Number::Whole(number))) => (0_u8, number).hash(state),
            (_, Some(Number::Broken(number))) => (1_u8, number.to_bits()).hash(state),
            (Value::Str(text), _) => (2_u8, text).hash(state),
            (Value::Bin(bytes), _) => (3_u8, bytes).hash(state),
            (Value::Ext(kind, bytes), _) => (4_u8, kind, bytes).hash(state),
            (Value::Array(items), _) => {
                (5_u8, items.len()).hash(state);
                items.iter().for_each(|item| Alike(item).hash(state));
            }
            // The order of the entries does not count.
            (Value::Map(entries), _) => {
                let entries = entries.iter();
                let hashes =
                    entries.map(|(key, value)| HASHER.hash_one((Alike(key), Alike(value))));
                let all = hashes.fold(0_u64, u64::wrapping_add);
                (6_u8, all).hash(state);
            }
            _ => 7_u8.hash(state),
        }
    }
}

fn index_of(entries: &[(Value, Value)], searches: usize) -> Index {
    Index::of(entries.iter().map(|(key, _)| key), searches)
}

fn place_of(index: &Index, entries: &[(Value, Value)], key: &Value) -> Option<usize> {
    index.find(key, |at| entries.get(at).map(|(found, _)| found))
}

fn recurse(base: &mut Entries, update: Entries, merge_lists: bool) {
    let index = index_of(base, update.len());
    let known = base.len();
    for (key, value) in update {
        let place = place_of(&index, base.get(..known).unwrap_or_default(), &key);
        let Some((_, there)) = place.and_then(|at| base.get_mut(at)) else {
            base.push((key, value));
            continue;
        };
        match (there, value) {
            (Value::Map(there), Value::Map(value)) => recurse(there, value, merge_lists),
            (Value::Array(there), Value::Array(value)) if merge_lists => add_items(there, value),
            (there, value) => *there = value,
        }
    }
}

/// Adds the items that are not there; those that the update holds twice come twice, as in stock.
fn add_items(there: &mut Vec<Value>, update: Vec<Value>) {
    let index = Index::of(there.iter(), update.len());
    let before = there.len();
    for item in update {
        let known = there.get(..before).unwrap_or_default();
        if index.find(&item, |at| known.get(at)).is_none() {
            there.push(item);
        }
    }
}

fn replace(base: &mut Entries, update: Entries) {
    let index = index_of(base, update.len());
    let known = base.len();
    for (key, value) in update {
        let place = place_of(&index, base.get(..known).unwrap_or_default(), &key);
        match place.and_then(|at| base.get_mut(at)) {
            Some((_, there)) => *there = value,
            None => base.push((key, value)),
        }
    }
}

fn both(base: &mut Entries, update: Entries) {
    let index = index_of(base, update.len());
    for (key, value) in update {
        let place = place_of(&index, base, &key);
        if let Some((_, there)) = place.and_then(|at| base.get_mut(at)) {
            let first = std::mem::replace(there, Value::Nil);
            *there = Value::Array(vec![first, value]);
        }
    }
}

/// The value with each key of its mappings once: of equal keys the first place and the last value
/// count, as in a dict. Mappings from the wire may hold a key twice.
pub(super) fn without_doubles(value: Value) -> Value {
    match value {
        Value::Map(entries) => {
            let mut kept: Entries = Vec::with_capacity(entries.len());
            let mut index = Index((entries.len() > INDEXED).then(HashMap::new));
            for (key, value) in entries {
                let value = without_doubles(value);
                match place_of(&index, &kept, &key).and_then(|at| kept.get_mut(at)) {
                    Some((_, there)) => *there = value,
                    None => {
                        index.add(&key, kept.len());
                        kept.push((key, value));
                    }
                }
            }
            Value::Map(kept)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_doubles).collect()),
        other => other,
    }
}

/// Whether Python calls two values equal.
pub(crate) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Str(one), Value::Str(other)) => one == other,
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| equal(a, b))
        }
        (Value::Map(one), Value::Map(other)) => {
            let index = index_of(other, one.len());
            one.len() == other.len()
                && one.iter().all(|(key, value)| {
                    let found = place_of(&index, other, key).and_then(|at| other.get(at));
                    found.is_some_and(|(_, found)| equal(found, value))
                })
        }
        _ => match (number(one), number(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one == other,
        },
    }
}

/// Numbers of all kinds on one scale; integers that a float cannot hold are compared as
/// integers.
#[derive(PartialEq)]
enum Number {
    Whole(i128),
    Broken(f64),
}

fn number(value: &Value) -> Option<Number> {
    Some(match value {
        Value::Bool(flag) => Number::Whole(i128::from(*flag)),
        Value::Int(number) => Number::Whole(i128::from(*number)),
        Value::Uint(number) => Number::Whole(i128::from(*number)),
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e30 => {
            Number::Whole(*number as i128)
        }
        Value::Float(number) => Number::Broken(*number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
    use proptest::strategy::Strategy as _;
    use saltern_wire::msgpack::Value;

    use super::{Index, Strategy, equal, merge, without_doubles};
    use crate::render::json::parse;

    fn json(text: &str) -> Value {
        parse(text).expect("JSON")
    }

    #[test]
    fn merge_index_finds_a_value_in_constant_time() {
        let texts = (0..20_000).map(|n| Value::from(n.to_string()));
        let numbers = (0..20_000).map(Value::Int);
        let bytes = (0..20_000_u32).map(|n| Value::Bin(n.to_be_bytes().to_vec().into()));
        let lists = (0..20_000).map(|n| Value::Array(vec![Value::Int(n)]));
        let values: Vec<Value> = texts.chain(numbers).chain(bytes).chain(lists).collect();
        let index = Index::of(values.iter(), values.len());
        let looks = std::cell::Cell::new(0);
        let find = |wanted: &Value| {
            index.find(wanted, |at| {
                looks.set(looks.get() + 1);
                values.get(at)
            })
        };
        for (at, value) in values.iter().enumerate() {
            assert_eq!(find(value), Some(at));
        }
        assert_eq!(
            find(&Value::Float(7.0)),
            Some(20_007),
            "a number is found by its like"
        );
        assert_eq!(find(&Value::from("no")), None);
        assert!(looks.get() <= values.len() + 1, "{} looks", looks.get());
    }

    #[test]
    fn last_value_of_equal_keys_takes_the_first_position() {
        let pair = |key: Value, value: i64| (key, Value::Int(value));
        let mut entries: Vec<_> = (0..100).map(|n| pair(Value::Int(n), n)).collect();
        entries.push(pair(Value::Float(3.0), -3));
        entries.push(pair(Value::Bool(true), -1));
        entries.push(pair(Value::from("3"), 0));
        let mut expected: Vec<_> = (0..100).map(|n| pair(Value::Int(n), n)).collect();
        expected[3].1 = Value::Int(-3);
        expected[1].1 = Value::Int(-1);
        expected.push(pair(Value::from("3"), 0));
        assert_eq!(without_doubles(Value::Map(entries)), Value::Map(expected));
    }

    #[test]
    fn strategies_merge_as_stock_merges() {
        let base = r#"{"a": {"x": 1, "l": [1, 2]}, "l": [1, {"b": 1}], "n": 1, "k": null}"#;
        let update =
            r#"{"l": [{"b": 1}, 2, 2], "a": {"y": 2, "l": [2, 3]}, "n": {"m": 1}, "z": 0}"#;
        let table = [
            (
                Strategy::Smart,
                false,
                r#"{"a": {"x": 1, "l": [2, 3], "y": 2}, "l": [{"b": 1}, 2, 2], "n": {"m": 1},
                    "k": null, "z": 0}"#,
            ),
            (
                Strategy::Recurse,
                true,
                r#"{"a": {"x": 1, "l": [1, 2, 3], "y": 2}, "l": [1, {"b": 1}, 2, 2],
                    "n": {"m": 1}, "k": null, "z": 0}"#,
            ),
            (
                Strategy::None,
                true,
                r#"{"a": {"x": 1, "l": [2, 3], "y": 2}, "l": [{"b": 1}, 2, 2], "n": {"m": 1},
                    "k": null, "z": 0}"#,
            ),
            (
                Strategy::Overwrite,
                true,
                r#"{"a": {"y": 2, "l": [2, 3]}, "l": [{"b": 1}, 2, 2], "n": {"m": 1}, "k": null,
                    "z": 0}"#,
            ),
            (
                Strategy::List,
                false,
                r#"{"a": [{"x": 1, "l": [1, 2]}, {"y": 2, "l": [2, 3]}],
                    "l": [[1, {"b": 1}], [{"b": 1}, 2, 2]], "n": [1, {"m": 1}], "k": null}"#,
            ),
        ];
        for (strategy, lists, expected) in table {
            let merged = merge(json(base), json(update), strategy, lists);
            assert_eq!(merged, json(expected), "{strategy:?} {lists}");
        }
    }

    #[test]
    fn keys_are_equal_when_python_says_so() {
        let base = Value::Map(vec![(Value::Int(1), Value::from("a"))]);
        for key in [Value::Int(1), Value::Float(1.0), Value::Bool(true)] {
            let update = Value::Map(vec![(key, Value::from("b"))]);
            let merged = merge(base.clone(), update, Strategy::Smart, false);
            assert_eq!(merged, Value::Map(vec![(Value::Int(1), Value::from("b"))]));
        }
        assert!(!equal(&Value::from("1"), &Value::Int(1)));
        assert!(!equal(&Value::Float(f64::NAN), &Value::Float(f64::NAN)));
    }

    fn value() -> impl proptest::strategy::Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::Bool),
            (-3i64..3).prop_map(Value::Int),
            "[a-c]{0,2}".prop_map(Value::Str),
        ];
        leaf.prop_recursive(4, 48, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map("[a-f]", inner, 0..5).prop_map(Value::map),
            ]
        })
    }

    fn mapping() -> impl proptest::strategy::Strategy<Value = Value> {
        prop::collection::btree_map("[a-z]{1,2}", value(), 0..40).prop_map(Value::map)
    }

    const ALL: [Strategy; 6] = [
        Strategy::Smart,
        Strategy::Aggregate,
        Strategy::Recurse,
        Strategy::Overwrite,
        Strategy::List,
        Strategy::None,
    ];

    proptest! {
        #[test]
        fn merge_keeps_order_and_keys(base in mapping(), update in mapping()) {
            for strategy in ALL {
                for lists in [false, true] {
                    let merged = merge(base.clone(), update.clone(), strategy, lists);
                    let keys = |value: &Value| -> Vec<Value> {
                        value.as_map().unwrap_or_default().iter().map(|(k, _)| k.clone()).collect()
                    };
                    let (old, new, all) = (keys(&base), keys(&update), keys(&merged));
                    let mut expected = old.clone();
                    if strategy != Strategy::List {
                        expected.extend(new.into_iter().filter(|key| !old.contains(key)));
                    }
                    prop_assert_eq!(all, expected);
                }
            }
        }

        #[test]
        fn merge_is_idempotent(base in mapping(), update in mapping()) {
            for strategy in ALL.into_iter().filter(|s| *s != Strategy::List) {
                let once = merge(base.clone(), update.clone(), strategy, true);
                let twice = merge(once.clone(), update.clone(), strategy, true);
                prop_assert_eq!(&once, &twice, "{:?}", strategy);
            }
        }

        #[test]
        fn merged_mapping_contains_the_update(base in mapping(), update in mapping()) {
            fn is_in(update: &Value, merged: &Value) -> bool {
                match (update, merged) {
                    (Value::Map(entries), Value::Map(_)) => entries.iter().all(|(key, value)| {
                        let found = key.as_str().and_then(|key| merged.get(key));
                        found.is_some_and(|found| is_in(value, found))
                    }),
                    _ => update == merged,
                }
            }
            for strategy in ALL.into_iter().filter(|s| *s != Strategy::List) {
                let merged = merge(base.clone(), update.clone(), strategy, false);
                prop_assert!(is_in(&update, &merged), "{:?}", strategy);
            }
        }
    }
}

//! Interning of values that many minions share: each is stored once and referred to by a number.
//!
//! A search shares the pages that it reads, so it needs no lock while it is at work: a change that
//! comes meanwhile copies its page.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use saltern_wire::msgpack::Value;

use super::bits::Bits;
use super::ipcidr;
use super::python::Loaded;

/// No minion, no value.
pub(super) const NONE: u32 = u32::MAX;

/// How many items a page has.
const PAGE: usize = 1024;

/// A list in pages. A clone shares them, until one of the two changes an item.
#[derive(Clone)]
pub(super) struct Pages<T> {
    pages: Arc<Vec<Arc<Vec<T>>>>,
    len: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self {
            pages: Arc::default(),
            len: 0,
        }
    }
}

impl<T: Clone> Pages<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.pages.get(at / PAGE)?.get(at % PAGE)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        if at >= self.len {
            return None;
        }
        let page = Arc::make_mut(&mut self.pages).get_mut(at / PAGE)?;
        Arc::make_mut(page).get_mut(at % PAGE)
    }

    pub(super) fn push(&mut self, item: T) {
        let pages = Arc::make_mut(&mut self.pages);
        match pages.get_mut(self.len / PAGE) {
            Some(page) => Arc::make_mut(page).push(item),
            None => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(item);
                pages.push(Arc::new(page));
            }
        }
        self.len += 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter())
    }
}

/// Different values, each kept once for as long as some minion has it.
#[derive(Default)]
pub(super) struct Pool {
    values: Values,
    /// How many minions have each value.
    users: Vec<u32>,
    free: Vec<u32>,
    by_hash: HashMap<u64, Vec<u32>>,
}

/// The values by their numbers, as they were at one moment.
#[derive(Clone, Default)]
pub(super) struct Values(Pages<Option<Arc<Entry>>>);

struct Entry {
    value: Value,
    hash: u64,
    /// The addresses in the value, once somebody has asked for them: a network is held against
    /// every minion's, and reading them would take nearly all the time.
    addresses: OnceLock<Box<[IpAddr]>>,
}

impl Values {
    /// How many numbers were given out so far, at most.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn entry(&self, number: u32) -> Option<&Arc<Entry>> {
        self.0.get(number as usize)?.as_ref()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Value> {
        self.entry(number).map(|entry| &entry.value)
    }

    /// The addresses in a value; none where there is no such value.
    pub(super) fn addresses(&self, number: u32) -> &[IpAddr] {
        match self.entry(number) {
            Some(entry) => entry
                .addresses
                .get_or_init(|| ipcidr::addresses(&entry.value)),
            None => &[],
        }
    }

    /// The values that pass.
    pub(super) fn test(&self, passes: impl Fn(&Value) -> bool) -> Bits {
        let mut entries = self.0.iter();
        Bits::of(self.len(), |_| {
            let entry = entries.next().and_then(Option::as_ref);
            entry.is_some_and(|entry| passes(&entry.value))
        })
    }
}

impl Pool {
    /// The values as they are now.
    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    fn find(&self, value: &Value, hash: u64) -> Option<u32> {
        let alike = self.by_hash.get(&hash)?;
        alike.iter().copied().find(|number| {
            // Bits, not numbers: a value that is not equal to itself must be found too.
            self.values
                .get(*number)
                .is_some_and(|known| is_same(known, value))
        })
    }

    /// The number of a value, which has one more user now.
    pub(super) fn take(&mut self, value: &Value) -> u32 {
        let hash = hash_of(value);
        if let Some(number) = self.find(value, hash) {
            if let Some(users) = self.users.get_mut(number as usize) {
                *users += 1;
            }
            return number;
        }
        let entry = Some(Arc::new(Entry {
            value: value.clone(),
            hash,
            addresses: OnceLock::new(),
        }));
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.values.0.push(None);
                self.users.push(0);
                u32::try_from(self.values.len() - 1).unwrap_or(NONE)
            }
        };
        if let Some(place) = self.values.0.get_mut(number as usize) {
            *place = entry;
        }
        if let Some(users) = self.users.get_mut(number as usize) {
            *users = 1;
        }
        self.by_hash.entry(hash).or_default().push(number);
        number
    }

    /// One user less.
    pub(super) fn give_back(&mut self, number: u32) {
        let Some(users) = self.users.get_mut(number as usize) else {
            return;
        };
        *users = users.saturating_sub(1);
        if *users > 0 {
            return;
        }
        let place = self.values.0.get_mut(number as usize);
        let Some(entry) = place.and_then(Option::take) else {
            return;
        };
        let hash = entry.hash;
        self.free.push(number);
        if let Some(alike) = self.by_hash.get_mut(&hash) {
            alike.retain(|other| *other != number);
            if alike.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// The numbers under which a dictionary finds a name: first by its text, then as YAML.
    pub(super) fn keys(&self, name: &str, loaded: Option<&Loaded>) -> Vec<u32> {
        let text = Value::from(name);
        let mut keys: Vec<u32> = self.find(&text, hash_of(&text)).into_iter().collect();
        if let Some(loaded) = loaded {
            keys.extend(
                self.values
                    .test(|key| loaded.is_key(key))
                    .iter()
                    .map(|at| at as u32),
            );
        }
        keys
    }
}

fn hash_of(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    feed(value, &mut hasher);
    hasher.finish()
}

fn feed(value: &Value, hasher: &mut DefaultHasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Nil => {}
        Value::Bool(flag) => flag.hash(hasher),
        Value::Int(number) => number.hash(hasher),
        Value::Uint(number) => number.hash(hasher),
        Value::Float(number) => number.to_bits().hash(hasher),
        Value::Str(text) => text.hash(hasher),
        Value::Bin(bytes) => bytes.hash(hasher),
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| feed(item, hasher));
        }
        Value::Map(entries) => {
            entries.len().hash(hasher);
            for (name, item) in entries {
                feed(name, hasher);
                feed(item, hasher);
            }
        }
        Value::Ext(code, bytes) => (code, bytes).hash(hasher),
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => one.to_bits() == other.to_bits(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_same(a, b))
        }
        (Value::Map(one), Value::Map(other)) => {
            let is_same_entry = |(a, b): (&(Value, Value), &(Value, Value))| {
                is_same(&a.0, &b.0) && is_same(&a.1, &b.1)
            };
            one.len() == other.len() && one.iter().zip(other).all(is_same_entry)
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_kept_once_for_as_long_as_it_has_users() {
        let mut pool = Pool::default();
        let [a, b, c] = ["a", "b", "c"].map(Value::from);
        assert_eq!([&a, &b, &a].map(|value| pool.take(value)), [0, 1, 0]);
        pool.give_back(0);
        assert_eq!(pool.values().get(0), Some(&a));
        pool.give_back(0);
        assert_eq!(pool.values().get(0), None);
        assert_eq!(pool.keys("a", None), [0; 0]);
        // Its number is given to the next one.
        assert_eq!([&c, &a].map(|value| pool.take(value)), [0, 2]);
        assert_eq!(pool.keys("b", None), [1]);
        let found: Vec<&[u32]> = pool.by_hash.values().map(Vec::as_slice).collect();
        assert!(found.len() == 3 && found.iter().all(|numbers| numbers.len() == 1));
        // One that has no users gives none back.
        for number in [1, 1, 99] {
            pool.give_back(number);
        }
        assert_eq!(pool.free, [1]);
    }

    #[test]
    fn same_values_are_of_the_same_bits() {
        let list =
            |items: &[i64]| Value::from(items.iter().map(|n| Value::from(*n)).collect::<Vec<_>>());
        let map = |entries: &[(&str, i64)]| Value::map(entries.iter().copied());
        let values = [
            Value::Float(f64::NAN),
            Value::Float(0.0),
            Value::Float(-0.0),
            Value::Int(0),
            Value::from(false),
            list(&[]),
            list(&[1, 2]),
            list(&[1, 3]),
            list(&[1]),
            map(&[("a", 1), ("b", 2)]),
            map(&[("a", 1), ("b", 3)]),
            map(&[("a", 1), ("c", 2)]),
            map(&[("a", 1)]),
        ];
        for (at, one) in values.iter().enumerate() {
            for (place, other) in values.iter().enumerate() {
                assert_eq!(is_same(one, other), at == place, "{one:?} {other:?}");
                if at == place {
                    assert_eq!(hash_of(one), hash_of(other));
                }
            }
        }
    }

    #[test]
    fn pages_are_shared_until_one_side_changes() {
        let mut pages = Pages::default();
        for number in 0..2 * PAGE + 1 {
            pages.push(number);
        }
        let earlier = pages.clone();
        for at in [0, PAGE - 1, PAGE, 2 * PAGE] {
            *pages.get_mut(at).expect("an item") = 7;
            assert_eq!((pages.get(at), earlier.get(at)), (Some(&7), Some(&at)));
        }
        assert_eq!((pages.len(), pages.get(2 * PAGE + 1)), (2 * PAGE + 1, None));
        assert!(pages.get_mut(2 * PAGE + 1).is_none());
        assert!(earlier.iter().copied().eq(0..2 * PAGE + 1));
    }
}

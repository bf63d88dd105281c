//! Values that many minions have in common, each kept once and known by a number.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use saltern_wire::msgpack::Value;

use super::bits::Bits;
use super::ipcidr;
use super::python::Loaded;

/// No minion, no value.
pub(super) const NONE: u32 = u32::MAX;

/// Different values, each kept once for as long as some minion has it.
#[derive(Default)]
pub(super) struct Pool {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_hash: HashMap<u64, Vec<u32>>,
}

struct Entry {
    value: Value,
    hash: u64,
    users: u32,
    /// The addresses in the value, once somebody has asked for them: a network is held against
    /// every minion's, and reading them would take nearly all the time.
    addresses: OnceCell<Box<[IpAddr]>>,
}

impl Pool {
    /// How many numbers were given out so far, at most.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Value> {
        let entry = self.entries.get(number as usize)?.as_ref()?;
        Some(&entry.value)
    }

    /// The addresses in a value; none where there is no such value.
    pub(super) fn addresses(&self, number: u32) -> &[IpAddr] {
        match self.entries.get(number as usize) {
            Some(Some(entry)) => entry
                .addresses
                .get_or_init(|| ipcidr::addresses(&entry.value)),
            _ => &[],
        }
    }

    fn find(&self, value: &Value, hash: u64) -> Option<u32> {
        let alike = self.by_hash.get(&hash)?;
        alike.iter().copied().find(|number| {
            // Bits, not numbers: a value that is not equal to itself must be found too.
            self.get(*number).is_some_and(|known| is_same(known, value))
        })
    }

    /// The number of a value, which has one more user now.
    pub(super) fn take(&mut self, value: &Value) -> u32 {
        let hash = hash_of(value);
        if let Some(number) = self.find(value, hash) {
            if let Some(Some(entry)) = self.entries.get_mut(number as usize) {
                entry.users += 1;
            }
            return number;
        }
        let entry = Some(Entry {
            value: value.clone(),
            hash,
            users: 1,
            addresses: OnceCell::new(),
        });
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.entries.push(None);
                u32::try_from(self.entries.len() - 1).unwrap_or(NONE)
            }
        };
        if let Some(place) = self.entries.get_mut(number as usize) {
            *place = entry;
        }
        self.by_hash.entry(hash).or_default().push(number);
        number
    }

    /// One user less.
    pub(super) fn give_back(&mut self, number: u32) {
        let Some(place) = self.entries.get_mut(number as usize) else {
            return;
        };
        let Some(entry) = place else { return };
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        let hash = entry.hash;
        *place = None;
        self.free.push(number);
        if let Some(alike) = self.by_hash.get_mut(&hash) {
            alike.retain(|other| *other != number);
            if alike.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// Which of the values pass.
    pub(super) fn test(&self, passes: impl Fn(&Value) -> bool) -> Bits {
        Bits::of(self.entries.len(), |number| {
            let entry = self.entries.get(number).and_then(Option::as_ref);
            entry.is_some_and(|entry| passes(&entry.value))
        })
    }

    /// The numbers under which a dictionary finds a name: first by its text, then as YAML.
    pub(super) fn keys(&self, column: &str, loaded: Option<&Loaded>) -> Vec<u32> {
        let text = Value::from(column.strip_suffix("\0loaded").unwrap_or(column));
        let mut keys: Vec<u32> = self.find(&text, hash_of(&text)).into_iter().collect();
        if let Some(loaded) = loaded {
            keys.extend(
                self.test(|key| loaded.is_key(key))
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

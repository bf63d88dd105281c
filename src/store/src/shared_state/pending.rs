//! Changes that the table does not have yet: one for each file, in the order in which the files were
//! first changed, bounded by number and bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use zeroize::Zeroizing;

use super::MAX_ROWS;
use super::row::StateName;

/// Changes at a time.
const MAX_CHANGES: usize = 65_536;

/// Bytes of their contents.
const MAX_BYTES: usize = 64 << 20;

/// Bytes of one batch, unless one change alone has more.
const BATCH_BYTES: usize = 1 << 20;

/// Change of a file's row.
#[derive(Clone)]
pub(super) enum Change {
    Put {
        content: Arc<Zeroizing<Vec<u8>>>,
        modified: i64,
    },
    Remove,
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Self::Put { content, .. } => content.len(),
            Self::Remove => 0,
        }
    }
}

struct Slot {
    name: Arc<StateName>,
    change: Change,
    /// Counts the changes of the slot.
    generation: u64,
}

/// A change that is being written.
#[derive(Clone)]
pub(super) struct Taken {
    pub(super) name: Arc<StateName>,
    pub(super) change: Change,
    number: u64,
    generation: u64,
}

/// The queue.
#[derive(Default)]
pub(super) struct Pending {
    slots: BTreeMap<u64, Slot>,
    numbers: HashMap<Arc<StateName>, u64>,
    next: u64,
    bytes: usize,
}

impl Pending {
    /// Adds a change, in place of an older one of the same file; the number to wait for. `None` when
    /// there is no room, and the older one stays.
    pub(super) fn add(&mut self, name: StateName, change: Change) -> Option<u64> {
        let present = self.numbers.get(&name).copied();
        let slot = present.and_then(|number| self.slots.get_mut(&number));
        let before = slot.as_ref().map_or(0, |slot| slot.change.bytes());
        let bytes = self.bytes - before + change.bytes();
        if bytes > MAX_BYTES && change.bytes() > before {
            return None;
        }
        if let (Some(slot), Some(number)) = (slot, present) {
            slot.change = change;
            slot.generation += 1;
            self.bytes = bytes;
            return Some(number);
        }
        if self.slots.len() >= MAX_CHANGES {
            return None;
        }
        let (number, name) = (self.next, Arc::new(name));
        self.next += 1;
        self.bytes = bytes;
        self.numbers.insert(name.clone(), number);
        let generation = 0;
        self.slots.insert(
            number,
            Slot {
                name,
                change,
                generation,
            },
        );
        Some(number)
    }

    /// The oldest changes, which stay until they are [`done`](Self::done).
    pub(super) fn take(&self) -> Vec<Taken> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        for (number, slot) in self.slots.iter().take(MAX_ROWS) {
            bytes += slot.change.bytes();
            if bytes > BATCH_BYTES && !taken.is_empty() {
                break;
            }
            taken.push(Taken {
                name: slot.name.clone(),
                change: slot.change.clone(),
                number: *number,
                generation: slot.generation,
            });
        }
        taken
    }

    /// Forgets changes that are in the table, unless their files were changed again meanwhile.
    pub(super) fn done(&mut self, taken: &[Taken]) {
        for one in taken {
            let slot = self.slots.get(&one.number);
            if slot.is_none_or(|slot| slot.generation != one.generation) {
                continue;
            }
            self.bytes -= one.change.bytes();
            self.slots.remove(&one.number);
            self.numbers.remove(&one.name);
        }
    }

    /// Whether a change, or the one that came in its place, is not in the table.
    pub(super) fn has(&self, number: u64) -> bool {
        self.slots.contains_key(&number)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_state::StateKind;

    fn name(name: &str) -> StateName {
        StateName {
            kind: StateKind::Session,
            name: name.to_owned(),
        }
    }

    fn put(content: &[u8]) -> Change {
        Change::Put {
            content: Arc::new(Zeroizing::new(content.to_vec())),
            modified: 0,
        }
    }

    fn contents(taken: &[Taken]) -> Vec<(String, Option<usize>)> {
        let content = |change: &Change| match change {
            Change::Put { content, .. } => Some(content.len()),
            Change::Remove => None,
        };
        let taken = taken.iter();
        taken
            .map(|one| (one.name.name.clone(), content(&one.change)))
            .collect()
    }

    #[test]
    fn last_change_of_a_file_is_written_and_one_made_meanwhile_is_kept() {
        let mut pending = Pending::default();
        let first = pending.add(name("a"), put(b"1")).expect("room");
        pending.add(name("b"), put(b"12")).expect("room");
        assert_eq!(pending.add(name("a"), put(b"123")), Some(first));
        let taken = pending.take();
        let expected = [("a".to_owned(), Some(3)), ("b".to_owned(), Some(2))];
        assert_eq!(contents(&taken), expected);
        assert_eq!(pending.add(name("a"), Change::Remove), Some(first));
        pending.done(&taken);
        assert!(pending.has(first));
        let rest = pending.take();
        assert_eq!(contents(&rest), [("a".to_owned(), None)]);
        pending.done(&rest);
        assert!(pending.is_empty() && !pending.has(first));
        assert_eq!((pending.bytes, pending.numbers.len()), (0, 0));
    }

    #[test]
    fn queue_is_bounded_by_number_and_bytes() {
        let mut pending = Pending::default();
        for number in 0..MAX_CHANGES {
            assert!(pending.add(name(&number.to_string()), put(b"1")).is_some());
        }
        assert!(pending.add(name("x"), put(b"1")).is_none());
        assert!(pending.add(name("x"), Change::Remove).is_none());
        assert!(pending.add(name("7"), Change::Remove).is_some());
        assert_eq!(pending.take().len(), MAX_ROWS);
        assert!(pending.add(name("8"), put(&vec![0; MAX_BYTES])).is_none());
        assert_eq!(pending.bytes, MAX_CHANGES - 1);
        let half = vec![0; BATCH_BYTES];
        for at in ["0", "1"] {
            assert!(pending.add(name(at), put(&half)).is_some());
        }
        assert_eq!(pending.take().len(), 1);
    }
}

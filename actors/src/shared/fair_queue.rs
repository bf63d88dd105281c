//! Fair queue, round robin over keys: a key with many items delays only itself.
//!
//! Each key has a FIFO of its own. Empty FIFOs are reused, so that a busy queue allocates little.
//! The keys with more than one item are sorted by length: the longest is found without a scan.
//!
//! Not here: the bound on items, and which of them is shed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// Empty FIFOs kept for reuse.
const SPARE_LINES: usize = 256;

/// Largest capacity, in items, of a FIFO kept for reuse.
const SPARE_CAPACITY: usize = 64;

/// Items by key, served round robin.
pub(crate) struct FairQueue<K, T> {
    lines: HashMap<K, VecDeque<T>>,
    /// Each key of `lines` once, the next one in front.
    turns: VecDeque<K>,
    len: usize,
    spare: Vec<VecDeque<T>>,
    /// Length and key of each FIFO of more than one item.
    by_length: BTreeSet<(usize, K)>,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            turns: VecDeque::new(),
            len: 0,
            spare: Vec::new(),
            by_length: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord, T> FairQueue<K, T> {
    /// Items that wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Looks at each item.
    #[cfg(test)]
    pub(crate) fn for_each(&self, look: impl FnMut(&T)) {
        self.lines.values().flatten().for_each(look);
    }

    /// Keys with an item that waits.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.lines.len()
    }

    /// Items of this key that wait.
    pub(crate) fn len_of(&self, key: &K) -> usize {
        self.lines.get(key).map_or(0, VecDeque::len)
    }

    /// The largest even share of `places` for `key` among the keys that wait.
    pub(crate) fn share_of(&self, key: &K, places: usize) -> usize {
        let keys = self.lines.len() + usize::from(!self.lines.contains_key(key));
        (places / keys).max(1)
    }

    /// Puts an item behind the others of its key.
    pub(crate) fn push(&mut self, key: K, item: T) {
        self.len += 1;
        match self.lines.entry(key) {
            Entry::Occupied(mut entry) => {
                let key = entry.key().clone();
                let line = entry.get_mut();
                line.push_back(item);
                resize(&mut self.by_length, key, (line.len() - 1, line.len()));
            }
            Entry::Vacant(entry) => {
                self.turns.push_back(entry.key().clone());
                let line = entry.insert(self.spare.pop().unwrap_or_default());
                line.push_back(item);
            }
        }
    }

    /// The first item of the key whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// The first item of the first key in turn that is ready; the others keep their turns.
    pub(crate) fn pop_if(&mut self, is_ready: impl Fn(&K) -> bool) -> Option<T> {
        let position = self.turns.iter().position(is_ready)?;
        let key = self.turns.remove(position)?;
        let Entry::Occupied(mut line) = self.lines.entry(key.clone()) else {
            return None;
        };
        let item = line.get_mut().pop_front();
        let left = line.get().len();
        resize(&mut self.by_length, key.clone(), (left + 1, left));
        if line.get().is_empty() {
            let line = line.remove();
            if self.spare.len() < SPARE_LINES && line.capacity() <= SPARE_CAPACITY {
                self.spare.push(line);
            }
        } else {
            self.turns.push_back(key);
        }
        self.len -= usize::from(item.is_some());
        item
    }

    /// The oldest item of this key, if it has more than one.
    pub(crate) fn pop_oldest_of(&mut self, key: &K) -> Option<T> {
        let line = self.lines.get_mut(key)?;
        let length = line.len();
        if length <= 1 {
            return None;
        }
        let item = line.pop_front()?;
        resize(&mut self.by_length, key.clone(), (length, length - 1));
        self.len -= 1;
        Some(item)
    }

    /// The youngest item of a key that has more than `share`, at least one, if there is such a key.
    pub(crate) fn pop_over(&mut self, share: usize) -> Option<T> {
        let share = share.max(1);
        let (length, key) = self.by_length.last()?.clone();
        if length <= share {
            return None;
        }
        // It has at least two, so it keeps its turn.
        let item = self.lines.get_mut(&key)?.pop_back()?;
        resize(&mut self.by_length, key, (length, length - 1));
        self.len -= 1;
        Some(item)
    }

    /// The youngest item of the key whose turn is last.
    pub(crate) fn pop_last(&mut self) -> Option<T> {
        let key = self.turns.back()?.clone();
        let line = self.lines.get_mut(&key)?;
        let item = line.pop_back()?;
        let left = line.len();
        resize(&mut self.by_length, key.clone(), (left + 1, left));
        if left == 0 {
            self.lines.remove(&key);
            self.turns.pop_back();
        }
        self.len -= 1;
        Some(item)
    }

    /// Drops the items that `keep` refuses; gives their number.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) -> usize {
        self.lines.retain(|_, line| {
            line.retain(&mut keep);
            !line.is_empty()
        });
        let lengths = self
            .lines
            .iter()
            .map(|(key, line)| (line.len(), key.clone()));
        self.by_length = lengths.filter(|(length, _)| *length > 1).collect();
        let lines = &self.lines;
        self.turns.retain(|key| lines.contains_key(key));
        let before = self.len;
        self.len = self.lines.values().map(VecDeque::len).sum();
        before - self.len
    }
}

/// Records the new length of a key's FIFO.
fn resize<K: Ord>(by_length: &mut BTreeSet<(usize, K)>, key: K, (before, after): (usize, usize)) {
    let mut entry = (before, key);
    if before > 1 {
        by_length.remove(&entry);
    }
    if after > 1 {
        entry.0 = after;
        by_length.insert(entry);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    fn queue(items: &[(u8, u32)]) -> FairQueue<u8, u32> {
        let mut queue = FairQueue::default();
        for (key, item) in items {
            queue.push(*key, *item);
        }
        queue
    }

    #[test]
    fn keys_take_turns_and_each_keeps_its_order() {
        let mut queue = queue(&[(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)]);
        assert_eq!((queue.len(), queue.keys(), queue.len_of(&1)), (6, 3, 3));
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [10, 20, 30, 11, 21, 12]);
        assert_eq!((queue.len(), queue.keys()), (0, 0));
    }

    #[test]
    fn longest_key_loses_its_youngest_item() {
        let mut queue = queue(&[(1, 10), (1, 11), (1, 12), (2, 20)]);
        assert_eq!(queue.share_of(&3, 6), 2);
        assert_eq!(queue.share_of(&2, 6), 3);
        assert_eq!(queue.pop_over(2), Some(12));
        assert_eq!(queue.pop_over(2), None);
        assert_eq!(queue.pop_over(0), Some(11), "each keeps one");
        assert_eq!(queue.pop_over(0), None);
        assert_eq!(queue.pop_last(), Some(20));
        assert_eq!(queue.pop_last(), Some(10));
        assert_eq!(queue.pop_last(), None);
    }

    #[test]
    fn key_that_is_not_ready_keeps_its_turn() {
        let mut queue = queue(&[(1, 10), (2, 20), (2, 21), (3, 30)]);
        assert_eq!(queue.pop_if(|key| *key != 1), Some(20));
        assert_eq!(queue.pop_if(|_| false), None);
        assert_eq!(queue.pop(), Some(10));
        assert_eq!(queue.pop_oldest_of(&2), None, "its last one");
        queue.push(2, 22);
        assert_eq!(queue.pop_oldest_of(&2), Some(21));
        assert_eq!(
            (queue.pop(), queue.pop(), queue.pop()),
            (Some(30), Some(22), None)
        );
    }

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// A key that counts how often keys are compared.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    struct Counted(u32);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    #[test]
    fn longest_key_is_found_without_a_scan() {
        let mut queue = FairQueue::default();
        for number in 0..10_000 {
            queue.push(Counted(number), number);
        }
        COMPARED.set(0);
        assert_eq!(queue.pop_over(1), None, "no key has more than another");
        for number in (0..100).map(|number| 97 * number) {
            queue.push(Counted(number), 20_000 + number);
        }
        for number in (0..100).map(|number| 97 * number).rev() {
            assert_eq!(queue.pop_over(1), Some(20_000 + number));
        }
        let compared = COMPARED.get();
        assert!(compared < 10_000, "{compared}");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u8),
        Pop,
        PopIf(u8),
        PopOldest(u8),
        PopOver(usize),
        PopLast,
        Retain(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..5_u8).prop_map(Step::Push),
            2 => Just(Step::Pop),
            1 => (0..5_u8).prop_map(Step::PopIf),
            1 => (0..5_u8).prop_map(Step::PopOldest),
            1 => (0..4_usize).prop_map(Step::PopOver),
            1 => Just(Step::PopLast),
            1 => (2..7_u32).prop_map(Step::Retain),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn random_steps_lose_and_double_nothing(steps in steps()) {
            let mut queue = FairQueue::default();
            let mut waiting: Vec<u32> = Vec::new();
            let mut number = 0;
            for step in steps {
                let gone = match step {
                    Step::Push(key) => {
                        number += 1;
                        queue.push(key, number);
                        waiting.push(number);
                        None
                    }
                    Step::Pop => queue.pop(),
                    Step::PopIf(key) => queue.pop_if(|other| *other != key),
                    Step::PopOldest(key) => queue.pop_oldest_of(&key),
                    Step::PopOver(share) => queue.pop_over(share),
                    Step::PopLast => queue.pop_last(),
                    Step::Retain(divisor) => {
                        let before = waiting.len();
                        waiting.retain(|item| item % divisor != 0);
                        let dropped = queue.retain(|item| item % divisor != 0);
                        prop_assert_eq!(dropped, before - waiting.len());
                        None
                    }
                };
                if let Some(item) = gone {
                    prop_assert!(waiting.contains(&item));
                    waiting.retain(|other| *other != item);
                }
                prop_assert_eq!(queue.len(), waiting.len());
                prop_assert_eq!(queue.turns.len(), queue.keys());
                let lines = queue.lines.iter().map(|(key, line)| (line.len(), *key));
                let sorted: BTreeSet<_> = lines.filter(|(length, _)| *length > 1).collect();
                prop_assert_eq!(&queue.by_length, &sorted);
            }
            let mut left: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
            left.sort_unstable();
            prop_assert_eq!(left, waiting);
        }
    }
}

//! A small LRU cache.

use std::collections::HashMap;
use std::hash::Hash;

/// A bounded map. Finding the oldest entry is a linear scan, so the bound should be small.
pub(crate) struct Kept<K, V> {
    most: usize,
    /// Grows with each use.
    uses: u64,
    values: HashMap<K, (u64, V)>,
}

impl<K: Eq + Hash + Clone, V: Clone> Kept<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            uses: 0,
            values: HashMap::new(),
        }
    }

    pub(crate) fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.uses += 1;
        let (used, value) = self.values.get_mut(key)?;
        *used = self.uses;
        Some(value.clone())
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.values.len() >= self.most && !self.values.contains_key(&key) {
            let oldest = self.values.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.values.remove(&oldest);
            }
        }
        self.uses += 1;
        self.values.insert(key, (self.uses, value));
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;

    #[test]
    fn least_recently_used_entry_is_evicted() {
        let mut kept = Kept::new(2);
        kept.insert("a", 1);
        kept.insert("b", 2);
        assert_eq!(kept.get("a"), Some(1));
        kept.insert("c", 3);
        assert_eq!(
            (kept.get("a"), kept.get("b"), kept.get("c")),
            (Some(1), None, Some(3))
        );
        kept.insert("a", 4);
        assert_eq!((kept.get("a"), kept.get("c")), (Some(4), Some(3)));
    }
}

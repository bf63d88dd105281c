//! The last few jobs of which something is known: that they are in the store, so that a return of one
//! need not bring its job along; or that the store has no ended job of that jid to reload.

use std::collections::{HashSet, VecDeque};

use saltern_model::Jid;

/// Capacity; beyond it the oldest are evicted, and sent along again.
const REMEMBERED: usize = 10_000;

/// Bounded set of jids, oldest evicted first.
#[derive(Default)]
pub(super) struct KnownJobs {
    set: HashSet<Jid>,
    order: VecDeque<Jid>,
}

impl KnownJobs {
    pub(super) fn learn(&mut self, jid: &Jid) {
        if self.set.contains(jid) {
            return;
        }
        self.set.insert(jid.clone());
        self.order.push_back(jid.clone());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
    }

    /// Removes a jid; its place in the order is freed when it is the oldest.
    pub(super) fn forget(&mut self, jid: &Jid) {
        self.set.remove(jid);
    }

    pub(super) fn contains(&self, jid: &Jid) -> bool {
        self.set.contains(jid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_jids_are_evicted() {
        let jid = |number: usize| Jid::parse(&format!("{number:020}")).unwrap();
        let mut known = KnownJobs::default();
        for number in 0..2 * REMEMBERED {
            known.learn(&jid(number));
            known.learn(&jid(number));
        }
        assert_eq!(
            (known.set.len(), known.order.len()),
            (REMEMBERED, REMEMBERED)
        );
        known.forget(&jid(2 * REMEMBERED - 2));
        assert!(!known.contains(&jid(2 * REMEMBERED - 2)));
        assert!(!known.contains(&jid(0)) && known.contains(&jid(2 * REMEMBERED - 1)));
    }
}

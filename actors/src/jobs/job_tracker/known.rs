//! The last few jobs that are certainly in the store, so that a return of one of them need not
//! bring its job along.

use std::collections::{HashSet, VecDeque};

use saltern_model::Jid;

/// Capacity; beyond it the oldest are evicted, and sent along again.
const REMEMBERED: usize = 10_000;

/// Bounded set of jids that are in the store, oldest evicted first.
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
        assert!(!known.contains(&jid(0)) && known.contains(&jid(2 * REMEMBERED - 1)));
    }
}

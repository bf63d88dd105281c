//! Whose a jid is. A client may choose the jid of its job, and what is kept of a job is kept under
//! its jid: so a jid that exists belongs to the user of its job, and nobody else publishes under it.
//! Stock lets everybody (`prep_jid` and `save_load` in `salt/returners/local_cache.py`).
//!
//! A job that is only known because a minion or a syndic reported it belongs to nobody yet.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;
use saltern_model::Jid;
use saltern_store::StoreError;
use saltern_store::jobs::StoredJob;

use crate::Services;

/// The jids that clients chose last, with their users: their jobs may not be stored yet.
#[derive(Default)]
pub(crate) struct ChosenJids {
    /// Of the user a hash, because a name may be long.
    last: Mutex<VecDeque<(Jid, u64)>>,
    hash: RandomState,
}

impl ChosenJids {
    /// The most that are kept. Each is in the store a moment later.
    const CAPACITY: usize = 1024;

    /// Whether no other user chose it.
    fn is_free(&self, jid: &Jid, user: &str) -> bool {
        let user = self.hash.hash_one(user);
        let last = self.last.lock();
        let mut owner = last.iter().filter(|(known, _)| known == jid);
        owner.all(|(_, owner)| *owner == user)
    }

    /// The same; from now on this user has.
    fn take(&self, jid: &Jid, user: &str) -> bool {
        let user = self.hash.hash_one(user);
        let mut last = self.last.lock();
        if let Some((_, owner)) = last.iter().find(|(known, _)| known == jid) {
            return *owner == user;
        }
        if last.len() >= Self::CAPACITY {
            last.pop_front();
        }
        last.push_back((jid.clone(), user));
        true
    }
}

/// Whether the user may publish under this jid, and if so, takes it for that user.
///
/// # Errors
/// When the job database cannot be read.
pub(crate) fn take(jid: &Jid, user: &str, services: &Services) -> Result<bool, StoreError> {
    Ok(may_use(jid, user, services)? && services.chosen_jids.take(jid, user))
}

/// Whether the job of this jid, if there is one, is one of this user.
///
/// # Errors
/// When the job database cannot be read.
pub(crate) fn may_use(jid: &Jid, user: &str, services: &Services) -> Result<bool, StoreError> {
    let stored = services.jobs.load(jid)?;
    let is_own = |job: &StoredJob| job.record.user == user || job.reporter.is_some();
    let is_free = stored.is_none_or(|job| is_own(&job));
    Ok(is_free && services.chosen_jids.is_free(jid, user))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jid(number: usize) -> Jid {
        Jid::parse(&format!("{number:020}")).unwrap()
    }

    #[test]
    fn chosen_jid_belongs_to_the_first_user() {
        let chosen = ChosenJids::default();
        assert!(chosen.take(&jid(1), "root"));
        assert!(chosen.take(&jid(1), "root"), "again");
        assert!(!chosen.is_free(&jid(1), "ann"));
        assert!(!chosen.take(&jid(1), "ann"));
        assert!(chosen.take(&jid(2), "ann"));
    }

    #[test]
    fn chosen_jids_are_bounded() {
        let chosen = ChosenJids::default();
        for number in 0..=ChosenJids::CAPACITY {
            assert!(chosen.take(&jid(number), "root"));
        }
        assert_eq!(chosen.last.lock().len(), ChosenJids::CAPACITY);
        assert!(chosen.take(&jid(0), "ann"), "the oldest is forgotten");
    }
}

//! Ownership of jids. A client may choose the jid of its job, and a job's data is kept under its
//! jid. So an existing jid belongs to the user of its job, and no other user publishes under it.
//! Stock allows anyone (`prep_jid` and `save_load` in `salt/returners/local_cache.py`).
//!
//! A user is a name together with its prover: a backend of `external_auth`, through a token or a
//! log-in, or the key of a local user. A backend's "root" is not the local root.
//!
//! A job that is only known because a minion or a syndic reported it has no owner yet. A user who
//! could have published it replaces it: a client whose job another master or a lost database had
//! (3008's command line sends the next part of a batch under the jid of the first). A user without
//! rights to its functions does not replace it, for that would take it out of the history.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;
use saltern_model::{Jid, JobRecord};
use saltern_policy::acl::Whom;
use saltern_store::StoreError;
use saltern_store::jobs::StoredJob;
use saltern_wire::msgpack::{Limits, MapView, Value, decode};

use crate::credentials::Sender;
use crate::{Jobs, Services};

/// The entry of a stored load that names the backend which knows the user of the job.
pub(crate) const BACKEND: &str = "saltern_backend";

/// Owner of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The backend that knows the name; `None` for a local user.
    pub(crate) backend: Option<String>,
    /// The user's name.
    pub(crate) name: String,
}

impl Owner {
    fn of(job: &JobRecord) -> Self {
        let load = MapView::parse(job.load.bytes().clone(), &Limits::WIRE).ok();
        let backend = load.as_ref().and_then(|load| load.str(BACKEND));
        Self {
            backend: backend.map(str::to_owned),
            name: job.user.clone(),
        }
    }
}

/// The jids that clients chose last, with their owners: their jobs may not be stored yet.
#[derive(Default)]
pub(crate) struct ChosenJids {
    /// Owners as hashes, because a name may be long.
    last: Mutex<VecDeque<(Jid, u64)>>,
    hash: RandomState,
}

impl ChosenJids {
    /// The most jids that are kept. Each is in the store a moment later.
    const CAPACITY: usize = 1024;

    /// Whether no other owner chose it.
    fn is_free(&self, jid: &Jid, owner: &Owner) -> bool {
        let owner = self.hash.hash_one(owner);
        let last = self.last.lock();
        let mut chosen = last.iter().filter(|(known, _)| known == jid);
        chosen.all(|(_, chooser)| *chooser == owner)
    }

    /// Like `is_free`, and records this owner.
    fn take(&self, jid: &Jid, owner: &Owner) -> bool {
        let owner = self.hash.hash_one(owner);
        let mut last = self.last.lock();
        if let Some((_, chooser)) = last.iter().find(|(known, _)| known == jid) {
            return *chooser == owner;
        }
        if last.len() >= Self::CAPACITY {
            last.pop_front();
        }
        last.push_back((jid.clone(), owner));
        true
    }
}

/// Whether the sender may publish under this jid, and if so, takes it for the sender.
///
/// # Errors
/// When the job database cannot be read.
pub(crate) fn take(jid: &Jid, sender: &Sender, services: &Services) -> Result<bool, StoreError> {
    let owner = sender.owner();
    let is_open = services
        .jobs
        .reader
        .load(jid)?
        .is_none_or(|job| match &job.reporter {
            Some(_) => may_replace(&job, sender, services),
            None => Owner::of(&job.record) == owner,
        });
    Ok(is_open && services.jobs.chosen.take(jid, &owner))
}

/// Whether the sender may have the functions of a reported job run on its minions.
fn may_replace(job: &StoredJob, sender: &Sender, services: &Services) -> bool {
    let record = &job.record;
    let load = decode(record.load.as_ref(), &Limits::WIRE).unwrap_or(Value::Nil);
    let functions: Vec<String> = record.fun.split(',').map(str::to_owned).collect();
    // A syndic's report may name nobody, and nobody is covered by every rule.
    let whom = match record.minions.as_slice() {
        [] => Whom::Anybody,
        minions => Whom::These(minions),
    };
    sender.may_publish(&load, &functions, whom, services)
}

/// Whether no job of this jid belongs to another owner.
///
/// # Errors
/// When the job database cannot be read.
pub(crate) fn is_free(jid: &Jid, owner: &Owner, jobs: &Jobs) -> Result<bool, StoreError> {
    let stored = jobs.reader.load(jid)?;
    let is_own = |job: StoredJob| job.reporter.is_none() && Owner::of(&job.record) == *owner;
    Ok(stored.is_none_or(is_own) && jobs.chosen.is_free(jid, owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jid(number: usize) -> Jid {
        Jid::parse(&format!("{number:020}")).unwrap()
    }

    fn local(name: &str) -> Owner {
        Owner {
            backend: None,
            name: name.to_owned(),
        }
    }

    #[test]
    fn chosen_jid_belongs_to_the_first_owner() {
        let chosen = ChosenJids::default();
        let external = Owner {
            backend: Some("pam".to_owned()),
            ..local("root")
        };
        assert!(chosen.take(&jid(1), &local("root")));
        assert!(chosen.take(&jid(1), &local("root")), "again");
        for other in [local("ann"), external] {
            assert!(!chosen.is_free(&jid(1), &other));
            assert!(!chosen.take(&jid(1), &other));
        }
        assert!(chosen.take(&jid(2), &local("ann")));
    }

    #[test]
    fn chosen_jids_are_bounded() {
        let chosen = ChosenJids::default();
        for number in 0..=ChosenJids::CAPACITY {
            assert!(chosen.take(&jid(number), &local("root")));
        }
        assert_eq!(chosen.last.lock().len(), ChosenJids::CAPACITY);
        assert!(
            chosen.take(&jid(0), &local("ann")),
            "the oldest is forgotten"
        );
    }
}

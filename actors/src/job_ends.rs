//! Who waits for the end of single jobs hears of it from the tracker.
//!
//! Shared by both, because the tracker is built first. A job is followed until its end was told or
//! nobody waits any more.

use std::collections::HashSet;
use std::sync::OnceLock;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_model::Jid;

use crate::messages::JobOver;

/// See the module.
#[derive(Default)]
pub(crate) struct JobEnds {
    followed: Mutex<HashSet<Jid>>,
    listener: OnceLock<Recipient<JobOver>>,
}

impl JobEnds {
    /// Says who listens; once.
    pub(crate) fn listen(&self, listener: Recipient<JobOver>) {
        // Nobody else says so.
        let _ = self.listener.set(listener);
    }

    /// The end of this job is of interest.
    pub(crate) fn follow(&self, jid: &Jid) {
        self.followed.lock().insert(jid.clone());
    }

    /// It is not any more.
    pub(crate) fn forget(&self, jid: &Jid) {
        self.followed.lock().remove(jid);
    }

    /// Tells of the end of a job, if it is of interest. Never waits; bounded, because each job that
    /// is followed is told of once.
    pub(crate) fn tell(&self, jid: &Jid) {
        if self.followed.lock().remove(jid)
            && let Some(listener) = self.listener.get()
        {
            listener.do_send(JobOver(jid.clone()));
        }
    }
}

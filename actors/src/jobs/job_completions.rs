//! Notifications of the ends of single jobs, from the tracker to actors that wait for them.
//!
//! Shared by both sides. A job is followed until its end was
//! announced or no client waits any more.

use std::collections::HashSet;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_model::Jid;

use crate::messages::JobOver;

/// Registry of followed jobs and their listener.
pub(crate) struct JobCompletions {
    followed: Mutex<HashSet<Jid>>,
    listener: Recipient<JobOver>,
}

impl JobCompletions {
    /// A registry that notifies this listener.
    pub(crate) fn new(listener: Recipient<JobOver>) -> Self {
        Self {
            followed: Mutex::default(),
            listener,
        }
    }

    /// Follows this job.
    pub(crate) fn follow(&self, jid: &Jid) {
        self.followed.lock().insert(jid.clone());
    }

    /// Follows it no longer.
    pub(crate) fn forget(&self, jid: &Jid) {
        self.followed.lock().remove(jid);
    }

    /// Notifies the listener of the end of a job, if it is followed. Never waits; bounded, because
    /// each followed job is announced once.
    pub(crate) fn notify(&self, jid: &Jid) {
        if self.followed.lock().remove(jid) {
            self.listener.do_send(JobOver(jid.clone()));
        }
    }
}

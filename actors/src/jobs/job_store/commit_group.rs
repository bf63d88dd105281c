//! One group commit: the writes of all messages that wait, what follows each, and who waits.

use std::collections::HashSet;
use std::time::Duration;

use saltern_base::trace::{Attribute, Kind};
use saltern_model::{Event, Jid};
use saltern_requests::is_paced_by_master;
use saltern_store::NewEvent;
use saltern_store::jobs::{Write, Written};

use crate::messages::{FollowUp, Persist, Stored};
use crate::shared::answer::PendingReply;

/// Messages that are committed together.
#[derive(Default)]
pub(super) struct CommitGroup {
    writes: Vec<Write>,
    /// One for each write.
    pub(super) follow_ups: Vec<FollowUp>,
    pub(super) requests: Vec<Request>,
    /// Jobs that returns of this group bring along; each is written once.
    closed: HashSet<Jid>,
}

/// The outcome of a group.
pub(super) struct CommitOutcome {
    /// The outcome of each change, in the order of the changes.
    pub(super) written: Vec<Written>,
    /// The duration of the commit.
    pub(super) took: Duration,
}

/// One message of a group.
pub(super) struct Request {
    /// Number of its writes.
    pub(super) writes: usize,
    pub(super) answer: Option<PendingReply>,
}

impl CommitGroup {
    /// Adds a message.
    pub(super) fn add(&mut self, Persist { writes, answer }: Persist) {
        let before = self.writes.len();
        for (write, follow_up) in writes {
            if let Write::ClosedJob { job, .. } = &write
                && !self.closed.insert(job.jid.clone())
            {
                continue;
            }
            self.writes.push(write);
            self.follow_ups.push(follow_up);
        }
        let writes = self.writes.len() - before;
        self.requests.push(Request { writes, answer });
    }

    /// The writes of all messages, in the order of arrival.
    pub(super) fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The same, to be committed; the group keeps what follows them.
    pub(super) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    /// The events that each write causes, received at this time, in microseconds since 1970.
    pub(super) fn events(&self, received: i64) -> Vec<Vec<NewEvent>> {
        let follow_ups = self.follow_ups.iter();
        follow_ups
            .map(|follow_up| {
                let events = follow_up.events().iter();
                events.map(|event| new_event(event, received)).collect()
            })
            .collect()
    }

    /// Number of messages.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Splits the group into one for each message. `writes` are those that were taken.
    pub(super) fn split(self, writes: Vec<Write>) -> impl Iterator<Item = Self> {
        let mut writes = writes.into_iter();
        let mut follow_ups = self.follow_ups.into_iter();
        self.requests.into_iter().map(move |request| Self {
            writes: writes.by_ref().take(request.writes).collect(),
            follow_ups: follow_ups.by_ref().take(request.writes).collect(),
            requests: vec![request],
            closed: HashSet::new(),
        })
    }

    /// Nothing is stored: refuses every message, and returns the failures that the tracker is notified of.
    pub(super) fn refuse(self) -> Stored {
        for request in self.requests {
            if let Some(answer) = request.answer {
                answer.failed();
            }
        }
        let mut stored = Stored::default();
        for follow_up in self.follow_ups {
            match follow_up {
                FollowUp::ReportFailure(jid) => stored.refused.push(jid),
                FollowUp::ReportLostDeparture(lost) => stored.lost_departures.push(lost),
                FollowUp::Begin(begin) => stored.unbegun.push(begin.job.jid),
                FollowUp::Nothing
                | FollowUp::Fire(_)
                | FollowUp::Return { .. }
                | FollowUp::Expect(_) => {}
            }
        }
        stored
    }
}

fn new_event(event: &Event, received: i64) -> NewEvent {
    let tag = event.tag.as_str();
    NewEvent {
        received,
        tag: tag.to_owned(),
        data: event.data.bytes().clone(),
        of_minion: !is_paced_by_master(tag),
    }
}

impl Request {
    /// Records the commit in the trace of the request that waits for it.
    pub(super) fn trace(&self, took: Duration) {
        if let Some(place) = self.answer.as_ref().and_then(PendingReply::place) {
            let changes = i64::try_from(self.writes).unwrap_or(i64::MAX);
            let attributes = [("salt.store.changes", Attribute::Number(changes))];
            place.record("salt.store.commit", Kind::Internal, took, attributes);
        }
    }
}

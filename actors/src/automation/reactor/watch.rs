//! Watch of one reaction: it records the result, and reports the reaction as lost when dropped
//! without one.

use std::sync::Arc;

use saltern_automation::reactor::{End, Problem, Reaction, ReactionCall, ReactionKey};
use saltern_model::{Event, Jid};
use serde::Serialize;

use super::dropped::Reason;
use super::event_queues::InFlightEvent;
use super::reaction_queue::ReactionQueue;

/// The subject of a report: a reaction, or a whole file or event.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) event: Event,
    /// The file; `None` for a whole event.
    pub(super) sls: Option<String>,
    /// The id of the reaction.
    pub(super) id: Option<String>,
    /// Its position among the reactions of the id.
    pub(super) key: Option<ReactionKey>,
    /// The call, if there is one yet.
    pub(super) call: Option<ReactionCall>,
}

impl Subject {
    pub(super) fn of_problem(event: &Event, problem: &Problem) -> Self {
        Self {
            event: event.clone(),
            sls: Some(problem.sls.clone()),
            id: problem.id.clone(),
            key: problem.key.as_deref().cloned(),
            call: None,
        }
    }

    /// The type of the reaction, for metrics; `file` before there is one.
    pub(super) fn kind(&self) -> &'static str {
        self.call.as_ref().map_or("file", ReactionCall::kind)
    }

    /// The part of a report that names it.
    pub(super) fn data(&self) -> SubjectData<'_> {
        let call = self.call.as_ref();
        SubjectData {
            tag: self.event.tag.as_str(),
            sls: self.sls.as_deref(),
            id: self.id.as_deref(),
            kind: call.map(|call| call.kind()),
            fun: call.map(|call| call.fun()),
        }
    }
}

/// The reaction, or the event, that a report is about.
#[derive(Serialize)]
pub(super) struct SubjectData<'a> {
    tag: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sls: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fun: Option<&'a str>,
}

/// Watch of one reaction.
pub(super) struct Watch {
    queue: Arc<ReactionQueue>,
    /// `None` once the result is known.
    subject: Option<Subject>,
    /// The job or call that it began.
    jid: Option<Jid>,
    /// The event is in progress as long as one of its reactions is.
    _place: Arc<InFlightEvent>,
}

impl Watch {
    pub(super) fn new(
        queue: &Arc<ReactionQueue>,
        event: &Event,
        reaction: &Reaction,
        place: &Arc<InFlightEvent>,
    ) -> Self {
        Self {
            queue: Arc::clone(queue),
            subject: Some(Subject {
                event: event.clone(),
                sls: Some(reaction.sls.clone()),
                id: Some(reaction.id.clone()),
                key: Some(reaction.key.clone()),
                call: Some(reaction.call.clone()),
            }),
            jid: None,
            _place: Arc::clone(place),
        }
    }

    /// Names the job or call that it began.
    pub(super) fn leads_to(&mut self, jid: Option<&Jid>) {
        self.jid = jid.cloned();
    }

    /// Bytes held by its call, about: those of the event, and of the arguments twice.
    pub(super) fn size(&self) -> usize {
        self.subject.as_ref().map_or(0, |subject| {
            let call = subject.call.as_ref().map_or(0, ReactionCall::size);
            let event = subject.event.data.bytes().len();
            event.saturating_add(call.saturating_mul(2))
        })
    }

    pub(super) fn settle(mut self, end: End) {
        let Some(subject) = self.subject.take() else {
            return;
        };
        match end {
            End::Done => self.queue.ended_well(&subject, self.jid.take(), "done"),
            End::Failed(reason) => self.queue.failed_as(&subject, self.jid.take(), reason),
        }
    }

    /// Records a job whose target matches no minion.
    pub(super) fn meant_nobody(mut self) {
        if let Some(subject) = self.subject.take() {
            let (tag, id) = (&subject.event.tag, &subject.id);
            tracing::info!(%tag, id, "the target of a reaction matches no minion");
            self.queue.ended_well(&subject, None, "nobody");
        }
    }

    /// Records that there was no room for its call.
    pub(super) fn dropped(mut self) {
        if let Some(subject) = self.subject.take() {
            self.queue.ended_well(&subject, None, "dropped");
            self.queue.dropped(Reason::Calls, 1);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(subject) = self.subject.take() {
            self.queue.lost(&subject);
        }
    }
}

/// Watch of an event whose reactions are not known yet.
pub(super) struct Lost<'a> {
    queue: &'a Arc<ReactionQueue>,
    event: Option<&'a Event>,
}

impl<'a> Lost<'a> {
    pub(super) fn new(queue: &'a Arc<ReactionQueue>, event: &'a Event) -> Self {
        Self {
            queue,
            event: Some(event),
        }
    }

    /// The reactions are known.
    pub(super) fn settled(mut self) {
        self.event = None;
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.queue.lost(&Subject {
                event: event.clone(),
                sls: None,
                id: None,
                key: None,
                call: None,
            });
        }
    }
}

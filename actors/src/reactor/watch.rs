//! Watch of one reaction: it records the result, and reports the reaction as lost when dropped
//! without one.

use std::sync::Arc;

use saltern_model::Event;
use saltern_requests::reactor::{Deed, End, Problem, Reaction, Spot};
use saltern_wire::msgpack::Value;

use super::desk::Desk;
use super::dropped::Reason;
use super::lines::Place;

/// The subject of a report: a reaction, or a whole file or event.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) event: Event,
    /// The file; `None` for a whole event.
    pub(super) sls: Option<String>,
    /// The id of the reaction.
    pub(super) id: Option<String>,
    /// Its position among the reactions of the id.
    pub(super) spot: Option<Spot>,
    /// The call, if there is one yet.
    pub(super) deed: Option<Deed>,
}

impl Subject {
    pub(super) fn of_problem(event: &Event, problem: &Problem) -> Self {
        Self {
            event: event.clone(),
            sls: Some(problem.sls.clone()),
            id: problem.id.clone(),
            spot: problem.spot.as_deref().cloned(),
            deed: None,
        }
    }

    /// The type of the reaction, for metrics; `file` before there is one.
    pub(super) fn kind(&self) -> &'static str {
        self.deed.as_ref().map_or("file", Deed::kind)
    }

    /// Fields of a report.
    pub(super) fn fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields = vec![("tag", Value::from(self.event.tag.as_str()))];
        fields.extend(self.sls.as_deref().map(|sls| ("sls", sls.into())));
        fields.extend(self.id.as_deref().map(|id| ("id", id.into())));
        if let Some(deed) = &self.deed {
            fields.push(("type", deed.kind().into()));
            fields.push(("fun", deed.fun().into()));
        }
        fields
    }
}

/// Watch of one reaction.
pub(super) struct Watch {
    desk: Arc<Desk>,
    /// `None` once the result is known.
    subject: Option<Subject>,
    /// The event is in progress as long as one of its reactions is.
    _place: Arc<Place>,
}

impl Watch {
    pub(super) fn new(
        desk: &Arc<Desk>,
        event: &Event,
        reaction: &Reaction,
        place: &Arc<Place>,
    ) -> Self {
        Self {
            desk: Arc::clone(desk),
            subject: Some(Subject {
                event: event.clone(),
                sls: Some(reaction.sls.clone()),
                id: Some(reaction.id.clone()),
                spot: Some(reaction.spot.clone()),
                deed: Some(reaction.deed.clone()),
            }),
            _place: Arc::clone(place),
        }
    }

    /// Bytes held by its call, about: those of the event, and of the arguments twice.
    pub(super) fn size(&self) -> usize {
        self.subject.as_ref().map_or(0, |subject| {
            let deed = subject.deed.as_ref().map_or(0, Deed::size);
            let event = subject.event.data.bytes().len();
            event.saturating_add(deed.saturating_mul(2))
        })
    }

    pub(super) fn settle(mut self, end: End) {
        let Some(subject) = self.subject.take() else {
            return;
        };
        match end {
            End::Done => self.desk.metrics.ended(subject.kind(), "done"),
            End::Failed(reason) => self.desk.failed(&subject, reason),
        }
    }

    /// Records a job whose target matches no minion.
    pub(super) fn meant_nobody(mut self) {
        if let Some(subject) = self.subject.take() {
            let (tag, id) = (&subject.event.tag, &subject.id);
            tracing::info!(%tag, id, "a reaction means no minion");
            self.desk.metrics.ended(subject.kind(), "nobody");
        }
    }

    /// Records that there was no room for its call.
    pub(super) fn dropped(mut self) {
        if let Some(subject) = self.subject.take() {
            self.desk.metrics.ended(subject.kind(), "dropped");
            self.desk.dropped(Reason::Calls, 1);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(subject) = self.subject.take() {
            self.desk.lost(&subject);
        }
    }
}

/// Watch of an event whose reactions are not known yet.
pub(super) struct Lost<'a> {
    desk: &'a Arc<Desk>,
    event: Option<&'a Event>,
}

impl<'a> Lost<'a> {
    pub(super) fn new(desk: &'a Arc<Desk>, event: &'a Event) -> Self {
        Self {
            desk,
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
            self.desk.lost(&Subject {
                event: event.clone(),
                sls: None,
                id: None,
                spot: None,
                deed: None,
            });
        }
    }
}

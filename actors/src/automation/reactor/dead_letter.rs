//! Dead letter of a failed reaction: what happened, and what is needed to replay it.

use saltern_automation::reactor::{Plan, Problem, ReactionKey};
use saltern_model::query::{DeadLetterRow, ReactionRow};
use saltern_model::{Event, Packed, Tag};
use saltern_store::{DeadLetter, StoreError};
use saltern_wire::msgpack::DecodeError;

use super::watch::Subject;

/// Why a dead letter is not replayed. It is kept, unless it is gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// It cannot be read or removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is none with this name.
    #[error("there is no dead letter \"{0}\", or it cannot be read")]
    Missing(String),
    /// It holds no event with a valid tag.
    #[error("the dead letter cannot be read")]
    Malformed,
    /// The queue of the reactor has no room.
    #[error("too many events wait; the dead letter is kept")]
    QueueFull,
    /// The data of its event is malformed.
    #[error("its event cannot be read: {0}")]
    Event(DecodeError),
    /// The file that it names has a problem now.
    #[error(transparent)]
    Problem(Problem),
    /// The event leads to other reactions now, or to none.
    #[error("the rules and files of the event lead to no such reaction any more")]
    NoReaction,
    /// It was removed or replayed by another meanwhile.
    #[error("there is no dead letter \"{0}\" any more")]
    Gone(String),
}

/// The part of an event to replay: its file, or all its files; its reaction, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplaySelection {
    /// The name of the dead letter, which is kept until something is begun.
    pub(super) dead_letter: String,
    pub(super) sls: Option<String>,
    pub(super) id: Option<String>,
    pub(super) key: Option<ReactionKey>,
}

impl ReplaySelection {
    /// The selected part of a plan; `files` are those that the dead letter's file means now.
    ///
    /// # Errors
    /// [`ReplayError::Problem`] or [`ReplayError::NoReaction`]: there is nothing to replay.
    pub(super) fn of(&self, mut plan: Plan, files: &[String]) -> Result<Plan, ReplayError> {
        let is_in = |sls: &String| {
            let own = self.sls.as_ref();
            own.is_none_or(|own| own == sls || files.contains(sls))
        };
        let is_it = |id: Option<&String>, key: Option<&ReactionKey>| {
            let is_id = self.id.is_none() || self.id.as_ref() == id;
            is_id && (self.key.is_none() || self.key.as_ref() == key)
        };
        plan.reactions.retain(|reaction| {
            is_in(&reaction.sls) && is_it(Some(&reaction.id), Some(&reaction.key))
        });
        plan.problems.retain(|problem| is_in(&problem.sls));
        if plan.reactions.is_empty() {
            let problem = plan.problems.into_iter().next();
            return Err(problem.map_or(ReplayError::NoReaction, ReplayError::Problem));
        }
        plan.problems
            .retain(|problem| is_it(problem.id.as_ref(), problem.key.as_deref()));
        Ok(plan)
    }
}

/// The dead letter of a failure at a time, in microseconds since 1970.
pub(super) fn dead_letter(what: &str, subject: &Subject, reason: &str, time: i64) -> DeadLetter {
    let Subject { event, sls, id, .. } = subject;
    let (call, key) = (subject.call.as_ref(), subject.key.as_ref());
    DeadLetter {
        tag: event.tag.as_str().to_owned(),
        sls: sls.clone(),
        id: id.clone(),
        kind: call.map(|call| call.kind().to_owned()),
        fun: call.map(|call| call.fun().to_owned()),
        what: what.to_owned(),
        reason: reason.to_owned(),
        time,
        state: key.map(|key| key.state.clone()),
        number: key.map(|key| key.number.into()),
        name: key.map(|key| key.name.clone()),
        data: event.data.bytes().clone(),
    }
}

/// A dead letter as people see it, without the data of its event.
pub(super) fn row(name: String, letter: DeadLetter) -> DeadLetterRow {
    DeadLetterRow {
        name,
        reaction: ReactionRow {
            at: letter.time,
            tag: letter.tag,
            sls: letter.sls,
            id: letter.id,
            kind: letter.kind,
            function: letter.fun,
            outcome: letter.what,
            reason: Some(letter.reason),
            jid: None,
        },
    }
}

/// The replay that a dead letter describes; `None` for one of an event without a valid tag.
pub(super) fn read(name: &str, letter: DeadLetter) -> Option<(Event, ReplaySelection)> {
    let event = Event {
        tag: Tag::parse(&letter.tag).ok()?,
        data: Packed::new(letter.data),
    };
    let number = letter.number.and_then(|number| number.try_into().ok());
    let key = letter.state.map(|state| ReactionKey {
        state,
        number: number.unwrap_or(0),
        name: letter.name.unwrap_or_default(),
    });
    let again = ReplaySelection {
        dead_letter: name.to_owned(),
        sls: letter.sls,
        id: letter.id,
        key,
    };
    Some((event, again))
}

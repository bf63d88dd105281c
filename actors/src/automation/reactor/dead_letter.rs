//! Dead letter of a failed reaction: what happened, and what is needed to replay it.

use saltern_automation::reactor::{Plan, ReactionKey};
use saltern_model::{Event, Packed, Tag};
use saltern_wire::msgpack::Value;

use super::watch::Subject;

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
    /// Why there is nothing to replay.
    pub(super) fn of(&self, mut plan: Plan, files: &[String]) -> Result<Plan, String> {
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
            let problem = plan.problems.first().map(ToString::to_string);
            return Err(problem.unwrap_or_else(|| NOTHING.to_owned()));
        }
        plan.problems
            .retain(|problem| is_it(problem.id.as_ref(), problem.key.as_deref()));
        Ok(plan)
    }
}

const NOTHING: &str = "the rules and files of the event lead to no such reaction any more";

/// The dead letter of a failure at a time, in microseconds since 1970.
pub(super) fn dead_letter(what: &str, subject: &Subject, reason: &str, time: i64) -> Value {
    let mut fields = subject.fields();
    fields.push(("what", what.into()));
    fields.push(("reason", reason.into()));
    fields.push(("time", time.into()));
    if let Some(key) = &subject.key {
        fields.push(("state", key.state.as_str().into()));
        fields.push(("number", i64::from(key.number).into()));
        fields.push(("name", key.name.as_str().into()));
    }
    let data = subject.event.data.bytes();
    fields.push(("data", Value::Bin(data.clone())));
    Value::map(fields)
}

/// The replay that a dead letter describes; `None` for one that cannot be read.
pub(super) fn read(name: &str, dead_letter: &Value) -> Option<(Event, ReplaySelection)> {
    let text = |name| dead_letter.get(name).and_then(Value::as_str);
    let owned = |name| text(name).map(str::to_owned);
    let data = match dead_letter.get("data")? {
        Value::Bin(data) => data.clone(),
        // Bytes that are valid UTF-8 come back as a string.
        Value::Str(data) => data.clone().into_bytes().into(),
        _ => return None,
    };
    let event = Event {
        tag: Tag::parse(text("tag")?).ok()?,
        data: Packed::new(data),
    };
    let number = dead_letter.get("number").and_then(Value::as_i64);
    let again = ReplaySelection {
        dead_letter: name.to_owned(),
        sls: owned("sls"),
        id: owned("id"),
        key: owned("state").map(|state| ReactionKey {
            state,
            number: number
                .and_then(|number| number.try_into().ok())
                .unwrap_or(0),
            name: owned("name").unwrap_or_default(),
        }),
    };
    Some((event, again))
}

//! Dead letter of a failed reaction: what happened, and what is needed to replay it.

use saltern_model::{Event, Packed, Tag};
use saltern_requests::reactor::{Plan, Spot};
use saltern_wire::msgpack::Value;

use super::watch::Subject;

/// The part of an event to replay: its file, or all its files; its reaction, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Again {
    /// The name of the dead letter, which is kept until something is begun.
    pub(super) letter: String,
    pub(super) sls: Option<String>,
    pub(super) id: Option<String>,
    pub(super) spot: Option<Spot>,
}

impl Again {
    /// The selected part of a plan; `files` are those that the dead letter's file means now.
    ///
    /// # Errors
    /// Why there is nothing to replay.
    pub(super) fn of(&self, mut plan: Plan, files: &[String]) -> Result<Plan, String> {
        let is_in = |sls: &String| {
            let own = self.sls.as_ref();
            own.is_none_or(|own| own == sls || files.contains(sls))
        };
        let is_it = |id: Option<&String>, spot: Option<&Spot>| {
            let is_id = self.id.is_none() || self.id.as_ref() == id;
            is_id && (self.spot.is_none() || self.spot.as_ref() == spot)
        };
        plan.reactions.retain(|reaction| {
            is_in(&reaction.sls) && is_it(Some(&reaction.id), Some(&reaction.spot))
        });
        plan.problems.retain(|problem| is_in(&problem.sls));
        if plan.reactions.is_empty() {
            let problem = plan.problems.first().map(ToString::to_string);
            return Err(problem.unwrap_or_else(|| NOTHING.to_owned()));
        }
        plan.problems
            .retain(|problem| is_it(problem.id.as_ref(), problem.spot.as_deref()));
        Ok(plan)
    }
}

const NOTHING: &str = "the rules and files of the event lead to no such reaction any more";

/// The dead letter of a failure at a time, in microseconds since 1970.
pub(super) fn letter(what: &str, subject: &Subject, reason: &str, time: i64) -> Value {
    let mut fields = subject.fields();
    fields.push(("what", what.into()));
    fields.push(("reason", reason.into()));
    fields.push(("time", time.into()));
    if let Some(spot) = &subject.spot {
        fields.push(("state", spot.state.as_str().into()));
        fields.push(("number", i64::from(spot.number).into()));
        fields.push(("name", spot.name.as_str().into()));
    }
    let data = subject.event.data.bytes();
    fields.push(("data", Value::Bin(data.clone())));
    Value::map(fields)
}

/// The replay that a dead letter describes; `None` for one that cannot be read.
pub(super) fn read(name: &str, letter: &Value) -> Option<(Event, Again)> {
    let text = |name| letter.get(name).and_then(Value::as_str);
    let owned = |name| text(name).map(str::to_owned);
    let data = match letter.get("data")? {
        Value::Bin(data) => data.clone(),
        // Bytes that are valid UTF-8 come back as a string.
        Value::Str(data) => data.clone().into_bytes().into(),
        _ => return None,
    };
    let event = Event {
        tag: Tag::parse(text("tag")?).ok()?,
        data: Packed::new(data),
    };
    let number = letter.get("number").and_then(Value::as_i64);
    let again = Again {
        letter: name.to_owned(),
        sls: owned("sls"),
        id: owned("id"),
        spot: owned("state").map(|state| Spot {
            state,
            number: number
                .and_then(|number| number.try_into().ok())
                .unwrap_or(0),
            name: owned("name").unwrap_or_default(),
        }),
    };
    Some((event, again))
}

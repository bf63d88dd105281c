//! `minions.history`: starts, authentications and changes of presence of one minion, from kept events.

use bytes::Bytes;
use saltern_model::MinionId;
use saltern_model::query::{MinionEvent, MinionHistory};
use saltern_store::KeptEvent;
use saltern_wire::msgpack::{Limits, Value, decode};

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::Services;

/// Steps in which a query looks for older events. The answer says how far back it came.
const STEPS: usize = 20;

pub(super) fn history(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let minion = arguments.needed("minion", MinionId::parse)?;
    let limit = arguments.rows()?;
    let (mut before, mut since) = (None, None);
    let mut events = Vec::new();
    for _ in 0..STEPS {
        let reader = &services.jobs.reader;
        let part = reader.presence_events(minion.as_str(), before)?;
        events.extend(
            part.events
                .iter()
                .filter_map(|event| of_minion(event, &minion)),
        );
        (before, since) = (part.before, part.since.or(since));
        if before.is_none() || events.len() >= limit {
            break;
        }
    }
    events.truncate(limit);
    Ok(answer(&MinionHistory { events, since }))
}

/// The part of an event that is about a minion; nothing when it is about others.
fn of_minion(event: &KeptEvent, minion: &MinionId) -> Option<MinionEvent> {
    let data = decode(&event.data, &Limits::WIRE).ok()?;
    let text = |name: &str| data.get(name).and_then(Value::as_str);
    let names = |list: &str| {
        let list = data.get(list).and_then(Value::as_array).unwrap_or_default();
        list.iter().any(|id| id.as_str() == Some(minion.as_str()))
    };
    let is_its = || text("id") == Some(minion.as_str());
    let (kind, detail) = match event.tag.as_str() {
        "salt/presence/change" if names("lost") => ("lost", None),
        "salt/presence/change" if names("new") => ("connected", None),
        "salt/presence/change" => return None,
        "salt/auth" if is_its() => {
            let is_accepted = data.get("result").and_then(Value::as_bool) == Some(true);
            let is_refused = !is_accepted || text("act") != Some("accept");
            let kind = if is_refused {
                "refused"
            } else {
                "authenticated"
            };
            (kind, text("act"))
        }
        "salt/key" if is_its() => ("key", text("act")),
        "salt/auth" | "salt/key" => return None,
        _ => ("started", None),
    };
    Some(MinionEvent {
        at: event.received,
        kind: kind.to_owned(),
        detail: detail.map(str::to_owned),
        position: event.position,
    })
}

#[cfg(test)]
mod tests {
    use saltern_wire::msgpack::{Dialect, pack};

    use super::*;

    #[test]
    fn event_says_what_became_of_the_minion() {
        let minion = MinionId::parse("m1").unwrap();
        let says = |tag: &str, data: Value| {
            let event = KeptEvent {
                position: 7,
                received: 1,
                tag: tag.to_owned(),
                data: pack(&data, Dialect::Bin).into(),
                of_minion: false,
            };
            of_minion(&event, &minion).map(|event| (event.kind, event.detail))
        };
        let list = |ids: &[&str]| Value::Array(ids.iter().map(|id| (*id).into()).collect());
        let change = |new: &[&str], lost: &[&str]| {
            says(
                "salt/presence/change",
                Value::map([("new", list(new)), ("lost", list(lost))]),
            )
        };
        assert_eq!(change(&["m1"], &[]), Some(("connected".to_owned(), None)));
        assert_eq!(change(&["m2"], &["m1"]), Some(("lost".to_owned(), None)));
        assert_eq!(change(&["m2"], &["m3"]), None);
        let auth = |id: &str, act: &str, result: bool| {
            let data = Value::map([
                ("id", Value::from(id)),
                ("act", act.into()),
                ("result", result.into()),
            ]);
            says("salt/auth", data).map(|(kind, _)| kind)
        };
        assert_eq!(auth("m1", "accept", true).as_deref(), Some("authenticated"));
        assert_eq!(auth("m1", "pend", true).as_deref(), Some("refused"));
        assert_eq!(auth("m1", "reject", false).as_deref(), Some("refused"));
        assert_eq!(auth("m2", "accept", true), None);
        let started = says("salt/minion/m1/start", Value::Map(Vec::new()));
        assert_eq!(started, Some(("started".to_owned(), None)));
    }
}

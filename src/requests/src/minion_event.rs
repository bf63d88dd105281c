//! `_minion_event`: events that a minion or a syndic puts on the master's bus.
//!
//! Two forms, as in stock (`RemoteFuncs._minion_event` in `salt/daemons/masterapi.py`): one event
//! whose data is the whole load, or a list of events, which is filtered by a blacklist of tags.

use saltern_model::{Compat, Event, Tag};
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::{Effect, Outcome, Services, event_data};

/// At most so many events of one request are fired.
const MAX_EVENTS: usize = 10_000;

/// Fires the events; answers nil.
pub(crate) fn handle(mut sealed: Sealed, services: &Services) -> Outcome {
    let reply = sealed.answer.seal(&encode(&Value::Nil, Dialect::Raw));
    let events = if sealed.load.contains("events") {
        listed(&sealed, services)
    } else {
        single(&mut sealed, services).into_iter().collect()
    };
    let mut outcome = Outcome::reply(reply);
    outcome.effects = events.into_iter().map(Effect::Fire).collect();
    outcome
}

fn single(sealed: &mut Sealed, services: &Services) -> Option<Event> {
    if !sealed.load.contains("data") {
        return None;
    }
    let tag = usable_tag(sealed.load.str("tag")?, sealed)?;
    Some(event_data::event_of_load(services, tag, &mut sealed.load))
}

fn listed(sealed: &Sealed, services: &Services) -> Vec<Event> {
    let items = sealed
        .load
        .get("events")
        .and_then(RawValue::as_array)
        .unwrap_or_default();
    if items.len() > MAX_EVENTS {
        tracing::warn!(
            minion = %sealed.minion,
            events = items.len(),
            "only the first {MAX_EVENTS} events of one request are fired"
        );
    }
    let pretag = sealed.load.str("pretag");
    items
        .iter()
        .take(MAX_EVENTS)
        .filter_map(RawValue::as_map)
        .flat_map(|item| of_item(item, pretag, sealed, services))
        .collect()
}

/// The event of one list item, and its copy under `pretag`. 3008 fires the copy also when the tag
/// itself is on the blacklist.
fn of_item(
    item: MapView,
    pretag: Option<&str>,
    sealed: &Sealed,
    services: &Services,
) -> Vec<Event> {
    let Some(tag) = item.str("tag").and_then(|tag| usable_tag(tag, sealed)) else {
        return Vec::new();
    };
    let data = match item.get("data") {
        Some(data) => data.as_map(),
        None => Some(item.clone()),
    };
    let Some(mut data) = data else {
        return Vec::new();
    };
    let barred = is_barred(tag.as_str());
    let copy_is_due = !barred || services.config.salt_compat == Compat::V3008;
    let copy_tag = pretag
        .filter(|_| copy_is_due)
        .and_then(|pretag| match pretag {
            "" => Some(tag.clone()),
            _ => usable_tag(&format!("{pretag}/{tag}"), sealed),
        });
    let mut events = Vec::new();
    if let Some(copy_tag) = copy_tag {
        events.push(event_data::event_of_load(services, copy_tag, &mut data));
    }
    if barred {
        tracing::warn!(minion = %sealed.minion, %tag, "event dropped: minions may not use this tag");
        services
            .metrics
            .refused
            .with_label_values(&["event_tag"])
            .inc();
    } else {
        events.push(event_data::event_of_load(services, tag, &mut data));
    }
    events
}

fn usable_tag(text: &str, sealed: &Sealed) -> Option<Tag> {
    match Tag::parse(text) {
        Ok(tag) => Some(tag),
        Err(error) => {
            tracing::warn!(minion = %sealed.minion, %error, "event dropped");
            None
        }
    }
}

/// Stock's `MINION_EVENT_BLACKLIST`, where `*` spans slashes.
fn is_barred(tag: &str) -> bool {
    let between = |prefix: &str, suffix: &str| {
        tag.strip_prefix(prefix)
            .is_some_and(|rest| rest.ends_with(suffix))
    };
    between("salt/job/", "/publish")
        || between("salt/job/", "/new")
        || between("salt/job/", "/return")
        || between("salt/wheel/", "/new")
        || between("salt/wheel/", "/return")
        || tag == "salt/key"
        || ["salt/cloud/", "salt/run/", "salt/cluster/"]
            .iter()
            .any(|p| tag.starts_with(p))
}

#[cfg(test)]
mod tests {
    use super::is_barred;

    #[test]
    fn reserved_tags() {
        for barred in [
            "salt/job/20261121070622637714/new",
            "salt/job/x/y/publish",
            "salt/job//return",
            "salt/key",
            "salt/run/1/ret",
            "salt/cloud/vm/created",
            "salt/cluster/x",
            "salt/wheel/1/new",
        ] {
            assert!(is_barred(barred), "{barred}");
        }
        for free in [
            "salt/job/1/ret/m1",
            "salt/keys",
            "my/own/tag",
            "salt/job/new",
        ] {
            assert!(!is_barred(free), "{free}");
        }
    }
}

//! `_minion_event`: events that a minion or a syndic puts on the master's bus.
//!
//! Two forms, as in stock (`RemoteFuncs._minion_event` in `salt/daemons/masterapi.py`): one event
//! whose data is the whole load, or a list of events, which stock filters by a blacklist of tags.
//! The tags that a minion may use are in `event_rules`.

use saltern_model::{Compat, Event, Tag};
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::event_rules::{self, Refusal};
use crate::refusal_log::excerpt;
use crate::syndics::{self, Announced, SyndicIdentity, SyndicStart};
use crate::{Effect, Outcome, Services, event_data, reply};

/// The most events of one request that are fired.
const MAX_EVENTS: usize = 10_000;

/// Fields of a start event by which a syndic of ours says that it announces the minions below it, and that only its
/// connection is new.
const INVENTORY: &str = "saltern_syndic_inventory";
const AGAIN: &str = "saltern_syndic_again";

/// Fires the events; answers nil. A syndic's announcements of its minions are stored before.
pub(crate) fn handle(mut sealed: Sealed, services: &Services) -> Outcome {
    let nil = sealed.answer.seal(&encode(&Value::Nil, Dialect::Raw));
    let mut announced = Announced::default();
    let events = if sealed.load.contains("events") {
        listed(&sealed, &mut announced, services)
    } else {
        single(&mut sealed, services).into_iter().collect()
    };
    let mut outcome = Outcome {
        reply_if_not_stored: reply::no_answer(),
        ..Outcome::reply(nil)
    };
    let leaves = announced.into_leaves(&sealed.minion);
    if !leaves.is_empty() {
        outcome.effects.push(Effect::ExpectSyndicMinions(leaves));
    }
    outcome.effects.extend(events.into_iter().map(Effect::Fire));
    outcome
}

fn single(sealed: &mut Sealed, services: &Services) -> Option<Event> {
    if !sealed.load.contains("data") {
        return None;
    }
    let tag = usable_tag(sealed.load.str("tag")?, sealed, services)?;
    if let Some(refusal) = strict_refusal(&tag, sealed, services) {
        refuse(refusal, &tag, sealed, services);
        return None;
    }
    if tag.as_str() == "_salt_error" {
        log_minion_error(sealed, services);
    }
    if services.site.order_masters {
        let starts_as = |what: &str| tag.as_str() == format!("salt/{what}/{}/start", sealed.minion);
        if starts_as("syndic") {
            // Of a syndic of ours; nobody else is to see it.
            let mut says = |field: &str| {
                let said = sealed.load.remove(field);
                said.and_then(|it| it.as_bool()) == Some(true)
            };
            let start = SyndicStart {
                announces_inventory: says(INVENTORY),
                is_again: says(AGAIN),
            };
            syndics::register(&sealed.minion, start, services);
        } else if starts_as("minion") {
            syndics::is_minion(&sealed.minion, services);
        }
    }
    Some(event_data::event_of_load(services, tag, &mut sealed.load))
}

fn listed(sealed: &Sealed, announced: &mut Announced, services: &Services) -> Vec<Event> {
    let items = sealed
        .load
        .get("events")
        .and_then(RawValue::as_array)
        .unwrap_or_default();
    if items.len() > MAX_EVENTS {
        complain!(
            services,
            minion = %sealed.minion,
            events = items.len(),
            "only the first {MAX_EVENTS} events of one request are fired"
        );
    }
    let pretag = sealed.load.str("pretag");
    let forwards = is_of_syndic(sealed, services);
    let is_syndic = forwards && syndics::becomes_known(&sealed.minion, services);
    if is_syndic {
        syndics::heard(&sealed.minion, services);
    }
    let voice = is_syndic.then(|| SyndicIdentity::of(&sealed.minion, services));
    items
        .iter()
        .take(MAX_EVENTS)
        .filter_map(RawValue::as_map)
        .flat_map(|item| {
            if let Some(voice) = &voice
                && let Some(data) = item.get("data").and_then(RawValue::as_map)
            {
                announced.look(item.str("tag").unwrap_or_default(), &data, voice);
            }
            of_item(item, pretag, sealed, services)
        })
        .collect()
}

/// The event of one list item, and its copy under `pretag`, in the order of each version. 3008
/// fires the copy also when the tag itself is on the blacklist.
fn of_item(
    item: MapView,
    pretag: Option<&str>,
    sealed: &Sealed,
    services: &Services,
) -> Vec<Event> {
    let tag = item
        .str("tag")
        .and_then(|tag| usable_tag(tag, sealed, services));
    let Some(tag) = tag else {
        return Vec::new();
    };
    let data = match item.get("data") {
        Some(data) => data.as_map(),
        None => Some(item.clone()),
    };
    let Some(mut data) = data else {
        return Vec::new();
    };
    let is_newest = services.config.salt_compat == Compat::V3008;
    let is_blacklisted = event_rules::is_blacklisted(&tag);
    let refusal = is_blacklisted
        .then_some(Refusal::Blacklisted)
        .or_else(|| strict_refusal(&tag, sealed, services));
    let copy_tag = pretag
        .filter(|_| is_newest || !is_blacklisted)
        .and_then(|pretag| match pretag {
            "" => Some(tag.clone()),
            _ => usable_tag(&format!("{pretag}/{tag}"), sealed, services),
        })
        .filter(
            |copy_tag| match strict_refusal(copy_tag, sealed, services) {
                None => true,
                Some(refusal) => {
                    refuse(refusal, copy_tag, sealed, services);
                    false
                }
            },
        );
    let mut tags = Vec::new();
    match refusal {
        Some(refusal) => refuse(refusal, &tag, sealed, services),
        None => tags.push(tag),
    }
    tags.extend(copy_tag);
    if is_newest {
        tags.reverse();
    }
    tags.into_iter()
        .map(|tag| event_data::event_of_load(services, tag, &mut data))
        .collect()
}

fn strict_refusal(tag: &Tag, sealed: &Sealed, services: &Services) -> Option<Refusal> {
    event_rules::refusal_here(tag, &sealed.minion, services)
}

/// Whether a syndic forwards events of its master's bus.
fn is_of_syndic(sealed: &Sealed, services: &Services) -> bool {
    let pretag = sealed.load.str("pretag");
    let of = pretag.and_then(|pretag| pretag.strip_prefix("syndic/"));
    services.site.order_masters && of == Some(sealed.minion.as_str())
}

fn refuse(refusal: Refusal, tag: &Tag, sealed: &Sealed, services: &Services) {
    services.metrics.refuse(refusal.reason());
    // It forwards everything; an event that it may not fire for all is fired under its own name.
    if is_of_syndic(sealed, services) {
        tracing::debug!(syndic = %sealed.minion, ?tag, "event fired under the syndic's name only");
        return;
    }
    complain!(
        services,
        minion = %sealed.minion,
        ?tag,
        reason = refusal.reason(),
        "event dropped: this minion may not use this tag"
    );
}

fn usable_tag(text: &str, sealed: &Sealed, services: &Services) -> Option<Tag> {
    match Tag::parse(text) {
        Ok(tag) => Some(tag),
        Err(error) => {
            services.metrics.refuse("event_tag");
            complain!(services, minion = %sealed.minion, %error, "event dropped");
            None
        }
    }
}

/// Logs the error of a minion that could not read a publication; stock logs it on the master, too.
fn log_minion_error(sealed: &Sealed, services: &Services) {
    let data = sealed.load.get("data").and_then(RawValue::as_map);
    let message = data.as_ref().and_then(|data| data.str("message"));
    complain!(
        services,
        minion = %sealed.minion,
        message = ?excerpt(message.unwrap_or("?")),
        "a minion reports an error"
    );
}

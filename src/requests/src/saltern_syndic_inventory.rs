//! `saltern_syndic_inventory`: a syndic of ours announces the minions below it. Stock has no such
//! command; a syndic sends it only to a master whose signed answer to `_auth` asks for it.
//!
//! Each part is answered: whether it was taken, or that the syndic has to begin with a full list (with
//! all grains, or with those that have changed), or that its inventory is not kept. A syndic announces the minions that it may return for
//! (`syndics`), others are left out and counted. Those that are below another syndic are announced by
//! an event, once for each minion and pair of syndics.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use saltern_base::escaped_for_terminal;
use saltern_model::{Event, MinionId, Tag};
use saltern_wire::msgpack::{Dialect, Limits, MapView, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::syndic_frames::RefusalClass;
use crate::syndic_inventories::{Announced, Duplicate, InventoryPart, NotedWays, PartResult};
use crate::syndics::{self, SyndicIdentity};
use crate::{Outcome, Services, event_data};

/// The most minions of one part; those beyond make it malformed.
const MAX_MINIONS: usize = 10_000;

/// The longest reason why a minion is away, in bytes.
const MAX_REASON: usize = 200;

/// The most minions that one event names.
const MAX_NAMED: usize = 100;

/// Answers what became of the part.
pub(crate) fn handle(sealed: &Sealed, services: &Services) -> Outcome {
    let (result, ways) = take(sealed, services);
    let (word, reason, class) = match result {
        PartResult::Taken => ("taken", "", ""),
        PartResult::BeginAnew | PartResult::BeginWithGrains => ("begin_anew", "", ""),
        PartResult::Refused(class, reason) => {
            // What is kept would be outdated from now on.
            services.minions.inventories.forget(&sealed.minion);
            services.metrics.refuse("syndic_inventory");
            complain!(
                services, minion = %sealed.minion, reason,
                "the inventory of a syndic is not kept"
            );
            ("refused", reason, class.word())
        }
    };
    let epoch = services.minions.inventories.agreement();
    let answer = Value::map([
        ("result", Value::from(word)),
        ("reason", reason.into()),
        ("class", class.into()),
        ("epoch", epoch.unwrap_or_default().into()),
        ("with_grains", Value::Bool(result != PartResult::BeginAnew)),
    ]);
    let outcome = Outcome::reply(sealed.answer.seal(&encode(&answer, Dialect::Raw)));
    if ways.dropped > 0 {
        services
            .metrics
            .refuse_many("syndic_second_way", ways.dropped);
        complain!(
            services, minion = %sealed.minion, minions = ways.dropped,
            "this syndic announces more minions of others than are kept: they may not return by it"
        );
    }
    let events = announcements(&sealed.minion, ways.new, services);
    events.into_iter().fold(outcome, Outcome::and_fire)
}

/// An event for each other syndic that has minions of this one below, too.
fn announcements(syndic: &MinionId, duplicates: Vec<Duplicate>, services: &Services) -> Vec<Event> {
    let mut by_first: BTreeMap<MinionId, Vec<MinionId>> = BTreeMap::new();
    for duplicate in duplicates {
        let minions = by_first.entry(duplicate.first).or_default();
        minions.push(duplicate.minion);
    }
    let events = by_first.into_iter().map(|(first, minions)| {
        let count = minions.len();
        tracing::warn!(%syndic, %first, minions = count, "minions are below two syndics");
        let named = minions.iter().take(MAX_NAMED);
        let named = named.map(|minion| Value::from(minion.as_str())).collect();
        let data = vec![
            (Value::from("route"), Value::from(first.as_str())),
            ("other".into(), syndic.as_str().into()),
            ("minions".into(), Value::Array(named)),
            (
                "count".into(),
                Value::Int(i64::try_from(count).unwrap_or(i64::MAX)),
            ),
        ];
        let tag = Tag::parse("saltern/syndic/duplicate-minion").expect("invariant: it is a tag");
        event_data::event(services, tag, data)
    });
    events.collect()
}

fn take(sealed: &Sealed, services: &Services) -> (PartResult, NotedWays) {
    let syndic = &sealed.minion;
    match part_of(sealed, services) {
        Ok(part) => {
            let inventories = &services.minions.inventories;
            let taken = inventories.take(syndic, part);
            // The key may have gone since the request came, and its inventory with it.
            if !matches!(services.keys.pki.accepted_key(syndic), Ok(Some(_))) {
                inventories.forget(syndic);
            }
            taken
        }
        Err((class, reason)) => (PartResult::Refused(class, reason), NotedWays::default()),
    }
}

/// The part, with minions alone that the syndic may announce.
fn part_of(
    sealed: &Sealed,
    services: &Services,
) -> Result<InventoryPart, (RefusalClass, &'static str)> {
    let syndic = &sealed.minion;
    if !services.minions.inventories.is_on() {
        let reason = "saltern_syndic_inventory is off, or order_masters is";
        return Err((RefusalClass::NotAgreed, reason));
    }
    if !syndics::acts(syndic, services) {
        let reason = "it sent no start event as a syndic";
        return Err((RefusalClass::NotSyndic, reason));
    }
    let part = read(&sealed.load);
    let mut part = part.ok_or((RefusalClass::Content, "it is malformed"))?;
    let identity = SyndicIdentity::of(syndic, services);
    let is_its =
        |minion: &MinionId| !services.minions.syndics.has(minion) && identity.may_announce(minion);
    let named = std::mem::take(&mut part.minions);
    let named = named
        .into_iter()
        .filter(|announced| announced.id != *syndic);
    let (its, others): (Vec<_>, Vec<_>) = named.partition(|announced| is_its(&announced.id));
    part.has_others = !others.is_empty();
    let duplicates = others.into_iter().filter_map(|announced| {
        let first = identity.other_of(&announced.id)?;
        Some(Duplicate::new(&announced, first))
    });
    part.duplicates = duplicates.collect();
    part.minions = its;
    Ok(part)
}

fn read(load: &MapView) -> Option<InventoryPart> {
    let number = |name: &str| load.get(name).and_then(RawValue::as_u64);
    let minions = load.get("minions").and_then(RawValue::as_array)?;
    let gone = load.get("gone").and_then(RawValue::as_array)?;
    if minions.len() > MAX_MINIONS || gone.len() > MAX_MINIONS {
        return None;
    }
    let keys = load.get("keys").and_then(RawValue::as_array);
    let keys = keys.unwrap_or_default();
    let mut keys = keys.iter();
    let minions = minions.iter().map(|packed| {
        let key = keys.next().and_then(RawValue::as_bytes);
        let key = key.and_then(|key| key.try_into().ok());
        Some(Announced {
            key,
            ..read_one(packed)?
        })
    });
    let gone = gone.iter().map(|name| MinionId::parse(name.as_str()?).ok());
    Some(InventoryPart {
        epoch: load.str("epoch")?.to_owned(),
        list: number("list")?,
        part: number("part")?.min(u64::MAX - 1),
        is_last: load.get("last").and_then(RawValue::as_bool)?,
        // An earlier build does not send it, and does not know whether it has all.
        is_partial: load.get("partial").and_then(RawValue::as_bool) != Some(false),
        minions: minions.collect::<Option<_>>()?,
        gone: gone.collect::<Option<_>>()?,
        has_others: false,
        duplicates: Vec::new(),
    })
}

/// `[id, why it is away or nil, grains or nil]`; a digest of its key stands in `keys`, at the same place, where the syndic
/// knows it and is of a build that sends it. Grains that the syndic does not know are an empty map, from
/// every build.
fn read_one(packed: &RawValue) -> Option<Announced> {
    let fields = packed.as_array()?;
    let [id, away, grains] = fields.as_slice() else {
        return None;
    };
    let away = match away.is_nil() {
        true => None,
        false => {
            let why = away.as_str().filter(|it| it.len() <= MAX_REASON)?;
            Some(Arc::from(&*escaped_for_terminal(why)))
        }
    };
    let grains = match grains.is_nil() {
        true => None,
        false if grains.as_map()?.is_empty() => Some(Bytes::new()),
        false => Some(readable(grains)),
    };
    Some(Announced {
        id: MinionId::parse(id.as_str()?).ok()?,
        away,
        grains,
        key: None,
    })
}

/// The packed grains as targets read them: empty, which counts as not known, where these could not.
fn readable(grains: &RawValue) -> Bytes {
    let packed = grains.to_bin_dialect();
    let read = RawValue::parse(packed, &Limits::WIRE);
    read.map(RawValue::into_bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grains_that_targets_cannot_read_count_as_not_known() {
        let nested = |depth: usize| {
            let nested = (0..depth).fold(Value::Nil, |inner, _| Value::map([("in", inner)]));
            let fields = Value::Array(vec!["a".into(), Value::Nil, nested]);
            let announced = read_one(&RawValue::pack(&fields, Dialect::Bin)).unwrap();
            announced.grains.unwrap()
        };
        assert!(!nested(5).is_empty());
        assert_eq!(nested(600), Bytes::new());
    }
}

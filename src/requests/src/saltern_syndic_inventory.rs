//! `saltern_syndic_inventory`: a syndic of ours announces the minions below it. Stock has no such
//! command; a syndic sends it only to a master whose signed answer to `_auth` asks for it.
//!
//! Each part is answered: whether it was taken, or that the syndic has to begin with a full list, or
//! that its inventory is not kept. A syndic announces the minions that it may return for
//! (`syndics`), others are left out and counted.

use std::sync::Arc;

use saltern_base::escaped_for_terminal;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::syndic_inventories::{Announced, InventoryPart, PartResult};
use crate::syndics::{self, SyndicIdentity};
use crate::{Outcome, Services};

/// The most minions of one part; those beyond make it malformed.
const MAX_MINIONS: usize = 10_000;

/// The longest reason why a minion is away, in bytes.
const MAX_REASON: usize = 200;

/// Answers what became of the part.
pub(crate) fn handle(sealed: &Sealed, services: &Services) -> Outcome {
    let result = take(sealed, services);
    let (word, reason) = match result {
        PartResult::Taken => ("taken", ""),
        PartResult::BeginAnew => ("begin_anew", ""),
        PartResult::Refused(reason) => {
            // What is kept would be outdated from now on.
            services.minions.inventories.forget(&sealed.minion);
            services.metrics.refuse("syndic_inventory");
            complain!(
                services, minion = %sealed.minion, reason,
                "the inventory of a syndic is not kept"
            );
            ("refused", reason)
        }
    };
    let epoch = services.minions.inventories.agreement();
    let answer = Value::map([
        ("result", Value::from(word)),
        ("reason", reason.into()),
        ("epoch", epoch.unwrap_or_default().into()),
    ]);
    Outcome::reply(sealed.answer.seal(&encode(&answer, Dialect::Raw)))
}

fn take(sealed: &Sealed, services: &Services) -> PartResult {
    let (syndic, inventories) = (&sealed.minion, &services.minions.inventories);
    if !inventories.is_on() {
        return PartResult::Refused("saltern_syndic_inventory is off, or order_masters is");
    }
    if !syndics::is_known(syndic, services) {
        return PartResult::Refused("it sent no start event as a syndic");
    }
    let Some(mut part) = read(&sealed.load) else {
        return PartResult::Refused("it is malformed");
    };
    let identity = SyndicIdentity::of(syndic, services);
    let is_its =
        |minion: &MinionId| !services.minions.syndics.has(minion) && identity.speaks_for(minion);
    let is_others = |announced: &Announced| announced.id != *syndic && !is_its(&announced.id);
    let named = part.minions.len();
    part.minions.retain(|announced| !is_others(announced));
    part.has_others = part.minions.len() < named;
    part.minions.retain(|announced| announced.id != *syndic);
    let result = inventories.take(syndic, part);
    // The key may have gone since the request came, and its inventory with it.
    if !matches!(services.keys.pki.accepted_key(syndic), Ok(Some(_))) {
        inventories.forget(syndic);
    }
    result
}

fn read(load: &MapView) -> Option<InventoryPart> {
    let number = |name: &str| load.get(name).and_then(RawValue::as_u64);
    let minions = load.get("minions").and_then(RawValue::as_array)?;
    let gone = load.get("gone").and_then(RawValue::as_array)?;
    if minions.len() > MAX_MINIONS || gone.len() > MAX_MINIONS {
        return None;
    }
    let gone = gone.iter().map(|name| MinionId::parse(name.as_str()?).ok());
    Some(InventoryPart {
        epoch: load.str("epoch")?.to_owned(),
        list: number("list")?,
        part: number("part")?.min(u64::MAX - 1),
        is_last: load.get("last").and_then(RawValue::as_bool)?,
        minions: minions.iter().map(read_one).collect::<Option<_>>()?,
        gone: gone.collect::<Option<_>>()?,
        has_others: false,
    })
}

/// `[id, why it is away or nil, grains or nil]`.
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
        false if grains.is_map() => Some(grains.to_bin_dialect()),
        false => return None,
    };
    Some(Announced {
        id: MinionId::parse(id.as_str()?).ok()?,
        away,
        grains,
    })
}

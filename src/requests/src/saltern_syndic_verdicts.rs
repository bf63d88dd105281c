//! `saltern_syndic_verdicts`: a syndic of ours says why minions below it have not returned a job. Stock has no
//! such command; a syndic sends it only to a master whose signed answer to `_auth` asks for it.
//!
//! A verdict is evidence for people (`saltern explain`): it ends no job, and no return is awaited less because
//! of it. It is taken of minions that stand in the inventory of this syndic, or that it has claimed; others
//! are left out and counted, and so is a verdict that is malformed or beyond the bounds. In three levels it names each syndic that it came through.

use std::collections::HashMap;
use std::sync::Arc;

use saltern_base::escaped_for_terminal;
use saltern_model::{Jid, MinionId};
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::outcome::SyndicVerdict;
use crate::syndics;
use crate::{Effect, Outcome, Services};

/// The most verdicts of one request, and the most minions over all of them.
const MAX_VERDICTS: usize = 1_000;
const MAX_MINIONS: usize = 10_000;

/// Minions for which a verdict on all minions below its syndic counts: it names none, and is about all that are
/// missing.
pub const COST_OF_ALL: usize = 1_000;

/// The longest verdict in bytes, as a syndic sends it.
pub const MAX_VERDICT_TEXT: usize = 400;

/// The most syndics that a verdict comes through.
const MAX_DEPTH: u64 = 8;

/// Answers whether the verdicts were taken.
pub(crate) fn handle(sealed: &Sealed, services: &Services) -> Outcome {
    let (word, reason, verdicts) = match take(sealed, services) {
        Ok(verdicts) => ("taken", "", verdicts),
        Err(reason) => {
            services.metrics.refuse("syndic_verdict");
            complain!(
                services, minion = %sealed.minion, reason,
                "verdicts of a syndic are refused"
            );
            ("refused", reason, Vec::new())
        }
    };
    let answer = Value::map([("result", Value::from(word)), ("reason", reason.into())]);
    let mut outcome = Outcome::reply(sealed.answer.seal(&encode(&answer, Dialect::Raw)));
    if !verdicts.is_empty() {
        outcome.effects.push(Effect::TakeVerdicts(verdicts));
    }
    outcome
}

fn take(sealed: &Sealed, services: &Services) -> Result<Vec<SyndicVerdict>, &'static str> {
    let syndic = &sealed.minion;
    if !services.minions.inventories.is_on() {
        return Err("saltern_syndic_inventory is off, or order_masters is");
    }
    if !syndics::acts(syndic, services) {
        return Err("it sent no start event as a syndic");
    }
    let (mut verdicts, left_out) =
        read(&sealed.load, syndic).ok_or("they are malformed or too many")?;
    if left_out > 0 {
        services.metrics.refuse_many("syndic_verdict", left_out);
        complain!(
            services, minion = %syndic, left_out,
            "verdicts of this syndic are malformed or beyond what one request may have: they are left out"
        );
    }
    let accepted = services.keys.pki.accepted();
    let accepted = accepted.map_err(|_| "accepted keys cannot be listed")?;
    let mut others = 0;
    for minions in verdicts.iter_mut().filter_map(|it| it.minions.as_mut()) {
        let mut below = std::mem::take(minions);
        // The route to a minion counts, and it is no fault of another way to say something.
        below.retain(|minion| !syndics::is_other_way(minion, syndic, services));
        let named = below.len();
        *minions = syndics::minions_below_beside(&accepted, below, syndic, services);
        others += named - minions.len();
    }
    if others > 0 {
        services.metrics.refuse("syndic_verdict");
        complain!(
            services, minion = %syndic, others,
            "verdicts on minions that are not below this syndic are left out"
        );
    }
    verdicts.retain(|verdict| verdict.minions.as_ref().is_none_or(|it| !it.is_empty()));
    Ok(verdicts)
}

/// The verdicts of a request, and how many of them are left out. Of several on all minions of one job the last
/// counts.
fn read(load: &MapView, syndic: &MinionId) -> Option<(Vec<SyndicVerdict>, u64)> {
    let listed = load.get("verdicts").and_then(RawValue::as_array)?;
    if listed.len() > MAX_VERDICTS {
        return None;
    }
    let (mut room, mut left_out) = (MAX_MINIONS, 0);
    let mut read: Vec<Option<SyndicVerdict>> = Vec::with_capacity(listed.len());
    let mut of_all: HashMap<Jid, usize> = HashMap::new();
    for packed in &listed {
        let Some(verdict) = read_one(packed, syndic, room) else {
            left_out += 1;
            continue;
        };
        let before = match &verdict.minions {
            Some(_) => None,
            None => of_all.insert(verdict.jid.clone(), read.len()),
        };
        let replaced = before.and_then(|at| read.get_mut(at));
        match replaced {
            Some(replaced) => *replaced = None,
            None => room -= verdict.minions.as_ref().map_or(COST_OF_ALL, Vec::len),
        }
        read.push(Some(verdict));
    }
    Some((read.into_iter().flatten().collect(), left_out))
}

/// `[jid, syndics that it came through before, text or nil, minions or nil]`. Without a text an earlier
/// verdict does not hold any more; without minions it is about all that are below the syndic.
fn read_one(packed: &RawValue, syndic: &MinionId, room: usize) -> Option<SyndicVerdict> {
    let fields = packed.as_array()?;
    let [jid, depth, text, minions] = fields.as_slice() else {
        return None;
    };
    let depth = depth.as_u64().filter(|depth| *depth < MAX_DEPTH)?;
    let text = match text.is_nil() {
        true => None,
        false => {
            let text = text.as_str().filter(|it| it.len() <= MAX_VERDICT_TEXT)?;
            let text = escaped_for_terminal(text);
            let end = text.floor_char_boundary(MAX_VERDICT_TEXT);
            let text = text.get(..end).unwrap_or_default();
            Some(Arc::from(format!("syndic \"{syndic}\" says: {text}")))
        }
    };
    let minions = match minions.is_nil() {
        true if room < COST_OF_ALL => return None,
        true => None,
        false => {
            let names = minions.as_array().filter(|names| names.len() <= room)?;
            let minions = names
                .iter()
                .map(|name| MinionId::parse(name.as_str()?).ok());
            Some(minions.collect::<Option<_>>()?)
        }
    };
    Some(SyndicVerdict {
        jid: Jid::parse(jid.as_str()?).ok()?,
        syndic: syndic.clone(),
        minions,
        text,
        depth: u8::try_from(depth + 1).ok()?,
    })
}

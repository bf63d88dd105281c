//! Functions that change the state of keys, or remove them.
//!
//! Stock fires an event `salt/key` for every key that it changes, whose form is not the same in all
//! versions, and asks for a new shared key (`rotate_aes_key`) when keys are rejected or deleted.

use saltern_crypto::{PrivateKey, PublicKey, clean_key};
use saltern_model::{Compat, KeyState, MinionId, Tag};
use saltern_store::dropfile;
use saltern_wire::msgpack::Value;

use super::listing::{lists_of, managed, of_mapping, selected};
use super::{patterns, show};
use crate::call::{Bound, CallResult, RunnerError};
use crate::master::Master;
use crate::notices::Notices;
use crate::registry::RunnerContext;

type Keys = Vec<(KeyState, MinionId)>;

pub(super) fn accept(
    context: &RunnerContext,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> CallResult {
    by_pattern(context, bound, |keys| {
        move_keys(context, &accepting(bound), keys, notices)
    })
}

pub(super) fn accept_dict(
    context: &RunnerContext,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> CallResult {
    by_mapping(context, bound, |keys| {
        move_keys(context, &accepting(bound), keys, notices)
    })
}

pub(super) fn reject(
    context: &RunnerContext,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> CallResult {
    by_pattern(context, bound, |keys| {
        move_keys(context, &rejecting(bound), keys, notices)
    })
}

pub(super) fn reject_dict(
    context: &RunnerContext,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> CallResult {
    by_mapping(context, bound, |keys| {
        move_keys(context, &rejecting(bound), keys, notices)
    })
}

pub(super) fn delete(
    context: &RunnerContext,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> CallResult {
    by_pattern(context, bound, |keys| delete_keys(context, keys, notices))
}

pub(super) fn delete_dict(
    context: &RunnerContext,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> CallResult {
    by_mapping(context, bound, |keys| delete_keys(context, keys, notices))
}

/// Moves the keys that patterns match; answers with their lists afterwards.
fn by_pattern(
    context: &RunnerContext,
    bound: &Bound<'_>,
    change: impl FnOnce(&Keys) -> Result<(), RunnerError>,
) -> CallResult {
    let patterns = patterns(bound)?;
    let matching = || Ok::<_, RunnerError>(patterns.choose_from(managed(context)?));
    change(&selected(&matching()?))?;
    Ok(matching()?.into_value())
}

/// Moves the keys that a mapping names; answers with their lists afterwards.
fn by_mapping(
    context: &RunnerContext,
    bound: &Bound<'_>,
    change: impl FnOnce(&Keys) -> Result<(), RunnerError>,
) -> CallResult {
    let mapping = bound.get("match").unwrap_or(&Value::Nil);
    if mapping.as_map().is_none() {
        return Ok(Value::Map(Vec::new()));
    }
    change(&of_mapping(mapping))?;
    let now = managed(context)?;
    Ok(now.of_changed(&lists_of(mapping)?).into_value())
}

/// Source states and destination of a change.
struct Move {
    from: Vec<KeyState>,
    to: KeyState,
}

fn accepting(bound: &Bound<'_>) -> Move {
    let mut from = vec![KeyState::Pending];
    if bound.flag("include_rejected", false) {
        from.push(KeyState::Rejected);
    }
    if bound.flag("include_denied", false) {
        from.push(KeyState::Denied);
    }
    Move {
        from,
        to: KeyState::Accepted,
    }
}

fn rejecting(bound: &Bound<'_>) -> Move {
    let mut from = vec![KeyState::Pending];
    if bound.flag("include_accepted", false) {
        from.push(KeyState::Accepted);
    }
    if bound.flag("include_denied", false) {
        from.push(KeyState::Denied);
    }
    Move {
        from,
        to: KeyState::Rejected,
    }
}

fn move_keys(
    context: &RunnerContext,
    change: &Move,
    keys: &Keys,
    notices: &mut Notices<'_>,
) -> Result<(), RunnerError> {
    let mut has_rejected = false;
    for from in &change.from {
        for (_, id) in keys.iter().filter(|(state, _)| state == from) {
            let is_done = match change.to {
                KeyState::Accepted => accept_one(context, id, *from, notices)?,
                _ => reject_one(context, id, *from, notices)?,
            };
            has_rejected |= is_done && change.to == KeyState::Rejected;
        }
    }
    if has_rejected {
        ask_for_new_shared_key(context)?;
    }
    Ok(())
}

/// The key in this state, if a minion could authenticate with it. 3006 and 3007 reject malformed
/// keys, too.
fn movable_pem(
    context: &RunnerContext,
    id: &MinionId,
    from: KeyState,
    to: KeyState,
) -> Result<Option<String>, RunnerError> {
    let pem = context.master()?.pki.stored_pem(id, from)?;
    let is_checked = to == KeyState::Accepted || context.config.salt_compat == Compat::V3008;
    Ok(pem.filter(|pem| {
        let is_key = !is_checked || PublicKey::from_pem(pem).is_ok();
        if !is_key {
            tracing::error!(minion = %id, "the {from} key is no public key: it stays where it is");
        }
        is_key
    }))
}

fn accept_one(
    context: &RunnerContext,
    id: &MinionId,
    from: KeyState,
    notices: &mut Notices<'_>,
) -> Result<bool, RunnerError> {
    let master = context.master()?;
    let Some(pem) = movable_pem(context, id, from, KeyState::Accepted)? else {
        return Ok(false);
    };
    let before = master.pki.stored_pem(id, KeyState::Accepted)?;
    let is_done = match context.config.salt_compat {
        Compat::V3006 | Compat::V3007 => master.pki.move_to(id, from, KeyState::Accepted)?,
        Compat::V3008 => {
            master.pki.accept(id, &pem)?;
            master.pki.remove(id, from)?;
            true
        }
    };
    if is_done {
        end_session_of_another(master, id, before.as_deref(), &pem, notices)?;
        fire_key_event(context, KeyState::Accepted, id, &pem, notices);
    }
    Ok(is_done)
}

fn reject_one(
    context: &RunnerContext,
    id: &MinionId,
    from: KeyState,
    notices: &mut Notices<'_>,
) -> Result<bool, RunnerError> {
    let master = context.master()?;
    let Some(pem) = movable_pem(context, id, from, KeyState::Rejected)? else {
        return Ok(false);
    };
    let is_done = match context.config.salt_compat {
        Compat::V3006 | Compat::V3007 => master.pki.move_to(id, from, KeyState::Rejected)?,
        Compat::V3008 => {
            master.pki.reject(id, &pem)?;
            master.pki.remove(id, KeyState::Accepted)?;
            master.pki.remove(id, from)?;
            true
        }
    };
    if is_done {
        master.sessions.remove(id)?;
        fire_key_event(context, KeyState::Rejected, id, &pem, notices);
    }
    Ok(is_done)
}

fn delete_keys(
    context: &RunnerContext,
    keys: &Keys,
    notices: &mut Notices<'_>,
) -> Result<(), RunnerError> {
    let mut has_deleted = false;
    for (state, id) in keys {
        has_deleted |= delete_one(context, id, *state, notices)?;
    }
    if has_deleted {
        ask_for_new_shared_key(context)?;
    }
    Ok(())
}

fn delete_one(
    context: &RunnerContext,
    id: &MinionId,
    state: KeyState,
    notices: &mut Notices<'_>,
) -> Result<bool, RunnerError> {
    let master = context.master()?;
    // 3008 has one key of a minion, beside the denied one, and removes it wherever it lies.
    let states: &[KeyState] = match (context.config.salt_compat, state) {
        (Compat::V3006 | Compat::V3007, _) | (_, KeyState::Denied) => &[state],
        (Compat::V3008, _) => &[KeyState::Accepted, KeyState::Pending, KeyState::Rejected],
    };
    let (mut is_done, mut was_accepted) = (false, false);
    for state in states {
        if master.pki.remove(id, *state)? {
            is_done = true;
            was_accepted |= *state == KeyState::Accepted;
        }
    }
    if !is_done {
        return Ok(false);
    }
    let is_unknown = master.pki.state(id)?.is_none() && !master.pki.is_denied(id)?;
    if was_accepted || is_unknown {
        master.sessions.remove(id)?;
        notices.key_gone(id.clone());
    }
    let data = Value::map([
        ("result", Value::from(true)),
        ("act", "delete".into()),
        ("id", id.as_str().into()),
    ]);
    notices.fire(Tag::key(), data);
    Ok(true)
}

pub(super) fn gen_accept(
    context: &RunnerContext,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> CallResult {
    let text = bound.text("id_")?.unwrap_or_default();
    let id = MinionId::parse(&cleaned(&text))
        .map_err(|error| RunnerError::Refused(format!("{error}: \"{text}\"")))?;
    let master = context.master()?;
    let before = master.pki.stored_pem(&id, KeyState::Accepted)?;
    let is_known = match context.config.salt_compat {
        Compat::V3006 | Compat::V3007 => before.is_some(),
        Compat::V3008 => master.pki.state(&id)?.is_some(),
    };
    if is_known && !bound.flag("force", false) {
        return Ok(Value::Map(Vec::new()));
    }
    let key: PrivateKey = show::new_key(context, bound)?;
    let pem = show::public_text(&key);
    master.pki.accept(&id, &pem)?;
    end_session_of_another(master, &id, before.as_deref(), &pem, notices)?;
    show::pair(&key)
}

/// `clean.id` in `salt/utils/sanitizers.py`.
fn cleaned(text: &str) -> String {
    let is_kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let kept: String = text.trim().chars().filter(is_kept).collect();
    kept.trim_matches('.').to_owned()
}

/// Ends the session of a minion that held the name with another key.
fn end_session_of_another(
    master: &Master,
    id: &MinionId,
    before: Option<&str>,
    now: &str,
    notices: &mut Notices<'_>,
) -> Result<(), RunnerError> {
    if before.is_some_and(|before| clean_key(before) != clean_key(now)) {
        master.sessions.remove(id)?;
        notices.key_gone(id.clone());
    }
    Ok(())
}

/// Fires the event of an accepted or rejected key; 3008 has other words, and shows the key.
fn fire_key_event(
    context: &RunnerContext,
    to: KeyState,
    id: &MinionId,
    pem: &str,
    notices: &mut Notices<'_>,
) {
    let (old_word, new_word) = match to {
        KeyState::Accepted => ("accept", "accepted"),
        _ => ("reject", "rejected"),
    };
    let is_new = context.config.salt_compat == Compat::V3008;
    let word = if is_new { new_word } else { old_word };
    let mut data = vec![
        ("result", Value::from(true)),
        ("act", word.into()),
        ("id", id.as_str().into()),
    ];
    if is_new {
        data.push(("pub", pem.into()));
    }
    tracing::info!(minion = %id, "the key is {to} now");
    notices.fire(Tag::key(), Value::map(data));
}

/// Asks for a new shared key: minions know the old one, unwanted minions included.
fn ask_for_new_shared_key(context: &RunnerContext) -> Result<(), RunnerError> {
    if context.config.rotate_aes_key {
        dropfile::request(&context.config)?;
    }
    Ok(())
}

//! Functions that change the state of keys, or remove them.
//!
//! Stock tells of every key that it changes with an event `salt/key`, whose form is not the same in
//! all versions, and asks for a new shared key (`rotate_aes_key`) when keys are rejected or
//! deleted.

use saltern_crypto::{PrivateKey, PublicKey, clean_key};
use saltern_model::{Compat, KeyState, MinionId, Tag};
use saltern_store::dropfile;
use saltern_wire::msgpack::Value;

use super::listing::{KeyLists, of_mapping};
use super::{patterns, show};
use crate::call::{Answer, Bound, RunnerError};
use crate::master::Master;
use crate::notices::Notices;
use crate::registry::Knowledge;

type Keys = Vec<(KeyState, MinionId)>;

pub(super) fn accept(
    knowledge: &Knowledge,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> Answer {
    by_pattern(knowledge, bound, |keys| {
        move_keys(knowledge, &accepting(bound), keys, notices)
    })
}

pub(super) fn accept_dict(
    knowledge: &Knowledge,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> Answer {
    by_mapping(knowledge, bound, |keys| {
        move_keys(knowledge, &accepting(bound), keys, notices)
    })
}

pub(super) fn reject(
    knowledge: &Knowledge,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> Answer {
    by_pattern(knowledge, bound, |keys| {
        move_keys(knowledge, &rejecting(bound), keys, notices)
    })
}

pub(super) fn reject_dict(
    knowledge: &Knowledge,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> Answer {
    by_mapping(knowledge, bound, |keys| {
        move_keys(knowledge, &rejecting(bound), keys, notices)
    })
}

pub(super) fn delete(
    knowledge: &Knowledge,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> Answer {
    by_pattern(knowledge, bound, |keys| {
        delete_keys(knowledge, keys, notices)
    })
}

pub(super) fn delete_dict(
    knowledge: &Knowledge,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> Answer {
    by_mapping(knowledge, bound, |keys| {
        delete_keys(knowledge, keys, notices)
    })
}

/// Changes what patterns mean; answers where keys that they mean are then.
fn by_pattern(
    knowledge: &Knowledge,
    bound: &Bound<'_>,
    change: impl FnOnce(&Keys) -> Result<(), RunnerError>,
) -> Answer {
    let patterns = patterns(bound)?;
    let matching = || Ok::<_, RunnerError>(KeyLists::managed(knowledge)?.matching(&patterns));
    change(&matching()?.selected())?;
    Ok(matching()?.into_value())
}

/// Changes what a mapping names; answers where those keys are then.
fn by_mapping(
    knowledge: &Knowledge,
    bound: &Bound<'_>,
    change: impl FnOnce(&Keys) -> Result<(), RunnerError>,
) -> Answer {
    let mapping = bound.get("match").unwrap_or(&Value::Nil);
    if mapping.as_map().is_none() {
        return Ok(Value::Map(Vec::new()));
    }
    change(&of_mapping(mapping))?;
    let now = KeyLists::managed(knowledge)?;
    Ok(now.of_mapping(mapping)?.into_value())
}

/// From which states keys go to which one.
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
    knowledge: &Knowledge,
    change: &Move,
    keys: &Keys,
    notices: &mut Notices<'_>,
) -> Result<(), RunnerError> {
    let mut has_rejected = false;
    for from in &change.from {
        for (_, id) in keys.iter().filter(|(state, _)| state == from) {
            let is_done = match change.to {
                KeyState::Accepted => accept_one(knowledge, id, *from, notices)?,
                _ => reject_one(knowledge, id, *from, notices)?,
            };
            has_rejected |= is_done && change.to == KeyState::Rejected;
        }
    }
    if has_rejected {
        ask_for_new_shared_key(knowledge)?;
    }
    Ok(())
}

/// The key that lies in this state, if a minion could prove itself with it. 3006 and 3007 reject
/// what is no key, too.
fn movable_pem(
    knowledge: &Knowledge,
    id: &MinionId,
    from: KeyState,
    to: KeyState,
) -> Result<Option<String>, RunnerError> {
    let pem = knowledge.master()?.pki.stored_pem(id, from)?;
    let is_checked = to == KeyState::Accepted || knowledge.config.salt_compat == Compat::V3008;
    Ok(pem.filter(|pem| {
        let is_key = !is_checked || PublicKey::from_pem(pem).is_ok();
        if !is_key {
            tracing::error!(minion = %id, "the {from} key is no public key: it stays where it is");
        }
        is_key
    }))
}

fn accept_one(
    knowledge: &Knowledge,
    id: &MinionId,
    from: KeyState,
    notices: &mut Notices<'_>,
) -> Result<bool, RunnerError> {
    let master = knowledge.master()?;
    let Some(pem) = movable_pem(knowledge, id, from, KeyState::Accepted)? else {
        return Ok(false);
    };
    let before = master.pki.stored_pem(id, KeyState::Accepted)?;
    let is_done = match knowledge.config.salt_compat {
        Compat::V3006 | Compat::V3007 => master.pki.move_to(id, from, KeyState::Accepted)?,
        Compat::V3008 => {
            master.pki.accept(id, &pem)?;
            master.pki.remove(id, from)?;
            true
        }
    };
    if is_done {
        end_session_of_another(master, id, before.as_deref(), &pem, notices)?;
        tell(knowledge, KeyState::Accepted, id, &pem, notices);
    }
    Ok(is_done)
}

fn reject_one(
    knowledge: &Knowledge,
    id: &MinionId,
    from: KeyState,
    notices: &mut Notices<'_>,
) -> Result<bool, RunnerError> {
    let master = knowledge.master()?;
    let Some(pem) = movable_pem(knowledge, id, from, KeyState::Rejected)? else {
        return Ok(false);
    };
    let is_done = match knowledge.config.salt_compat {
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
        tell(knowledge, KeyState::Rejected, id, &pem, notices);
    }
    Ok(is_done)
}

fn delete_keys(
    knowledge: &Knowledge,
    keys: &Keys,
    notices: &mut Notices<'_>,
) -> Result<(), RunnerError> {
    let mut has_deleted = false;
    for (state, id) in keys {
        has_deleted |= delete_one(knowledge, id, *state, notices)?;
    }
    if has_deleted {
        ask_for_new_shared_key(knowledge)?;
    }
    Ok(())
}

fn delete_one(
    knowledge: &Knowledge,
    id: &MinionId,
    state: KeyState,
    notices: &mut Notices<'_>,
) -> Result<bool, RunnerError> {
    let master = knowledge.master()?;
    // 3008 has one key of a minion, beside the denied one, and removes it wherever it lies.
    let states: &[KeyState] = match (knowledge.config.salt_compat, state) {
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
    let told = Value::map([
        ("result", Value::from(true)),
        ("act", "delete".into()),
        ("id", id.as_str().into()),
    ]);
    notices.fire(Tag::key(), told);
    Ok(true)
}

pub(super) fn gen_accept(
    knowledge: &Knowledge,
    bound: &Bound<'_>,
    notices: &mut Notices<'_>,
) -> Answer {
    let text = bound.text("id_")?.unwrap_or_default();
    let id = MinionId::parse(&cleaned(&text))
        .map_err(|error| RunnerError::Refused(format!("{error}: \"{text}\"")))?;
    let master = knowledge.master()?;
    let before = master.pki.stored_pem(&id, KeyState::Accepted)?;
    let is_known = match knowledge.config.salt_compat {
        Compat::V3006 | Compat::V3007 => before.is_some(),
        Compat::V3008 => master.pki.state(&id)?.is_some(),
    };
    if is_known && !bound.flag("force", false) {
        return Ok(Value::Map(Vec::new()));
    }
    let key: PrivateKey = show::new_key(knowledge, bound)?;
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

/// Who had the name with another key is not its owner any more.
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

/// The event of a key that was accepted or rejected; 3008 has other words, and shows the key.
fn tell(knowledge: &Knowledge, to: KeyState, id: &MinionId, pem: &str, notices: &mut Notices<'_>) {
    let (old_word, new_word) = match to {
        KeyState::Accepted => ("accept", "accepted"),
        _ => ("reject", "rejected"),
    };
    let is_new = knowledge.config.salt_compat == Compat::V3008;
    let word = if is_new { new_word } else { old_word };
    let mut told = vec![
        ("result", Value::from(true)),
        ("act", word.into()),
        ("id", id.as_str().into()),
    ];
    if is_new {
        told.push(("pub", pem.into()));
    }
    tracing::info!(minion = %id, "the key is {to} now");
    notices.fire(Tag::key(), Value::map(told));
}

/// Minions that are connected know the shared key, and so do those that are not wanted any more.
fn ask_for_new_shared_key(knowledge: &Knowledge) -> Result<(), RunnerError> {
    if knowledge.config.rotate_aes_key {
        dropfile::request(&knowledge.config)?;
    }
    Ok(())
}

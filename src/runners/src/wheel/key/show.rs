//! Functions that show keys or make new ones.

use saltern_crypto::{HashType, PrivateKey, SecretString, clean_key, pem_finger, text_finger};
use saltern_model::{Compat, KeyState, MinionId};
use saltern_store::files;
use saltern_wire::msgpack::Value;

use super::listing::{all, managed};
use super::patterns;
use crate::call::{Bound, CallResult, RunnerError};
use crate::key_lists::{KeyLists, LOCAL};
use crate::notices::Notices;
use crate::registry::RunnerContext;

/// A key of 16384 bits has less than 14 KiB of PEM.
const KEY_BYTES: usize = 64 << 10;

pub(super) fn print(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let lists = patterns(bound)?.choose_from(managed(context)?);
    of_each(&lists, |name, key| {
        let pem = stored(context, name, key)?;
        Ok(pem.map(|pem| pem.expose().into()))
    })
}

pub(super) fn finger(
    context: &RunnerContext,
    bound: &Bound<'_>,
    _: &mut Notices<'_>,
) -> CallResult {
    let hash_type = hash_type(context, bound)?;
    let lists = patterns(bound)?.choose_from(all(context)?);
    of_each(&lists, |name, key| {
        let Some(pem) = stored(context, name, key)? else {
            return Ok(None);
        };
        let pem = pem.expose().as_bytes();
        // 3008 reads keys as text, and then hashes the PEM armour too.
        let finger = match context.config.salt_compat {
            Compat::V3006 | Compat::V3007 => pem_finger(pem, hash_type),
            Compat::V3008 => text_finger(pem, hash_type),
        };
        Ok(Some(finger.map_err(refused)?.into()))
    })
}

/// The fingerprint that minions compare with (`master_finger`).
pub(super) fn finger_master(
    context: &RunnerContext,
    bound: &Bound<'_>,
    _: &mut Notices<'_>,
) -> CallResult {
    let hash_type = hash_type(context, bound)?;
    let name = "master.pub";
    let finger = match local(context, name)? {
        Some(pem) => pem_finger(pem.expose().as_bytes(), hash_type).map_err(refused)?,
        None => String::new(),
    };
    Ok(Value::map([(LOCAL, Value::map([(name, finger)]))]))
}

pub(super) fn master_key_str(
    context: &RunnerContext,
    _: &Bound<'_>,
    _: &mut Notices<'_>,
) -> CallResult {
    let id = &context.config.id;
    let (name, text) = match context.config.salt_compat {
        Compat::V3006 | Compat::V3007 => {
            let name = "master.pub".to_owned();
            let text = local(context, &name)?;
            (name, text.map(|text| text.expose().to_owned()))
        }
        Compat::V3008 => {
            let name = format!("{}.pub", id.strip_suffix("_master").unwrap_or(id));
            let text = local(context, &name)?;
            (name, text.map(|text| clean_key(text.expose())))
        }
    };
    let text = text.ok_or_else(|| RunnerError::Refused(format!("there is no key \"{name}\"")))?;
    Ok(Value::map([(LOCAL, Value::map([(name, text)]))]))
}

pub(super) fn generate(
    context: &RunnerContext,
    bound: &Bound<'_>,
    _: &mut Notices<'_>,
) -> CallResult {
    pair(&new_key(context, bound)?)
}

/// The most bits of a new key: a few seconds' work. Larger ones take minutes.
const MAX_BITS: usize = 4096;

/// A new key of `keysize` bits, 2048 if nothing is said; in 3006 and 3007 never less.
pub(super) fn new_key(
    context: &RunnerContext,
    bound: &Bound<'_>,
) -> Result<PrivateKey, RunnerError> {
    let bits = bound.count("keysize")?.unwrap_or(2048);
    if bits > MAX_BITS {
        return Err(RunnerError::Refused(format!(
            "\"keysize\" may be {MAX_BITS} at most"
        )));
    }
    let bits = match context.config.salt_compat {
        Compat::V3006 | Compat::V3007 => bits.max(2048),
        Compat::V3008 => bits,
    };
    PrivateKey::generate(u32::try_from(bits).unwrap_or(u32::MAX)).map_err(refused)
}

/// The public half as stock writes it to a file.
pub(super) fn public_text(key: &PrivateKey) -> String {
    format!("{}\n", key.public().pem())
}

/// Both halves as texts.
pub(super) fn pair(key: &PrivateKey) -> CallResult {
    let private = key.to_pem(None).map_err(refused)?;
    Ok(Value::map([
        ("priv", private.expose().to_owned()),
        ("pub", public_text(key)),
    ]))
}

/// Maps the lists to mappings from their keys to the output of `show`.
fn of_each(
    lists: &KeyLists,
    mut show: impl FnMut(&str, &str) -> Result<Option<Value>, RunnerError>,
) -> CallResult {
    let mut shown = Vec::new();
    for (name, keys) in lists.iter() {
        let mut entries: Vec<(Value, Value)> = Vec::with_capacity(keys.len());
        for key in keys {
            // A key that was removed meanwhile is left out.
            if let Some(value) = show(name, key)? {
                entries.push((key.into(), value));
            }
        }
        shown.push((Value::from(name), Value::Map(entries)));
    }
    Ok(Value::Map(shown))
}

/// The text of a key in a list.
fn stored(
    context: &RunnerContext,
    list: &str,
    key: &str,
) -> Result<Option<SecretString>, RunnerError> {
    let Some(state) = KeyState::ALL.into_iter().find(|it| it.directory() == list) else {
        return local(context, key);
    };
    let Ok(id) = MinionId::parse(key) else {
        return Ok(None);
    };
    let pem = context.master()?.pki.stored_pem(&id, state)?;
    Ok(pem.map(SecretString::new))
}

/// The text of one of the master's own keys.
fn local(context: &RunnerContext, name: &str) -> Result<Option<SecretString>, RunnerError> {
    let path = files::child(&context.config.pki_dir, name)?;
    Ok(files::read_text(&path, KEY_BYTES)?.map(SecretString::new))
}

fn hash_type(context: &RunnerContext, bound: &Bound<'_>) -> Result<HashType, RunnerError> {
    let name = match bound.text("hash_type")? {
        Some(name) => name,
        None => context.config.hash_type.name().to_owned(),
    };
    HashType::from_name(&name)
        .ok_or_else(|| RunnerError::Refused(format!("there is no hash \"{name}\"")))
}

fn refused(error: impl std::error::Error) -> RunnerError {
    RunnerError::Refused(error.to_string())
}

//! The mine: `_mine` (a minion stores results of its functions), `_mine_get` (it asks for those of
//! others), `_mine_delete` and `_mine_flush` (it removes its own).
//!
//! The sources are `AESFuncs` in `salt/master.py` and `RemoteFuncs` in `salt/daemons/masterapi.py`.
//! `policy` decides who may read an entry, the store where mines lie. A mine belongs to the minion
//! of the channel: no load can name another one.

use std::sync::Arc;

use bytes::Bytes;
use saltern_policy::matching::MatchOptions;
use saltern_policy::matching::mine::{MineError, MineRequest};
use saltern_store::StoreError;
use saltern_wire::msgpack::{Dialect, ReadError, Value, decode_wire, encode, lenient};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::envelope::{LOAD_LIMITS, Sealed};
use crate::{Finished, Outcome, Services, targets};

/// The commands, named as on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MineCommand {
    Get,
    Store,
    Delete,
    Flush,
}

/// The load of `_mine`.
#[derive(Deserialize)]
struct StoreLoad {
    /// Functions with their results.
    data: Value,
    /// Whether the stored functions are removed before.
    #[serde(default, deserialize_with = "lenient")]
    clear: Option<bool>,
}

/// The load of `_mine_delete`.
#[derive(Deserialize)]
struct DeleteLoad {
    /// A function.
    fun: Value,
}

/// Fields of `_mine_get`; the rest is read by [`MineRequest`].
#[derive(Deserialize)]
struct GetLoad {
    #[serde(rename = "tgt")]
    _tgt: IgnoredAny,
    #[serde(rename = "fun")]
    _fun: IgnoredAny,
}

/// The largest mine that a worker stores itself, in bytes.
const SMALL: usize = 64 << 10;

/// Answers a command of the mine. A query may read the mines of all minions, and a large mine takes
/// time: both are done beside the workers.
pub(crate) fn handle(command: MineCommand, sealed: Sealed, services: &Arc<Services>) -> Outcome {
    let size = sealed.load.get("data").map_or(0, |data| data.bytes().len());
    if command != MineCommand::Get && size <= SMALL {
        return Outcome::reply(reply(command, &sealed, services));
    }
    let services = Arc::clone(services);
    Outcome::later(move || Finished {
        reply: reply(command, &sealed, &services),
        events: Vec::new(),
    })
}

fn reply(command: MineCommand, sealed: &Sealed, services: &Services) -> Bytes {
    let answer = match answer(command, sealed, services) {
        Ok(answer) => answer,
        // Stock's answer to a load that lacks a field.
        Err(Failure::Load(_)) => Value::Map(Vec::new()),
        Err(failure) => {
            services.metrics.refuse("mine");
            complain!(
                services,
                cmd = sealed.command_name(), minion = %sealed.minion, reason = %failure,
                "request failed"
            );
            // Stock's answer to a handler that raised.
            Value::from("")
        }
    };
    sealed.answer.seal(&encode(&answer, Dialect::Raw))
}

/// Error of a mine command.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Load(#[from] ReadError),
    #[error("the data is no mapping of functions to results")]
    NoMapping,
    #[error("the load cannot be decoded")]
    Undecodable,
    #[error(transparent)]
    Mine(#[from] MineError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn answer(command: MineCommand, sealed: &Sealed, services: &Services) -> Result<Value, Failure> {
    let (id, data) = (&sealed.minion, &services.minions.data);
    if command == MineCommand::Get {
        return get(sealed, services);
    }
    let is_kept = services.site.keeps_mine;
    let done = match command {
        MineCommand::Get | MineCommand::Flush => !is_kept || data.mine_flush(id)?,
        MineCommand::Delete => {
            let DeleteLoad { fun } = sealed.load.read()?;
            !is_kept || data.mine_delete(id, &fun)?
        }
        MineCommand::Store => {
            let StoreLoad { data: new, clear } = sealed.load.read()?;
            if is_kept && !data.mine_update(id, &new, clear == Some(true))? {
                return Err(Failure::NoMapping);
            }
            true
        }
    };
    Ok(Value::Bool(done))
}

fn get(sealed: &Sealed, services: &Services) -> Result<Value, Failure> {
    let _: GetLoad = sealed.load.read()?;
    let load = decode_wire(&sealed.load.pack(), &LOAD_LIMITS).map_err(|_| Failure::Undecodable)?;
    let request = match MineRequest::read(&sealed.minion, &load) {
        Ok(request) => request,
        Err(error) => {
            services.metrics.refuse("mine");
            complain!(services, minion = %sealed.minion, %error, "a request for mines gets nothing");
            return Ok(Value::Map(Vec::new()));
        }
    };
    // Listed once: if it fails, no minion is found and no mine is given away.
    services.keys.pki.accepted()?;
    let resolve = |target: &_, options: &MatchOptions<'_>| {
        targets::resolve(services, target, options)
            .map(|resolved| resolved.minions)
            .unwrap_or_default()
    };
    let mine = |id: &_| {
        services.minions.data.mine(id).unwrap_or_else(|error| {
            complain!(services, minion = %id, %error, "a mine cannot be read: it counts as empty");
            None
        })
    };
    Ok(request.answer(&services.site.mine_access, resolve, mine)?)
}

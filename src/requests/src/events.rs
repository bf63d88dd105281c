//! Data of the master's own events, one struct each, in stock's order of the fields.
//!
//! [`crate::master_event`] adds `_stamp` and the entries of a trace when it packs them.

use saltern_model::{Jid, MinionId};
use saltern_runners::Ran;
use saltern_wire::msgpack::Value;
use serde::Serialize;

/// `salt/auth`: a minion presented its key.
#[derive(Serialize)]
pub(crate) struct Auth<'a> {
    /// Whether it is accepted, or pending.
    pub(crate) result: bool,
    /// Action on the key: `accept`, `pend`, `reject`, `denied` or `full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) act: Option<&'a str>,
    pub(crate) id: &'a MinionId,
    /// The key as the minion sent it.
    #[serde(rename = "pub")]
    pub(crate) key: &'a str,
}

/// `salt/key`: a minion had its key deleted.
#[derive(Serialize)]
pub(crate) struct KeyDeleted<'a> {
    pub(crate) result: bool,
    /// `delete`.
    pub(crate) act: &'static str,
    pub(crate) id: &'a MinionId,
}

/// `minion/refresh/<id>`: grains and pillar of a minion were kept.
#[derive(Serialize)]
pub(crate) struct MinionRefresh<'a> {
    #[serde(rename = "Minion data cache refresh")]
    pub(crate) minion: &'a MinionId,
}

/// `resource/refresh/<id>`: the resources of a minion were kept.
#[derive(Serialize)]
pub(crate) struct ResourceRefresh<'a> {
    #[serde(rename = "Resource cache refresh")]
    pub(crate) minion: &'a MinionId,
}

/// `<jid>`, until 3007: a job begins.
#[derive(Serialize)]
pub(crate) struct BareJid<'a> {
    pub(crate) minions: &'a Value,
}

/// `salt/job/<jid>/new`: a job begins.
#[derive(Serialize)]
pub(crate) struct NewJob<'a> {
    pub(crate) jid: &'a Jid,
    pub(crate) tgt_type: &'a Value,
    pub(crate) tgt: &'a Value,
    pub(crate) user: &'a Value,
    pub(crate) fun: &'a Value,
    pub(crate) arg: &'a Value,
    pub(crate) minions: &'a Value,
    /// Names of the target that are no minions.
    pub(crate) missing: &'a Value,
}

/// `salt/job/<jid>/error`: a publication was refused.
#[derive(Serialize)]
pub(crate) struct PublishError<'a> {
    /// Empty where the client leaves the jid to the master.
    pub(crate) jid: &'a str,
    pub(crate) user: &'a str,
    pub(crate) fun: &'a Value,
    pub(crate) tgt: &'a Value,
    pub(crate) tgt_type: &'a Value,
    pub(crate) error: NamedError<'a>,
}

/// `salt/run/<jid>/…` and `salt/wheel/<jid>/…`: a function of the master begins, or ends. A kept call
/// has the last one as its return, and a `wheel` is answered with it.
#[derive(Clone, Serialize)]
pub(crate) struct FunctionCall<'a> {
    /// With its kind in front: `runner.jobs.list_jobs`.
    pub(crate) fun: &'a str,
    pub(crate) jid: &'a Jid,
    /// Prefix of the tags of its events, in what a `wheel` is answered with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<&'a str>,
    pub(crate) user: &'a str,
    /// Passwords are masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fun_args: Option<Value>,
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) success: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retcode: Option<i64>,
}

impl<'a> FunctionCall<'a> {
    pub(crate) const fn new(fun: &'a str, jid: &'a Jid, user: &'a str) -> Self {
        Self {
            fun,
            jid,
            tag: None,
            user,
            fun_args: None,
            value: None,
            success: None,
            retcode: None,
        }
    }

    /// The same call when it has ended so.
    pub(crate) fn ended(self, ran: &'a Ran) -> Self {
        Self {
            value: Some(&ran.value),
            success: Some(ran.success),
            retcode: ran.retcode,
            ..self
        }
    }
}

/// An error as stock's clear commands give it.
#[derive(Serialize)]
pub(crate) struct NamedError<'a> {
    pub(crate) name: &'a str,
    pub(crate) message: &'a str,
}

/// `salt/fileserver/<backend>/update`: a look at the files of a backend.
#[derive(Serialize)]
pub struct FileUpdate<'a> {
    /// Whether anything changed.
    pub changed: bool,
    /// The changed files, where the backend knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<ChangedFiles<'a>>,
    /// The backend's name.
    pub backend: &'static str,
}

/// Paths of files in a [`FileUpdate`].
#[derive(Serialize)]
pub struct ChangedFiles<'a> {
    /// With other content.
    pub changed: &'a [String],
    /// Gone.
    pub removed: &'a [String],
    /// New.
    pub added: &'a [String],
}

/// `salt/key`: the shared key is another.
#[derive(Serialize)]
pub struct KeyRotated {
    /// True.
    pub rotate_aes_key: bool,
}

/// `salt/presence/change`: minions that came and went.
#[derive(Serialize)]
pub struct PresenceChange<'a> {
    /// Came.
    pub new: &'a [MinionId],
    /// Went.
    pub lost: &'a [MinionId],
}

/// `salt/presence/present`: the minions that are connected.
#[derive(Serialize)]
pub struct Present<'a> {
    /// Sorted by id.
    pub present: &'a [MinionId],
}

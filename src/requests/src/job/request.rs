//! Fields of a load that asks for a job, as far as the master itself reads them.

use saltern_model::{Compat, Jid, Target};
use saltern_wire::msgpack::Value;

use super::refusal::Refused;
use crate::{Users, python_text, targets};

/// The entries of the load that the master itself reads.
pub(crate) struct Request<'a> {
    pub(crate) user: &'a str,
    pub(crate) functions: Vec<String>,
    /// `None` when the load names no target that stock could resolve.
    pub(crate) target: Option<Target>,
    pub(super) nocache: bool,
}

impl<'a> Request<'a> {
    /// The request of a load.
    pub(crate) fn read(load: &'a Value, compat: Compat) -> Result<Self, Refused> {
        let user = load.get("user").and_then(Value::as_str);
        let kwargs = load.get("kwargs");
        if kwargs.is_some_and(|kwargs| kwargs.as_map().is_none()) {
            return Err(Refused::Malformed("kwargs"));
        }
        Ok(Self {
            user: user.ok_or(Refused::Malformed("user"))?,
            functions: functions(load.get("fun").unwrap_or(&Value::Nil))?,
            target: targets::of_load(
                load.get("tgt").ok_or(Refused::Malformed("tgt"))?,
                load.get("tgt_type"),
                compat,
            ),
            nocache: kwargs
                .and_then(|kwargs| kwargs.get("nocache"))
                .and_then(Value::as_bool)
                .unwrap_or(false),
        })
    }

    /// Whether `publisher_acl_blacklist` names the user or a function.
    pub(crate) fn is_barred(&self, users: &Users) -> bool {
        let rules = users.rules();
        let blacklist = &rules.blacklist;
        blacklist.bars_user(self.user)
            || blacklist.bars_any_function(self.functions.iter().map(String::as_str))
    }
}

fn functions(fun: &Value) -> Result<Vec<String>, Refused> {
    match fun {
        Value::Str(name) => Ok(vec![name.clone()]),
        Value::Array(names) => names
            .iter()
            .map(|name| {
                name.as_str()
                    .map(str::to_owned)
                    .ok_or(Refused::Malformed("fun"))
            })
            .collect(),
        _ => Err(Refused::Malformed("fun")),
    }
}

/// The jid of a load; `None` where the client leaves it to the master.
pub(crate) fn given_jid(load: &Value) -> Result<Option<Jid>, Refused> {
    let given = match load.get("jid") {
        None | Some(Value::Nil) => return Ok(None),
        Some(given) => python_text::str(given).ok_or(Refused::Malformed("jid"))?,
    };
    if given.is_empty() {
        return Ok(None);
    }
    let jid = Jid::parse(&given).map_err(|error| Refused::Because(error.to_string()))?;
    Ok(Some(jid))
}

//! The keys as the master gives and changes them (wheel functions `key.*`), for users who log in.

use saltern_client::{Credentials, LocalClient};
use saltern_runners::{KeyLists, LOCAL};
use saltern_wire::msgpack::{Value, as_map};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::ShownKeys;
use super::action::Change;
use super::error::KeyError;
use crate::options::KeyOptions;

/// The load of the command `wheel`, of somebody who logs in.
#[derive(Serialize)]
struct WheelLoad<'a> {
    cmd: &'static str,
    fun: String,
    arg: [Value; 1],
    #[serde(serialize_with = "as_map::serialize")]
    kwarg: Vec<(&'static str, Value)>,
    #[serde(flatten)]
    credentials: &'a Credentials,
}

/// Asks a master about keys.
pub(super) struct MasterKeys {
    pub(super) client: LocalClient,
    pub(super) credentials: Credentials,
    pub(super) runtime: Runtime,
}

impl MasterKeys {
    /// The keys of a kind.
    pub(super) fn list(&self, kind: &str) -> Result<KeyLists, KeyError> {
        lists(&self.call("list", kind.into(), Vec::new())?)
    }

    /// The keys that a pattern selects.
    pub(super) fn matching(&self, pattern: &str) -> Result<KeyLists, KeyError> {
        lists(&self.call("name_match", pattern.into(), Vec::new())?)
    }

    /// The keys that a pattern selects, as the wheel function `print` or `finger` returns them.
    pub(super) fn shown(&self, function: &str, pattern: &str) -> Result<Vec<ShownKeys>, KeyError> {
        let value = self.call(function, pattern.into(), Vec::new())?;
        let lists = value.as_map().ok_or_else(|| refused(&value))?.iter();
        let lists = lists.map(|(list, keys)| {
            let keys = keys.as_map().unwrap_or_default().iter();
            let keys = keys.map(|(key, text)| (text_of(key), text_of(text)));
            (text_of(list), keys.collect())
        });
        Ok(lists.collect())
    }

    /// Changes the keys of these lists; gives the lists to report.
    pub(super) fn apply(
        &self,
        change: Change,
        chosen: &KeyLists,
        options: &KeyOptions,
    ) -> Result<KeyLists, KeyError> {
        let is_set = |option: Option<bool>| Value::from(option == Some(true));
        let all = options.include_all;
        let denied = ("include_denied", is_set(options.include_denied));
        let (function, named) = match change {
            Change::Accept => {
                let rejected = is_set(options.include_rejected.or(all));
                ("accept_dict", vec![("include_rejected", rejected), denied])
            }
            Change::Reject => {
                let accepted = is_set(options.include_accepted.or(all));
                ("reject_dict", vec![("include_accepted", accepted), denied])
            }
            Change::Delete => ("delete_dict", Vec::new()),
        };
        let changed = lists(&self.call(function, chosen.clone().into_value(), named)?)?;
        Ok(match change {
            Change::Delete => chosen.clone(),
            Change::Accept | Change::Reject => changed,
        })
    }

    fn call(
        &self,
        function: &str,
        argument: Value,
        named: Vec<(&'static str, Value)>,
    ) -> Result<Value, KeyError> {
        let load = WheelLoad {
            cmd: "wheel",
            fun: format!("key.{function}"),
            arg: [argument],
            kwarg: named,
            credentials: &self.credentials,
        };
        let reply = self.runtime.block_on(self.client.clear_request(&load))?;
        let data = reply.get("data").ok_or_else(|| refused(&reply))?;
        let returned = data.get("return").ok_or_else(|| refused(data))?;
        match data.get("success").and_then(Value::as_bool) {
            Some(false) => Err(refused(returned)),
            _ => Ok(returned.clone()),
        }
    }
}

fn lists(value: &Value) -> Result<KeyLists, KeyError> {
    let lists = KeyLists::from_value(value).ok_or_else(|| refused(value))?;
    Ok(lists.without(LOCAL))
}

/// The master's own words, where there are any.
fn refused(value: &Value) -> KeyError {
    let message = value.get("error").and_then(|error| error.get("message"));
    let text = message.or(Some(value)).and_then(Value::as_str);
    KeyError::Master(text.unwrap_or("an answer of another form").to_owned())
}

fn text_of(value: &Value) -> String {
    saltern_python::str(value).into_owned()
}

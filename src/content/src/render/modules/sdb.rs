//! `sdb.get`, and `sdb://` values of options (`salt/utils/sdb.py`): the drivers `env` and `yaml`.
//!
//! The other drivers of stock ask services over the network or run Python; they are refused by
//! name, and so is encryption in the files of `yaml`.

use std::path::Path;

use saltern_config::yaml;
use saltern_wire::msgpack::Value;

use super::lookup::{Called, Facts, merge, traverse};
use crate::render::data::from_yaml;
use crate::render::functions::{CallError, Registry};

/// Options and pillar in which profiles are looked up.
pub(super) struct Sdb<'a> {
    opts: &'a Value,
    pillar: &'a Value,
}

/// Adds `sdb.get`.
pub(super) fn sdb(registry: &mut Registry, facts: &Facts) {
    let facts = facts.clone();
    registry.add("sdb.get", move |args| {
        let sdb = Sdb::of(&facts);
        sdb.get(args.need(0, "uri")?, args.flag(1, "strict", false))
    });
}

impl<'a> Sdb<'a> {
    pub(super) fn of(facts: &'a Facts) -> Sdb<'a> {
        Sdb {
            opts: &facts.opts,
            pillar: &facts.pillar,
        }
    }

    /// A value as it is, or what an `sdb://` uri stands for.
    pub(super) fn resolved(&self, value: &Value) -> Called {
        self.get(value, false)
    }

    /// Looks up a uri. One that is no sdb uri, or names a missing profile, is returned unchanged
    /// unless `strict`.
    fn get(&self, uri: &Value, strict: bool) -> Called {
        let back = |reason: String| match strict {
            true => Err(CallError::Refused(reason)),
            false => Ok(uri.clone()),
        };
        let Some(rest) = uri.as_str().and_then(|uri| uri.strip_prefix("sdb://")) else {
            return back("SDB uri must start with \"sdb://\"".to_owned());
        };
        let (name, query) = match rest.split_once('/') {
            Some((name, query)) if !query.is_empty() => (name, query),
            _ => {
                let reason = "SDB uri must have a profile name as a first part of the uri before \
                              the /";
                return back(reason.to_owned());
            }
        };
        let profile = self.opts.get(name).filter(|profile| profile.is_truthy());
        let profile = profile.or_else(|| self.pillar.get(name));
        let Some(driver) = profile.and_then(|profile| profile.get("driver")) else {
            return back(format!(
                "SDB profile \"{name}\" wasnt found in the minion configuration"
            ));
        };
        match (driver.as_str().unwrap_or_default(), profile) {
            ("env", _) => Ok(std::env::var(query).map_or(Value::Nil, Value::from)),
            ("yaml", Some(profile)) => from_files(profile, query),
            (other, _) => Err(CallError::Refused(format!(
                "the sdb driver \"{other}\" of the profile \"{name}\" is not available"
            ))),
        }
    }
}

/// The driver `yaml`: files merged one into the other; one that is not there is passed over.
fn from_files(profile: &Value, query: &str) -> Called {
    if profile.get("gpg").is_some_and(Value::is_truthy) {
        let message = "the sdb driver \"yaml\" cannot decrypt here (\"gpg\")";
        return Err(CallError::Refused(message.to_owned()));
    }
    let rules = profile.get("merge");
    let rule = |name: &str| rules.and_then(|rules| rules.get(name));
    let lists = rule("merge_lists").is_some_and(Value::is_truthy);
    match rule("strategy").and_then(Value::as_str) {
        None | Some("smart" | "recurse") => {}
        Some(other) => {
            return Err(CallError::Refused(format!(
                "the sdb driver \"yaml\" cannot merge by the strategy \"{other}\""
            )));
        }
    }
    let mut all = Value::Map(Vec::new());
    let files = profile.get("files").and_then(Value::as_array);
    for name in files.unwrap_or_default().iter().filter_map(Value::as_str) {
        let bytes = match super::file::bytes_of(Path::new(name)) {
            Ok(bytes) => bytes,
            Err(reason) => {
                tracing::error!(file = name, %reason, "a file of sdb cannot be read");
                continue;
            }
        };
        let node = yaml::parse_bytes(&bytes, name, &yaml::Limits::DEFAULT)
            .map_err(|error| CallError::Failed(error.to_string()))?;
        match from_yaml(node) {
            contents @ Value::Map(_) => all = merge(all, &contents, lists),
            _ => tracing::error!(file = name, "a file of sdb holds no mapping"),
        }
    }
    Ok(traverse(&all, query, ":").cloned().unwrap_or(Value::Nil))
}

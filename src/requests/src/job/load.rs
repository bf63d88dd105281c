//! Load of a publication (`_prep_pub` in `salt/master.py`).
//!
//! The entries and their order are those of stock; a minion ignores what it does not know, but a
//! site's own tools may read the copy on the event bus.

use std::borrow::Cow;

use saltern_wire::msgpack::Value;

use crate::{Context, traces};

/// Entries of `kwargs` that travel on to the minion under their own names.
const PASSED_ON: [&str; 5] = [
    "ret_config",
    "metadata",
    "module_executors",
    "executor_opts",
    "ret_kwargs",
];

/// The entry with a user's rules for masters below; absent for a user who may do everything.
pub(crate) const AUTH_LIST: &str = "auth_list";

/// The entry of `kwargs` in which the syndic of this master names the master above that a job came
/// from. It is stored with the load, and sent to no minion.
pub const UPPER: &str = "saltern_upper";

/// The default separator of grain and pillar paths, which is not sent.
pub(crate) const DEFAULT_DELIMITER: &str = ":";

/// The load with its sender's rules for masters below. Only this master sets that entry: a client's
/// own is removed. Only with `order_masters`, and absent for a sender who may do everything.
pub(crate) fn with_rights<'a>(load: &'a Value, rights: Value, context: &Context) -> Cow<'a, Value> {
    let was_said = load.get("kwargs").and_then(|kwargs| kwargs.get(AUTH_LIST));
    let goes_on = context.site.order_masters && rights.is_truthy();
    if was_said.is_none() && !goes_on {
        return Cow::Borrowed(load);
    }
    let named = |name: &'static str| move |(key, _): &(Value, Value)| key.as_str() == Some(name);
    let mut entries = load.as_map().unwrap_or_default().to_vec();
    let mut kwargs = match entries.iter().position(named("kwargs")) {
        Some(place) => entries
            .remove(place)
            .1
            .as_map()
            .unwrap_or_default()
            .to_vec(),
        None => Vec::new(),
    };
    kwargs.retain(|entry| !named(AUTH_LIST)(entry));
    if goes_on {
        kwargs.push((AUTH_LIST.into(), rights));
    }
    entries.push(("kwargs".into(), Value::Map(kwargs)));
    Cow::Owned(Value::Map(entries))
}

/// The entries of the publish load, without `serial`.
pub(crate) fn entries(load: &Value, jid: &str, context: &Context) -> Vec<(Value, Value)> {
    let part = |name: &str| load.get(name).cloned().unwrap_or(Value::Nil);
    let nothing = Value::Map(Vec::new());
    let kwargs = load.get("kwargs").unwrap_or(&nothing);
    let mut entries: Vec<(Value, Value)> = vec![
        ("fun".into(), part("fun")),
        ("arg".into(), part("arg")),
        ("tgt".into(), part("tgt")),
        ("jid".into(), jid.into()),
        ("ret".into(), part("ret")),
    ];
    let mut add = |name: &str, value: Value| entries.push((name.into(), value));
    if let Some(master_id) = kwargs.get("master_id") {
        add("master_id", master_id.clone());
    } else if let Some(master_id) = &context.site.master_id {
        add("master_id", master_id.as_str().into());
    }
    match kwargs.get("delimiter") {
        Some(delimiter) if delimiter.as_str() != Some(DEFAULT_DELIMITER) => {
            add("delimiter", delimiter.clone());
        }
        _ => {}
    }
    if let Some(id) = kwargs.get("id") {
        add("id", id.clone());
    }
    for name in ["tgt_type", "to"] {
        if let Some(value) = load.get(name) {
            add(name, value.clone());
        }
    }
    for name in PASSED_ON {
        if let Some(value) = kwargs.get(name) {
            add(name, value.clone());
        }
    }
    if kwargs.get("start_event").and_then(Value::as_bool) == Some(true) {
        add("start_event", true.into());
    }
    if let Some(user) = load.get("user") {
        add("user", user.clone());
    }
    if context.site.order_masters {
        let none = || Value::Array(Vec::new());
        add(
            AUTH_LIST,
            kwargs.get(AUTH_LIST).cloned().unwrap_or_else(none),
        );
    }
    let place = traces::entries().into_iter();
    entries.extend(place.map(|(name, value)| (name.into(), value.into())));
    entries
}

/// The returners of the job, with the site's job cache (`ext_job_cache`) added.
pub fn with_job_cache(ret: &str, context: &Context) -> String {
    let names = [ret, context.config.ext_job_cache().unwrap_or_default()];
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    names.join(",")
}

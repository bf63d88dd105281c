//! `pillar.*`: access of templates to the pillar compiled so far.
//!
//! `pillar.items` compiles the pillar once more in stock, for the id of the master; here it gives
//! what is known, like `pillar.raw`.

use std::sync::Arc;

use saltern_wire::msgpack::Value;

use super::lookup::{
    Called, Facts, default_of, delimiter_of, filter_by, hashable, joined, merge, named_items,
    row_of, shown, traverse_by,
};
use crate::render::functions::{CallArgs, CallError, Registry};

/// The pillar of the lookups, and the options that decide how.
struct Pillar {
    data: Arc<Value>,
    /// `pillar_raise_on_missing`.
    must_be_there: bool,
    /// `pillar_merge_lists`.
    merge_lists: bool,
}

/// Adds the functions.
pub(super) fn pillar(registry: &mut Registry, facts: &Facts) {
    let on = |name: &str| {
        facts
            .opts
            .get(name)
            .and_then(Value::as_bool)
            .unwrap_or(false)
    };
    let pillar = Arc::new(Pillar {
        data: facts.pillar.clone(),
        must_be_there: on("pillar_raise_on_missing"),
        merge_lists: on("pillar_merge_lists"),
    });
    let mut add = |name: &str, function: fn(&Pillar, &CallArgs) -> Called| {
        let pillar = pillar.clone();
        registry.add(name, move |args| function(&pillar, &args));
    };
    add("pillar.get", get);
    add("pillar.fetch", get);
    add("pillar.item", item);
    for name in ["pillar.items", "pillar.data"] {
        add(name, |pillar, args| {
            if args.positional.is_empty() {
                return Ok(pillar.data.as_ref().clone());
            }
            item(pillar, args)
        });
    }
    add("pillar.raw", |pillar, args| match args.truthy(0, "key") {
        Some(key) => {
            let rows = pillar.data.as_map().unwrap_or_default();
            let found = row_of(rows, hashable(key)?).cloned();
            Ok(found.unwrap_or_else(|| Value::Map(Vec::new())))
        }
        _ => Ok(pillar.data.as_ref().clone()),
    });
    add("pillar.ls", |pillar, args| {
        match args.positional.is_empty() {
            true => Ok(keys_of(&pillar.data)),
            false => Ok(keys_of(&item(pillar, args)?)),
        }
    });
    add("pillar.keys", |pillar, args| {
        let path = args.need(0, "key")?;
        let key = shown(path);
        match traverse_by(&pillar.data, path, &delimiter_of(args, 1))? {
            Some(found @ Value::Map(_)) => Ok(keys_of(found)),
            Some(_) => Err(CallError::Failed(format!(
                "Pillar value in key {key} is not a dict"
            ))),
            None => Err(not_found(&key)),
        }
    });
    add("pillar.filter_by", |pillar, args| {
        let role = args.need_text(1, "pillar")?;
        filter_by(&pillar.data, args, &role)
    });
}

fn not_found(key: &str) -> CallError {
    CallError::Failed(format!("'Pillar key not found: {key}'"))
}

fn keys_of(value: &Value) -> Value {
    let entries = value.as_map().unwrap_or_default();
    Value::Array(entries.iter().map(|(key, _)| key.clone()).collect())
}

/// `get(key, default, merge=False, merge_nested_lists=None, delimiter=':', …)`.
fn get(pillar: &Pillar, args: &CallArgs) -> Called {
    let path = args.need(0, "key")?;
    let key = shown(path);
    let found = traverse_by(&pillar.data, path, &delimiter_of(args, 4))?;
    if args.flag(2, "merge", false) {
        let lists = args.flag(3, "merge_nested_lists", pillar.merge_lists);
        let nothing = (Value::Map(Vec::new()), Value::Array(Vec::new()));
        match args.get(1, "default") {
            Some(default @ Value::Map(_)) => {
                if let found @ Value::Map(_) = found.unwrap_or(&nothing.0) {
                    return Ok(merge(default.clone(), found, lists));
                }
            }
            Some(Value::Array(default)) => {
                if let Value::Array(found) = found.unwrap_or(&nothing.1) {
                    return Ok(Value::Array(joined(default.clone(), found)));
                }
            }
            // Stock says in its log that nothing can be merged.
            _ => {}
        }
    }
    match (found, args.get(1, "default")) {
        (Some(found), _) => Ok(found.clone()),
        (None, None) if pillar.must_be_there => Err(not_found(&key)),
        (None, _) => Ok(default_of(args, 1, Value::from(""))),
    }
}

/// `item(*keys, default='', delimiter=':')`.
fn item(pillar: &Pillar, args: &CallArgs) -> Called {
    let default = args.get(usize::MAX, "default").filter(|it| !it.is_nil());
    let default = default.cloned().unwrap_or_else(|| Value::from(""));
    named_items(&pillar.data, args, &default)
}

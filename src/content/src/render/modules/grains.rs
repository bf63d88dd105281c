//! `grains.*`: what a template asks of the minion's grains.

use std::sync::Arc;

use saltern_wire::msgpack::Value;

use super::lookup::{Called, Facts, default_of, delimiter_of, filter_by, shown, traverse};
use crate::render::functions::{CallArgs, Registry};

/// Adds the functions.
pub(super) fn grains(registry: &mut Registry, facts: &Facts) {
    let mut add = |name: &str, function: fn(&Value, &CallArgs) -> Called| {
        let grains: Arc<Value> = facts.grains.clone();
        registry.add(name, move |args| function(&grains, &args));
    };
    add("grains.get", get);
    add("grains.fetch", get);
    add("grains.items", |grains, _| Ok(grains.clone()));
    add("grains.ls", |grains, _| {
        let entries = grains.as_map().unwrap_or_default();
        let mut names: Vec<&str> = entries.iter().filter_map(|(key, _)| key.as_str()).collect();
        names.sort_unstable();
        Ok(Value::Array(names.into_iter().map(Value::from).collect()))
    });
    add("grains.item", |grains, args| {
        let default = args.get(usize::MAX, "default").cloned();
        let default = default.unwrap_or_else(|| Value::from(""));
        let delimiter = delimiter_of(args, usize::MAX);
        let names = args.positional.iter().filter_map(Value::as_str);
        let found = names.map(|name| {
            let value = traverse(grains, name, &delimiter).unwrap_or(&default);
            (Value::from(name), value.clone())
        });
        Ok(Value::Map(found.collect()))
    });
    add("grains.has_value", |grains, args| {
        let found = traverse(grains, &args.need_text(0, "key")?, ":");
        Ok(Value::Bool(found.is_some()))
    });
    add("grains.equals", |grains, args| {
        let key = args.need_text(0, "key")?;
        let wanted = args.need(1, "value")?;
        let found = traverse(grains, &key, ":").cloned();
        let found = found.unwrap_or_else(|| Value::from(""));
        Ok(Value::Bool(shown(wanted) == shown(&found)))
    });
    add("grains.filter_by", |grains, args| {
        let grain = args
            .text(1, "grain")
            .unwrap_or_else(|| "os_family".to_owned());
        filter_by(grains, args, &grain)
    });
}

fn get(grains: &Value, args: &CallArgs) -> Called {
    let found = traverse(grains, &args.need_text(0, "key")?, &delimiter_of(args, 2));
    Ok(found
        .cloned()
        .unwrap_or_else(|| default_of(args, 1, Value::from(""))))
}

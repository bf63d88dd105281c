//! `grains.*`: access of templates to the minion's grains.

use std::sync::Arc;

use saltern_wire::msgpack::Value;

use super::lookup::{
    Called, Facts, default_of, delimiter_of, filter_by, named_items, shown, traverse, traverse_by,
};
use crate::render::functions::{CallArgs, Registry};

/// Adds the functions.
pub(super) fn grains(registry: &mut Registry, facts: &Facts) {
    let mut add = |name: &str, function: fn(&Value, &CallArgs) -> Called| {
        let grains: Arc<Value> = facts.grains.clone();
        registry.add(name, move |args| function(&grains, &args));
    };
    add("grains.get", get);
    add("grains.fetch", get);
    add("grains.items", |grains, args| {
        Ok(sanitized(grains.clone(), args.get(0, "sanitize")))
    });
    add("grains.ls", |grains, _| {
        let entries = grains.as_map().unwrap_or_default();
        let mut names: Vec<&str> = entries.iter().filter_map(|(key, _)| key.as_str()).collect();
        names.sort_unstable();
        Ok(Value::Array(names.into_iter().map(Value::from).collect()))
    });
    add("grains.item", |grains, args| {
        let default = args.get(usize::MAX, "default").cloned();
        let default = default.unwrap_or_else(|| Value::from(""));
        let items = named_items(grains, args, &default)?;
        Ok(sanitized(items, args.get(usize::MAX, "sanitize")))
    });
    add("grains.has_value", |grains, args| {
        let found = traverse_by(grains, args.need(0, "key")?, ":")?;
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

/// With `sanitize`, names of the machine are replaced, and the end of its serial number.
fn sanitized(mut grains: Value, sanitize: Option<&Value>) -> Value {
    let Value::Map(entries) = &mut grains else {
        return grains;
    };
    if !sanitize.is_some_and(is_true) {
        return grains;
    }
    for (name, value) in entries {
        match (name.as_str(), value) {
            (Some("domain"), value) => *value = Value::from("DOMAINNAME"),
            (Some("fqdn" | "id"), value) => *value = Value::from("MINION.DOMAINNAME"),
            (Some("host" | "localhost" | "nodename"), value) => *value = Value::from("MINION"),
            (Some("serialnumber"), Value::Str(text)) => {
                let letters = text.chars().count();
                let kept: String = text.chars().take(letters * 3 / 4).collect();
                *text = kept + &"X".repeat(letters - letters * 3 / 4);
            }
            _ => {}
        }
    }
    grains
}

/// `is_true` in `salt/utils/data.py`.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Int(number) => *number > 0,
        Value::Float(number) => *number > 0.0,
        Value::Str(text) => match text.trim().parse::<f64>() {
            Ok(number) => number > 0.0,
            Err(_) => text.eq_ignore_ascii_case("true"),
        },
        value => value.is_truthy(),
    }
}

fn get(grains: &Value, args: &CallArgs) -> Called {
    let found = traverse_by(grains, args.need(0, "key")?, &delimiter_of(args, 2))?;
    Ok(found
        .cloned()
        .unwrap_or_else(|| default_of(args, 1, Value::from(""))))
}

//! Functions without dependencies: `environ.*` and `test.*`.

use saltern_wire::msgpack::Value;

use super::lookup::default_of;
use crate::render::functions::Registry;

/// Adds the functions.
pub(super) fn small(registry: &mut Registry) {
    registry.add("environ.get", |args| {
        let Some(key) = args.need(0, "key")?.as_str() else {
            return Ok(Value::Bool(false));
        };
        let default = default_of(&args, 1, Value::from(""));
        Ok(std::env::var(key).map_or(default, Value::from))
    });
    registry.add("environ.has_value", |args| {
        let found = match args.need(0, "key")?.as_str() {
            Some(key) => std::env::var(key),
            None => return Ok(Value::Bool(false)),
        };
        let wanted = args.get(1, "value").filter(|value| !value.is_nil());
        Ok(Value::Bool(found.is_ok_and(|found| {
            wanted.is_none_or(|wanted| wanted.as_str() == Some(&found))
        })))
    });
    registry.add("environ.item", |args| {
        let default = default_of(&args, 1, Value::from(""));
        let names = match args.need(0, "keys")? {
            Value::Array(names) => names.clone(),
            name @ Value::Str(_) => vec![name.clone()],
            _ => Vec::new(),
        };
        let found = names.into_iter().map(|name| {
            let value = name.as_str().and_then(|name| std::env::var(name).ok());
            let value = value.map_or_else(|| default.clone(), Value::from);
            (name, value)
        });
        Ok(Value::Map(found.collect()))
    });
    for (name, answer) in [
        ("test.ping", true),
        ("test.true", true),
        ("test.false", false),
    ] {
        registry.add(name, move |_| Ok(Value::Bool(answer)));
    }
    for name in ["test.echo", "test.outputter"] {
        registry.add(name, |args| args.need(0, "text").cloned());
    }
    registry.add("test.kwarg", |args| {
        let named = args.named.into_iter();
        Ok(Value::Map(
            named
                .map(|(name, value)| (Value::from(name), value))
                .collect(),
        ))
    });
}

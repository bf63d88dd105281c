//! `grains.get`, `pillar.get`, `config.get` and the functions that look into values by a path.

use std::sync::Arc;

use saltern_wire::msgpack::Value;

use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::jinja::glob;

/// How deep mappings are merged.
const DEEPEST: usize = 100;

/// What the functions look into.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The grains of the minion.
    pub grains: Arc<Value>,
    /// Its pillar as far as it is known.
    pub pillar: Arc<Value>,
    /// The options of the master.
    pub opts: Arc<Value>,
}

type Called = Result<Value, CallError>;

/// The value at the end of a path; lists are entered by index or through the mappings in them.
pub(crate) fn traverse<'a>(data: &'a Value, path: &str, delimiter: &str) -> Option<&'a Value> {
    let parts: Vec<&str> = if delimiter.is_empty() {
        vec![path]
    } else {
        path.split(delimiter).collect()
    };
    parts.iter().try_fold(data, |value, part| match value {
        Value::Map(entries) => entries
            .iter()
            .find(|(key, _)| key_is(key, part))
            .map(|(_, v)| v),
        Value::Array(items) => items
            .iter()
            .filter(|item| matches!(item, Value::Map(_)))
            .find_map(|item| item.get(part))
            .or_else(|| {
                let index: i64 = part.parse().ok()?;
                let length = i64::try_from(items.len()).ok()?;
                let index = if index < 0 { index + length } else { index };
                items.get(usize::try_from(index).ok()?)
            }),
        _ => None,
    })
}

fn key_is(key: &Value, wanted: &str) -> bool {
    match key {
        Value::Str(text) => text == wanted,
        Value::Int(number) => wanted.parse() == Ok(*number),
        _ => false,
    }
}

/// Merges a mapping into another, recursively; lists are joined if `lists`.
pub(crate) fn merge(into: Value, from: &Value, lists: bool, depth: usize) -> Value {
    if depth > DEEPEST {
        return into;
    }
    match (into, from) {
        (Value::Map(mut entries), Value::Map(more)) => {
            for (key, value) in more {
                match entries.iter_mut().find(|(found, _)| found == key) {
                    Some((_, old)) => {
                        let before = std::mem::replace(old, Value::Nil);
                        *old = merge(before, value, lists, depth + 1);
                    }
                    None => entries.push((key.clone(), value.clone())),
                }
            }
            Value::Map(entries)
        }
        (Value::Array(mut items), Value::Array(more)) if lists => {
            items.extend(
                more.iter()
                    .filter(|item| !items.contains(item))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
            Value::Array(items)
        }
        (_, from) => from.clone(),
    }
}

fn default_of(args: &CallArgs, index: usize, missing: Value) -> Value {
    args.get(index, "default").cloned().unwrap_or(missing)
}

/// `pillar.get` and `grains.get` with their `merge`.
fn get(data: &Value, args: &CallArgs, delimiter_at: usize) -> Called {
    let path = args.need_text(0, "key")?;
    let delimiter = args
        .text(delimiter_at, "delimiter")
        .unwrap_or_else(|| ":".to_owned());
    let default = default_of(args, 1, Value::from(""));
    let found = traverse(data, &path, &delimiter);
    if args.flag(2, "merge", false) {
        let lists = args
            .named
            .iter()
            .any(|(name, value)| name == "merge_nested_lists" && value.as_bool() == Some(true));
        return Ok(match (found, &default) {
            (Some(found @ Value::Map(_)), Value::Map(_)) => merge(default, found, lists, 0),
            (Some(found @ Value::Array(_)), Value::Array(items)) => {
                let mut items = items.clone();
                if let Value::Array(more) = found {
                    items.extend(more.iter().cloned());
                }
                Value::Array(items)
            }
            (Some(found), _) => found.clone(),
            (None, _) => default,
        });
    }
    Ok(found.cloned().unwrap_or(default))
}

/// `grains.filter_by` and `pillar.filter_by`.
fn filter_by(data: &Value, args: &CallArgs, lookup_default: &str) -> Called {
    let table = args.need(0, "lookup_dict")?;
    let Value::Map(rows) = table else {
        return Err(CallError::Failed(
            "lookup_dict must be a dictionary".to_owned(),
        ));
    };
    let lookup = args.text(1, "grain").or_else(|| args.text(1, "pillar"));
    let lookup = lookup.unwrap_or_else(|| lookup_default.to_owned());
    let default = args
        .text(3, "default")
        .unwrap_or_else(|| "default".to_owned());
    let wanted: Vec<&Value> = match traverse(data, &lookup, ":") {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(value) => vec![value],
        None => Vec::new(),
    };
    let chosen = wanted.iter().find_map(|value| {
        let text = plain_text(value);
        rows.iter()
            .find(|(key, _)| glob(&text, &plain_text(key)))
            .map(|(_, row)| row)
    });
    let mut result = chosen.or_else(|| table.get(&default)).cloned();
    if let Some(base) = args.text(4, "base").and_then(|base| table.get(&base)) {
        result = Some(match (result, base) {
            (None, base) => base.clone(),
            (Some(found @ Value::Map(_)), Value::Map(_)) => merge(base.clone(), &found, false, 0),
            (Some(_), Value::Map(_)) => {
                return Err(CallError::Failed(
                    "filter_by default and look-up values must both be dictionaries.".to_owned(),
                ));
            }
            (Some(found), _) => found,
        });
    }
    match args.get(2, "merge") {
        None | Some(Value::Nil) => {}
        Some(Value::Map(entries)) if entries.is_empty() => {}
        Some(more @ Value::Map(_)) => {
            result = Some(match result {
                Some(found) => merge(found, more, false, 0),
                None => more.clone(),
            });
        }
        Some(_) => {
            return Err(CallError::Failed(
                "filter_by merge argument must be a dictionary.".to_owned(),
            ));
        }
    }
    Ok(result.unwrap_or(Value::Nil))
}

/// A key or grain as `str()` writes it.
fn plain_text(value: &Value) -> String {
    match value {
        Value::Nil => "None".to_owned(),
        Value::Bool(flag) => if *flag { "True" } else { "False" }.to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Float(number) => crate::render::jinja::text::float(*number),
        Value::Str(text) => text.clone(),
        _ => String::new(),
    }
}

/// Adds `grains.*`, `pillar.*`, `config.*`, `defaults.merge` and `slsutil.*`.
pub fn grains_and_pillar(registry: &mut Registry, facts: &Facts) {
    let grains = facts.grains.clone();
    registry.add("grains.get", move |args| get(&grains, &args, 2));
    let grains = facts.grains.clone();
    registry.add("grains.items", move |_| Ok(grains.as_ref().clone()));
    let grains = facts.grains.clone();
    registry.add("grains.item", move |args| {
        let names = args.positional.iter().filter_map(Value::as_str);
        let found = names.map(|name| {
            let value = traverse(&grains, name, ":")
                .cloned()
                .unwrap_or_else(|| Value::from(""));
            (Value::from(name), value)
        });
        Ok(Value::Map(found.collect()))
    });
    let grains = facts.grains.clone();
    registry.add("grains.has_value", move |args| {
        let found = traverse(&grains, &args.need_text(0, "key")?, ":");
        Ok(Value::Bool(found.is_some_and(truthy)))
    });
    let grains = facts.grains.clone();
    registry.add("grains.filter_by", move |args| {
        filter_by(&grains, &args, "os_family")
    });

    let pillar = facts.pillar.clone();
    registry.add("pillar.get", move |args| {
        // `delimiter` is the fifth argument here; it is nearly always given by name.
        get(&pillar, &args, 4)
    });
    let pillar = facts.pillar.clone();
    registry.add("pillar.items", move |_| Ok(pillar.as_ref().clone()));
    let pillar = facts.pillar.clone();
    registry.add("pillar.keys", move |args| {
        match traverse(&pillar, &args.need_text(0, "key")?, ":") {
            Some(Value::Map(entries)) => Ok(Value::Array(
                entries.iter().map(|(key, _)| key.clone()).collect(),
            )),
            Some(_) => Err(CallError::Failed(
                "The pillar value is not a dictionary".to_owned(),
            )),
            None => Err(CallError::Failed("Pillar key not found".to_owned())),
        }
    });
    let pillar = facts.pillar.clone();
    registry.add("pillar.filter_by", move |args| {
        filter_by(&pillar, &args, "role")
    });

    let all = facts.clone();
    let look = move |args: CallArgs| -> Called {
        let key = args.need_text(0, "key")?;
        let sources = [&all.opts, &all.grains, &all.pillar];
        let found = sources
            .iter()
            .find_map(|source| traverse(source, &key, ":"))
            .cloned();
        let in_master = || {
            all.pillar
                .get("master")
                .and_then(|master| traverse(master, &key, ":"))
                .cloned()
        };
        Ok(found
            .or_else(in_master)
            .unwrap_or_else(|| default_of(&args, 1, Value::from(""))))
    };
    registry.add("config.get", look.clone());
    registry.add("config.option", look);

    registry.add("defaults.merge", |args| {
        let into = args.need(0, "dest")?.clone();
        let from = args.need(1, "src")?.clone();
        let lists = args.flag(2, "merge_lists", false);
        Ok(merge(into, &from, lists, 0))
    });
    registry.add("slsutil.update", |args| {
        let into = args.need(0, "dest")?.clone();
        let from = args.need(1, "upd")?.clone();
        let lists = args.flag(3, "merge_lists", false);
        Ok(merge(into, &from, lists, 0))
    });
    registry.add("slsutil.merge", |args| {
        let into = args.need(0, "obj_a")?.clone();
        let from = args.need(1, "obj_b")?.clone();
        let lists = args.flag(4, "merge_lists", false);
        Ok(merge(into, &from, lists, 0))
    });
    registry.add("slsutil.merge_all", |args| {
        let Value::Array(items) = args.need(0, "lst")? else {
            return Err(CallError::Failed("a list is needed".to_owned()));
        };
        let lists = args.flag(3, "merge_lists", false);
        let start = Value::Map(Vec::new());
        Ok(items
            .iter()
            .fold(start, |merged, item| merge(merged, item, lists, 0)))
    });
    registry.add("slsutil.boolstr", |args| {
        let flag = args.get(0, "value").is_some_and(truthy);
        let text = if flag {
            args.text(1, "true")
        } else {
            args.text(2, "false")
        };
        Ok(Value::from(text.unwrap_or_else(|| flag.to_string())))
    });
}

/// Whether Python calls a value true.
fn truthy(value: &Value) -> bool {
    match value {
        Value::Nil => false,
        Value::Bool(flag) => *flag,
        Value::Int(number) => *number != 0,
        Value::Float(number) => *number != 0.0,
        Value::Str(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Map(entries) => !entries.is_empty(),
        Value::Uint(_) | Value::Bin(_) | Value::Ext(..) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use saltern_wire::msgpack::Value;

    use super::{Facts, grains_and_pillar};
    use crate::render::functions::{CallArgs, Functions as _, Registry};
    use crate::render::json::parse;

    fn call(name: &str, positional: &[&str], named: &[(&str, &str)]) -> Result<Value, String> {
        let data = |text: &str| Arc::new(parse(text).expect("JSON"));
        let facts = Facts {
            grains: data(r#"{"os_family": "Debian", "roles": ["web", "db"], "n": {"a": 1}}"#),
            pillar: data(r#"{"app": {"port": 80, "hosts": [{"name": "x"}, {"ip": 2}]}}"#),
            opts: data(r#"{"id": "master", "port": 4506}"#),
        };
        let mut registry = Registry::new();
        grains_and_pillar(&mut registry, &facts);
        let args = CallArgs {
            positional: positional
                .iter()
                .map(|text| parse(text).expect("JSON"))
                .collect(),
            named: named
                .iter()
                .map(|(name, text)| ((*name).to_owned(), parse(text).expect("JSON")))
                .collect(),
        };
        registry.call(name, args).map_err(|error| error.to_string())
    }

    fn json(text: &str) -> Result<Value, String> {
        parse(text)
    }

    #[test]
    fn values_are_found_by_their_path() {
        assert_eq!(call("pillar.get", &["\"app:port\""], &[]), json("80"));
        assert_eq!(call("pillar.get", &["\"app:hosts:ip\""], &[]), json("2"));
        assert_eq!(call("pillar.get", &["\"app:hosts:-1:ip\""], &[]), json("2"));
        assert_eq!(call("pillar.get", &["\"no\""], &[]), json("\"\""));
        assert_eq!(call("pillar.get", &["\"no\"", "[1]"], &[]), json("[1]"));
        assert_eq!(
            call("pillar.get", &["\"app|port\""], &[("delimiter", "\"|\"")]),
            json("80")
        );
        let merged = call(
            "pillar.get",
            &["\"app\"", r#"{"x": 1}"#],
            &[("merge", "true")],
        );
        let wanted = r#"{"x": 1, "port": 80, "hosts": [{"name": "x"}, {"ip": 2}]}"#;
        assert_eq!(merged, json(wanted));
        assert_eq!(call("grains.get", &["\"n:a\""], &[]), json("1"));
        assert_eq!(call("config.get", &["\"port\""], &[]), json("4506"));
        assert_eq!(call("config.get", &["\"app:port\""], &[]), json("80"));
        assert!(call("pillar.get", &[], &[]).is_err());
    }

    #[test]
    fn tables_are_filtered_by_grains() {
        let table = r#"{"Deb*": {"a": 1}, "default": {"a": 2}, "base": {"a": 0, "b": 3}}"#;
        assert_eq!(call("grains.filter_by", &[table], &[]), json(r#"{"a": 1}"#));
        let other = call("grains.filter_by", &[table], &[("grain", "\"nothere\"")]);
        assert_eq!(other, json(r#"{"a": 2}"#));
        let based = call("grains.filter_by", &[table], &[("base", "\"base\"")]);
        assert_eq!(based, json(r#"{"a": 1, "b": 3}"#));
        let merged = call("grains.filter_by", &[table], &[("merge", r#"{"c": 4}"#)]);
        assert_eq!(merged, json(r#"{"a": 1, "c": 4}"#));
    }

    #[test]
    fn mappings_are_merged() {
        let (a, b) = (
            r#"{"x": {"y": 1}, "l": [1]}"#,
            r#"{"x": {"z": 2}, "l": [2]}"#,
        );
        let merged = call("defaults.merge", &[a, b], &[]);
        assert_eq!(merged, json(r#"{"x": {"y": 1, "z": 2}, "l": [2]}"#));
        let lists = call("defaults.merge", &[a, b], &[("merge_lists", "true")]);
        assert_eq!(lists, json(r#"{"x": {"y": 1, "z": 2}, "l": [1, 2]}"#));
    }
}

//! `slsutil.*` and `defaults.*`: merging, and texts of values.
//!
//! `slsutil.update`, `defaults.merge` and `defaults.update` change their first argument, as in
//! stock. The strategy `aggregate` works on tags that only Python's `yamlex` renderer makes, and is
//! refused by name.

use std::sync::Arc;

use saltern_config::yaml;
use saltern_wire::msgpack::Value;

use super::lookup::{Called, merge, shown, update};
use crate::files::FileServer;
use crate::render::data::{from_yaml, to_template};
use crate::render::functions::{CallArgs, CallError, InPlace, Registry};
use crate::render::jinja::yaml_text;
use crate::render::json;

/// The longest file of defaults.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Adds the functions.
pub(super) fn slsutil(registry: &mut Registry) {
    let dest = |flag| InPlace {
        parameter: "dest",
        flag,
    };
    registry.add_updating("slsutil.update", dest(None), |args| {
        let (into, from) = (args.need(0, "dest")?, args.need(1, "upd")?);
        let lists = args.flag(3, "merge_lists", false);
        if args.flag(2, "recursive_update", true) {
            return update(into, from, lists);
        }
        merged(into, from, "overwrite", false)
    });
    registry.add("slsutil.merge", |args| {
        let (first, second) = (args.need(0, "obj_a")?, args.need(1, "obj_b")?);
        merged(
            first,
            second,
            &strategy(&args, 2),
            args.flag(4, "merge_lists", false),
        )
    });
    registry.add("slsutil.merge_all", |args| {
        let list = args.need(0, "lst")?;
        let is_nothing = matches!(list, Value::Str(_) | Value::Map(_)) && !list.is_truthy();
        let items = match list.as_array() {
            Some(items) => items,
            None if is_nothing => &[],
            None => return Err(CallError::Failed("a list is needed".to_owned())),
        };
        let (strategy, lists) = (strategy(&args, 1), args.flag(3, "merge_lists", false));
        let start = Value::Map(Vec::new());
        items
            .iter()
            .try_fold(start, |all, item| merged(&all, item, &strategy, lists))
    });
    registry.add("slsutil.boolstr", |args| {
        let (index, name) = if args.need(0, "value")?.is_truthy() {
            (1, "true")
        } else {
            (2, "false")
        };
        Ok(args
            .get(index, name)
            .cloned()
            .unwrap_or_else(|| Value::from(name)))
    });
    registry.add("slsutil.serialize", |args| {
        let object = to_template(args.need(1, "obj")?);
        let failed = |_| CallError::Failed("the value cannot be written".to_owned());
        match args.need_text(0, "serializer")?.as_str() {
            "json" => {
                let style = json::Style {
                    ascii: false,
                    sorted: false,
                    indent: None,
                };
                json::dump(&object, style).map(Value::from).map_err(failed)
            }
            "yaml" => {
                let text = yaml_text::dump_mixed(&object).map_err(failed)?;
                Ok(Value::from(text))
            }
            other => Err(no_serializer(other)),
        }
    });
    registry.add("slsutil.deserialize", |args| {
        let text = args.need_text(1, "stream_or_string")?;
        match args.need_text(0, "serializer")?.as_str() {
            "json" => json::parse(&text).map_err(|error| CallError::Failed(error.to_string())),
            "yaml" => yaml::parse(&text, "text", &yaml::Limits::DEFAULT)
                .map(from_yaml)
                .map_err(|error| CallError::Failed(error.to_string())),
            other => Err(no_serializer(other)),
        }
    });
    registry.add_updating("defaults.merge", dest(Some(3)), |args| {
        let is_converted = args.flag(4, "convert_none", true);
        let (into, from) = (args.need(0, "dest")?, args.need(1, "src")?);
        let lists = args.flag(2, "merge_lists", false);
        let empty = Value::Map(Vec::new());
        let from = if from.is_nil() && is_converted {
            &empty
        } else {
            from
        };
        let is_new = into.is_nil() && is_converted && !args.flag(3, "in_place", true);
        update(if is_new { &empty } else { into }, from, lists)
    });
    registry.add_updating("defaults.update", dest(Some(3)), |args| {
        let Value::Map(nodes) = args.need(0, "dest")? else {
            return Err(CallError::Failed("a dictionary is needed".to_owned()));
        };
        let defaults = args.need(1, "defaults")?;
        let lists = args.flag(2, "merge_lists", true);
        let nodes = nodes.iter().map(|(name, node)| {
            let node = match node {
                Value::Nil => defaults.clone(),
                node => update(defaults, node, lists)?,
            };
            Ok((name.clone(), node))
        });
        nodes.collect::<Result<_, CallError>>().map(Value::Map)
    });
    registry.add("defaults.deepcopy", |args| args.need(0, "source").cloned());
}

/// Adds `defaults.get` and what else needs the file server: `slsutil.file_exists`,
/// `slsutil.dir_exists`, `slsutil.path_exists`.
pub(super) fn with_files(registry: &mut Registry, files: &Arc<FileServer>, saltenv: &str) {
    let saltenv: Arc<str> = Arc::from(saltenv);
    let mut add = |name: &str, function: fn(&FileServer, &str, &CallArgs) -> Called| {
        let (files, saltenv) = (files.clone(), saltenv.clone());
        registry.add(name, move |args| function(&files, &saltenv, &args));
    };
    add("defaults.get", defaults);
    add("slsutil.file_exists", |files, _, args| {
        Ok(Value::Bool(is_file(files, args)?))
    });
    add("slsutil.dir_exists", |files, _, args| {
        Ok(Value::Bool(is_directory(files, args)?))
    });
    add("slsutil.path_exists", |files, _, args| {
        Ok(Value::Bool(
            is_file(files, args)? || is_directory(files, args)?,
        ))
    });
}

fn no_serializer(name: &str) -> CallError {
    CallError::Refused(format!("Serializer '{name}' not found."))
}

fn strategy(args: &CallArgs, index: usize) -> String {
    args.text(index, "strategy")
        .unwrap_or_else(|| "smart".to_owned())
}

/// Two mappings by one of stock's strategies; an unknown one is `recurse`.
fn merged(first: &Value, second: &Value, strategy: &str, lists: bool) -> Called {
    let (Value::Map(entries), Value::Map(more)) = (first, second) else {
        return update(first, second, lists);
    };
    let of = |key: &Value| more.iter().find(|(found, _)| found == key);
    match strategy {
        "list" => {
            let pairs = entries.iter().map(|(key, value)| {
                let value = match of(key) {
                    Some((_, other)) => Value::Array(vec![value.clone(), other.clone()]),
                    None => value.clone(),
                };
                (key.clone(), value)
            });
            Ok(Value::Map(pairs.collect()))
        }
        "overwrite" => {
            let mut all: Vec<_> = entries.clone();
            for (key, value) in &mut all {
                if let Some((_, other)) = of(key) {
                    value.clone_from(other);
                }
            }
            Ok(merge(Value::Map(all), second, lists))
        }
        "aggregate" => Err(CallError::Refused(
            "the merging strategy \"aggregate\" is not available".to_owned(),
        )),
        "none" => Ok(merge(first.clone(), second, false)),
        _ => Ok(merge(first.clone(), second, lists)),
    }
}

/// `defaults.get`: a value of a formula's `defaults.yaml` or `defaults.json`.
fn defaults(files: &FileServer, saltenv: &str, args: &CallArgs) -> Called {
    let key = args.need_text(0, "key")?;
    let (formula, path) = match key.split_once(':') {
        Some((formula, path)) => (formula, Some(path)),
        None => (key.as_str(), None),
    };
    let read = |name: &str| {
        let bytes = files.read(&format!("{formula}/{name}"), saltenv, MAX_FILE_BYTES);
        let bytes = bytes.map_err(|error| CallError::Failed(error.to_string()))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    let found = if let Some(text) = read("defaults.yaml")? {
        let node = yaml::parse(&text, "defaults.yaml", &yaml::Limits::DEFAULT);
        from_yaml(node.map_err(|error| CallError::Failed(error.to_string()))?)
    } else if let Some(text) = read("defaults.json")? {
        json::parse(&text).map_err(|error| CallError::Failed(error.to_string()))?
    } else {
        Value::Nil
    };
    let Some(path) = path else { return Ok(found) };
    let missing = || super::lookup::default_of(args, 1, Value::from(""));
    Ok(super::lookup::traverse(&found, path, ":")
        .cloned()
        .unwrap_or_else(missing))
}

fn is_file(files: &FileServer, args: &CallArgs) -> Result<bool, CallError> {
    let path = shown(args.need(0, "path")?);
    let saltenv = args.text(1, "saltenv").unwrap_or_else(|| "base".to_owned());
    let found = files.file_find(&path, &saltenv);
    let found = found.map_err(|error| CallError::Failed(error.to_string()))?;
    Ok(found.get("path").is_some_and(Value::is_truthy))
}

fn is_directory(files: &FileServer, args: &CallArgs) -> Result<bool, CallError> {
    let path = shown(args.need(0, "path")?);
    let saltenv = args.text(1, "saltenv").unwrap_or_else(|| "base".to_owned());
    let listed = files.dir_list(&saltenv, &path);
    let listed = listed.map_err(|error| CallError::Failed(error.to_string()))?;
    let listed = super::cp::unpack(&listed)?;
    Ok(listed
        .as_array()
        .is_some_and(|all| all.contains(&Value::from(path))))
}

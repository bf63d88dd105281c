//! Salt's serializers: YAML, JSON, Python's own words, and back.

use minijinja::value::Value;
use saltern_config::yaml;

use super::super::args::Bound;
use super::super::fault::{Fault, Outcome};
use super::super::ops;
use super::super::text::{repr, str_of};
use super::super::value::{Kind, is_undefined, list, type_name, undefined};
use super::super::yaml_text;
use super::Row;
use super::lists::dict_from;
use crate::render::data::{from_yaml, to_template};
use crate::render::json;

pub(super) const FILTERS: &[Row] = &[
    ("yaml", &["value", "flow_style"], |_, args| {
        checked(args, |value| yaml_text::dump(value, args.flag(1, true)?))
    }),
    ("json", &["value", "sort_keys", "indent"], |_, args| {
        let style = json::Style {
            ascii: false,
            sorted: args.flag(1, true)?,
            indent: indent(args, 2)?,
        };
        checked(args, |value| json::dump(value, style))
    }),
    (
        "tojson",
        &["val", "indent", "sort_keys", "ensure_ascii"],
        |_, args| {
            let style = json::Style {
                ascii: args.flag(3, true)?,
                sorted: args.flag(2, false)?,
                indent: indent(args, 1)?,
            };
            checked(args, |value| {
                Ok(json::dump(value, style)?
                    .replace('<', "\\u003c")
                    .replace('>', "\\u003e")
                    .replace('&', "\\u0026")
                    .replace('\'', "\\u0027"))
            })
        },
    ),
    ("python", &["value"], |_, args| {
        checked(args, super::pretty::pretty)
    }),
    (
        "dict_to_sls_yaml_params",
        &["value", "flow_style"],
        |_, args| {
            checked(args, |value| {
                let Kind::Dict(entries) = Kind::of(value) else {
                    return Err(Fault::other(format!(
                        "'{}' object has no attribute 'items'",
                        type_name(value)
                    )));
                };
                let entries: Vec<_> = entries.0.lock().values().cloned().collect();
                let items = entries.into_iter().map(|pair| dict_from([pair]));
                let items = list(items.collect::<Outcome<Vec<_>>>()?);
                yaml_text::dump(&items, args.flag(1, false)?)
            })
        },
    ),
    ("load_yaml", &["value"], |_, args| {
        let Some(text) = source(args)? else {
            return Ok(args.need(0)?.clone());
        };
        let node = yaml::parse(&text, "<unicode string>", &yaml::Limits::DEFAULT)
            .map_err(|error| Fault::runtime(format!("Encountered error loading yaml: {error}")))?;
        Ok(to_template(&from_yaml(node)))
    }),
    ("load_json", &["value"], |_, args| {
        let Some(text) = source(args)? else {
            return Ok(args.need(0)?.clone());
        };
        match json::parse(&text) {
            Ok(data) => Ok(to_template(&data)),
            Err(_) => Err(Fault::runtime(format!("Unable to load json from {text}"))),
        }
    }),
    ("load_text", &["value"], |_, args| {
        let value = args.need(0)?;
        Ok(match Kind::of(value) {
            Kind::Other => Value::from(value.to_string()),
            _ => value.clone(),
        })
    }),
    ("yaml_dquote", &["text"], |_, args| {
        Ok(Value::from(yaml_text::quoted(
            &str_of(args.need(0)?)?,
            false,
        )))
    }),
    ("yaml_squote", &["text"], |_, args| {
        Ok(Value::from(yaml_text::single_quoted(&str_of(
            args.need(0)?,
        )?)))
    }),
    ("yaml_encode", &["data"], |_, args| {
        yaml_text::encode(args.need(0)?).map(Value::from)
    }),
    // All four make bytes of texts, in every release.
    ("json_encode_dict", &["data"], |_, args| encoded_dict(args)),
    ("json_decode_dict", &["data"], |_, args| encoded_dict(args)),
    ("json_encode_list", &["data"], |_, args| encoded_list(args)),
    ("json_decode_list", &["data"], |_, args| encoded_list(args)),
];

fn encoded_dict(args: &Bound) -> Outcome<Value> {
    let value = args.need(0)?;
    match Kind::of(value) {
        Kind::Dict(_) => encoded(value, 0),
        _ => Err(Fault::other(format!(
            "'{}' object has no attribute 'items'",
            type_name(value)
        ))),
    }
}

fn encoded_list(args: &Bound) -> Outcome<Value> {
    encoded(&list(ops::items(args.need(0)?)?), 0)
}

/// A value with bytes in the place of all texts, and lists in that of tuples.
fn encoded(value: &Value, depth: usize) -> Outcome<Value> {
    if depth > 100 {
        return Err(Fault::limit("maximum recursion depth exceeded"));
    }
    Ok(match Kind::of(value) {
        Kind::Str(text) => Value::from_bytes(text.as_bytes().to_vec()),
        Kind::List(_) | Kind::Tuple(_) => {
            let items = ops::items(value)?;
            let items = items.iter().map(|item| encoded(item, depth + 1));
            list(items.collect::<Outcome<Vec<_>>>()?)
        }
        Kind::Dict(entries) => {
            let entries: Vec<_> = entries.0.lock().values().cloned().collect();
            let pairs = entries
                .iter()
                .map(|(key, value)| Ok((encoded(key, depth + 1)?, encoded(value, depth + 1)?)));
            dict_from(pairs.collect::<Outcome<Vec<_>>>()?)?
        }
        _ => value.clone(),
    })
}

/// Applies a serializer, unless something inside is undefined: then the result is undefined too,
/// with the texts of all.
fn checked(args: &Bound, write: impl Fn(&Value) -> Outcome<String>) -> Outcome<Value> {
    let value = args.need(0)?;
    let mut missing = Vec::new();
    collect_undefined(value, &mut missing, 0);
    if missing.is_empty() {
        return write(value).map(Value::from);
    }
    Ok(undefined(missing.join("\n")))
}

fn collect_undefined(value: &Value, missing: &mut Vec<String>, depth: usize) {
    if depth > 100 {
        return;
    }
    match Kind::of(value) {
        Kind::Undefined(undefined) => {
            missing.push(super::super::text::undefined_text(undefined).to_owned());
        }
        Kind::List(items) => {
            let items = items.0.lock().clone();
            items
                .iter()
                .for_each(|item| collect_undefined(item, missing, depth + 1));
        }
        Kind::Tuple(items) => {
            items
                .iter()
                .for_each(|item| collect_undefined(item, missing, depth + 1));
        }
        Kind::Dict(entries) => {
            let values: Vec<Value> = entries.0.lock().values().map(|(_, v)| v.clone()).collect();
            values
                .iter()
                .for_each(|item| collect_undefined(item, missing, depth + 1));
        }
        _ => {}
    }
}

fn indent(args: &Bound, index: usize) -> Outcome<Option<usize>> {
    match args.get(index).filter(|value| !value.is_none()) {
        Some(_) => Ok(Some(
            usize::try_from(args.int(index, 0)?).unwrap_or(0).min(100),
        )),
        None => Ok(None),
    }
}

/// The text that a `load_…` filter reads; `None` if the value is undefined, which passes through.
fn source(args: &Bound) -> Outcome<Option<String>> {
    let value = args.need(0)?;
    if is_undefined(value) {
        return Ok(None);
    }
    match Kind::of(value) {
        Kind::Str(text) => Ok(Some(text.to_owned())),
        Kind::Other => Ok(Some(value.to_string())),
        Kind::Bytes(bytes) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
        _ => Err(Fault::runtime(format!(
            "Unable to load data from {}",
            repr(value)?
        ))),
    }
}

//! Salt's filters: serializers, regular expressions, hashes, and work on dicts.
//!
//! Longer than 500 lines, because it is one table of small filters.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fancy_regex::{Captures, Regex};
use hmac::{Hmac, KeyInit as _, Mac as _};
use minijinja::value::Value;
use saltern_config::yaml;
use sha2::{Digest as _, Sha256, Sha512};

use super::super::args::Bound;
use super::super::fault::{Fault, Outcome};
use super::super::text::{repr, str_of};
use super::super::value::{
    Dict, Entries, Key, Kind, dict, dict_of, is_undefined, list, none, tuple, type_name, undefined,
};
use super::super::{Py, methods, ops, yaml_text};
use super::lists::dict_from;
use super::{Row, pattern};
use crate::render::data::{from_yaml, to_template};
use crate::render::json;
use crate::render::twister::Twister;

const KEY: &str = "91633EBF1C865E33935A28061F4B480E";

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
    ("skip", &["data"], |_, _| Ok(Value::from(""))),
    ("sequence", &["data"], |_, args| {
        let value = args.need(0)?;
        Ok(match Kind::of(value) {
            Kind::List(_) | Kind::Tuple(_) | Kind::Set(_) | Kind::Dict(_) => value.clone(),
            _ => list(vec![value.clone()]),
        })
    }),
    ("to_bool", &["val"], |_, args| {
        let value = args.need(0)?;
        Ok(Value::from(match Kind::of(value) {
            Kind::Bool(flag) => flag,
            Kind::Str(text) => matches!(text.to_lowercase().as_str(), "yes" | "1" | "true"),
            Kind::Int(number) => number > 0,
            Kind::List(_) | Kind::Dict(_) | Kind::Set(_) => value.is_true(),
            Kind::Undefined(undefined) => {
                return Err(super::super::value::undefined_fault(undefined));
            }
            _ => false,
        }))
    }),
    ("quote", &["txt"], |_, args| {
        let text = text_of(args, 0)?;
        let safe = |letter: char| letter.is_ascii_alphanumeric() || "@%+=:,./-_".contains(letter);
        if !text.is_empty() && text.chars().all(safe) {
            return Ok(Value::from(text));
        }
        Ok(Value::from(format!("'{}'", text.replace('\'', "'\"'\"'"))))
    }),
    ("regex_escape", &["value"], |_, args| {
        let mut out = String::new();
        for letter in text_of(args, 0)?.chars() {
            if "()[]{}?*+-|^$\\.&~# \t\n\r\u{b}\u{c}".contains(letter) {
                out.push('\\');
            }
            out.push(letter);
        }
        Ok(Value::from(out))
    }),
    (
        "regex_search",
        &["txt", "rgx", "ignorecase", "multiline"],
        |_, args| regex(args, false),
    ),
    (
        "regex_match",
        &["txt", "rgx", "ignorecase", "multiline"],
        |_, args| regex(args, true),
    ),
    (
        "regex_replace",
        &["txt", "rgx", "val", "ignorecase", "multiline"],
        |_, args| {
            let pattern = pattern(args, 1, 3, 4)?;
            let text = text_of(args, 0)?;
            let template = text_of(args, 2)?;
            substitute(&pattern, &text, &template).map(Value::from)
        },
    ),
    ("uuid", &["val"], |_, args| {
        let key = u128::from_str_radix(KEY, 16).unwrap_or(0);
        let mut hash = sha1::Sha1::new();
        hash.update(key.to_be_bytes());
        hash.update(bytes_of(args, 0)?);
        let digest = hash.finalize();
        let mut number = digest
            .iter()
            .take(16)
            .fold(0_u128, |n, byte| (n << 8) | u128::from(*byte));
        number = (number & !(0xf << 76)) | (5 << 76);
        number = (number & !(3 << 62)) | (2 << 62);
        let hex = format!("{number:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        Ok(Value::from(format!(
            "{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        )))
    }),
    ("base64_encode", &["instr"], |_, args| {
        Ok(Value::from(STANDARD.encode(bytes_of(args, 0)?)))
    }),
    ("base64_decode", &["instr"], |_, args| {
        let text: Vec<u8> = bytes_of(args, 0)?
            .into_iter()
            .filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
            .collect();
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| Fault::other("Incorrect padding"))?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Value::from(text),
            Err(error) => Value::from_bytes(error.into_bytes()),
        })
    }),
    ("md5", &["instr"], |_, args| {
        Ok(hex(&md5::Md5::digest(bytes_of(args, 0)?)))
    }),
    ("sha1", &["instr"], |_, args| {
        Ok(hex(&sha1::Sha1::digest(bytes_of(args, 0)?)))
    }),
    ("sha256", &["instr"], |_, args| {
        Ok(hex(&Sha256::digest(bytes_of(args, 0)?)))
    }),
    ("sha512", &["instr"], |_, args| {
        Ok(hex(&Sha512::digest(bytes_of(args, 0)?)))
    }),
    ("hmac_compute", &["string", "shared_secret"], |_, args| {
        Ok(hex(&keyed(&bytes_of(args, 0)?, &bytes_of(args, 1)?)?))
    }),
    (
        "hmac",
        &["string", "shared_secret", "challenge_hmac"],
        |_, args| {
            let digest = keyed(&bytes_of(args, 0)?, &bytes_of(args, 1)?)?;
            Ok(Value::from(
                STANDARD.encode(digest).into_bytes() == bytes_of(args, 2)?,
            ))
        },
    ),
    ("rand_str", &["size", "hash_type"], |_, args| {
        random_hash(args)
    }),
    ("random_hash", &["size", "hash_type"], |_, args| {
        random_hash(args)
    }),
    ("random_str", &["size"], |_, args| {
        let size = usize::try_from(args.int(0, 32)?).unwrap_or(0).min(1 << 20);
        let mut text = STANDARD.encode(random_bytes(size)?);
        text.truncate(size);
        Ok(Value::from(text))
    }),
    ("random_sample", &["value", "size", "seed"], |_, args| {
        let size = usize::try_from(args.int(1, 0)?).unwrap_or(usize::MAX);
        sample(&ops::items(args.need(0)?)?, size, args.get(2))
    }),
    ("random_shuffle", &["value", "seed"], |_, args| {
        let items = ops::items(args.need(0)?)?;
        sample(&items, items.len(), args.get(1))
    }),
    ("to_bytes", &["s", "encoding", "errors"], |_, args| {
        Ok(Value::from_bytes(bytes_of(args, 0)?))
    }),
    ("to_num", &["text"], |_, args| number_of(args.need(0)?)),
    ("str_to_num", &["text"], |_, args| number_of(args.need(0)?)),
    ("is_hex", &["value"], |_, args| {
        let text = args.need(0)?.as_str();
        Ok(Value::from(
            text.and_then(|text| super::builtin::parse_int(text, 16))
                .is_some(),
        ))
    }),
    ("contains_whitespace", &["text"], |_, args| {
        Ok(Value::from(
            text_of(args, 0)?.chars().any(char::is_whitespace),
        ))
    }),
    (
        "human_to_bytes",
        &["size", "default_unit", "handle_metric"],
        |_, args| human(args),
    ),
    (
        "check_whitelist_blacklist",
        &["value", "whitelist", "blacklist"],
        |_, args| {
            let text = text_of(args, 0)?;
            let listed = |index: usize| -> Outcome<Option<bool>> {
                let Some(names) = args.get(index).filter(|names| names.is_true()) else {
                    return Ok(None);
                };
                let names = match names.as_str() {
                    Some(name) => vec![Value::from(name)],
                    None => ops::items(names)?,
                };
                for name in names {
                    if expression_matches(&text, &str_of(&name)?) {
                        return Ok(Some(true));
                    }
                }
                Ok(Some(false))
            };
            let (white, black) = (listed(1)?, listed(2)?);
            Ok(Value::from(match (white, black) {
                (_, Some(true)) => false,
                (Some(white), _) => white,
                (None, _) => true,
            }))
        },
    ),
    ("to_snake_case", &["camel_input"], |_, args| {
        let letters: Vec<char> = text_of(args, 0)?.chars().collect();
        let mut out = String::new();
        for (index, letter) in letters.iter().enumerate() {
            let lower = |at: usize| letters.get(at).is_some_and(|letter| letter.is_lowercase());
            if index > 0 && letter.is_uppercase() && (lower(index - 1) || lower(index + 1)) {
                out.push('_');
            }
            out.extend(letter.to_lowercase());
        }
        Ok(Value::from(out))
    }),
    ("to_camelcase", &["snake_input", "uppercamel"], |_, args| {
        let text = text_of(args, 0)?;
        let upper = args.flag(1, false)?;
        let words = text.split('_').enumerate().map(|(index, word)| {
            if index == 0 && !upper {
                word.to_owned()
            } else {
                super::super::string_methods::capitalized(word)
            }
        });
        Ok(Value::from(words.collect::<String>()))
    }),
    ("compare_dicts", &["old", "new"], |_, args| {
        compare_dicts(args)
    }),
    ("compare_lists", &["old", "new"], |_, args| {
        let (old, new) = (ops::items(args.need(0)?)?, ops::items(args.need(1)?)?);
        let missing = |from: &[Value], there: &Value| -> Outcome<Vec<Value>> {
            let mut out = Vec::new();
            for item in from {
                if !ops::contains(there, item)? {
                    out.push(item.clone());
                }
            }
            Ok(out)
        };
        let mut entries = Vec::new();
        for (name, items) in [
            ("new", missing(&new, args.need(0)?)?),
            ("old", missing(&old, args.need(1)?)?),
        ] {
            if !items.is_empty() {
                entries.push((name, list(items)));
            }
        }
        Ok(dict_of(entries))
    }),
    ("exactly_n_true", &["iterable", "amount"], |_, args| {
        exactly(args, args.int(1, 1)?)
    }),
    ("exactly_one_true", &["iterable"], |_, args| {
        exactly(args, 1)
    }),
    (
        "traverse",
        &["data", "key", "default", "delimiter"],
        |_, args| {
            let delimiter = args.text(3, ":")?;
            traverse(args.need(0)?, args.need(1)?, &args.or_none(2), &delimiter)
        },
    ),
    (
        "substring_in_list",
        &["string_to_search_for", "list_to_search"],
        |_, args| {
            let part = text_of(args, 0)?;
            for item in ops::items(args.need(1)?)? {
                if ops::contains(&item, &Value::from(part.as_str()))? {
                    return Ok(Value::from(true));
                }
            }
            Ok(Value::from(false))
        },
    ),
    ("is_list", &["value"], |_, args| {
        Ok(Value::from(matches!(
            Kind::of(args.need(0)?),
            Kind::List(_)
        )))
    }),
    ("is_iter", &["thing"], |_, args| {
        let value = args.need(0)?;
        Ok(Value::from(
            value.as_str().is_none() && ops::items(value).is_ok(),
        ))
    }),
    ("sorted_ignorecase", &["to_sort"], |_, args| {
        let mut pairs = Vec::new();
        for item in ops::items(args.need(0)?)? {
            pairs.push((Value::from(str_of(&item)?.to_lowercase()), item));
        }
        ops::sorted(pairs, false).map(list)
    }),
    (
        "flatten",
        &["data", "levels", "preserve_nulls"],
        |py, args| {
            let levels = args
                .get(1)
                .filter(|levels| !levels.is_none())
                .map(|_| args.int(1, 0));
            let mut out = Vec::new();
            flatten(
                py,
                args.need(0)?,
                levels.transpose()?,
                args.flag(2, false)?,
                0,
                &mut out,
            )?;
            Ok(list(out))
        },
    ),
    ("to_entries", &["data"], |_, args| {
        let pairs: Vec<(Value, Value)> = match Kind::of(args.need(0)?) {
            Kind::Dict(entries) => entries.0.lock().values().cloned().collect(),
            Kind::List(items) => {
                let items = items.0.lock().clone();
                items
                    .into_iter()
                    .enumerate()
                    .map(|(at, item)| (Value::from(at), item))
                    .collect()
            }
            _ => return Err(Fault::other("Input data must be a dict or list")),
        };
        let entries = pairs
            .into_iter()
            .map(|(key, value)| dict_of([("key", key), ("value", value)]));
        Ok(list(entries.collect()))
    }),
    ("from_entries", &["entries"], |_, args| {
        let mut pairs = Vec::new();
        for entry in ops::items(args.need(0)?)? {
            let Kind::Dict(entry) = Kind::of(&entry) else {
                return Err(Fault::other("from_entries needs a list of dicts"));
            };
            let find = |wanted: &str| {
                let entry = entry.0.lock();
                let found = entry.values().find(|(key, _)| {
                    key.as_str()
                        .is_some_and(|key| key.eq_ignore_ascii_case(wanted))
                });
                found.map(|(_, value)| value.clone())
            };
            let name = find("key").filter(Value::is_true).or_else(|| find("name"));
            if let Some(name) = name.filter(Value::is_true) {
                pairs.push((name, find("value").unwrap_or_else(none)));
            }
        }
        dict_from(pairs)
    }),
    (
        "set_dict_key_value",
        &["in_dict", "keys", "value", "delimiter", "ordered_dict"],
        |_, args| {
            let (holder, last) = holder(args)?;
            store(&holder, &last, args.need(2)?.clone())?;
            Ok(args.need(0)?.clone())
        },
    ),
    (
        "update_dict_key_value",
        &["in_dict", "keys", "value", "delimiter", "ordered_dict"],
        |_, args| {
            let target = ensured(args, || dict(Entries::new()))?;
            match Kind::of(&target) {
                Kind::Dict(entries) => methods::update(entries, args.need(2)?).map_err(|_| {
                    Fault::function(format!(
                        "Cannot update <class 'dict'> with a <class '{}'>.",
                        args.get(2).map_or("NoneType", type_name)
                    ))
                })?,
                _ => {
                    return Err(Fault::function(format!(
                        "The last key contains a <class '{}'>, which cannot update.",
                        type_name(&target)
                    )));
                }
            }
            Ok(args.need(0)?.clone())
        },
    ),
    (
        "append_dict_key_value",
        &["in_dict", "keys", "value", "delimiter", "ordered_dict"],
        |_, args| grow(args, "append"),
    ),
    (
        "extend_dict_key_value",
        &["in_dict", "keys", "value", "delimiter", "ordered_dict"],
        |_, args| grow(args, "extend"),
    ),
    ("json_encode_dict", &["data"], |_, args| {
        Ok(args.need(0)?.clone())
    }),
    ("json_encode_list", &["data"], |_, args| {
        Ok(args.need(0)?.clone())
    }),
    ("json_decode_dict", &["data"], |_, args| {
        Ok(args.need(0)?.clone())
    }),
    ("json_decode_list", &["data"], |_, args| {
        Ok(args.need(0)?.clone())
    }),
    ("path_join", &["path", "*"], |_, args| {
        let mut parts = vec![text_of(args, 0)?];
        for part in &args.rest {
            parts.push(str_of(part)?);
        }
        let mut out = String::new();
        for (index, part) in parts.iter().enumerate() {
            let part = normal(part);
            if index == 0 {
                out = part;
            } else {
                if !out.ends_with('/') {
                    out.push('/');
                }
                out.push_str(part.trim_start_matches('/'));
            }
        }
        Ok(Value::from(normal(&out)))
    }),
    ("method_call", &["obj", "f_name", "*"], |py, args| {
        let (object, name) = (args.need(0)?, text_of(args, 1)?);
        if !methods::has(object, &name) {
            return Ok(none());
        }
        let call = super::Args {
            positional: args.rest.clone(),
            named: args.named.clone(),
            caller: None,
        };
        methods::call(py, object, &name, call)
    }),
];

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

/// An argument that must be text.
fn text_of(args: &Bound, index: usize) -> Outcome<String> {
    let value = args.need(index)?;
    ops::defined(value)?;
    value.as_str().map(str::to_owned).ok_or_else(|| {
        Fault::other(format!(
            "expected string or bytes-like object, got '{}'",
            type_name(value)
        ))
    })
}

fn bytes_of(args: &Bound, index: usize) -> Outcome<Vec<u8>> {
    let value = args.need(index)?;
    ops::defined(value)?;
    match Kind::of(value) {
        Kind::Str(text) => Ok(text.as_bytes().to_vec()),
        Kind::Bytes(bytes) => Ok(bytes.to_vec()),
        _ => Err(Fault::other(format!(
            "expected str, bytes, or bytearray not <class '{}'>",
            type_name(value)
        ))),
    }
}

fn hex(bytes: &[u8]) -> Value {
    Value::from(
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>(),
    )
}

fn keyed(message: &[u8], key: &[u8]) -> Outcome<Vec<u8>> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key).map_err(|_| Fault::other("the key cannot be used"))?;
    mac.update(message);
    Ok(mac.finalize().into_bytes().to_vec())
}

fn groups(captures: &Captures<'_, str>) -> Value {
    let mut found = Vec::new();
    for index in 1..captures.len() {
        found.push(
            captures
                .get(index)
                .map_or_else(none, |group| Value::from(group.as_str())),
        );
    }
    if found.is_empty() {
        // 3006 gives an empty tuple here.
        found.push(
            captures
                .get(0)
                .map_or_else(none, |group| Value::from(group.as_str())),
        );
    }
    tuple(found)
}

fn regex(args: &Bound, anchored: bool) -> Outcome<Value> {
    let pattern = pattern(args, 1, 2, 3)?;
    let text = text_of(args, 0)?;
    let found = pattern
        .captures(text.as_str())
        .map_err(|error| Fault::other(error.to_string()))?;
    Ok(match found {
        Some(found) if !anchored || found.get(0).is_some_and(|all| all.start() == 0) => {
            groups(&found)
        }
        _ => none(),
    })
}

/// `pattern.sub(template, text)` with Python's `\1` and `\g<name>`.
fn substitute(pattern: &Regex, text: &str, template: &str) -> Outcome<String> {
    let mut out = String::new();
    let mut last = 0;
    for captures in pattern.captures_iter(text) {
        let captures = captures.map_err(|error| Fault::other(error.to_string()))?;
        let Some(all) = captures.get(0) else { continue };
        out.push_str(text.get(last..all.start()).unwrap_or_default());
        expand(&mut out, &captures, template)?;
        last = all.end();
        if out.len() > 64 << 20 {
            return Err(Fault::limit("the result is too large"));
        }
    }
    out.push_str(text.get(last..).unwrap_or_default());
    Ok(out)
}

fn expand(out: &mut String, captures: &Captures<'_, str>, template: &str) -> Outcome<()> {
    let mut letters = template.chars().peekable();
    let group = |index: usize| -> Outcome<&str> {
        if index >= captures.len() {
            return Err(Fault::other(format!("invalid group reference {index}")));
        }
        Ok(captures.get(index).map_or("", |group| group.as_str()))
    };
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            Some(digit @ '0'..='9') => {
                let mut index = digit.to_digit(10).unwrap_or(0) as usize;
                if let Some(more) = letters.peek().and_then(|letter| letter.to_digit(10)) {
                    letters.next();
                    index = index * 10 + more as usize;
                }
                out.push_str(group(index)?);
            }
            Some('g') if letters.peek() == Some(&'<') => {
                letters.next();
                let name: String = letters
                    .by_ref()
                    .take_while(|letter| *letter != '>')
                    .collect();
                match name.parse() {
                    Ok(index) => out.push_str(group(index)?),
                    Err(_) => match captures.name(&name) {
                        Some(found) => out.push_str(found.as_str()),
                        None => return Err(Fault::other(format!("unknown group name '{name}'"))),
                    },
                }
            }
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('\\') => out.push('\\'),
            Some(other) if other.is_ascii_alphabetic() => {
                return Err(Fault::other(format!("bad escape \\{other}")));
            }
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
            None => return Err(Fault::other("bad escape (end of pattern)")),
        }
    }
    Ok(())
}

pub(super) fn random_bytes(count: usize) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes).map_err(|error| Fault::other(error.to_string()))?;
    Ok(bytes)
}

/// A random number below a bound; the bias is far below anything that matters here.
pub(super) fn random_below(bound: usize) -> Outcome<usize> {
    let bytes = random_bytes(16)?;
    let number = bytes
        .iter()
        .fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
    Ok(usize::try_from(number % (bound.max(1) as u128)).unwrap_or(0))
}

/// With a seed what Python's generator gives, so that a list comes out the same each time.
fn sample(items: &[Value], size: usize, seed: Option<&Value>) -> Outcome<Value> {
    if size > items.len() {
        return Err(Fault::other("Sample larger than population or is negative"));
    }
    let mut twister = match seed.map(Kind::of) {
        None | Some(Kind::None) => Twister::unseen().map_err(Fault::other)?,
        Some(Kind::Str(seed)) => Twister::of_digest(seed),
        Some(_) => return Err(Fault::other("object supporting the buffer API required")),
    };
    Ok(list(twister.sample(items, size)))
}

fn random_hash(args: &Bound) -> Outcome<Value> {
    let bytes = random_bytes(32)?;
    Ok(match args.text(1, "md5")?.as_str() {
        "md5" => hex(&md5::Md5::digest(bytes)),
        "sha1" => hex(&sha1::Sha1::digest(bytes)),
        "sha256" => hex(&Sha256::digest(bytes)),
        "sha512" => hex(&Sha512::digest(bytes)),
        other => {
            return Err(Fault::other(format!(
                "module 'hashlib' has no attribute '{other}'"
            )));
        }
    })
}

pub(super) fn number_of(value: &Value) -> Outcome<Value> {
    ops::defined(value)?;
    Ok(match Kind::of(value) {
        Kind::Str(text) => match super::builtin::parse_int(text, 10) {
            Some(number) => super::super::value::int(number),
            None => match text.trim().replace('_', "").parse::<f64>() {
                Ok(number) => Value::from(number),
                Err(_) => value.clone(),
            },
        },
        Kind::Float(number) => super::super::value::int(number.trunc() as i128),
        Kind::Int(_) => value.clone(),
        Kind::Bool(flag) => Value::from(i32::from(flag)),
        _ => {
            return Err(Fault::other(format!(
                "int() argument must be a string, a bytes-like object or a real number, not '{}'",
                type_name(value)
            )));
        }
    })
}

fn human(args: &Bound) -> Outcome<Value> {
    let text = str_of(args.need(0)?)?;
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = match unit.trim().to_lowercase() {
        unit if unit.is_empty() => args.text(1, "B")?.to_lowercase(),
        unit => unit,
    };
    let Ok(number) = number.parse::<f64>() else {
        return Ok(Value::from(0));
    };
    let power = unit
        .chars()
        .next()
        .and_then(|first| "bkmgtpezy".find(first));
    let Some(power) = power.and_then(|power| i32::try_from(power).ok()) else {
        return Ok(Value::from(0));
    };
    let rest = unit.get(1..).unwrap_or_default();
    let factor = match rest {
        "b" if power > 0 && args.flag(2, false)? => 1000_f64.powi(power),
        "" | "ib" => 1024_f64.powi(power),
        "b" if power > 0 => 1024_f64.powi(power),
        _ => return Ok(Value::from(0)),
    };
    Ok(super::super::value::int((number * factor) as i128))
}

/// A glob or a whole-line regular expression.
fn expression_matches(text: &str, expression: &str) -> bool {
    glob(text, expression)
        || Regex::new(&format!(r"\A(?:{expression})\z"))
            .is_ok_and(|pattern| pattern.is_match(text).unwrap_or(false))
}

/// `fnmatch` with `*`, `?` and `[…]`.
pub(crate) fn glob(text: &str, expression: &str) -> bool {
    let mut pattern = String::from(r"(?s)\A");
    let letters: Vec<char> = expression.chars().collect();
    let mut at = 0;
    while let Some(letter) = letters.get(at) {
        at += 1;
        match letter {
            '*' => pattern.push_str(".*"),
            '?' => pattern.push('.'),
            '[' => {
                let rest = letters.get(at + 1..).unwrap_or_default();
                match rest.iter().position(|letter| *letter == ']') {
                    Some(end) => {
                        let class: String = letters
                            .get(at..at + 1 + end)
                            .unwrap_or_default()
                            .iter()
                            .collect();
                        let class = class.replace('\\', r"\\").replace('[', r"\[");
                        let class = match class.strip_prefix('!') {
                            Some(rest) => format!("^{rest}"),
                            None => class,
                        };
                        pattern.push_str(&format!("[{class}]"));
                        at += end + 2;
                    }
                    None => pattern.push_str(r"\["),
                }
            }
            other => pattern.push_str(&fancy_regex::escape(&other.to_string())),
        }
    }
    pattern.push_str(r"\z");
    Regex::new(&pattern).is_ok_and(|pattern| pattern.is_match(text).unwrap_or(false))
}

fn compare_dicts(args: &Bound) -> Outcome<Value> {
    let (old, new) = (args.need(0)?, args.need(1)?);
    let mut entries = Entries::new();
    for key in ops::items(new)?.into_iter().chain(ops::items(old)?) {
        let hash = Key::of(&key)?;
        let (in_old, in_new) = (ops::contains(old, &key)?, ops::contains(new, &key)?);
        let before = if in_old {
            ops::item(old, &key)?
        } else {
            Value::from("")
        };
        let after = if in_new {
            ops::item(new, &key)?
        } else {
            Value::from("")
        };
        if in_old && in_new && ops::equal(&before, &after)? {
            continue;
        }
        let change = match (in_old, in_new) {
            (true, false) => [("new", after), ("old", before)],
            _ => [("old", before), ("new", after)],
        };
        entries.insert(hash, (key, dict_of(change)));
    }
    Ok(dict(entries))
}

fn exactly(args: &Bound, amount: i64) -> Outcome<Value> {
    let count = ops::items(args.need(0)?)?
        .iter()
        .filter(|item| item.is_true())
        .count();
    Ok(Value::from(
        i64::try_from(count).unwrap_or(i64::MAX) == amount,
    ))
}

/// `traverse_dict_and_list`.
fn traverse(data: &Value, key: &Value, default: &Value, delimiter: &str) -> Outcome<Value> {
    let keys: Vec<Value> = match Kind::of(key) {
        Kind::Str(text) if !delimiter.is_empty() => {
            text.split(delimiter).map(Value::from).collect()
        }
        Kind::Int(_) | Kind::Str(_) => vec![key.clone()],
        _ => ops::items(key)?,
    };
    let mut value = data.clone();
    for key in keys {
        let next = match Kind::of(&value) {
            Kind::Undefined(undefined) => {
                return Err(super::super::value::undefined_fault(undefined));
            }
            Kind::List(items) => {
                let items = items.0.lock().clone();
                let number = match Kind::of(&key) {
                    Kind::Str(text) => super::builtin::parse_int(text, 10),
                    _ => ops::as_int(&key),
                };
                let wanted = number.map_or_else(|| key.clone(), super::super::value::int);
                let hash = Key::of(&wanted)?;
                let embedded = items.iter().find_map(|item| match Kind::of(item) {
                    Kind::Dict(entries) => {
                        entries.0.lock().get(&hash).map(|(_, value)| value.clone())
                    }
                    _ => None,
                });
                embedded.or_else(|| {
                    let index = number?;
                    let length = i128::try_from(items.len()).ok()?;
                    let index = if index < 0 { index + length } else { index };
                    items.get(usize::try_from(index).ok()?).cloned()
                })
            }
            Kind::Dict(entries) => {
                let hash = Key::of(&key)?;
                let found = entries.0.lock().get(&hash).map(|(_, value)| value.clone());
                // Keys that are numbers are found by their text as well.
                found.or_else(|| {
                    let number = super::builtin::parse_int(key.as_str()?, 10)?;
                    let entries = entries.0.lock();
                    entries
                        .get(&Key::Int(number))
                        .map(|(_, value)| value.clone())
                })
            }
            _ => None,
        };
        match next {
            Some(next) => value = next,
            None => return Ok(default.clone()),
        }
    }
    Ok(value)
}

fn flatten(
    py: &mut Py<'_, '_, '_>,
    data: &Value,
    levels: Option<i64>,
    keep_nulls: bool,
    depth: usize,
    out: &mut Vec<Value>,
) -> Outcome<()> {
    if depth > 100 {
        return Err(Fault::other("Reference cycle detected. Check input list."));
    }
    let items = ops::items(data)?;
    py.run.round(items.len())?;
    for item in items {
        let null = item.is_none() || matches!(item.as_str(), Some("None" | "null"));
        if null && !keep_nulls {
            continue;
        }
        let nested = item.as_str().is_none() && ops::items(&item).is_ok();
        match levels {
            None if nested => flatten(py, &item, None, keep_nulls, depth + 1, out)?,
            Some(left) if nested && left >= 1 => {
                flatten(py, &item, Some(left - 1), keep_nulls, depth + 1, out)?;
            }
            _ => out.push(item),
        }
    }
    Ok(())
}

/// The dict that holds the last of the keys, which is made if it is not there, and that key.
fn holder(args: &Bound) -> Outcome<(Value, Value)> {
    let keys = str_of(args.need(1)?)?;
    let delimiter = args.text(3, ":")?;
    let mut value = args.need(0)?.clone();
    let (path, last) = match keys.rsplit_once(delimiter.as_str()) {
        Some((path, last)) if !delimiter.is_empty() => (Some(path), last),
        _ => (None, keys.as_str()),
    };
    for key in path.iter().flat_map(|path| path.split(delimiter.as_str())) {
        let Kind::Dict(entries) = Kind::of(&value) else {
            break;
        };
        let mut entries = entries.0.lock();
        let entry = entries
            .entry(Key::text(key))
            .or_insert_with(|| (Value::from(key), dict(Entries::new())));
        if entry.1.downcast_object_ref::<Dict>().is_none() {
            entry.1 = dict(Entries::new());
        }
        let next = entry.1.clone();
        drop(entries);
        value = next;
    }
    Ok((value, Value::from(last)))
}

fn store(holder: &Value, key: &Value, value: Value) -> Outcome<()> {
    let Kind::Dict(entries) = Kind::of(holder) else {
        return Err(Fault::other(format!(
            "'{}' object does not support item assignment",
            type_name(holder)
        )));
    };
    entries.0.lock().insert(Key::of(key)?, (key.clone(), value));
    Ok(())
}

/// The value at the end of the keys; one that is missing or `None` is made.
fn ensured(args: &Bound, make: impl Fn() -> Value) -> Outcome<Value> {
    let (holder, last) = holder(args)?;
    let found = ops::item(&holder, &last)?;
    if !is_undefined(&found) && !found.is_none() {
        return Ok(found);
    }
    let made = make();
    store(&holder, &last, made.clone())?;
    Ok(made)
}

fn grow(args: &Bound, how: &str) -> Outcome<Value> {
    let target = ensured(args, || list(Vec::new()))?;
    let Kind::List(items) = Kind::of(&target) else {
        return Err(Fault::function(format!(
            "The last key contains a <class '{}'>, which cannot {how}.",
            type_name(&target)
        )));
    };
    if how == "append" {
        items.0.lock().push(args.need(2)?.clone());
    } else {
        let more = ops::items(args.need(2)?).map_err(|_| {
            Fault::function(format!(
                "Cannot extend <class 'list'> with a <class '{}'>.",
                args.get(2).map_or("NoneType", type_name)
            ))
        })?;
        items.0.lock().extend(more);
    }
    Ok(args.need(0)?.clone())
}

/// `os.path.normpath`.
pub(crate) fn normal(path: &str) -> String {
    let root = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if root => {}
            part => parts.push(part),
        }
    }
    match (root, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

//! Salt's filters for texts, numbers and paths, and tests written as filters.

use minijinja::value::Value;
use saltern_python::number::parse_int;
use saltern_python::path::normpath;
use saltern_python::shlex;

use super::super::args::Bound;
use super::super::fault::{Fault, Outcome};
use super::super::text::str_of;
use super::super::value::{Kind, list, none, type_name};
use super::super::{methods, ops};
use super::Row;
use super::digests::text_of;

pub(super) const FILTERS: &[Row] = &[
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
            _ => false,
        }))
    }),
    ("quote", &["txt"], |_, args| {
        if !ops::truth(args.need(0)?)? {
            return Ok(Value::from("''"));
        }
        let text = text_of(args, 0)?;
        Ok(Value::from(shlex::quote(&text)))
    }),
    ("to_num", &["text"], |_, args| number_of(args.need(0)?)),
    ("str_to_num", &["text"], |_, args| number_of(args.need(0)?)),
    ("is_hex", &["value"], |_, args| {
        let text = args.need(0)?.as_str();
        Ok(Value::from(
            text.and_then(|text| parse_int(text, 16).ok()).is_some(),
        ))
    }),
    ("contains_whitespace", &["text"], |_, args| {
        for item in ops::items(args.need(0)?)? {
            let Kind::Str(text) = Kind::of(&item) else {
                return Err(Fault::other(format!(
                    "'{}' object has no attribute 'isspace'",
                    type_name(&item)
                )));
            };
            if !text.is_empty() && text.chars().all(char::is_whitespace) {
                return Ok(Value::from(true));
            }
        }
        Ok(Value::from(false))
    }),
    (
        "human_to_bytes",
        &["size", "default_unit", "handle_metric"],
        |_, args| human(args),
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
    ("exactly_n_true", &["iterable", "amount"], |_, args| {
        exactly(args, args.int(1, 1)?)
    }),
    ("exactly_one_true", &["iterable"], |_, args| {
        exactly(args, 1)
    }),
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
            !matches!(Kind::of(value), Kind::Str(_)) && ops::items(value).is_ok(),
        ))
    }),
    ("sorted_ignorecase", &["to_sort"], |_, args| {
        let mut pairs = Vec::new();
        for item in ops::items(args.need(0)?)? {
            pairs.push((Value::from(str_of(&item)?.to_lowercase()), item));
        }
        ops::sorted(pairs, false).map(list)
    }),
    ("path_join", &["path", "*"], |_, args| {
        let mut parts = vec![text_of(args, 0)?];
        for part in &args.rest {
            parts.push(str_of(part)?);
        }
        let mut out = String::new();
        for (index, part) in parts.iter().enumerate() {
            let part = normpath(part);
            if index == 0 {
                out = part;
            } else {
                if !out.ends_with('/') {
                    out.push('/');
                }
                out.push_str(part.trim_start_matches('/'));
            }
        }
        Ok(Value::from(normpath(&out)))
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

pub(super) fn number_of(value: &Value) -> Outcome<Value> {
    ops::defined(value)?;
    Ok(match Kind::of(value) {
        Kind::Str(text) => match parse_int(text, 10).ok() {
            Some(number) => super::super::value::int(number),
            None => match text.trim().replace('_', "").parse::<f64>() {
                Ok(number) => Value::from(number),
                Err(_) => value.clone(),
            },
        },
        Kind::Bytes(bytes) => {
            let number = number_of(&Value::from(String::from_utf8_lossy(bytes)))?;
            match Kind::of(&number) {
                Kind::Str(_) => value.clone(),
                _ => number,
            }
        }
        Kind::Float(number) if number.is_nan() => value.clone(),
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

fn exactly(args: &Bound, amount: i64) -> Outcome<Value> {
    let count = ops::items(args.need(0)?)?
        .iter()
        .filter(|item| item.is_true())
        .count();
    Ok(Value::from(
        i64::try_from(count).unwrap_or(i64::MAX) == amount,
    ))
}

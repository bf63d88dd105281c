//! Jinja2's own filters that work on one value.

use minijinja::value::Value;
use saltern_base::percent_encoded;
use saltern_python::number::{parse_float, parse_int};

use super::super::args::Bound;
use super::super::fault::{Fault, Outcome};
use super::super::string_methods::{capitalized, lines, replaced};
use super::super::text::str_of;
use super::super::value::{Kind, int, is_undefined, list, tuple, type_name};
use super::super::{Py, ops, text};
use super::Row;

pub(super) const FILTERS: &[Row] = &[
    ("abs", &["x"], |_, args| match ops::as_int(args.need(0)?) {
        Some(number) => Ok(int(number.abs())),
        None => match ops::as_float(args.need(0)?) {
            Some(number) => Ok(Value::from(number.abs())),
            None => Err(Fault::other(format!(
                "bad operand type for abs(): '{}'",
                type_name(args.need(0)?)
            ))),
        },
    }),
    ("attr", &["obj", "name"], |_, args| {
        ops::attribute_only(args.need(0)?, &str_of(args.need(1)?)?)
    }),
    ("capitalize", &["s"], |py, args| {
        Ok(Value::from(capitalized(&soft(py, args)?)))
    }),
    ("center", &["value", "width"], |py, args| {
        let value = soft(py, args)?;
        let width = usize::try_from(args.int(1, 80)?).unwrap_or(0).min(100_000);
        let missing = width.saturating_sub(value.chars().count());
        let left = missing / 2 + (missing & width & 1);
        Ok(Value::from(format!(
            "{}{value}{}",
            " ".repeat(left),
            " ".repeat(missing - left)
        )))
    }),
    ("count", &["obj"], |_, args| {
        ops::length(args.need(0)?).map(Value::from)
    }),
    ("length", &["obj"], |_, args| {
        ops::length(args.need(0)?).map(Value::from)
    }),
    ("d", &["value", "default_value", "boolean"], |_, args| {
        default(args)
    }),
    (
        "default",
        &["value", "default_value", "boolean"],
        |_, args| default(args),
    ),
    ("e", &["s"], |py, args| {
        Ok(Value::from(escaped(&soft(py, args)?)))
    }),
    ("escape", &["s"], |py, args| {
        Ok(Value::from(escaped(&soft(py, args)?)))
    }),
    ("forceescape", &["s"], |py, args| {
        Ok(Value::from(escaped(&soft(py, args)?)))
    }),
    ("safe", &["value"], |py, args| {
        Ok(Value::from(soft(py, args)?))
    }),
    ("filesizeformat", &["value", "binary"], |_, args| {
        file_size(args)
    }),
    ("float", &["value", "default"], |_, args| {
        let value = args.need(0)?;
        ops::defined(value)?;
        let parsed = match Kind::of(value) {
            Kind::Str(text) => text.trim().replace('_', "").parse().ok(),
            _ => ops::as_float(value),
        };
        Ok(parsed
            .map(Value::from)
            .unwrap_or_else(|| args.get(1).cloned().unwrap_or_else(|| Value::from(0.0))))
    }),
    ("int", &["value", "default", "base"], |_, args| to_int(args)),
    ("format", &["value", "*"], |_, args| {
        let format = str_of(args.need(0)?)?;
        if !args.rest.is_empty() && !args.named.is_empty() {
            return Err(Fault::other(
                "can't handle positional and keyword arguments at the same time",
            ));
        }
        let values = if args.named.is_empty() {
            tuple(args.rest.clone())
        } else {
            super::super::value::dict_of(
                args.named
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.clone())),
            )
        };
        text::percent(&format, &values).map(Value::from)
    }),
    ("indent", &["s", "width", "first", "blank"], |py, args| {
        indent(py, args)
    }),
    ("lower", &["s"], |py, args| {
        Ok(Value::from(soft(py, args)?.to_lowercase()))
    }),
    ("upper", &["s"], |py, args| {
        Ok(Value::from(soft(py, args)?.to_uppercase()))
    }),
    ("title", &["s"], |py, args| {
        let mut out = String::new();
        let mut start = true;
        for letter in soft(py, args)?.chars() {
            let mark = matches!(letter, '-' | '(' | '{' | '[' | '<') || letter.is_whitespace();
            if start && !mark {
                out.extend(letter.to_uppercase());
            } else {
                out.extend(letter.to_lowercase());
            }
            start = mark;
        }
        Ok(Value::from(out))
    }),
    ("pprint", &["value"], |_, args| {
        super::pretty::pretty(args.need(0)?).map(Value::from)
    }),
    ("replace", &["s", "old", "new", "count"], |py, args| {
        let (old, new) = (str_of(args.need(1)?)?, str_of(args.need(2)?)?);
        replaced(&soft(py, args)?, &old, &new, args.int(3, -1)?)
    }),
    ("reverse", &["value"], |_, args| {
        match Kind::of(args.need(0)?) {
            Kind::Str(text) => Ok(Value::from(text.chars().rev().collect::<String>())),
            _ => {
                let mut items = ops::items(args.need(0)?)?;
                items.reverse();
                Ok(list(items))
            }
        }
    }),
    ("round", &["value", "precision", "method"], |_, args| {
        round(args)
    }),
    ("string", &["value"], |py, args| {
        Ok(Value::from(soft(py, args)?))
    }),
    ("striptags", &["value"], |py, args| {
        let text = soft(py, args)?;
        let tags = super::own_pattern(r"(?s)<!--.*?-->|<[^>]*>")?;
        let plain = tags.replace_all(&text, "").into_owned();
        Ok(Value::from(
            plain.split_whitespace().collect::<Vec<_>>().join(" "),
        ))
    }),
    ("trim", &["value", "chars"], |py, args| {
        let text = soft(py, args)?;
        Ok(Value::from(
            match args.get(1).filter(|chars| !chars.is_none()) {
                Some(chars) => {
                    let chars = str_of(chars)?;
                    text.trim_matches(|letter| chars.contains(letter))
                        .to_owned()
                }
                None => text.trim().to_owned(),
            },
        ))
    }),
    (
        "truncate",
        &["s", "length", "killwords", "end", "leeway"],
        |py, args| {
            let length = usize::try_from(args.int(1, 255)?).unwrap_or(0);
            let end = args.text(3, "...")?;
            let leeway = usize::try_from(args.int(4, 5)?).unwrap_or(0);
            let value = args.need(0)?;
            if !matches!(Kind::of(value), Kind::Str(_) | Kind::Undefined(_)) {
                // Anything with a length that needs no cutting stays; the rest cannot be cut.
                if ops::length(value)? <= length.saturating_add(leeway) {
                    return Ok(value.clone());
                }
                return Err(Fault::other(format!(
                    "can only concatenate {0} (not \"str\") to {0}",
                    type_name(value)
                )));
            }
            let text = soft(py, args)?;
            if text.chars().count() <= length.saturating_add(leeway) {
                return Ok(Value::from(text));
            }
            let kept: String = text
                .chars()
                .take(length.saturating_sub(end.chars().count()))
                .collect();
            if args.flag(2, false)? {
                return Ok(Value::from(kept + &end));
            }
            let kept = kept
                .rsplit_once(' ')
                .map_or(kept.as_str(), |(before, _)| before);
            Ok(Value::from(format!("{kept}{end}")))
        },
    ),
    ("urlencode", &["value"], |_, args| urlencode(args)),
    ("wordcount", &["s"], |py, args| {
        let text = soft(py, args)?;
        let words = text.split(|letter: char| letter != '_' && !letter.is_alphanumeric());
        Ok(Value::from(words.filter(|word| !word.is_empty()).count()))
    }),
    (
        "wordwrap",
        &["s", "width", "break_long_words", "wrapstring"],
        |py, args| {
            let text = soft(py, args)?;
            let width = usize::try_from(args.int(1, 79)?).unwrap_or(79).max(1);
            let end = args.text(3, "\n")?;
            let wrapped: Vec<String> = text.lines().map(|line| wrap(line, width, &end)).collect();
            Ok(Value::from(wrapped.join(&end)))
        },
    ),
];

/// The value as text, as filters on text want it.
fn soft(py: &Py<'_, '_, '_>, args: &Bound) -> Outcome<String> {
    let value = args.need(0)?;
    if is_undefined(value) && !py.run.strict() {
        return Ok(String::new());
    }
    str_of(value)
}

fn default(args: &Bound) -> Outcome<Value> {
    let value = args.need(0)?;
    let other = || args.get(1).cloned().unwrap_or_else(|| Value::from(""));
    let missing = is_undefined(value) || (args.flag(2, false)? && !value.is_true());
    Ok(if missing { other() } else { value.clone() })
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
        .replace('"', "&#34;")
}

fn file_size(args: &Bound) -> Outcome<Value> {
    let value = args.need(0)?;
    let bytes = match Kind::of(value) {
        Kind::Str(text) => text.parse().unwrap_or(0.0),
        _ => ops::as_float(value).unwrap_or(0.0),
    };
    let binary = args.flag(1, false)?;
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return Ok(Value::from("1 Byte"));
    }
    if bytes < base {
        return Ok(Value::from(format!("{} Bytes", bytes.trunc())));
    }
    let units = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut unit = base;
    let mut last = String::new();
    for name in units {
        unit *= base;
        let name = if binary {
            format!("{}iB", name.to_uppercase())
        } else {
            format!("{name}B")
        };
        let count = base * bytes / unit;
        last = match count.is_nan() {
            true => format!("nan {name}"),
            false => format!("{count:.1} {name}"),
        };
        if bytes < unit {
            break;
        }
    }
    Ok(Value::from(last))
}

fn to_int(args: &Bound) -> Outcome<Value> {
    let value = args.need(0)?;
    ops::defined(value)?;
    let base = u32::try_from(args.int(2, 10)?).unwrap_or(10);
    let parsed = match Kind::of(value) {
        Kind::Str(text) => parse_int(text, base).ok().or_else(|| {
            parse_float(text)
                .filter(|n| n.is_finite())
                .map(|n| n as i128)
        }),
        Kind::Float(number) if number.is_finite() => Some(number.trunc() as i128),
        _ => ops::as_int(value),
    };
    Ok(match parsed {
        Some(number) => int(number),
        None => args.get(1).cloned().unwrap_or_else(|| Value::from(0)),
    })
}

fn indent(py: &mut Py<'_, '_, '_>, args: &Bound) -> Outcome<Value> {
    let text = soft(py, args)?;
    let margin = match args.get(1) {
        Some(width) if width.as_str().is_some() => str_of(width)?,
        _ => " ".repeat(usize::try_from(args.int(1, 4)?).unwrap_or(0).min(10_000)),
    };
    let (first, blank) = (args.flag(2, false)?, args.flag(3, false)?);
    let all = lines(&(text + "\n"), false);
    py.run.print(all.len().saturating_mul(margin.len()))?;
    let mut out = String::new();
    for (index, line) in all.iter().enumerate() {
        if index > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&margin);
            }
        }
        out.push_str(line);
    }
    Ok(Value::from(if first { margin + &out } else { out }))
}

fn round(args: &Bound) -> Outcome<Value> {
    let value = args.need(0)?;
    ops::defined(value)?;
    let Some(number) = ops::as_float(value) else {
        return Err(Fault::other(format!(
            "type {} doesn't define __round__ method",
            type_name(value)
        )));
    };
    let precision = args.int(1, 0)?.clamp(-300, 300);
    let method = args.text(2, "common")?;
    let factor = 10_f64.powi(i32::try_from(precision).unwrap_or(0));
    let rounded = match method.as_str() {
        // The digits that Rust writes are rounded half to even on the exact value, as Python's.
        "common" if precision >= 0 => {
            let digits = usize::try_from(precision).unwrap_or(0);
            format!("{number:.digits$}").parse().unwrap_or(number)
        }
        "common" => (number * factor).round_ties_even() / factor,
        "ceil" => (number * factor).ceil() / factor,
        "floor" => (number * factor).floor() / factor,
        _ => return Err(Fault::other("method must be common, ceil or floor")),
    };
    if method == "common" && ops::as_int(value).is_some() {
        return Ok(int(rounded as i128));
    }
    Ok(Value::from(rounded))
}

fn urlencode(args: &Bound) -> Outcome<Value> {
    let value = args.need(0)?;
    let quote = |value: &Value| -> Outcome<String> {
        Ok(percent_encoded(str_of(value)?.as_bytes(), "_.-~").replace("%20", "+"))
    };
    let pairs = match Kind::of(value) {
        Kind::Dict(entries) => entries.0.lock().values().cloned().collect(),
        Kind::List(_) | Kind::Tuple(_) => {
            let mut pairs = Vec::new();
            for pair in ops::items(value)? {
                match ops::items(&pair)?.as_slice() {
                    [key, value] => pairs.push((key.clone(), value.clone())),
                    _ => return Err(Fault::other("not enough values to unpack")),
                }
            }
            pairs
        }
        _ => {
            return Ok(Value::from(percent_encoded(
                str_of(value)?.as_bytes(),
                "_.-~/",
            )));
        }
    };
    let parts = pairs
        .iter()
        .map(|(key, value)| Ok(format!("{}={}", quote(key)?, quote(value)?)))
        .collect::<Outcome<Vec<_>>>()?;
    Ok(Value::from(parts.join("&")))
}

fn wrap(line: &str, width: usize, end: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let mut rest: Vec<char> = word.chars().collect();
        let needed = rest.len() + usize::from(column > 0);
        if column > 0 && column + needed > width {
            out.push_str(end);
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        while rest.len() > width {
            out.extend(rest.drain(..width));
            out.push_str(end);
        }
        column += rest.len();
        out.extend(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{escaped, wrap};

    #[test]
    fn texts_are_made_safe_for_html() {
        assert_eq!(escaped("<a href='x'>"), "&lt;a href=&#39;x&#39;&gt;");
    }

    #[test]
    fn words_are_wrapped() {
        assert_eq!(wrap("aa bb cc", 5, "\n"), "aa bb\ncc");
    }
}

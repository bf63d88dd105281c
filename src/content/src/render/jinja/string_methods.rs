//! The methods of Python's `str`.

use minijinja::value::Value;

use super::args::{Args, Bound};
use super::fault::{Fault, Outcome};
use super::value::{Kind, list, tuple, type_name};
use super::{ops, text};

type Method = fn(&str, &Bound) -> Outcome<Value>;

/// Name, parameters and what the method does.
const METHODS: [(&str, &[&str], Method); 42] = [
    ("capitalize", &[], |text, _| {
        Ok(Value::from(capitalized(text)))
    }),
    ("casefold", &[], |text, _| {
        Ok(Value::from(text.to_lowercase()))
    }),
    ("center", &["width", "fillchar"], |text, args| {
        justified(text, args, 1)
    }),
    ("count", &["sub"], |text, args| {
        let part = argument(args, 0)?;
        let count = match part.as_str() {
            "" => text.chars().count() + 1,
            part => text.matches(part).count(),
        };
        Ok(Value::from(count))
    }),
    ("encode", &["encoding", "errors"], |text, _| {
        Ok(Value::from_bytes(text.as_bytes().to_vec()))
    }),
    ("endswith", &["suffix"], |text, args| {
        any_of(args, |part| text.ends_with(part))
    }),
    ("expandtabs", &["tabsize"], |text, args| {
        let size = usize::try_from(args.int(0, 8)?).unwrap_or(0).min(1000);
        Ok(Value::from(text.replace('\t', &" ".repeat(size))))
    }),
    ("find", &["sub"], |text, args| {
        Ok(Value::from(found(text, args, false)?))
    }),
    ("index", &["sub"], |text, args| position(text, args, false)),
    ("isalnum", &[], |text, _| each(text, char::is_alphanumeric)),
    ("isalpha", &[], |text, _| each(text, char::is_alphabetic)),
    ("isascii", &[], |text, _| Ok(Value::from(text.is_ascii()))),
    ("isdecimal", &[], |text, _| {
        each(text, |letter| letter.is_ascii_digit())
    }),
    ("isdigit", &[], |text, _| {
        each(text, |letter| letter.is_ascii_digit())
    }),
    ("isidentifier", &[], |text, _| {
        let starts = text.starts_with(|letter: char| letter == '_' || letter.is_alphabetic());
        let rest = text
            .chars()
            .all(|letter| letter == '_' || letter.is_alphanumeric());
        Ok(Value::from(starts && rest))
    }),
    ("islower", &[], |text, _| {
        Ok(Value::from(cased(text, char::is_uppercase)))
    }),
    ("isnumeric", &[], |text, _| each(text, char::is_numeric)),
    ("isprintable", &[], |text, _| {
        Ok(Value::from(!text.chars().any(char::is_control)))
    }),
    ("isspace", &[], |text, _| each(text, char::is_whitespace)),
    ("istitle", &[], |text, _| {
        Ok(Value::from(
            text == titled(text) && text.chars().any(char::is_alphabetic),
        ))
    }),
    ("isupper", &[], |text, _| {
        Ok(Value::from(cased(text, char::is_lowercase)))
    }),
    ("join", &["iterable"], |text, args| {
        let mut parts = Vec::new();
        for (index, item) in ops::items(args.need(0)?)?.iter().enumerate() {
            match Kind::of(item) {
                Kind::Str(part) => parts.push(part.to_owned()),
                _ => {
                    return Err(Fault::other(format!(
                        "sequence item {index}: expected str instance, {} found",
                        type_name(item)
                    )));
                }
            }
        }
        Ok(Value::from(parts.join(text)))
    }),
    ("ljust", &["width", "fillchar"], |text, args| {
        justified(text, args, 0)
    }),
    ("lower", &[], |text, _| Ok(Value::from(text.to_lowercase()))),
    ("lstrip", &["chars"], |text, args| {
        stripped(text, args, true, false)
    }),
    ("partition", &["sep"], |text, args| {
        let mark = argument(args, 0)?;
        Ok(parts(match text.split_once(&*mark) {
            Some((before, after)) => [before, &mark, after],
            None => [text, "", ""],
        }))
    }),
    ("removeprefix", &["prefix"], |text, args| {
        let part = argument(args, 0)?;
        Ok(Value::from(text.strip_prefix(&*part).unwrap_or(text)))
    }),
    ("removesuffix", &["suffix"], |text, args| {
        let part = argument(args, 0)?;
        Ok(Value::from(text.strip_suffix(&*part).unwrap_or(text)))
    }),
    ("replace", &["old", "new", "count"], |text, args| {
        let (old, new) = (argument(args, 0)?, argument(args, 1)?);
        replaced(text, &old, &new, args.int(2, -1)?)
    }),
    ("rfind", &["sub"], |text, args| {
        Ok(Value::from(found(text, args, true)?))
    }),
    ("rindex", &["sub"], |text, args| position(text, args, true)),
    ("rjust", &["width", "fillchar"], |text, args| {
        justified(text, args, 2)
    }),
    ("rpartition", &["sep"], |text, args| {
        let mark = argument(args, 0)?;
        Ok(parts(match text.rsplit_once(&*mark) {
            Some((before, after)) => [before, &mark, after],
            None => ["", "", text],
        }))
    }),
    ("rsplit", &["sep", "maxsplit"], |text, args| {
        split(text, args, true)
    }),
    ("rstrip", &["chars"], |text, args| {
        stripped(text, args, false, true)
    }),
    ("split", &["sep", "maxsplit"], |text, args| {
        split(text, args, false)
    }),
    ("splitlines", &["keepends"], |text, args| {
        let keep = args.flag(0, false)?;
        Ok(list(
            lines(text, keep).into_iter().map(Value::from).collect(),
        ))
    }),
    ("startswith", &["prefix"], |text, args| {
        any_of(args, |part| text.starts_with(part))
    }),
    ("strip", &["chars"], |text, args| {
        stripped(text, args, true, true)
    }),
    ("swapcase", &[], |text, _| {
        Ok(Value::from(
            text.chars()
                .flat_map(|letter| -> Vec<char> {
                    if letter.is_uppercase() {
                        letter.to_lowercase().collect()
                    } else {
                        letter.to_uppercase().collect()
                    }
                })
                .collect::<String>(),
        ))
    }),
    ("title", &[], |text, _| Ok(Value::from(titled(text)))),
    ("upper", &[], |text, _| Ok(Value::from(text.to_uppercase()))),
];

pub(crate) fn exists(name: &str) -> bool {
    matches!(name, "format" | "format_map" | "zfill")
        || METHODS.iter().any(|(found, ..)| *found == name)
}

pub(crate) fn call(text: &str, name: &str, args: Args) -> Outcome<Value> {
    if name == "format" {
        let named = args.named;
        let find = |name: &str| {
            named
                .iter()
                .find(|(found, _)| found == name)
                .map(|(_, value)| value.clone())
        };
        return text::format(text, &args.positional, &find).map(Value::from);
    }
    if name == "format_map" {
        let bound = args.bind(name, &["mapping"])?;
        let mapping = bound.need(0)?.clone();
        let find = |name: &str| ops::item(&mapping, &Value::from(name)).ok();
        return text::format(text, &[], &find).map(Value::from);
    }
    if name == "zfill" {
        let width = usize::try_from(args.bind(name, &["width"])?.int(0, 0)?).unwrap_or(0);
        let missing = width.min(1_000_000).saturating_sub(text.chars().count());
        let (sign, rest) = match text.chars().next() {
            Some('+' | '-') => text.split_at(1),
            _ => ("", text),
        };
        return Ok(Value::from(format!("{sign}{}{rest}", "0".repeat(missing))));
    }
    let found = METHODS.iter().find(|(found, ..)| *found == name);
    let Some((_, parameters, method)) = found else {
        return Err(Fault::other(format!(
            "'str' object has no attribute '{name}'"
        )));
    };
    method(text, &args.bind(name, parameters)?)
}

/// A text argument; other types are an error, as in Python.
fn argument(args: &Bound, index: usize) -> Outcome<String> {
    let value = args.need(index)?;
    ops::defined(value)?;
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| Fault::other(format!("must be str, not {}", type_name(value))))
}

fn each(text: &str, test: impl Fn(char) -> bool) -> Outcome<Value> {
    Ok(Value::from(!text.is_empty() && text.chars().all(test)))
}

/// Whether there is a letter with a case and none of the other case.
fn cased(text: &str, other: impl Fn(char) -> bool) -> bool {
    text.chars()
        .any(|letter| letter.is_uppercase() || letter.is_lowercase())
        && !text.chars().any(other)
}

fn parts(parts: [&str; 3]) -> Value {
    tuple(parts.into_iter().map(Value::from).collect())
}

fn any_of(args: &Bound, test: impl Fn(&str) -> bool) -> Outcome<Value> {
    if let Kind::Tuple(items) = Kind::of(args.need(0)?) {
        return Ok(Value::from(
            items.iter().filter_map(|item| item.as_str()).any(test),
        ));
    }
    Ok(Value::from(test(&argument(args, 0)?)))
}

pub(crate) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first
            .to_uppercase()
            .chain(letters.as_str().to_lowercase().chars())
            .collect(),
        None => String::new(),
    }
}

fn titled(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for letter in text.chars() {
        if inside {
            out.extend(letter.to_lowercase());
        } else {
            out.extend(letter.to_uppercase());
        }
        inside = letter.is_alphabetic();
    }
    out
}

pub(crate) fn replaced(text: &str, old: &str, new: &str, count: i64) -> Outcome<Value> {
    let times = usize::try_from(count).unwrap_or(usize::MAX);
    let most = text
        .matches(old)
        .count()
        .min(times)
        .saturating_mul(new.len());
    if most > 64 << 20 {
        return Err(Fault::limit("the result is too large"));
    }
    Ok(Value::from(text.replacen(old, new, times)))
}

fn found(text: &str, args: &Bound, last: bool) -> Outcome<i64> {
    let part = argument(args, 0)?;
    let at = if last {
        text.rfind(&*part)
    } else {
        text.find(&*part)
    };
    let letters = at
        .and_then(|at| text.get(..at))
        .map(|before| before.chars().count());
    Ok(letters
        .and_then(|count| i64::try_from(count).ok())
        .unwrap_or(-1))
}

fn position(text: &str, args: &Bound, last: bool) -> Outcome<Value> {
    match found(text, args, last)? {
        -1 => Err(Fault::other("substring not found")),
        at => Ok(Value::from(at)),
    }
}

fn justified(text: &str, args: &Bound, where_to: u8) -> Outcome<Value> {
    args.need(0)?;
    let width = usize::try_from(args.int(0, 0)?).unwrap_or(0).min(1_000_000);
    let fill = args.text(1, " ")?;
    let missing = width.saturating_sub(text.chars().count());
    let left = match where_to {
        0 => 0,
        1 => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    Ok(Value::from(format!(
        "{}{text}{}",
        fill.repeat(left),
        fill.repeat(missing - left)
    )))
}

fn stripped(text: &str, args: &Bound, left: bool, right: bool) -> Outcome<Value> {
    let letters = match args.get(0) {
        Some(value) if !value.is_none() => Some(argument(args, 0)?),
        _ => None,
    };
    let strip = |letter: char| match &letters {
        Some(letters) => letters.contains(letter),
        None => letter.is_whitespace() || matches!(letter, '\u{1c}'..='\u{1f}'),
    };
    let text = if left {
        text.trim_start_matches(strip)
    } else {
        text
    };
    Ok(Value::from(if right {
        text.trim_end_matches(strip)
    } else {
        text
    }))
}

fn split(text: &str, args: &Bound, from_end: bool) -> Outcome<Value> {
    let most = usize::try_from(args.int(1, -1)?).unwrap_or(usize::MAX);
    let pieces: Vec<&str> = match args.get(0) {
        Some(value) if !value.is_none() => {
            let mark = argument(args, 0)?;
            if mark.is_empty() {
                return Err(Fault::other("empty separator"));
            }
            let most = most.saturating_add(1);
            if from_end {
                let mut pieces: Vec<&str> = text.rsplitn(most, &*mark).collect();
                pieces.reverse();
                return Ok(list(pieces.into_iter().map(Value::from).collect()));
            }
            return Ok(list(text.splitn(most, &*mark).map(Value::from).collect()));
        }
        _ if from_end => {
            let mut rest = text.trim_end();
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                let start = rest.rfind(char::is_whitespace);
                match start {
                    Some(at) if pieces.len() < most => {
                        let after = at
                            + rest
                                .get(at..)
                                .and_then(|t| t.chars().next())
                                .map_or(1, char::len_utf8);
                        pieces.push(rest.get(after..).unwrap_or_default());
                        rest = rest.get(..at).unwrap_or_default().trim_end();
                    }
                    _ => {
                        pieces.push(if pieces.len() < most {
                            rest.trim_start()
                        } else {
                            rest
                        });
                        break;
                    }
                }
            }
            pieces.reverse();
            pieces
        }
        _ => {
            let mut rest = text.trim_start();
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                let end = rest.find(char::is_whitespace);
                match end {
                    Some(at) if pieces.len() < most => {
                        pieces.push(rest.get(..at).unwrap_or_default());
                        rest = rest.get(at..).unwrap_or_default().trim_start();
                    }
                    _ => {
                        pieces.push(rest);
                        break;
                    }
                }
            }
            pieces
        }
    };
    Ok(list(pieces.into_iter().map(Value::from).collect()))
}

/// The lines of a text; Python ends lines at more than `\n`.
pub(crate) fn lines(text: &str, keep: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut line = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut end = String::from(letter);
        match letter {
            '\r' if letters.peek() == Some(&'\n') => end.extend(letters.next()),
            '\n'
            | '\r'
            | '\u{b}'
            | '\u{c}'
            | '\u{1c}'..='\u{1e}'
            | '\u{85}'
            | '\u{2028}'
            | '\u{2029}' => {}
            _ => {
                line.push(letter);
                continue;
            }
        }
        if keep {
            line.push_str(&end);
        }
        out.push(std::mem::take(&mut line));
    }
    if !line.is_empty() {
        out.push(line);
    }
    out
}

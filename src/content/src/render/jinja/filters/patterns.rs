//! Salt's filters with patterns: Python's regular expressions and wildcards.

use fancy_regex::Captures;
use minijinja::value::Value;
use saltern_python::expression::{AnyOf, Expression};

use super::super::args::Bound;
use super::super::fault::{Fault, Outcome};
use super::super::ops;
use super::super::value::{Kind, none, tuple};
use super::digests::text_of;
use super::{Row, pattern};

pub(super) const FILTERS: &[Row] = &[
    ("regex_escape", &["value"], |_, args| {
        const SPECIAL: &[u8] = b"()[]{}?*+-|^$\\.&~# \t\n\r\x0b\x0c";
        let escape = |bytes: &[u8]| {
            let mut out = Vec::with_capacity(bytes.len());
            for byte in bytes {
                if SPECIAL.contains(byte) {
                    out.push(b'\\');
                }
                out.push(*byte);
            }
            out
        };
        if let Kind::Bytes(bytes) = Kind::of(args.need(0)?) {
            return Ok(Value::from_bytes(escape(bytes)));
        }
        let escaped = escape(text_of(args, 0)?.as_bytes());
        Ok(Value::from(String::from_utf8_lossy(&escaped).into_owned()))
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
    (
        "check_whitelist_blacklist",
        &["value", "whitelist", "blacklist"],
        |_, args| {
            // What is no text matches nothing.
            let text = match Kind::of(args.need(0)?) {
                Kind::Str(text) => Some(text),
                _ => None,
            };
            let listed = |index: usize| -> Outcome<Option<bool>> {
                let Some(names) = args.get(index).filter(|names| names.is_true()) else {
                    return Ok(None);
                };
                let names = match names.as_str() {
                    Some(name) => vec![Value::from(name)],
                    None => ops::items(names)?,
                };
                for name in names {
                    let both = text.zip(match Kind::of(&name) {
                        Kind::Str(name) => Some(name),
                        _ => None,
                    });
                    if both.is_some_and(|(text, name)| AnyOf::new([name]).matches(text)) {
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
];

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
        .captures(&text, 0)
        .map_err(|error| Fault::other(error.to_string()))?;
    Ok(match found {
        Some(found) if !anchored || found.get(0).is_some_and(|all| all.start() == 0) => {
            groups(&found)
        }
        _ => none(),
    })
}

/// `pattern.sub(template, text)` with Python's `\1` and `\g<name>`. An empty match counts behind
/// another one, and is followed by a step of one character.
fn substitute(pattern: &Expression, text: &str, template: &str) -> Outcome<String> {
    let mut out = String::new();
    let mut last = 0;
    let mut from = Some(0);
    while let Some(start) = from {
        let captures = pattern.captures(text, start);
        let captures = captures.map_err(|error| Fault::other(error.to_string()))?;
        let Some((captures, all)) = captures.and_then(|it| it.get(0).map(|all| (it, all))) else {
            break;
        };
        out.push_str(text.get(last..all.start()).unwrap_or_default());
        expand(&mut out, pattern, &captures, template)?;
        last = all.end();
        from = match all.start() == all.end() {
            true => next_letter(text, last),
            false => Some(last),
        };
        if out.len() > 64 << 20 {
            return Err(Fault::limit("the result is too large"));
        }
    }
    out.push_str(text.get(last..).unwrap_or_default());
    Ok(out)
}

/// End of the character that begins at `at`; `None` at the end of the text.
fn next_letter(text: &str, at: usize) -> Option<usize> {
    let letter = text.get(at..)?.chars().next()?;
    Some(at + letter.len_utf8())
}

fn expand(
    out: &mut String,
    pattern: &Expression,
    captures: &Captures<'_, str>,
    template: &str,
) -> Outcome<()> {
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
                    Err(_) => match pattern.has_group(&name) {
                        true => out.push_str(pattern.group(captures, &name).unwrap_or_default()),
                        false => return Err(Fault::other(format!("unknown group name '{name}'"))),
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

#[cfg(test)]
mod tests {
    use super::{Expression, substitute};

    #[test]
    fn replacements_are_those_of_python() {
        let table = [
            ("x*", "-", "abxd", "-a-b--d-"),
            ("(?P<n>a)(b)?", r"\g<n>\2\\", "abac", r"ab\a\c"),
            ("a$", "-", "ba\n", "b-\n"),
            ("^", ">", "é", ">é"),
        ];
        for (expression, template, text, expected) in table {
            let pattern = Expression::new(expression, Default::default()).unwrap();
            let replaced = substitute(&pattern, text, template).unwrap();
            assert_eq!(replaced, expected, "{expression}");
        }
        let pattern = Expression::new("a", Default::default()).unwrap();
        assert!(substitute(&pattern, "a", r"\g<n>").is_err());
    }
}

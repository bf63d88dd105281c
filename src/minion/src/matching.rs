//! Whether a publication is for this minion. The master sends everything to everybody, so that
//! the minion decides. Glob, list, pcre and grains are here, and compound targets of these; every other type
//! is not matched. Grains are matched as by `subdict_match` in `salt/utils/data.py`, except into maps inside of lists.

use saltern_python::expression::Pattern;
use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::Value;

use crate::compound;
use crate::functions::grains::traverse;
use crate::python;

/// Whether `tgt`, read as `tgt_type`, matches the minion `id` with these grains, whose paths have this
/// delimiter. As in stock, a load without a type is a glob and an unknown type matches no minion.
pub(crate) fn matches(
    (tgt_type, delimiter): (Option<&str>, &str),
    tgt: &Value,
    id: &str,
    grains: &Value,
) -> bool {
    let has_grain = |is_like: fn(&str, &str) -> bool| {
        let expression = tgt.as_str().unwrap_or_default();
        grain(grains, expression, delimiter, is_like)
    };
    match tgt_type {
        None | Some("glob") => tgt
            .as_str()
            .is_some_and(|pattern| Glob::new(pattern).matches(id)),
        Some("list") => match tgt {
            Value::Array(ids) => ids.iter().any(|item| item.as_str() == Some(id)),
            _ => tgt
                .as_str()
                .is_some_and(|ids| ids.split(',').any(|item| item == id)),
        },
        Some("compound") => {
            let term = |word: &str| matches_term(word, id, grains);
            let found = tgt.as_str().map(|target| compound::matches(target, &term));
            found.flatten() == Some(true)
        }
        Some("pcre") => tgt.as_str().is_some_and(|pattern| pcre(pattern, id)),
        Some("grain") => has_grain(|pattern, text| Glob::new(pattern).matches(text)),
        Some("grain_pcre") => has_grain(pcre),
        Some(_) => false,
    }
}

/// Whether a grain has a value like this: of `a:b:c`, `b:c` at `a`, or `c` at `a:b`.
fn grain(
    grains: &Value,
    expression: &str,
    delimiter: &str,
    is_like: fn(&str, &str) -> bool,
) -> bool {
    if delimiter.is_empty() {
        return false;
    }
    let cuts = expression.match_indices(delimiter);
    let parts = cuts.filter_map(|(at, _)| {
        let (path, pattern) = expression.split_at_checked(at)?;
        let pattern = pattern.strip_prefix(delimiter)?;
        Some((traverse(grains, path, delimiter)?, pattern))
    });
    let text_is_like = |value: &Value, pattern: &str| {
        let text = python::text(value).to_lowercase();
        is_like(&pattern.to_lowercase(), &text)
    };
    let mut found = parts.map(|(value, pattern)| match value {
        Value::Map(_) => pattern == "*",
        Value::Array(items) => items.iter().any(|item| text_is_like(item, pattern)),
        value => text_is_like(value, pattern),
    });
    found.any(|matched| matched)
}

/// Whether a term of a compound target matches; none when it is of a type that this minion cannot judge.
fn matches_term(word: &str, id: &str, grains: &Value) -> Option<bool> {
    let is_engine =
        |head: &&str| head.len() <= 2 && head.starts_with(|c: char| c.is_ascii_uppercase());
    let Some((engine, target)) = word.split_once('@').filter(|(head, _)| is_engine(head)) else {
        return Some(Glob::new(word).matches(id));
    };
    let (engine, delimiter) = engine.split_at_checked(1)?;
    let tgt_type = match engine {
        "E" => "pcre",
        "G" => "grain",
        "L" => "list",
        "P" => "grain_pcre",
        _ => return None,
    };
    let delimiter = Some(delimiter).filter(|text| !text.is_empty());
    let how = (Some(tgt_type), delimiter.unwrap_or(":"));
    Some(matches(how, &Value::from(target), id, grains))
}

/// A pattern that is none, or that takes too long, matches nobody.
fn pcre(pattern: &str, id: &str) -> bool {
    Pattern::regex_at_start(pattern).is_ok_and(|pattern| pattern.matches(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_match_by_type() {
        let list = Value::from(vec![Value::from("m1"), Value::from("m2")]);
        let text = |text: &str| Value::from(text);
        let grains = Value::map([
            ("os", Value::from("Debian")),
            ("roles", Value::from(vec![Value::from("web"), "db".into()])),
            ("at", Value::map([("rack", Value::from(7_i64))])),
            ("url", Value::from("http://x")),
        ]);
        let cases = [
            (None, text("m*"), true),
            (Some("glob"), text("x*"), false),
            (Some("glob"), text("[^m]1"), true),
            (Some("list"), list, true),
            (Some("list"), text("m0,m1"), true),
            (Some("list"), text("m10"), false),
            (Some("pcre"), text("m(?=1)"), true),
            (Some("pcre"), text("1"), false),
            (Some("pcre"), text("(("), false),
            (Some("grain"), text("os:*"), true),
            (Some("grain"), text("os:deb*"), true),
            (Some("grain"), text("os"), false),
            (Some("grain"), text("absent:*"), false),
            (Some("grain"), text("roles:web"), true),
            (Some("grain"), text("roles:w"), false),
            (Some("grain"), text("at:rack:7"), true),
            (Some("grain"), text("at:*"), true),
            (Some("grain"), text("url:http://x"), true),
            (Some("grain_pcre"), text("os:d.b"), true),
            (Some("grain_pcre"), text("os:x"), false),
            (Some("pillar"), text("os:*"), false),
            (Some("compound"), text("m1"), true),
            (Some("compound"), text("m*"), true),
            (Some("compound"), text("x*"), false),
            (Some("compound"), text("not m*"), false),
            (Some("compound"), text("G@os:deb* and m1"), true),
            (Some("compound"), text("G|@at|rack|7"), true),
            (
                Some("compound"),
                text("P@os:x or E@m[01] and L@m0,m1"),
                true,
            ),
            (Some("compound"), text("m1 and not I@os:*"), false),
            (Some("compound"), text("m1 and ("), false),
        ];
        for (kind, tgt, matched) in cases {
            let is_for = matches((kind, ":"), &tgt, "m1", &grains);
            assert_eq!(is_for, matched, "{kind:?} {tgt:?}");
        }
    }
}

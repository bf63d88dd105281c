//! Whether a publication is for this minion. The master sends everything to everybody, so that
//! the minion decides. Glob, list and pcre are here, and a compound target of one wildcard, as the
//! master sends it for users who are limited to some minions; every other type is not matched, because
//! grains and pillar of this minion are too few to give a true answer.

use saltern_python::expression::Pattern;
use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::Value;

/// Whether `tgt`, read as `tgt_type`, matches `id`. As in stock, a load without a type is a glob
/// and an unknown type matches no minion.
pub(crate) fn matches(tgt_type: Option<&str>, tgt: &Value, id: &str) -> bool {
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
        Some("compound") => tgt
            .as_str()
            .is_some_and(|word| is_wildcard(word) && Glob::new(word).matches(id)),
        Some("pcre") => tgt.as_str().is_some_and(|pattern| pcre(pattern, id)),
        Some(_) => false,
    }
}

/// Whether a compound target is one word that can only be a wildcard.
fn is_wildcard(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*' | '?');
    word.contains(['*', '?']) && word.chars().all(is_plain)
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
            (Some("grain"), text("os:*"), false),
            (Some("compound"), text("m1"), false),
            (Some("compound"), text("m*"), true),
            (Some("compound"), text("x*"), false),
            (Some("compound"), text("not m*"), false),
            (Some("compound"), text("G@os:*"), false),
        ];
        for (kind, tgt, matched) in cases {
            assert_eq!(matches(kind, &tgt, "m1"), matched, "{kind:?} {tgt:?}");
        }
    }
}

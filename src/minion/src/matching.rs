//! Whether a publication is for this minion. The master sends everything to everybody, so that
//! the minion decides. Glob, list and pcre are here, and a compound target of one wildcard, as the
//! master sends it for users who are limited to some minions; every other type is not matched, because
//! grains and pillar of this minion are too few to give a true answer.

use saltern_wire::msgpack::Value;

/// Whether `tgt`, read as `tgt_type`, matches `id`. As in stock, a load without a type is a glob
/// and an unknown type matches nobody.
pub(crate) fn matches(tgt_type: Option<&str>, tgt: &Value, id: &str) -> bool {
    match tgt_type {
        None | Some("glob") => tgt.as_str().is_some_and(|pattern| glob(pattern, id)),
        Some("list") => match tgt {
            Value::Array(ids) => ids.iter().any(|item| item.as_str() == Some(id)),
            _ => tgt
                .as_str()
                .is_some_and(|ids| ids.split(',').any(|item| item == id)),
        },
        Some("compound") => tgt
            .as_str()
            .is_some_and(|word| is_wildcard(word) && glob(word, id)),
        Some("pcre") => tgt.as_str().is_some_and(|pattern| pcre(pattern, id)),
        Some(_) => false,
    }
}

/// Whether a compound target is one word that can only be a wildcard.
fn is_wildcard(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*' | '?');
    word.contains(['*', '?']) && word.chars().all(is_plain)
}

/// Python's `fnmatch`: `*`, `?`, `[…]` and `[!…]`, over the whole text.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    // Where to go on after a mismatch: the last star, and how much it has swallowed.
    let (mut at, mut on) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while on < text.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                retry = Some((at, on));
                at += 1;
                continue;
            }
            Some('?') => Some(at + 1),
            Some('[') => set(&pattern, at, text[on]),
            Some(literal) if *literal == text[on] => Some(at + 1),
            _ => None,
        };
        match (step, retry) {
            (Some(next), _) => {
                at = next;
                on += 1;
            }
            (None, Some((star, swallowed))) => {
                retry = Some((star, swallowed + 1));
                at = star + 1;
                on = swallowed + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

/// Matches one character against the set that opens at `at`; gives the place after the set.
fn set(pattern: &[char], at: usize, character: char) -> Option<usize> {
    let negated = pattern.get(at + 1) == Some(&'!');
    let first = at + 1 + usize::from(negated);
    // A bracket right after the opening one is a member of the set.
    let close = (first + 1..pattern.len()).find(|place| pattern[*place] == ']');
    let Some(close) = close else {
        return (character == '[').then_some(at + 1);
    };
    let members = &pattern[first..close];
    let mut found = false;
    let mut place = 0;
    while place < members.len() {
        if members.get(place + 1) == Some(&'-') && place + 2 < members.len() {
            found |= (members[place]..=members[place + 2]).contains(&character);
            place += 3;
        } else {
            found |= members[place] == character;
            place += 1;
        }
    }
    (found != negated).then_some(close + 1)
}

/// Python's `re.match`: anchored at the start only. A pattern that is none, or that takes too
/// long, matches nobody.
fn pcre(pattern: &str, text: &str) -> bool {
    let anchored = format!("^(?:{pattern})");
    let compiled = fancy_regex::RegexBuilder::new(&anchored)
        .backtrack_limit(100_000)
        .build();
    compiled.is_ok_and(|regex| regex.is_match(text).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_fnmatch_does() {
        let cases = [
            ("*", "m1", true),
            ("m?", "m1", true),
            ("m?", "m12", false),
            ("m*2", "m1212", true),
            ("m*2", "m121", false),
            ("web[1-3]", "web2", true),
            ("web[!1-3]", "web2", false),
            ("web[!1-3]", "web9", true),
            ("a[]]b", "a]b", true),
            ("a[b", "a[b", true),
            ("", "", true),
            ("", "m", false),
            ("*.*", "a.b", true),
            ("**a**", "ba", true),
        ];
        for (pattern, text, matched) in cases {
            assert_eq!(glob(pattern, text), matched, "{pattern} on {text}");
        }
    }

    #[test]
    fn targets_match_by_type() {
        let list = Value::from(vec![Value::from("m1"), Value::from("m2")]);
        let text = |text: &str| Value::from(text);
        let cases = [
            (None, text("m*"), true),
            (Some("glob"), text("x*"), false),
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

//! Globs as in SQLite's `GLOB`, as regular expressions of PostgreSQL.

/// A character before the beginning.
const MATCHES_NOTHING: &str = "^.^";

/// The expression that matches what the glob does.
pub(super) fn expression_of(glob: &str) -> String {
    let mut expression = String::from("^");
    let mut rest = glob.chars();
    while let Some(one) = rest.next() {
        match one {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            '[' => match set_of(rest.as_str()) {
                Some((set, end)) => {
                    expression.push_str(&set);
                    rest = end.chars();
                }
                // Nothing is in it, or it has no end.
                None => return MATCHES_NOTHING.to_owned(),
            },
            one => push_literal(&mut expression, one),
        }
    }
    expression.push('$');
    expression
}

/// The set behind a bracket, and what is behind the set; `None` of one that matches nothing.
fn set_of(text: &str) -> Option<(String, &str)> {
    let (is_negated, text) = match text.strip_prefix('^') {
        Some(text) => (true, text),
        None => (false, text),
    };
    // A bracket at the beginning is one of the characters.
    let begin = text.chars().next()?.len_utf8();
    let end = begin + text.get(begin..)?.find(']')?;
    let (members, rest) = (text.get(..end)?, text.get(end + 1..)?);
    let members: Vec<char> = members.chars().collect();
    let mut ranges = String::new();
    let mut at = 0;
    while let Some(first) = members.get(at) {
        let last = match members.get(at + 1..at + 3) {
            Some(['-', last]) => {
                at += 2;
                last
            }
            _ => first,
        };
        at += 1;
        if first <= last {
            push_literal(&mut ranges, *first);
            ranges.push('-');
            push_literal(&mut ranges, *last);
        }
    }
    let set = match (ranges.is_empty(), is_negated) {
        (true, true) => ".".to_owned(),
        (true, false) => return None,
        (false, true) => format!("[^{ranges}]"),
        (false, false) => format!("[{ranges}]"),
    };
    Some((set, rest))
}

fn push_literal(expression: &mut String, one: char) {
    if one.is_ascii_punctuation() {
        expression.push('\\');
    }
    expression.push(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_become_expressions() {
        for (glob, expected) in [
            ("salt/job/*/ret/?", r"^salt\/job\/.*\/ret\/.$"),
            ("a.b", r"^a\.b$"),
            ("[a-c]x[^]]", r"^[a-c]x[^\]-\]]$"),
            ("[z-a]", "^.^"),
            ("[ab", "^.^"),
            (r"a\d", r"^a\\d$"),
        ] {
            assert_eq!(expression_of(glob), expected, "{glob}");
        }
    }
}

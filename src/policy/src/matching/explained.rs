//! The first fault of a compound target whose words make no expression, in words for people.

use super::compound::words;

/// Longest part of a target that is repeated.
const MAX_WORD: usize = 60;

/// State between two words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before<'a> {
    /// The start of the target, or of a part in parentheses.
    Start,
    /// A word that needs another one behind it.
    Operator(&'a str),
    /// A part of the target that is whole.
    Part(&'a str),
}

/// First fault in the order of the words of a compound target; nothing where there is none.
pub fn explain_compound(target: &str) -> Option<String> {
    let words = words(target);
    let mut before = Before::Start;
    let mut open = 0_usize;
    for word in &words {
        before = match (word.as_str(), before) {
            ("(", Before::Part(part)) => return Some(side_by_side(part, "(")),
            ("(", _) => {
                open += 1;
                Before::Start
            }
            (")", _) if open == 0 => return Some("\")\" closes no \"(\"".to_owned()),
            (")", Before::Start) => {
                return Some("there is nothing between \"(\" and \")\"".to_owned());
            }
            (")", Before::Operator(operator)) => return Some(nothing_behind(operator)),
            (")", Before::Part(_)) => {
                open -= 1;
                Before::Part(")")
            }
            (operator @ ("and" | "or"), Before::Start) => {
                return Some(format!("there is nothing before \"{operator}\""));
            }
            (operator @ ("and" | "or"), Before::Operator(other)) => {
                return Some(format!("\"{operator}\" follows \"{other}\""));
            }
            (operator @ ("and" | "or" | "not"), _) => Before::Operator(operator),
            (part, Before::Part(other)) => return Some(side_by_side(other, part)),
            (part, _) => Before::Part(part),
        };
    }
    match before {
        Before::Operator(operator) => Some(nothing_behind(operator)),
        _ if open > 0 => Some("\"(\" is not closed".to_owned()),
        _ => None,
    }
}

fn nothing_behind(operator: &str) -> String {
    format!("there is nothing behind \"{operator}\"")
}

fn side_by_side(one: &str, other: &str) -> String {
    let (one, other) = (short(one), short(other));
    let has_parenthesis = |word: &str| word.len() > 1 && word.contains(['(', ')']);
    match has_parenthesis(&one) || has_parenthesis(&other) {
        true => "a parenthesis has to stand alone, with a space before and behind it".to_owned(),
        false => format!("\"and\" or \"or\" is missing between \"{one}\" and \"{other}\""),
    }
}

fn short(word: &str) -> String {
    word.chars().take(MAX_WORD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_fault_is_named() {
        for (target, fault) in [
            (
                "web* db*",
                "\"and\" or \"or\" is missing between \"web*\" and \"db*\"",
            ),
            (
                "web* ( db* )",
                "\"and\" or \"or\" is missing between \"web*\" and \"(\"",
            ),
            ("and web*", "there is nothing before \"and\""),
            ("web* and", "there is nothing behind \"and\""),
            ("web* and or db*", "\"or\" follows \"and\""),
            ("web* and (", "\"(\" is not closed"),
            ("web* )", "\")\" closes no \"(\""),
            ("web* or ( )", "there is nothing between \"(\" and \")\""),
            ("not", "there is nothing behind \"not\""),
            (
                "(web* or db*) and G@os:Debian (x)",
                "a parenthesis has to stand alone, with a space before and behind it",
            ),
        ] {
            assert_eq!(explain_compound(target).as_deref(), Some(fault), "{target}");
        }
        for target in [
            "",
            "web*",
            "not web* and ( G@os:Debian or E@db\\d )",
            "a and not b",
        ] {
            assert_eq!(explain_compound(target), None, "{target}");
        }
    }
}

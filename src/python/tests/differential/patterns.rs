//! The same expressions to CPython's `re` and `fnmatch` and to us: random ones over a small alphabet
//! in which what the engines read differently is frequent.
//!
//! An expression that compiles here must compile there and match the same texts. One that is
//! refused here is no difference, because a target in error means nobody and rules for some minions
//! do not hold for it; but most of what Python takes must be taken. `SALTERN_REGEX_CASES` sets the
//! number of expressions for a longer run, `SALTERN_REGEX_SEED` another beginning.

use saltern_python::expression::{Expression, ExpressionFlags, Pattern};
use serde_json::{Value as Json, json};

use crate::oracle::{Random, asked_of_python, number};

const LETTERS: &[&str] = &[
    "a", "b", "i", "I", "ı", "İ", "k", "K", "s", "ſ", "ß", "1", "-", "_", ".", "\n", " ", "²",
    "\u{301}", "\u{1c}", "é", ":", "&", "~", "]", "{", "}", ",", "#",
];

const ATOMS: &[&str] = &[
    ".",
    "^",
    "$",
    r"\d",
    r"\w",
    r"\s",
    r"\D",
    r"\W",
    r"\S",
    r"\b",
    r"\B",
    r"\A",
    r"\Z",
    r"\-",
    r"\.",
    r"\1",
    r"\2",
    r"\x61",
    r"\n",
    r"\0",
    r"\141",
    "(?#x)",
    r"\N{DIGIT ONE}",
    r"\z",
    r"\p{L}",
    "a",
    "b",
];

const MEMBERS: &[&str] = &[
    "a", "b", "i", "I", "k", "s", "-", "+", "^", "[", "]", "&&", "--", "~~", r"\d", r"\w", r"\W",
    r"\s", r"\S", r"\]", r"\b", r"\-", "a-k", "+--", r"\x61-z", "\n", ".", "²", "1",
];

const GROUPS: &[&str] = &[
    "(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?s:", "(?m:", "(?-i:", "(?x:", "(?a:",
    "(?>", "(?P<n>",
];

const REPEATS: &[&str] = &[
    "*", "+", "?", "{2}", "{1,2}", "{,1}", "{0}", "{", "{,}", "*?", "+?", "??", "*+", "{2,1}",
];

fn class(random: &mut Random) -> String {
    let mut class = String::from(random.one(&["[", "[^", "["]));
    for _ in 0..=random.below(4) {
        class.push_str(random.one(MEMBERS));
    }
    class.push_str(random.one(&["]", "]", "]", "]", ""]));
    class
}

fn expression(random: &mut Random, depth: usize) -> String {
    let mut text = String::new();
    for _ in 0..=random.below(4) {
        match random.below(10) {
            0..=3 => text.push_str(random.one(LETTERS)),
            4 | 5 => text.push_str(random.one(ATOMS)),
            6 | 7 => text.push_str(&class(random)),
            8 if depth < 3 => {
                text.push_str(random.one(GROUPS));
                text.push_str(&expression(random, depth + 1));
                text.push(')');
                if random.below(6) == 0 {
                    text.push_str(random.one(&[r"*\1", r"\1", r"+\2", r"?\1"]));
                }
            }
            _ => text.push_str(random.one(&["|", "a", "b"])),
        }
        if random.below(4) == 0 {
            text.push_str(random.one(REPEATS));
        }
    }
    text
}

fn text(random: &mut Random) -> String {
    (0..random.below(6)).map(|_| random.one(LETTERS)).collect()
}

/// Expressions, each with texts.
fn expressions(seed: u64, count: u64) -> Vec<(String, Vec<String>)> {
    let mut random = Random::new(seed);
    let of_one = |_| {
        let mut expression = expression(&mut random, 0);
        if random.below(4) == 0 {
            let flags = random.one(&["(?i)", "(?m)", "(?s)", "(?x)", "(?a)", "(?im)", "(?ai)"]);
            expression.insert_str(0, flags);
        }
        (expression, (0..12).map(|_| text(&mut random)).collect())
    };
    (0..count).map(of_one).collect()
}

/// Wildcards, each with texts.
fn wildcards(seed: u64, count: u64) -> Vec<(String, Vec<String>)> {
    let mut random = Random::new(seed);
    let of_one = |_| {
        let parts = 1 + random.below(4);
        let wildcard = (0..parts).map(|_| match random.below(3) {
            0 => class(&mut random).replace("[^", ["[!", "[^"][random.below(2)]),
            1 => random
                .one(&["*", "?", "[", "]", "!", "[!", "\\"])
                .to_owned(),
            _ => text(&mut random),
        });
        let wildcard = wildcard.collect();
        (wildcard, (0..12).map(|_| text(&mut random)).collect())
    };
    (0..count).map(of_one).collect()
}

fn jobs(function: &str, pairs: &[(String, Vec<String>)]) -> Json {
    let jobs = pairs
        .iter()
        .map(|(pattern, texts)| json!([function, pattern, texts]));
    jobs.collect()
}

#[test]
fn accepted_expressions_match_as_in_python() {
    let count = number("SALTERN_REGEX_CASES", 4_000);
    let pairs = expressions(number("SALTERN_REGEX_SEED", 1), count);
    let answers = asked_of_python(&jobs("matches", &pairs));
    let mut differences = Vec::new();
    let (mut taken, mut known) = (0, 0);
    for ((expression, texts), answer) in pairs.iter().zip(&answers) {
        known += usize::from(answer.is_array());
        let (Ok(start), Ok(whole)) = (
            Pattern::regex_at_start(expression),
            Pattern::regex_whole(expression),
        ) else {
            continue;
        };
        let Some(answer) = answer.as_array() else {
            differences.push(format!("{expression:?} compiles here: {answer}"));
            continue;
        };
        taken += 1;
        for (text, answer) in texts.iter().zip(answer) {
            let ours = [start.decide(text), whole.decide(text)];
            let theirs = [answer[0].as_bool(), answer[1].as_bool()];
            let is_same = ours
                .iter()
                .zip(theirs)
                .all(|(ours, theirs)| ours.is_none() || *ours == theirs);
            if !is_same {
                differences.push(format!(
                    "{expression:?} {text:?}: {ours:?}, Python {theirs:?}"
                ));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences
            .iter()
            .take(60)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
    assert!(taken * 10 >= known * 8, "{taken} of {known} are taken");
    assert!(
        known * 10 >= pairs.len() * 3,
        "{known} of {} are expressions",
        pairs.len()
    );
}

#[test]
fn wildcards_match_as_in_python() {
    let count = number("SALTERN_REGEX_CASES", 4_000);
    let pairs = wildcards(number("SALTERN_REGEX_SEED", 2), count);
    let answers = asked_of_python(&jobs("fnmatch", &pairs));
    for ((wildcard, texts), answer) in pairs.iter().zip(&answers) {
        let pattern = Pattern::glob(wildcard).unwrap();
        for (text, answer) in texts.iter().zip(answer.as_array().unwrap()) {
            assert_eq!(
                pattern.decide(text),
                answer.as_bool(),
                "{wildcard:?} {text:?}"
            );
        }
    }
}

/// Groups of a search, compared where both sides know the expression.
#[test]
fn searches_find_what_python_finds() {
    let count = number("SALTERN_REGEX_CASES", 4_000);
    let pairs = expressions(number("SALTERN_REGEX_SEED", 3), count);
    let mut random = Random::new(4);
    let flags: Vec<(bool, bool)> = pairs
        .iter()
        .map(|_| (random.below(2) == 0, random.below(2) == 0))
        .collect();
    let jobs = pairs.iter().zip(&flags);
    let jobs = jobs.map(|((expression, texts), (ignores_case, is_multiline))| {
        json!(["spans", expression, ignores_case, is_multiline, texts])
    });
    let answers = asked_of_python(&jobs.collect());
    let mut same = 0;
    for (((text, texts), flags), answer) in pairs.iter().zip(flags).zip(&answers) {
        let (ignores_case, is_multiline) = flags;
        let compiled = Expression::new(
            text,
            ExpressionFlags {
                ignores_case,
                is_multiline,
            },
        );
        // What the translation refuses is left to the engine, which reads some of it otherwise.
        let is_translated = compiled.as_ref().is_ok_and(Expression::is_translated);
        let (Ok(compiled), Some(answer), true) = (compiled, answer.as_array(), is_translated)
        else {
            continue;
        };
        for (given, theirs) in texts.iter().zip(answer) {
            let Ok(found) = compiled.captures(given, 0) else {
                continue;
            };
            let ours = found.map(|found| {
                let groups = found.iter();
                let groups = groups.map(|group| group.map(|group| group.as_str().to_owned()));
                groups.collect::<Vec<_>>()
            });
            assert_eq!(json!(ours), *theirs, "{text:?} {flags:?} {given:?}");
            same += 1;
        }
    }
    assert!(same as u64 > count * 2, "{same} searches");
}

/// The ways around rules that were seen.
#[test]
fn expressions_that_bypassed_rules_are_refused_or_match_as_in_python() {
    let table = [
        ("db[+--x]1", "db-1", Some(true)),
        ("(?i)db-ı", "db-i", Some(true)),
        ("(?i)DBİ", "dbi", Some(true)),
        ("(?i)dbi", "dbı", Some(true)),
        (r"db\N{HYPHEN-MINUS}1", "db-1", None),
        ("db1$", "db1\n", Some(true)),
        (r"db1\Z", "db1\n", Some(false)),
        (r"db\w", "db²", Some(true)),
    ];
    for (expression, text, expected) in table {
        let found = Pattern::regex_at_start(expression);
        let found = found.ok().and_then(|pattern| pattern.decide(text));
        assert_eq!(found, expected, "{expression:?} {text:?}");
    }
}

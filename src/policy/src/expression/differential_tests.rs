//! The same expressions to CPython's `re` and `fnmatch` and to us: random ones over a small alphabet
//! in which what the engines read differently is frequent.
//!
//! What compiles here must compile there and match the same texts. What is refused here is no
//! difference, because a target in error means nobody and rules for some minions do not hold for
//! it; but most of what Python takes must be taken. `SALTERN_REGEX_CASES` sets the number of
//! expressions for a longer run, `SALTERN_REGEX_SEED` another beginning.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use super::Pattern;

/// Reads expressions and texts, answers for each expression with an error or with which texts match
/// at the start and as a whole.
const PYTHON: &str = r#"
import fnmatch, json, re, signal, sys, warnings
warnings.simplefilter("ignore")
signal.alarm(300)
asked = json.load(sys.stdin)
answers = []
for expression, texts in asked["expressions"]:
    try:
        compiled = re.compile(expression)
    except (re.error, OverflowError, ValueError, RecursionError) as error:
        answers.append(str(error))
        continue
    answers.append([[bool(compiled.match(text)), bool(compiled.fullmatch(text))] for text in texts])
wildcards = [
    [fnmatch.fnmatchcase(text, wildcard) for text in texts]
    for wildcard, texts in asked["wildcards"]
]
json.dump({"expressions": answers, "wildcards": wildcards}, sys.stdout)
"#;

/// A small generator of numbers; the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        // Knuth's MMIX multiplier; the high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

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

fn asked(seed: u64, count: usize) -> Json {
    let mut random = Random(seed);
    let mut expressions = Vec::new();
    let mut wildcards = Vec::new();
    for _ in 0..count {
        let mut expression = expression(&mut random, 0);
        if random.below(4) == 0 {
            let flags = random.one(&["(?i)", "(?m)", "(?s)", "(?x)", "(?a)", "(?im)", "(?ai)"]);
            expression.insert_str(0, flags);
        }
        let texts: Vec<String> = (0..12).map(|_| text(&mut random)).collect();
        expressions.push(json!([expression, texts]));
        let parts = 1 + random.below(4);
        let wildcard: String = (0..parts)
            .map(|_| match random.below(3) {
                0 => class(&mut random).replace("[^", "[!"),
                1 => random.one(&["*", "?", "[", "]", "!", "\\"]).to_owned(),
                _ => text(&mut random),
            })
            .collect();
        wildcards.push(json!([wildcard, texts]));
    }
    json!({"expressions": expressions, "wildcards": wildcards})
}

fn python(asked: &Json) -> Json {
    let mut child = Command::new(saltern_stock::python("3008.3"))
        .args(["-I", "-c", PYTHON])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let packed = asked.to_string();
    let writer = std::thread::spawn(move || input.write_all(packed.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap())
}

fn pairs(asked: &Json, kind: &str) -> Vec<(String, Vec<String>)> {
    let texts = |texts: &Json| {
        let texts = texts.as_array().unwrap().iter();
        texts
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
    let pairs = asked[kind].as_array().unwrap().iter();
    pairs
        .map(|pair| (pair[0].as_str().unwrap().to_owned(), texts(&pair[1])))
        .collect()
}

#[test]
fn accepted_expressions_match_as_in_python() {
    let count = number("SALTERN_REGEX_CASES", 4_000);
    let asked = asked(number("SALTERN_REGEX_SEED", 1), count as usize);
    let answers = python(&asked);
    let mut differences = Vec::new();
    let (mut taken, mut known) = (0, 0);
    let answered = answers["expressions"].as_array().unwrap();
    for ((expression, texts), answer) in pairs(&asked, "expressions").iter().zip(answered) {
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
        known * 10 >= count as usize * 3,
        "{known} of {count} are expressions"
    );
}

#[test]
fn wildcards_match_as_in_python() {
    let count = number("SALTERN_REGEX_CASES", 4_000);
    let asked = asked(number("SALTERN_REGEX_SEED", 2), count as usize);
    let answers = python(&asked);
    let answered = answers["wildcards"].as_array().unwrap();
    for ((wildcard, texts), answer) in pairs(&asked, "wildcards").iter().zip(answered) {
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

//! Texts, paths, command lines and numbers.

use std::collections::HashMap;

use saltern_python::{number, path, shlex, text};
use serde_json::{Value as Json, json};

use crate::oracle::{Random, asked_of_python, number as setting};

const LETTERS: &[&str] = &[
    "a", "b", " ", "\t", "\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}",
    "\u{1f}", "\u{85}", "\u{a0}", "\u{2028}", "\u{2029}", "\u{200b}", "\u{3000}", "é", "\0",
];
const WORDS: &[&str] = &[
    "a", "b", " ", "\t", "\n", "\r", "'", "\"", "\\", "#", "$x", "é", "-", "\u{a0}", "''", "\\\"",
];
const PATHS: &[&str] = &[
    "/", "/", "//", ".", "..", "a", "b", "é", " ", "/..", "/.", "...",
];
const INTS: &[&str] = &[
    "0", "1", "7", "9", "12", "_", "__", "+", "-", " ", "\n", "\u{a0}", "\u{1c}", "0x", "0X", "0b",
    "0o", "a", "F", "z", "٣", "९", "𝟡", "²", ".",
];
const FLOATS: &[&str] = &[
    "0",
    "1",
    "25",
    ".",
    "e",
    "E",
    "+",
    "-",
    "_",
    " ",
    "inf",
    "Infinity",
    "nan",
    "NaN",
    "٣",
    "x",
    "e5",
    "e-7",
    "1e",
    "\u{2003}",
    "\u{1c}",
    "9007199254740993",
];

/// Asks both sides and names what differs.
pub(crate) fn compare(jobs: Vec<Json>, ours: impl Fn(&Json) -> Json) {
    let answers = asked_of_python(&json!(jobs));
    assert_eq!(answers.len(), jobs.len());
    let differing = jobs.iter().zip(&answers).filter_map(|(job, theirs)| {
        let ours = ours(job);
        let is_error = theirs.get("error").is_some();
        let is_same = ours == *theirs || (is_error && ours.is_null());
        (!is_same).then(|| format!("{job}: ours {ours}, Python {theirs}"))
    });
    let differing: Vec<String> = differing.collect();
    assert!(
        differing.is_empty(),
        "{} of {} differ:\n{}",
        differing.len(),
        jobs.len(),
        differing[..differing.len().min(40)].join("\n")
    );
}

pub(crate) fn generated(salt: u64, mut job: impl FnMut(&mut Random) -> Json) -> Vec<Json> {
    let mut random = Random::new(setting("SALTERN_PYTHON_SEED", 1).wrapping_add(salt));
    let count = setting("SALTERN_PYTHON_CASES", 4_000);
    (0..count).map(|_| job(&mut random)).collect()
}

pub(crate) fn argument(job: &Json, index: usize) -> &str {
    job[index].as_str().expect("a text")
}

#[test]
fn texts_are_split_and_stripped_as_in_python() {
    let functions = ["split", "splitlines", "strip", "rstrip"];
    let jobs = generated(0, |random| {
        json!([random.one(&functions), random.row(LETTERS, 8)])
    });
    compare(jobs, |job| {
        let given = argument(job, 1);
        match argument(job, 0) {
            "split" => json!(text::split(given).collect::<Vec<_>>()),
            "splitlines" => json!(text::splitlines(given)),
            "strip" => json!(text::strip(given)),
            _ => json!(text::rstrip(given)),
        }
    });
}

#[test]
fn command_lines_are_split_and_quoted_as_in_python() {
    let jobs = generated(1, |random| {
        json!([random.one(&["shlex", "quote"]), random.row(WORDS, 8)])
    });
    let words = |text: &str| match shlex::split(text) {
        Ok(words) => json!(words),
        Err(error) => json!({"error": error.to_string()}),
    };
    compare(jobs, |job| match argument(job, 0) {
        "shlex" => words(argument(job, 1)),
        _ => json!(shlex::quote(argument(job, 1))),
    });
}

#[test]
fn paths_are_normalised_and_joined_as_in_python() {
    let jobs = generated(2, |random| match random.below(3) {
        0 => json!(["normpath", random.row(PATHS, 8)]),
        1 => json!(["dirname", random.row(PATHS, 8)]),
        _ => json!(["join", random.row(PATHS, 4), random.row(PATHS, 4)]),
    });
    compare(jobs, |job| match argument(job, 0) {
        "normpath" => json!(path::normpath(argument(job, 1))),
        "dirname" => json!(path::dirname(argument(job, 1))),
        _ => json!(path::join(argument(job, 1), argument(job, 2))),
    });
}

#[test]
fn integers_are_read_as_in_python() {
    let jobs = generated(3, |random| {
        let base = [10, 10, 10, 16, 8, 2, 36][random.below(7)];
        json!(["int", random.row(INTS, 5), base])
    });
    compare(jobs, |job| {
        let base = job[2].as_u64().expect("a base");
        let number = number::parse_int(argument(job, 1), u32::try_from(base).expect("small"));
        number.map_or(Json::Null, |number| json!(number.to_string()))
    });
    assert_eq!(
        number::parse_int(&"9".repeat(50), 10),
        Err(number::IntError::TooLarge)
    );
}

#[test]
fn floats_are_read_as_in_python() {
    let jobs = generated(4, |random| json!(["float", random.row(FLOATS, 5)]));
    let answers = asked_of_python(&json!(jobs));
    for (job, theirs) in jobs.iter().zip(answers) {
        // As hexadecimal digits, so that no digit is lost on the way.
        let back = theirs
            .as_str()
            .map(|hex| vec![json!(["repr", ["float", hex]])]);
        let ours = number::parse_float(argument(job, 1));
        assert_eq!(ours.is_some(), back.is_some(), "{job}: {theirs}");
        if let (Some(ours), Some(hex)) = (ours, theirs.as_str()) {
            assert_eq!(
                crate::values::hex(ours),
                crate::values::hex_of(hex),
                "{job}"
            );
        }
    }
}

/// For each code whether it is in one of the ranges.
fn listed(ranges: &Json) -> Vec<bool> {
    let mut codes = vec![false; u32::from(char::MAX) as usize + 1];
    for range in ranges.as_array().expect("a list") {
        let end = |index: usize| range[index].as_u64().expect("a code") as usize;
        codes[end(0)..=end(1)].fill(true);
    }
    codes
}

#[test]
fn every_character_is_of_the_kind_that_python_says() {
    let answers = asked_of_python(&json!([
        ["spaces"],
        ["line_ends"],
        ["unprintable"],
        ["unassigned"],
        ["digits"]
    ]));
    let [spaces, line_ends, unprintable, unassigned, digits] = &answers[..] else {
        panic!("five answers: {answers:?}");
    };
    let [spaces, line_ends, unprintable, unassigned] =
        [spaces, line_ends, unprintable, unassigned].map(listed);
    let digits = digits.as_array().expect("a list").iter();
    let digits: HashMap<u64, u64> = digits
        .map(|digit| {
            [0, 1]
                .map(|index| digit[index].as_u64().expect("a number"))
                .into()
        })
        .collect();
    for letter in '\0'..=char::MAX {
        let code = u32::from(letter) as usize;
        assert_eq!(text::is_space(letter), spaces[code], "{code:x}");
        assert_eq!(text::is_line_end(letter), line_ends[code], "{code:x}");
        // What a newer Unicode assigned: ours may know it.
        if unassigned[code] {
            continue;
        }
        assert_eq!(text::is_printable(letter), !unprintable[code], "{code:x}");
        let digit = digits.get(&(code as u64)).copied();
        assert_eq!(text::digit_value(letter).map(u64::from), digit, "{code:x}");
    }
}

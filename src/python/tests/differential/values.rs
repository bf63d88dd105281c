//! Values: `repr`, `str` and `json.dumps`.

pub(crate) use saltern_python::Node as Value;
use saltern_python::json::Style;
use saltern_python::repr::Limits;
use saltern_python::{Sequence, TextError};
use serde_json::{Value as Json, json};

use crate::oracle::{Random, asked_of_python, number as setting};

const LIMITS: Limits = Limits {
    depth: 100,
    bytes: 1 << 20,
};
const LETTERS: &[&str] = &[
    "a",
    "b",
    "'",
    "\"",
    "\\",
    "\n",
    "\r",
    "\t",
    "\0",
    "\x1b",
    "\x7f",
    "\u{80}",
    "\u{a0}",
    "ü",
    "\u{ad}",
    "\u{301}",
    "€",
    "\u{200b}",
    "\u{2028}",
    "\u{e000}",
    "\u{fffd}",
    "\u{ffff}",
    "😀",
    "\u{10ffff}",
    "\u{8}",
    "\u{c}",
    "\u{85}",
];

/// A float as `float.fromhex` reads it.
pub(crate) fn hex(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let bits = number.to_bits();
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let fraction = bits & ((1 << 52) - 1);
    match (bits >> 52) & 0x7ff {
        0 => format!("{sign}0x0.{fraction:013x}p-1022"),
        exponent => format!("{sign}0x1.{fraction:013x}p{:+}", exponent as i64 - 1023),
    }
}

/// The same form of what `float.hex` wrote.
pub(crate) fn hex_of(text: &str) -> String {
    match text {
        "0x0.0p+0" => hex(0.0),
        "-0x0.0p+0" => hex(-0.0),
        other => other.to_owned(),
    }
}

pub(crate) fn tagged(value: &Value) -> Json {
    let many = |items: &[Value]| items.iter().map(tagged).collect::<Vec<_>>();
    match value {
        Value::None => json!(["none", null]),
        Value::Bool(flag) => json!(["bool", flag]),
        Value::Int(number) => json!(["int", number.to_string()]),
        Value::Float(number) => json!(["float", hex(*number)]),
        Value::Text(text) => json!(["text", text]),
        Value::Bytes(bytes) => json!(["bytes", bytes]),
        Value::Sequence(Sequence::List, items) => json!(["list", many(items)]),
        Value::Sequence(Sequence::Tuple, items) => json!(["tuple", many(items)]),
        Value::Sequence(Sequence::Set, items) => json!(["set", many(items)]),
        Value::Dict(entries) => {
            let entries = entries
                .iter()
                .map(|(key, item)| [tagged(key), tagged(item)]);
            json!(["dict", entries.collect::<Vec<_>>()])
        }
        Value::Other { .. } => unreachable!("no such value is generated"),
    }
}

pub(crate) fn float(random: &mut Random) -> f64 {
    match random.below(6) {
        0 => f64::from_bits(random.bits()),
        1 => random.below(2_000) as f64 / 8.0 - 100.0,
        2 => {
            let digits = random.below(1_000_000) as f64;
            digits * 10_f64.powi(i32::try_from(random.below(40)).expect("small") - 20)
        }
        3 => [
            0.0,
            -0.0,
            1e16,
            9_999_999_999_999_998.0,
            1e15,
            1e-4,
            9.9999e-5,
            1e22,
        ][random.below(8)],
        4 => [
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::MAX,
            f64::MIN_POSITIVE,
            5e-324,
        ][random.below(6)],
        _ => (random.bits() >> 11) as f64,
    }
}

fn plain(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::None,
        1 => Value::Bool(random.below(2) == 0),
        2 => Value::Int(i128::from(random.bits() as i64) >> random.below(64)),
        3 => Value::Int(i128::from(random.bits())),
        4 => Value::Float(float(random)),
        5 => {
            let count = random.below(6);
            let special = [b'\'', b'"', b'\\', b'\n', b'a', 0x7f];
            let byte = |random: &mut Random| match random.below(2) {
                0 => special[random.below(special.len())],
                _ => random.below(256) as u8,
            };
            Value::Bytes((0..count).map(|_| byte(random)).collect())
        }
        _ => Value::Text(random.row(LETTERS, 6)),
    }
}

fn key(random: &mut Random, index: usize) -> Value {
    // No two are equal, and none is NaN, of which a dict may hold many.
    match random.below(8) {
        0 => Value::Int(index as i128 * 2),
        1 => Value::Float(index as f64 * 2.0 + 0.5),
        2 if index == 0 => {
            [Value::None, Value::Bool(true), Value::Bytes(vec![1, b'a'])][random.below(3)].clone()
        }
        _ => Value::Text(format!("{}{index}", random.row(LETTERS, 3))),
    }
}

fn value(random: &mut Random, depth: usize) -> Value {
    let count = random.below(4);
    match random.below(8) {
        0 if depth < 4 => {
            let items = (0..count).map(|_| value(random, depth + 1));
            Value::Sequence(Sequence::List, items.collect())
        }
        1 if depth < 4 => {
            let items = (0..count).map(|_| value(random, depth + 1));
            Value::Sequence(Sequence::Tuple, items.collect())
        }
        2 | 3 if depth < 4 => {
            let entries = (0..count).map(|index| (key(random, index), value(random, depth + 1)));
            Value::Dict(entries.collect())
        }
        // The order of a larger set is that of its hashes.
        4 if depth < 4 => {
            let items = (0..random.below(2)).map(|_| Value::Text(random.row(LETTERS, 3)));
            Value::Sequence(Sequence::Set, items.collect())
        }
        _ => plain(random),
    }
}

pub(crate) fn values(seed: u64) -> Vec<Value> {
    let mut random = Random::new(setting("SALTERN_PYTHON_SEED", 1).wrapping_add(seed));
    let count = setting("SALTERN_PYTHON_CASES", 4_000);
    (0..count).map(|_| value(&mut random, 0)).collect()
}

#[test]
fn values_have_the_text_that_python_gives_them() {
    let values = values(0);
    let jobs: Vec<Json> = values
        .iter()
        .flat_map(|value| {
            [
                json!(["repr", tagged(value)]),
                json!(["str", tagged(value)]),
            ]
        })
        .collect();
    let answers = asked_of_python(&json!(jobs));
    for (value, theirs) in values.iter().zip(answers.chunks(2)) {
        assert_eq!(
            Some(saltern_python::repr(value).as_str()),
            theirs[0].as_str()
        );
        assert_eq!(Some(&*saltern_python::str(value)), theirs[1].as_str());
    }
}

#[test]
fn floats_have_the_text_that_python_gives_them() {
    let mut random = Random::new(setting("SALTERN_PYTHON_SEED", 1));
    let count = 5 * setting("SALTERN_PYTHON_CASES", 4_000);
    let floats: Vec<f64> = (0..count).map(|_| float(&mut random)).collect();
    let jobs = floats
        .iter()
        .map(|number| json!(["repr", ["float", hex(*number)]]));
    let answers = asked_of_python(&jobs.collect());
    for (number, theirs) in floats.iter().zip(answers) {
        let ours = saltern_python::number::float_repr(*number);
        assert_eq!(Some(ours.as_str()), theirs.as_str(), "{number:e}");
    }
}

#[test]
fn values_have_the_json_that_python_gives_them() {
    let values = values(7);
    let mut random = Random::new(3);
    let styles: Vec<Style> = values
        .iter()
        .map(|_| Style {
            ascii: random.below(2) == 0,
            sorted: random.below(2) == 0,
            indent: [None, None, Some(2), Some(4), Some(0)][random.below(5)],
        })
        .collect();
    let jobs = values.iter().zip(&styles).map(|(value, style)| {
        json!([
            "dumps",
            tagged(value),
            style.ascii,
            style.sorted,
            style.indent
        ])
    });
    let answers = asked_of_python(&jobs.collect());
    let mut refused = 0;
    for ((value, style), theirs) in values.iter().zip(styles).zip(&answers) {
        let mut out = String::new();
        match saltern_python::json::write(&mut out, value, style, LIMITS) {
            Ok(()) => assert_eq!(Some(out.as_str()), theirs.as_str(), "{value:?} {style:?}"),
            Err(error) => {
                refused += 1;
                let theirs = theirs["error"].as_str();
                assert_eq!(Some(error.to_string().as_str()), theirs, "{value:?}");
            }
        }
    }
    assert!(refused * 2 < values.len(), "{refused} values have no JSON");
}

#[test]
fn containers_beyond_limit_are_refused() {
    let mut deep = Value::None;
    for _ in 0..150 {
        deep = Value::Sequence(Sequence::List, vec![deep]);
    }
    let mut out = String::new();
    let written = saltern_python::repr::write_repr(&mut out, &deep, LIMITS);
    assert_eq!(written, Err(TextError::TooDeep));
    let long = Value::Sequence(Sequence::List, vec![Value::Text("x".repeat(50)); 3]);
    let limits = Limits {
        depth: 5,
        bytes: 60,
    };
    out.clear();
    let written = saltern_python::repr::write_repr(&mut out, &long, limits);
    assert_eq!(written, Err(TextError::TooLong));
    assert!(out.len() < 120);
}

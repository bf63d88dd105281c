//! Values and texts over several lines: `pprint`, YAML, `textwrap`, `str.format`.

use saltern_python::format::{FormatError, format};
use saltern_python::textwrap::Wrapper;
use saltern_python::{Node, number, pprint, text, yaml};
use serde_json::{Value as Json, json};

use crate::oracle::{Random, asked_of_python};
use crate::texts::{argument, compare, generated};
use crate::values::{Value, float, hex, hex_of, tagged, values};

/// Pieces of texts for people, with the marks of YAML, of paths and of Python's source.
const PIECES: &[&str] = &[
    "word",
    "two words",
    " ",
    " ",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    "-",
    "--",
    "---",
    ":",
    ": ",
    "#",
    " #",
    "'",
    "\"",
    "[",
    "]",
    "{",
    "}",
    ",",
    ", ",
    "&",
    "*",
    "!",
    "|",
    ">",
    "%",
    "@",
    "`",
    "?",
    "=",
    "<<",
    "~",
    "null",
    "yes",
    "on",
    "1",
    "12:30",
    "0x1f",
    "1e3",
    "1.5",
    "2026-11-21",
    ".",
    "...",
    "/etc/ssh/sshd_config",
    "a-hyphenated-word",
    "a_very_long_word_without_any_hyphen_in_it_which_does_not_fit_into_one_line_of_eighty_columns_at_all",
    "é",
    "😀",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\x1b",
    "\r\n",
    "\\",
    "A sentence which is somewhat longer than others.",
];

fn node(value: &Value) -> Node {
    Node::read(value).expect("values are not deep")
}

/// Values of which some hold long texts.
fn wide_values(salt: u64) -> Vec<Value> {
    let mut random = Random::new(salt);
    let mut values = values(salt);
    for value in &mut values {
        lengthen(value, &mut random);
    }
    values
}

fn lengthen(value: &mut Value, random: &mut Random) {
    match value {
        Value::Text(text) if random.below(2) == 0 => *text = random.row(PIECES, 14),
        Value::Bytes(bytes) if random.below(2) == 0 => {
            let count = random.below(90);
            bytes.extend((0..count).map(|_| random.below(256) as u8));
        }
        Value::Sequence(_, items) => items.iter_mut().for_each(|item| lengthen(item, random)),
        Value::Dict(entries) => {
            let entries = entries.iter_mut();
            entries.for_each(|(_, value)| lengthen(value, random));
        }
        _ => {}
    }
}

/// Asks both sides and names the first values that differ.
fn compare_values(values: &[Value], jobs: &[Json], ours: impl Fn(usize) -> String) {
    let answers = asked_of_python(&json!(jobs));
    let differing = answers.iter().enumerate().filter_map(|(index, theirs)| {
        let ours = ours(index);
        (Some(ours.as_str()) != theirs.as_str()).then(|| {
            let value = &values[index];
            format!("{value:?} by {}\nours {ours:?}\nthey {theirs}", jobs[index])
        })
    });
    let differing: Vec<String> = differing.collect();
    let first = &differing[..differing.len().min(5)];
    assert!(
        differing.is_empty(),
        "{} of {} differ:\n{}",
        differing.len(),
        jobs.len(),
        first.join("\n")
    );
}

#[test]
fn values_are_pretty_printed_as_in_python() {
    let values = wide_values(20);
    let mut random = Random::new(21);
    let indents: Vec<usize> = values
        .iter()
        .map(|_| [1, 1, 0, 2, 4][random.below(5)])
        .collect();
    let jobs = values.iter().zip(&indents);
    let jobs: Vec<Json> = jobs
        .map(|(value, indent)| json!(["pformat", tagged(value), indent]))
        .collect();
    compare_values(&values, &jobs, |index| {
        pprint::pformat(&node(&values[index]), indents[index])
    });
}

#[test]
fn values_have_the_yaml_of_pyyaml() {
    let values = wide_values(22);
    let mut random = Random::new(23);
    let styles: Vec<yaml::Style> = values
        .iter()
        .map(|_| yaml::Style {
            flow: random.below(3) == 0,
            indent: [None, Some(0), Some(2), Some(4), Some(7)][random.below(5)],
        })
        .collect();
    let jobs = values.iter().zip(&styles);
    let jobs: Vec<Json> = jobs
        .map(|(value, style)| json!(["safe_dump", tagged(value), style.flow, style.indent]))
        .collect();
    compare_values(&values, &jobs, |index| {
        yaml::safe_dump(&node(&values[index]), styles[index]).expect("it has YAML")
    });
}

#[test]
fn paragraphs_are_wrapped_as_in_python() {
    let jobs = generated(24, |random| {
        // Python does not end where the indentation takes the whole width.
        let width = [80, 80, 40, 20][random.below(4)];
        let (initial, subsequent) = (random.below(18), random.below(18));
        json!(["fill", random.row(PIECES, 24), width, initial, subsequent])
    });
    compare(jobs, |job| {
        let number = |index: usize| job[index].as_u64().expect("a number") as usize;
        let (initial, subsequent) = (" ".repeat(number(3)), " ".repeat(number(4)));
        let wrapper = Wrapper {
            width: number(2),
            initial_indent: &initial,
            subsequent_indent: &subsequent,
        };
        json!(wrapper.fill(argument(job, 1)))
    });
}

const TEMPLATES: &[&str] = &[
    "{0}",
    "{1}",
    "{2}",
    "{3}",
    "{4}",
    "{",
    "}",
    "{{",
    "}}",
    " text ",
    "{0",
    "!s",
    "!r",
    "!x",
    ":>7",
    ":<7}",
    ":^9}",
    ":*^12}",
    ":10}",
    ":05}",
    ":+d}",
    ":,}",
    ":_x}",
    ":#x}",
    ":n}",
    ":.2f}",
    ":.3}",
    ":.0f}",
    ":e}",
    ":10.3e}",
    ":g}",
    ":%}",
    ":.1%}",
    ":08.2f}",
    ":=+8}",
    ":s}",
    "[a]",
    "[0]",
    "[b]}",
    ".x}",
    "{4[a]}",
    "{4[b][1]!s:>9}",
    "{4[c]:>12.3f}",
    "{9}",
    "{name}",
    "{}",
    "{0:{5}}",
    "}",
    "{2:>3}",
    "{1:.2f}",
    "{1:,.3f}",
    "{2!r:8}",
    "{3:d}",
    "{1:012,.1f}",
    "{3:x}",
];

#[test]
fn templates_are_filled_in_as_in_python() {
    let mut randoms = Random::new(25);
    let jobs = generated(26, |random| {
        let dict = json!([
            "dict",
            [
                [["text", "a"], ["text", "x y"]],
                [["text", "b"], ["list", [["int", "1"], ["none", null]]]],
                [["text", "c"], ["float", hex(1234.5678)]],
                [["int", "0"], ["bool", true]],
            ]
        ]);
        let number = [float(&mut randoms), 12.5, 0.00001, 66.666][random.below(4)];
        json!([
            "format",
            random.row(TEMPLATES, 4),
            [
                ["text", random.one(&["", "word", "größe"])],
                ["float", hex(number)],
                ["text", random.one(&["x", "longer"])],
                ["int", random.below(100_000).to_string()],
                dict,
            ]
        ])
    });
    compare(jobs, |job| {
        let arguments = job[2].as_array().expect("arguments");
        let arguments: Vec<Node> = arguments.iter().map(argument_of).collect();
        match format(argument(job, 1), &arguments) {
            Ok(text) => json!(text),
            Err(error) => json!({"error": match error {
                FormatError::Index(_) => "IndexError",
                FormatError::Key(_) => "KeyError",
                FormatError::Attribute(_) => "AttributeError",
                FormatError::Type(_) => "TypeError",
                FormatError::Value(_) | FormatError::Code(..) => "ValueError",
            }}),
        }
    });
}

/// A tagged value as the oracle reads it.
fn argument_of(tagged: &Json) -> Node {
    let inner = &tagged[1];
    let items = |inner: &Json| -> Vec<Node> {
        let items = inner.as_array().expect("items").iter();
        items.map(argument_of).collect()
    };
    match tagged[0].as_str() {
        Some("text") => Node::Text(inner.as_str().expect("a text").to_owned()),
        Some("int") => Node::Int(
            inner
                .as_str()
                .and_then(|text| text.parse().ok())
                .expect("int"),
        ),
        Some("float") => Node::Float(from_hex(inner.as_str().expect("a float"))),
        Some("bool") => Node::Bool(inner == &json!(true)),
        Some("list") => Node::Sequence(saltern_python::Sequence::List, items(inner)),
        Some("dict") => {
            let entries = inner.as_array().expect("entries").iter();
            Node::Dict(
                entries
                    .map(|entry| (argument_of(&entry[0]), argument_of(&entry[1])))
                    .collect(),
            )
        }
        _ => Node::None,
    }
}

/// Reads the output of Python's `hex`.
fn from_hex(text: &str) -> f64 {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let number = match text {
        "nan" => f64::NAN,
        "inf" => f64::INFINITY,
        _ => {
            let (digits, exponent) = text[2..].split_once('p').expect("an exponent");
            let (lead, fraction) = digits.split_once('.').expect("a point");
            let fraction = u64::from_str_radix(fraction, 16).expect("hexadecimal");
            let exponent: i64 = exponent.parse().expect("a number");
            let exponent = if lead == "0" {
                0
            } else {
                (exponent + 1023) as u64
            };
            f64::from_bits(exponent << 52 | fraction)
        }
    };
    if negative { -number } else { number }
}

#[test]
fn titles_and_centred_texts_are_those_of_python() {
    let words = [
        "a", "B", "ß", "ǆ", "é", "1", "_", " ", "-", "'", "don", "OS", "\u{345}", "İ", "日",
    ];
    let jobs = generated(27, |random| match random.below(2) {
        0 => json!(["title", random.row(&words, 6)]),
        _ => json!(["center", random.row(&words, 6), random.below(20)]),
    });
    compare(jobs, |job| match argument(job, 0) {
        "title" => json!(text::title(argument(job, 1))),
        _ => {
            let width = job[2].as_u64().expect("a width") as usize;
            json!(text::center(argument(job, 1), width))
        }
    });
}

#[test]
fn floats_are_rounded_as_in_python() {
    let mut random = Random::new(28);
    let floats = (0..4_000).map(|_| match random.below(2) {
        0 => random.below(100_000) as f64 / 800.0,
        _ => float(&mut random),
    });
    let floats: Vec<f64> = floats.filter(|number| number.is_finite()).collect();
    let jobs = floats
        .iter()
        .map(|number| json!(["round", hex(*number), 2]));
    let answers = asked_of_python(&jobs.collect());
    for (number, theirs) in floats.iter().zip(answers) {
        let ours = hex(number::round(*number, 2));
        assert_eq!(
            ours,
            hex_of(theirs.as_str().expect("a float")),
            "{number:e}"
        );
    }
}

//! `pprint.pformat(value)`: sorted keys, lines of eighty columns.

use std::cmp::Ordering;

use crate::node::Node;
use crate::object::Sequence;
use crate::repr::{of_bytes, of_text};
use crate::text::{is_space, split_lines_keeping_ends};

const WIDTH: usize = 80;

/// `pprint.pformat(value, indent=indent)`.
#[must_use]
pub fn pformat(value: &Node, indent: usize) -> String {
    let mut printer = Printer {
        out: String::new(),
        step: indent,
    };
    printer.write(&ordered(value), Position::OUTERMOST);
    printer.out
}

/// The value with the keys of its dicts in the order in which they are printed.
fn ordered(value: &Node) -> Node {
    match value {
        Node::Sequence(kind, items) => Node::Sequence(*kind, items.iter().map(ordered).collect()),
        Node::Dict(entries) => {
            let mut sorted: Vec<&(Node, Node)> = entries.iter().collect();
            sorted.sort_by(|(left, _), (right, _)| compare(left, right));
            let entries = sorted.into_iter();
            Node::Dict(
                entries
                    .map(|(key, value)| (key.clone(), ordered(value)))
                    .collect(),
            )
        }
        _ => value.clone(),
    }
}

/// Values that Python cannot compare stand in the order of the names of their types.
fn compare(left: &Node, right: &Node) -> Ordering {
    left.compare(right)
        .unwrap_or_else(|| left.type_name().cmp(right.type_name()))
}

/// Position of a value in its line.
#[derive(Clone, Copy)]
struct Position {
    /// Columns before it.
    indent: usize,
    /// Columns that what follows it on its last line needs.
    allowance: usize,
    is_outermost: bool,
}

impl Position {
    const OUTERMOST: Self = Self {
        indent: 0,
        allowance: 0,
        is_outermost: true,
    };

    const fn inner(indent: usize, allowance: usize) -> Self {
        Self {
            indent,
            allowance,
            is_outermost: false,
        }
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

struct Printer {
    out: String,
    step: usize,
}

impl Printer {
    fn write(&mut self, value: &Node, at: Position) {
        let short = value.repr();
        if width(&short) + at.indent + at.allowance <= WIDTH {
            self.out.push_str(&short);
            return;
        }
        match value {
            Node::Dict(entries) => self.dict(entries, at),
            Node::Sequence(Sequence::List, items) => self.items("[", items, "]", at),
            Node::Sequence(Sequence::Tuple, items) => {
                let end = if items.len() == 1 { ",)" } else { ")" };
                self.items("(", items, end, at);
            }
            Node::Sequence(Sequence::Set, items) if !items.is_empty() => {
                let mut items = items.clone();
                items.sort_by(compare);
                self.items("{", &items, "}", at);
            }
            Node::Text(text) if !text.is_empty() => self.text(text, at),
            Node::Bytes(bytes) if bytes.len() > 4 => self.bytes(bytes, at),
            _ => self.out.push_str(&short),
        }
    }

    fn pad(&mut self) {
        self.out
            .extend(std::iter::repeat_n(' ', self.step.saturating_sub(1)));
    }

    fn next_line(&mut self, comma: &str, indent: usize) {
        self.out.push_str(comma);
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    fn dict(&mut self, entries: &[(Node, Node)], at: Position) {
        self.out.push('{');
        self.pad();
        let indent = at.indent + self.step;
        for (index, (key, value)) in entries.iter().enumerate() {
            if index > 0 {
                self.next_line(",", indent);
            }
            let key = key.repr();
            self.out.push_str(&key);
            self.out.push_str(": ");
            let is_last = index + 1 == entries.len();
            let allowance = if is_last { at.allowance + 1 } else { 1 };
            self.write(value, Position::inner(indent + width(&key) + 2, allowance));
        }
        self.out.push('}');
    }

    fn items(&mut self, start: &str, items: &[Node], end: &str, at: Position) {
        self.out.push_str(start);
        self.pad();
        let indent = at.indent + self.step;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.next_line(",", indent);
            }
            let is_last = index + 1 == items.len();
            let allowance = if is_last { at.allowance + end.len() } else { 1 };
            self.write(item, Position::inner(indent, allowance));
        }
        self.out.push_str(end);
    }

    /// Several literals, in parentheses unless they stand in another value.
    fn literals(&mut self, literals: &[String], at: Position) {
        let is_wrapped = at.is_outermost;
        if is_wrapped {
            self.out.push('(');
        }
        for (index, literal) in literals.iter().enumerate() {
            if index > 0 {
                self.next_line("", at.indent + usize::from(is_wrapped));
            }
            self.out.push_str(literal);
        }
        if is_wrapped {
            self.out.push(')');
        }
    }

    fn text(&mut self, text: &str, at: Position) {
        let around = usize::from(at.is_outermost);
        let columns = Columns::new(at.indent + around, at.allowance + around);
        let lines = split_lines_keeping_ends(text);
        let mut literals = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let is_last = index + 1 == lines.len();
            let whole = of_text(line);
            if columns.fit(&whole, is_last) {
                literals.push(whole);
            } else {
                line_literals(line, columns, is_last, &mut literals);
            }
        }
        if let [only] = literals.as_slice() {
            self.out.push_str(only);
        } else {
            self.literals(&literals, at);
        }
    }

    fn bytes(&mut self, bytes: &[u8], at: Position) {
        let around = usize::from(at.is_outermost);
        let columns = Columns::new(at.indent + around, at.allowance + around);
        let last = bytes.len() / 4 * 4;
        let mut literals = Vec::new();
        let mut current: Vec<u8> = Vec::new();
        for (index, part) in bytes.chunks(4).enumerate() {
            let candidate = [&current, part].concat();
            if columns.fit(&of_bytes(&candidate), index * 4 == last) {
                current = candidate;
                continue;
            }
            if !current.is_empty() {
                literals.push(of_bytes(&current));
            }
            current = part.to_vec();
        }
        if !current.is_empty() {
            literals.push(of_bytes(&current));
        }
        self.literals(&literals, at);
    }
}

/// The columns that literals have.
#[derive(Clone, Copy)]
struct Columns {
    all: i64,
    of_last: i64,
}

impl Columns {
    fn new(indent: usize, allowance: usize) -> Self {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 2);
        let all = number(WIDTH) - number(indent);
        Self {
            all,
            of_last: all - number(allowance),
        }
    }

    fn fit(&self, literal: &str, is_last: bool) -> bool {
        let columns = if is_last { self.of_last } else { self.all };
        i64::try_from(width(literal)).is_ok_and(|width| width <= columns)
    }
}

/// One line as several literals, parted behind white space.
fn line_literals(line: &str, columns: Columns, is_last_line: bool, literals: &mut Vec<String>) {
    let words = words_of(line);
    let mut current = String::new();
    for (index, word) in words.iter().enumerate() {
        let is_last = is_last_line && index + 1 == words.len();
        let candidate = format!("{current}{word}");
        if columns.fit(&of_text(&candidate), is_last) {
            current = candidate;
            continue;
        }
        if !current.is_empty() {
            literals.push(of_text(&current));
        }
        current = (*word).to_owned();
    }
    if !current.is_empty() {
        literals.push(of_text(&current));
    }
}

/// Words, each with the white space behind it.
fn words_of(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut was_space = false;
    for (at, letter) in line.char_indices() {
        if was_space && !is_space(letter) {
            words.extend(line.get(start..at));
            start = at;
        }
        was_space = is_space(letter);
    }
    words.extend(line.get(start..).filter(|rest| !rest.is_empty()));
    words
}

//! Stock's default outputter, `salt/output/nested.py`: an indented tree with a rule of ten dashes
//! before every map but the outermost.

use std::cmp::Ordering;

use saltern_python::number::float_repr;
use saltern_python::repr::of_bytes;
use saltern_python::text::splitlines;
use saltern_wire::msgpack::Value;

use crate::{Color, OutputOptions};

/// A value as stock's `nested` outputter returns it, trailing white space included.
#[must_use]
pub fn nested(value: &Value, options: &OutputOptions) -> String {
    let mut tree = Tree {
        options,
        lines: Vec::new(),
    };
    tree.show(value, options.nested_indent, "");
    tree.lines.join("\n")
}

struct Tree<'a> {
    options: &'a OutputOptions,
    lines: Vec<String>,
}

impl Tree<'_> {
    fn line(&mut self, indent: usize, color: Color, text: &str, prefix: &str, suffix: &str) {
        let (color, end) = (self.options.colors.code(color), self.options.colors.end());
        self.lines
            .push(format!("{:indent$}{color}{prefix}{text}{end}{suffix}", ""));
    }

    /// Maps and list items are cyan and green, or red once a return code means failure.
    fn unless_failed(&self, color: Color) -> Color {
        match self.options.retcode {
            0 => color,
            _ => Color::Red,
        }
    }

    fn show(&mut self, value: &Value, indent: usize, prefix: &str) {
        let yellow = Color::LightYellow;
        match value {
            Value::Nil => self.line(indent, yellow, "None", prefix, ""),
            Value::Bool(true) => self.line(indent, yellow, "True", prefix, ""),
            Value::Bool(false) => self.line(indent, yellow, "False", prefix, ""),
            Value::Int(number) => self.line(indent, yellow, &number.to_string(), prefix, ""),
            Value::Uint(number) => self.line(indent, yellow, &number.to_string(), prefix, ""),
            Value::Float(number) => self.line(indent, yellow, &float_repr(*number), prefix, ""),
            Value::Str(text) => self.text(text, indent, prefix),
            // Stock prints nothing for bytes that are no text, nor for a date.
            Value::Bin(bytes) => {
                if let Ok(text) = std::str::from_utf8(bytes) {
                    self.text(text, indent, prefix);
                }
            }
            Value::Ext(..) => {}
            Value::Array(items) => self.list(items, indent),
            Value::Map(entries) => self.map(entries, indent, prefix),
        }
    }

    fn text(&mut self, text: &str, indent: usize, prefix: &str) {
        let hanging = " ".repeat(prefix.chars().count());
        for (at, line) in splitlines(text).into_iter().enumerate() {
            let prefix = if at == 0 { prefix } else { &hanging };
            let green = Color::Green;
            if self.options.strip_colors && line.contains('\x1b') {
                self.line(indent, green, &line.replace('\x1b', "?"), prefix, "");
            } else {
                self.line(indent, green, line, prefix, "");
            }
        }
    }

    fn list(&mut self, items: &[Value], indent: usize) {
        let color = self.unless_failed(Color::Green);
        for item in items {
            match item {
                Value::Map(_) => {
                    self.line(indent, color, "|_", "", "");
                    self.show(item, indent + 2, "");
                }
                Value::Array(_) => {
                    self.line(indent, color, "|_", "", "");
                    self.show(item, indent + 2, "- ");
                }
                _ => self.show(item, indent, "- "),
            }
        }
    }

    fn map(&mut self, entries: &[(Value, Value)], indent: usize, prefix: &str) {
        let color = self.unless_failed(Color::Cyan);
        if indent > 0 {
            self.line(indent, color, "----------", "", "");
        }
        for (key, value) in sorted(entries) {
            self.line(indent, color, &key, prefix, ":");
            self.show(value, indent + 4, "");
        }
    }
}

/// The entries in the order in which Python sorts the keys; keys that Python cannot compare with
/// one another are compared as text. A later entry replaces an earlier one with the same key.
pub(crate) fn sorted(entries: &[(Value, Value)]) -> Vec<(String, &Value)> {
    let mut kept: Vec<(Key<'_>, &Value)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        kept.push((Key::new(key), value));
    }
    let comparable = kept
        .windows(2)
        .all(|pair| matches!(pair, [(left, _), (right, _)] if left.kind() == right.kind()))
        && (kept.len() < 2 || !kept.iter().any(|(key, _)| matches!(key, Key::Other(_))));
    let mut named: Vec<(Key<'_>, &Value)> = if comparable {
        kept
    } else {
        kept.into_iter()
            .map(|(key, value)| (Key::Text(key.text().into()), value))
            .collect()
    };
    // The sort is stable, so that of equal keys the last one stands last.
    named.sort_by(|(left, _), (right, _)| left.compare(right));
    let mut unique: Vec<(String, &Value)> = Vec::with_capacity(named.len());
    for (key, value) in named {
        let text = key.text();
        match unique.last_mut() {
            Some((last, slot)) if *last == text => *slot = value,
            _ => unique.push((text, value)),
        }
    }
    unique
}

/// A map key with what Python can compare it to.
enum Key<'a> {
    Text(std::borrow::Cow<'a, str>),
    Number(f64, String),
    Bytes(&'a [u8]),
    Other(String),
}

impl<'a> Key<'a> {
    fn new(key: &'a Value) -> Self {
        match key {
            Value::Str(text) => Self::Text(text.as_str().into()),
            Value::Bin(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Self::Text(text.into()),
                Err(_) => Self::Bytes(bytes),
            },
            Value::Int(number) => Self::Number(*number as f64, number.to_string()),
            Value::Uint(number) => Self::Number(*number as f64, number.to_string()),
            Value::Float(number) => Self::Number(*number, float_repr(*number)),
            Value::Bool(true) => Self::Number(1.0, "True".to_owned()),
            Value::Bool(false) => Self::Number(0.0, "False".to_owned()),
            Value::Nil => Self::Other("None".to_owned()),
            Value::Array(_) | Value::Map(_) | Value::Ext(..) => {
                Self::Other(saltern_python::repr(key))
            }
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Text(_) => 0,
            Self::Number(..) => 1,
            Self::Bytes(_) => 2,
            Self::Other(_) => 3,
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(left), Self::Text(right)) => left.cmp(right),
            (Self::Number(left, _), Self::Number(right, _)) => left.total_cmp(right),
            (Self::Bytes(left), Self::Bytes(right)) => left.cmp(right),
            _ => self.kind().cmp(&other.kind()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone().into_owned(),
            Self::Number(_, text) | Self::Other(text) => text.clone(),
            Self::Bytes(bytes) => of_bytes(bytes),
        }
    }
}

//! `json.dumps(value)`.
//!
//! A visitor of its own beside `repr`: JSON has other brackets, refuses types, sorts keys and breaks
//! lines. Limits, floats and the walk over values are shared.

use std::cmp::Ordering;
use std::fmt::Write as _;

use crate::number;
use crate::object::{Object, Sequence, TextError, Visitor};
use crate::repr::Limits;

/// The arguments of `json.dumps`.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// `ensure_ascii`.
    pub ascii: bool,
    /// `sort_keys`.
    pub sorted: bool,
    /// `indent`.
    pub indent: Option<usize>,
}

/// Appends `json.dumps(value)`.
///
/// # Errors
/// What JSON has no form for, keys that cannot be sorted, beyond a limit, and what the value says.
pub fn write<T: Object>(
    out: &mut String,
    value: T,
    style: Style,
    limits: Limits,
) -> Result<(), T::Error> {
    let mut writer = Json {
        out,
        style,
        limits,
        depth: 0,
    };
    writer.item(&value)
}

struct Json<'o> {
    out: &'o mut String,
    style: Style,
    limits: Limits,
    depth: usize,
}

impl Json<'_> {
    fn item<T: Object>(&mut self, value: &T) -> Result<(), T::Error> {
        self.limits
            .check(self.depth, self.out, TextError::Circular)?;
        value.accept(self)
    }

    fn push(&mut self, text: &str) -> Result<(), TextError> {
        self.out.push_str(text);
        Ok(())
    }

    fn open(&mut self, bracket: char) {
        self.out.push(bracket);
        self.depth += 1;
    }

    fn before_item(&mut self, is_first: bool) {
        match (self.style.indent, is_first) {
            (None, true) => {}
            (None, false) => self.out.push_str(", "),
            (Some(_), true) => self.new_line(),
            (Some(_), false) => {
                self.out.push(',');
                self.new_line();
            }
        }
    }

    fn close(&mut self, is_empty: bool, bracket: char) {
        self.depth -= 1;
        if !is_empty && self.style.indent.is_some() {
            self.new_line();
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self) {
        self.out.push('\n');
        let width = self.style.indent.unwrap_or(0).saturating_mul(self.depth);
        self.out.extend(std::iter::repeat_n(' ', width));
    }

    fn entry<T: Object>(&mut self, key: &str, value: &T) -> Result<(), T::Error> {
        push_text(self.out, key, self.style.ascii);
        self.out.push_str(": ");
        self.item(value)
    }
}

impl Visitor for Json<'_> {
    fn none(&mut self) -> Result<(), TextError> {
        self.push("null")
    }

    fn bool(&mut self, flag: bool) -> Result<(), TextError> {
        self.push(if flag { "true" } else { "false" })
    }

    fn int(&mut self, number: i128) -> Result<(), TextError> {
        let _ = write!(self.out, "{number}");
        Ok(())
    }

    fn float(&mut self, number: f64) -> Result<(), TextError> {
        self.push(&of_float(number))
    }

    fn text(&mut self, text: &str) -> Result<(), TextError> {
        push_text(self.out, text, self.style.ascii);
        Ok(())
    }

    fn bytes(&mut self, _bytes: &[u8]) -> Result<(), TextError> {
        Err(TextError::NotSerializable("bytes".to_owned()))
    }

    fn other(&mut self, type_name: &str, _repr: &str) -> Result<(), TextError> {
        Err(TextError::NotSerializable(type_name.to_owned()))
    }

    fn wrapped<T: Object>(
        &mut self,
        type_name: &str,
        _before: &str,
        _inner: T,
        _after: &str,
    ) -> Result<(), T::Error> {
        Err(TextError::NotSerializable(type_name.to_owned()).into())
    }

    fn sequence<T: Object>(
        &mut self,
        kind: Sequence,
        items: impl IntoIterator<Item = T>,
    ) -> Result<(), T::Error> {
        if kind == Sequence::Set {
            return Err(TextError::NotSerializable("set".to_owned()).into());
        }
        self.open('[');
        let mut is_empty = true;
        for item in items {
            self.before_item(is_empty);
            self.item(&item)?;
            is_empty = false;
        }
        self.close(is_empty, ']');
        Ok(())
    }

    fn dict<T: Object>(
        &mut self,
        entries: impl IntoIterator<Item = (T, T)>,
    ) -> Result<(), T::Error> {
        if self.style.sorted {
            return self.sorted_dict(entries);
        }
        self.open('{');
        let mut is_empty = true;
        for (key, value) in entries {
            let key = Key::read(&key)?;
            self.before_item(is_empty);
            self.entry(&key.text()?, &value)?;
            is_empty = false;
        }
        self.close(is_empty, '}');
        Ok(())
    }
}

impl Json<'_> {
    fn sorted_dict<T: Object>(
        &mut self,
        entries: impl IntoIterator<Item = (T, T)>,
    ) -> Result<(), T::Error> {
        let mut keyed = Vec::new();
        for (key, value) in entries {
            keyed.push((Key::read(&key)?, value));
        }
        // Python compares each key with the one before it first.
        let unlike = keyed.windows(2).find_map(|pair| match pair {
            [(before, _), (key, _)] if !key.is_comparable(before) => Some((key, before)),
            _ => None,
        });
        if let Some((key, before)) = unlike {
            return Err(TextError::NotOrdered(
                key.type_name().to_owned(),
                before.type_name().to_owned(),
            )
            .into());
        }
        keyed.sort_by(|(a, _), (b, _)| a.compare(b));
        self.open('{');
        let is_empty = keyed.is_empty();
        for (index, (key, value)) in keyed.into_iter().enumerate() {
            self.before_item(index == 0);
            self.entry(&key.text()?, &value)?;
        }
        self.close(is_empty, '}');
        Ok(())
    }
}

/// A key of a `dict`.
#[derive(Debug)]
enum Key {
    /// One that JSON has no form for; the name of its type.
    Other(String),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
}

impl Key {
    fn read<T: Object>(value: &T) -> Result<Self, T::Error> {
        let mut reader = KeyReader { key: Self::None };
        value.accept(&mut reader)?;
        Ok(reader.key)
    }

    fn text(&self) -> Result<String, TextError> {
        Ok(match self {
            Self::Other(name) => return Err(TextError::NotAKey(name.clone())),
            Self::None => "null".to_owned(),
            Self::Bool(flag) => if *flag { "true" } else { "false" }.to_owned(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => of_float(*number),
            Self::Text(text) => text.clone(),
        })
    }

    fn type_name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Bool(flag) => Some(f64::from(u8::from(*flag))),
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::None | Self::Text(_) | Self::Other(_) => None,
        }
    }

    fn is_comparable(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(_), Self::Text(_)) => true,
            // Refused afterwards, for what they are.
            (Self::Other(name), Self::Other(other)) => name == other,
            _ => self.number().is_some() && other.number().is_some(),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => Ordering::Equal,
            },
        }
    }
}

struct KeyReader {
    key: Key,
}

impl Visitor for KeyReader {
    fn none(&mut self) -> Result<(), TextError> {
        self.key = Key::None;
        Ok(())
    }

    fn bool(&mut self, flag: bool) -> Result<(), TextError> {
        self.key = Key::Bool(flag);
        Ok(())
    }

    fn int(&mut self, number: i128) -> Result<(), TextError> {
        self.key = Key::Int(number);
        Ok(())
    }

    fn float(&mut self, number: f64) -> Result<(), TextError> {
        self.key = Key::Float(number);
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), TextError> {
        self.key = Key::Text(text.to_owned());
        Ok(())
    }

    fn bytes(&mut self, _bytes: &[u8]) -> Result<(), TextError> {
        self.other("bytes", "")
    }

    fn other(&mut self, type_name: &str, _repr: &str) -> Result<(), TextError> {
        self.key = Key::Other(type_name.to_owned());
        Ok(())
    }

    fn wrapped<T: Object>(
        &mut self,
        type_name: &str,
        _before: &str,
        _inner: T,
        _after: &str,
    ) -> Result<(), T::Error> {
        Ok(self.other(type_name, "")?)
    }

    fn sequence<T: Object>(
        &mut self,
        kind: Sequence,
        _items: impl IntoIterator<Item = T>,
    ) -> Result<(), T::Error> {
        let name = match kind {
            Sequence::List => "list",
            Sequence::Tuple => "tuple",
            Sequence::Set => "set",
        };
        Ok(self.other(name, "")?)
    }

    fn dict<T: Object>(
        &mut self,
        _entries: impl IntoIterator<Item = (T, T)>,
    ) -> Result<(), T::Error> {
        Ok(self.other("dict", "")?)
    }
}

fn of_float(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned()
    } else {
        number::float_repr(number)
    }
}

/// `json.dumps(text, ensure_ascii=False)`.
#[must_use]
pub fn of_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_text(&mut out, text, false);
    out
}

fn push_text(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' => push_unit(out, u32::from(letter) as u16),
            ' '..='~' => out.push(letter),
            _ if ascii => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    push_unit(out, *unit);
                }
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
}

fn push_unit(out: &mut String, unit: u16) {
    let _ = write!(out, "\\u{unit:04x}");
}

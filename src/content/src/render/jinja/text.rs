//! How values of templates are printed: `str()`, `repr()`, `%` and `format`.
//!
//! Also what Salt changes when a template prints a mapping: text with line ends inside becomes a
//! double-quoted YAML scalar (`_yaml_safe_repr` in `salt/utils/jinja.py`), so that the YAML that
//! is made of it reads the same text again.

use std::borrow::Cow;

use minijinja::value::Value;
use saltern_python::format::{Arguments, FormatError, fill, format_text, format_value};
use saltern_python::repr::{Limits, write_repr};
use saltern_python::{Node, Object, Sequence, TextError, Visitor};

use super::fault::{Fault, Outcome};
use super::methods::View;
use super::value::{Kind, Namespace, Undefined, dict, list, undefined_fault};

/// A list that contains itself ends at the depth.
const LIMITS: Limits = Limits {
    depth: 150,
    bytes: 16 << 20,
};

/// `str(value)`; using what is undefined is an error.
pub(crate) fn str_of(value: &Value) -> Outcome<String> {
    match Kind::of(value) {
        Kind::Str(text) => Ok(text.to_owned()),
        Kind::Undefined(Some(Undefined { silent: true, .. })) => Ok(String::new()),
        Kind::Undefined(undefined) => Err(undefined_fault(undefined)),
        _ => repr(value),
    }
}

/// `repr(value)`.
pub(crate) fn repr(value: &Value) -> Outcome<String> {
    let mut out = String::new();
    write_repr(&mut out, Shown::new(value, Form::Repr), LIMITS)?;
    Ok(out)
}

/// The output of `{{ value }}`.
pub(crate) fn printed(value: &Value) -> Outcome<String> {
    match Kind::of(value) {
        Kind::Str(text) => Ok(text.to_owned()),
        Kind::Undefined(Some(Undefined { silent: true, .. })) => Ok(String::new()),
        Kind::Undefined(undefined) => Err(undefined_fault(undefined)),
        _ => {
            let mut out = String::new();
            write_repr(&mut out, Shown::new(value, Form::Printed), LIMITS)?;
            Ok(out)
        }
    }
}

/// Notation of a value as text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `repr`.
    Repr,
    /// The output of a template: texts that are values of a mapping are written for YAML.
    Printed,
    /// JSON and YAML, which have nothing for what is undefined.
    Json,
}

/// A value of a template as Python shows it.
pub(crate) struct Shown<'a> {
    value: &'a Value,
    form: Form,
    is_entry: bool,
}

impl<'a> Shown<'a> {
    pub(crate) fn new(value: &'a Value, form: Form) -> Self {
        Self {
            value,
            form,
            is_entry: false,
        }
    }

    fn item(&self, value: &'a Value) -> Self {
        Self::new(value, self.form)
    }

    fn entry(&self, value: &'a Value) -> Self {
        Self {
            is_entry: true,
            ..self.item(value)
        }
    }
}

impl Object for Shown<'_> {
    type Error = Fault;

    fn accept<V: Visitor>(&self, visitor: &mut V) -> Outcome<()> {
        let form = self.form;
        let items = |items: &[Value], kind, visitor: &mut V| {
            visitor.sequence(kind, items.iter().map(|item| Shown::new(item, form)))
        };
        match Kind::of(self.value) {
            Kind::None => visitor.none()?,
            Kind::Bool(flag) => visitor.bool(flag)?,
            Kind::Int(number) => visitor.int(number)?,
            Kind::Float(number) => visitor.float(number)?,
            Kind::Str(text) if self.is_for_yaml(text) => {
                visitor.other("str", &super::yaml_text::double_quoted(text))?;
            }
            Kind::Str(text) => visitor.text(text)?,
            Kind::Bytes(bytes) => visitor.bytes(bytes)?,
            Kind::Undefined(undefined) if form == Form::Json => {
                return Err(undefined_fault(undefined));
            }
            Kind::Undefined(_) => visitor.other("Undefined", "Undefined")?,
            Kind::List(list) => {
                let list = list.0.lock().clone();
                items(&list, Sequence::List, visitor)?;
            }
            Kind::Tuple(tuple) => items(tuple, Sequence::Tuple, visitor)?,
            Kind::Set(set) => {
                let set: Vec<Value> = set.0.lock().values().cloned().collect();
                items(&set, Sequence::Set, visitor)?;
            }
            Kind::Dict(dict) => {
                let entries: Vec<(Value, Value)> = dict.0.lock().values().cloned().collect();
                let whole = Shown::new(self.value, form);
                visitor.dict(
                    entries
                        .iter()
                        .map(|(key, value)| (whole.item(key), whole.entry(value))),
                )?;
            }
            Kind::Other => self.other(visitor)?,
        }
        Ok(())
    }

    fn own_str(&self) -> Option<Cow<'_, str>> {
        match Kind::of(self.value) {
            Kind::Str(text) => Some(Cow::Borrowed(text)),
            _ => None,
        }
    }
}

impl Shown<'_> {
    fn is_for_yaml(&self, text: &str) -> bool {
        self.form == Form::Printed && self.is_entry && text.contains(['\n', '\r', '\t'])
    }

    fn other<V: Visitor>(&self, visitor: &mut V) -> Outcome<()> {
        let name = super::value::type_name(self.value);
        let inner_form = match self.form {
            Form::Printed => Form::Repr,
            form => form,
        };
        if let Some(namespace) = self.value.downcast_object_ref::<Namespace>() {
            let entries = dict(namespace.0.lock().clone());
            return visitor.wrapped(name, "<Namespace ", Shown::new(&entries, inner_form), ">");
        }
        match self.value.downcast_object_ref::<View>() {
            Some(view) if !view.indexed => {
                let items = list(view.items.clone());
                let before = format!("{}(", view.name);
                visitor.wrapped(name, &before, Shown::new(&items, self.form), ")")
            }
            _ => Ok(visitor.other(name, &self.value.to_string())?),
        }
    }
}

impl From<TextError> for Fault {
    fn from(error: TextError) -> Self {
        match error {
            TextError::TooDeep | TextError::Circular | TextError::TooLong => {
                Fault::limit(error.to_string())
            }
            TextError::NotSerializable(_) | TextError::NotAKey(_) | TextError::NotOrdered(..) => {
                Fault::other(error.to_string())
            }
        }
    }
}

/// The text of something undefined, for messages.
pub(crate) fn undefined_text(undefined: Option<&Undefined>) -> &str {
    undefined.map_or("value is undefined", |undefined| undefined.message.as_str())
}

/// `text % values`.
pub(crate) fn percent(text: &str, values: &Value) -> Outcome<String> {
    let arguments: Vec<Value> = match Kind::of(values) {
        Kind::Tuple(items) => items.to_vec(),
        _ => vec![values.clone()],
    };
    let mapping = matches!(Kind::of(values), Kind::Dict(_));
    let mut next = 0_usize;
    let mut take = || {
        let value = arguments.get(next).cloned();
        next += 1;
        value.ok_or_else(|| Fault::other("not enough arguments for format string"))
    };
    let mut out = String::new();
    let mut letters = text.chars().peekable();
    let mut keyed = false;
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut key = None;
        if letters.peek() == Some(&'(') {
            letters.next();
            let name: String = letters
                .by_ref()
                .take_while(|letter| *letter != ')')
                .collect();
            keyed = true;
            key = Some(name);
        }
        let mut spec = PercentSpec::default();
        while let Some(flag) = letters.peek().copied() {
            match flag {
                '-' => spec.is_left = true,
                '0' => spec.zero = "0",
                '+' => spec.sign = "+",
                ' ' => spec.sign = " ",
                '#' => spec.alternate = "#",
                _ => break,
            }
            letters.next();
        }
        spec.width = number_or_star(&mut letters, &mut take)?;
        if letters.peek() == Some(&'.') {
            letters.next();
            spec.precision = Some(number_or_star(&mut letters, &mut take)?.unwrap_or(0));
        }
        let Some(kind) = letters.next() else {
            return Err(Fault::other("incomplete format"));
        };
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match key {
            Some(name) if mapping => super::ops::item(values, &Value::from(name))?,
            Some(_) => return Err(Fault::other("format requires a mapping")),
            None => take()?,
        };
        out.push_str(&match kind {
            's' | 'c' => spec.text(&str_of(&value)?)?,
            'r' | 'a' => spec.text(&repr(&value)?)?,
            'd' | 'i' | 'u' => {
                let number = match Kind::of(&value) {
                    Kind::Float(number) => number.trunc() as i128,
                    Kind::Int(number) => number,
                    Kind::Bool(flag) => i128::from(flag),
                    _ => {
                        return Err(Fault::other(format!(
                            "%{kind} format: a real number is required, not {}",
                            super::value::type_name(&value)
                        )));
                    }
                };
                spec.precision = None;
                format_value(&Node::Int(number), &spec.number('d'))?
            }
            'x' | 'X' | 'o' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                formatted(&value, &spec.number(kind))?
            }
            other => {
                return Err(Fault::other(format!(
                    "unsupported format character '{other}' (0x{:x})",
                    u32::from(other)
                )));
            }
        });
    }
    if !keyed && !mapping && next < arguments.len() && !matches!(Kind::of(values), Kind::List(_)) {
        return Err(Fault::other(
            "not all arguments converted during string formatting",
        ));
    }
    Ok(out)
}

fn number_or_star(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    take: &mut impl FnMut() -> Outcome<Value>,
) -> Outcome<Option<usize>> {
    if letters.peek() == Some(&'*') {
        letters.next();
        return Ok(take()?.as_usize());
    }
    let mut digits = String::new();
    while let Some(digit) = letters.peek().filter(|letter| letter.is_ascii_digit()) {
        digits.push(*digit);
        letters.next();
    }
    if digits.is_empty() {
        return Ok(None);
    }
    Ok(Some(digits.parse().unwrap_or(usize::MAX)))
}

/// The flags of one `%` in front of its letter.
#[derive(Default)]
struct PercentSpec {
    is_left: bool,
    zero: &'static str,
    sign: &'static str,
    alternate: &'static str,
    width: Option<usize>,
    precision: Option<usize>,
}

impl PercentSpec {
    fn width(&self) -> String {
        self.width
            .map_or_else(String::new, |width| width.to_string())
    }

    fn text(&self, text: &str) -> Result<String, FormatError> {
        let cut: String = match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.to_owned(),
        };
        let align = if self.is_left { '<' } else { '>' };
        format_text(&cut, &format!("{align}{}", self.width()))
    }

    /// The same for `format`.
    fn number(&self, kind: char) -> String {
        let (align, zero) = match self.is_left {
            true => ("<", ""),
            false => ("", self.zero),
        };
        let precision = self.precision.map(|precision| format!(".{precision}"));
        let precision = precision.unwrap_or_default();
        let (sign, alternate, width) = (self.sign, self.alternate, self.width());
        format!("{align}{sign}{alternate}{zero}{width}{precision}{kind}")
    }
}

/// `format(value, spec)`.
fn formatted(value: &Value, spec: &str) -> Outcome<String> {
    let node = match Kind::of(value) {
        Kind::Str(text) => return Ok(format_text(text, spec)?),
        Kind::Bool(flag) => Node::Bool(flag),
        Kind::Int(number) => Node::Int(number),
        Kind::Float(number) => Node::Float(number),
        _ if spec.is_empty() => return str_of(value),
        _ => return Err(FormatError::Type(super::value::type_name(value).to_owned()).into()),
    };
    Ok(format_value(&node, spec)?)
}

impl From<FormatError> for Fault {
    fn from(error: FormatError) -> Self {
        Self::other(error.to_string())
    }
}

/// `text.format(*positional, **named)`.
pub(crate) fn format(
    text: &str,
    positional: &[Value],
    named: &dyn Fn(&str) -> Option<Value>,
) -> Outcome<String> {
    fill(text, &FormatArguments { positional, named })
}

struct FormatArguments<'a> {
    positional: &'a [Value],
    named: &'a dyn Fn(&str) -> Option<Value>,
}

impl Arguments for FormatArguments<'_> {
    type Value = Value;
    type Error = Fault;

    fn positional(&self, index: usize) -> Outcome<Value> {
        let value = self.positional.get(index).cloned();
        Ok(value.ok_or(FormatError::Index(index))?)
    }

    fn named(&self, name: &str) -> Outcome<Value> {
        Ok((self.named)(name).ok_or_else(|| FormatError::Key(name.to_owned()))?)
    }

    fn item(&self, value: Value, key: &str) -> Outcome<Value> {
        let key = key
            .parse::<i64>()
            .map_or_else(|_| Value::from(key), Value::from);
        super::ops::item(&value, &key)
    }

    fn attribute(&self, value: Value, name: &str) -> Outcome<Value> {
        super::ops::attribute(&value, name)
    }

    fn formatted(&self, value: &Value, spec: &str) -> Outcome<String> {
        formatted(defined(value)?, spec)
    }

    fn text(&self, value: &Value) -> Outcome<String> {
        str_of(defined(value)?)
    }

    fn repr(&self, value: &Value) -> Outcome<String> {
        repr(defined(value)?)
    }
}

fn defined(value: &Value) -> Outcome<&Value> {
    match Kind::of(value) {
        Kind::Undefined(undefined) => Err(Fault::other(undefined_text(undefined))),
        _ => Ok(value),
    }
}

//! How values of templates are printed: `str()`, `repr()`, `%` and `format`.
//!
//! Also what Salt changes when a template prints a mapping: text with line ends inside becomes a
//! double-quoted YAML scalar (`_yaml_safe_repr` in `salt/utils/jinja.py`), so that the YAML that
//! is made of it reads the same text again.
//!
//! Longer than 500 lines, because `%`, `format` and `str` share how numbers are written.

use std::borrow::Cow;

use minijinja::value::Value;
use saltern_python::number::float_repr;
use saltern_python::repr::{Limits, write_repr};
use saltern_python::{Object, Sequence, TextError, Visitor};

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

/// What `{{ value }}` prints.
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

/// What a value is shown in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `repr`.
    Repr,
    /// The output of a template: texts that are values of a mapping are written for YAML.
    Printed,
    /// JSON, which has nothing for what is undefined.
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
        let mut spec = Spec::default();
        while let Some(flag) = letters.peek().copied() {
            match flag {
                '-' => spec.align = Some('<'),
                '0' if spec.align.is_none() => spec.zero = true,
                '0' => {}
                '+' | ' ' => spec.sign = Some(flag),
                '#' => spec.alternate = true,
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
        spec.align = spec.align.or(Some('>'));
        let piece = match kind {
            's' => str_of(&value)?,
            'r' | 'a' => repr(&value)?,
            'd' | 'i' | 'u' => match Kind::of(&value) {
                Kind::Float(number) => (number.trunc() as i128).to_string(),
                Kind::Int(number) => number.to_string(),
                Kind::Bool(flag) => i32::from(flag).to_string(),
                _ => {
                    return Err(Fault::other(format!(
                        "%{kind} format: a real number is required, not {}",
                        super::value::type_name(&value)
                    )));
                }
            },
            'c' => str_of(&value)?,
            'x' | 'X' | 'o' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                spec.kind = Some(kind);
                out.push_str(&spec.apply(&value)?);
                continue;
            }
            other => {
                return Err(Fault::other(format!(
                    "unsupported format character '{other}' (0x{:x})",
                    u32::from(other)
                )));
            }
        };
        if matches!(kind, 'd' | 'i' | 'u') {
            out.push_str(&spec.pad_number(&piece));
        } else {
            let cut: String = match spec.precision {
                Some(most) => piece.chars().take(most).collect(),
                None => piece,
            };
            spec.zero = false;
            out.push_str(&spec.pad(&cut, '>'));
        }
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
    bounded(digits.parse().unwrap_or(usize::MAX)).map(Some)
}

/// Widths are bounded: no template needs a number padded to a gigabyte.
fn bounded(width: usize) -> Outcome<usize> {
    if width > 1_000_000 {
        return Err(Fault::limit(format!("the width {width} is too large")));
    }
    Ok(width)
}

/// A format specification: `[[fill]align][sign][#][0][width][,][.precision][type]`.
#[derive(Default, Clone)]
pub(crate) struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: Option<usize>,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Spec {
    pub(crate) fn parse(text: &str) -> Outcome<Spec> {
        let letters: Vec<char> = text.chars().collect();
        let mut spec = Spec::default();
        let mut at = 0;
        let is_align = |letter: Option<&char>| {
            letter.is_some_and(|letter| matches!(letter, '<' | '>' | '=' | '^'))
        };
        if is_align(letters.get(1)) {
            spec.fill = letters.first().copied();
            spec.align = letters.get(1).copied();
            at = 2;
        } else if is_align(letters.first()) {
            spec.align = letters.first().copied();
            at = 1;
        }
        if let Some(sign @ ('+' | '-' | ' ')) = letters.get(at).copied() {
            spec.sign = Some(sign);
            at += 1;
        }
        if letters.get(at) == Some(&'#') {
            spec.alternate = true;
            at += 1;
        }
        if letters.get(at) == Some(&'0') {
            spec.zero = true;
            at += 1;
        }
        let digits = |at: &mut usize| {
            let mut number = None;
            while let Some(digit) = letters.get(*at).and_then(|letter| letter.to_digit(10)) {
                let before: usize = number.unwrap_or(0);
                number = Some(before.saturating_mul(10).saturating_add(digit as usize));
                *at += 1;
            }
            number
        };
        spec.width = digits(&mut at).map(bounded).transpose()?;
        if let Some(mark @ (',' | '_')) = letters.get(at).copied() {
            spec.grouping = Some(mark);
            at += 1;
        }
        if letters.get(at) == Some(&'.') {
            at += 1;
            spec.precision = digits(&mut at).map(bounded).transpose()?;
        }
        spec.kind = letters.get(at).copied();
        if letters.len() > at + usize::from(spec.kind.is_some()) {
            return Err(Fault::other("Invalid format specifier"));
        }
        Ok(spec)
    }

    pub(crate) fn apply(&self, value: &Value) -> Outcome<String> {
        match (Kind::of(value), self.kind) {
            (Kind::Str(text), None | Some('s')) => {
                let cut: String = match self.precision {
                    Some(most) => text.chars().take(most).collect(),
                    None => text.to_owned(),
                };
                Ok(self.pad(&cut, '<'))
            }
            (Kind::Bool(flag), None) => Ok(self.pad(if flag { "True" } else { "False" }, '<')),
            (Kind::Int(_) | Kind::Bool(_), Some('f' | 'F' | 'e' | 'E' | 'g' | 'G' | '%'))
            | (Kind::Float(_), _) => {
                let number = super::ops::as_float(value).unwrap_or(0.0);
                let text = self.float(number)?;
                Ok(self.pad_number(&self.group(&text)))
            }
            (Kind::Int(_) | Kind::Bool(_), kind) => {
                let number = super::ops::as_int(value).unwrap_or(0);
                let sign = if number < 0 { "-" } else { "" };
                let size = number.unsigned_abs();
                let (mark, digits) = match kind {
                    None | Some('d' | 'n') => ("", size.to_string()),
                    Some('x') => ("0x", format!("{size:x}")),
                    Some('X') => ("0X", format!("{size:X}")),
                    Some('o') => ("0o", format!("{size:o}")),
                    Some('b') => ("0b", format!("{size:b}")),
                    Some('c') => (
                        "",
                        u32::try_from(size)
                            .ok()
                            .and_then(char::from_u32)
                            .map(String::from)
                            .unwrap_or_default(),
                    ),
                    Some(other) => return Err(unknown_code(other, value)),
                };
                let mark = if self.alternate { mark } else { "" };
                Ok(self.pad_number(&self.group(&format!("{sign}{mark}{digits}"))))
            }
            (_, None | Some('s')) => Ok(self.pad(&str_of(value)?, '<')),
            (_, Some(other)) => Err(unknown_code(other, value)),
        }
    }

    fn float(&self, number: f64) -> Outcome<String> {
        let digits = self.precision.unwrap_or(6).min(1000);
        Ok(match self.kind {
            Some('f' | 'F') => format!("{number:.digits$}"),
            Some('%') => format!("{:.digits$}%", number * 100.0),
            Some(kind @ ('e' | 'E')) => {
                let text = format!("{number:.digits$e}");
                let (front, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let power: i32 = exponent.parse().unwrap_or(0);
                let sign = if power < 0 { '-' } else { '+' };
                format!("{front}{kind}{sign}{:02}", power.abs())
            }
            Some('g' | 'G') => general(number, digits.max(1)),
            None => match self.precision {
                None => float_repr(number),
                Some(digits) => {
                    let text = general(number, digits.max(1));
                    if text.contains(['.', 'e', 'n']) {
                        text
                    } else {
                        text + ".0"
                    }
                }
            },
            Some(other) => {
                return Err(unknown_code(other, &Value::from(number)));
            }
        })
    }

    fn group(&self, text: &str) -> String {
        let Some(mark) = self.grouping else {
            return text.to_owned();
        };
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", text),
        };
        let (whole, fraction) = match rest.find(['.', 'e']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let mut out = String::from(sign);
        let count = whole.chars().count();
        for (index, digit) in whole.chars().enumerate() {
            if index > 0 && (count - index) % 3 == 0 {
                out.push(mark);
            }
            out.push(digit);
        }
        out + fraction
    }

    fn pad_number(&self, text: &str) -> String {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => match self.sign {
                Some('+') => ("+", text),
                Some(' ') => (" ", text),
                _ => ("", text),
            },
        };
        let count = sign.len() + digits.chars().count();
        let missing = self.width.unwrap_or(0).saturating_sub(count);
        if missing > 0 && ((self.zero && self.align != Some('<')) || self.align == Some('=')) {
            let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
            let padding: String = std::iter::repeat_n(fill, missing).collect();
            return format!("{sign}{padding}{digits}");
        }
        self.pad(&format!("{sign}{digits}"), '>')
    }

    fn pad(&self, text: &str, default: char) -> String {
        let missing = self.width.unwrap_or(0).saturating_sub(text.chars().count());
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        let repeat = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
        match self.align.unwrap_or(default) {
            '<' => format!("{text}{}", repeat(missing)),
            '^' => format!(
                "{}{text}{}",
                repeat(missing / 2),
                repeat(missing - missing / 2)
            ),
            _ => format!("{}{text}", repeat(missing)),
        }
    }
}

fn unknown_code(code: char, value: &Value) -> Fault {
    Fault::other(format!(
        "Unknown format code '{code}' for object of type '{}'",
        super::value::type_name(value)
    ))
}

/// The `g` format: so many significant digits, no trailing zeros.
fn general(number: f64, digits: usize) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{number:.*e}", digits - 1);
    let (front, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if power < -4 || power >= i32::try_from(digits).unwrap_or(i32::MAX) {
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(front), power.abs());
    }
    let places = usize::try_from(i32::try_from(digits).unwrap_or(0) - 1 - power).unwrap_or(0);
    trim(&format!("{number:.places$}"))
}

/// `text.format(*positional, **named)`.
pub(crate) fn format(
    text: &str,
    positional: &[Value],
    named: &dyn Fn(&str) -> Option<Value>,
) -> Outcome<String> {
    format_nested(text, positional, named, &mut 0, 0)
}

fn format_nested(
    text: &str,
    positional: &[Value],
    named: &dyn Fn(&str) -> Option<Value>,
    counter: &mut usize,
    depth: usize,
) -> Outcome<String> {
    if depth > 2 {
        return Err(Fault::other("Max string recursion exceeded"));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if from.starts_with("{{") || from.starts_with("}}") {
            out.push_str(from.get(..1).unwrap_or_default());
            rest = from.get(2..).unwrap_or_default();
            continue;
        }
        if from.starts_with('}') {
            return Err(Fault::other("Single '}' encountered in format string"));
        }
        let mut open = 0_usize;
        let end = from
            .char_indices()
            .find(|(_, letter)| {
                match letter {
                    '{' => open += 1,
                    '}' => open -= 1,
                    _ => {}
                }
                open == 0
            })
            .map(|(index, _)| index)
            .ok_or_else(|| Fault::other("expected '}' before end of string"))?;
        let field = from.get(1..end).unwrap_or_default();
        rest = from.get(end + 1..).unwrap_or_default();
        let (field, spec) = field.split_once(':').unwrap_or((field, ""));
        let (name, conversion) = match field.split_once('!') {
            Some((name, conversion)) => (name, Some(conversion)),
            None => (field, None),
        };
        let value = field_value(name, positional, named, counter)?;
        let spec = format_nested(spec, positional, named, counter, depth + 1)?;
        let value = match conversion {
            None => value,
            Some("s") => Value::from(str_of(&value)?),
            Some("r" | "a") => Value::from(repr(&value)?),
            Some(other) => {
                return Err(Fault::other(format!(
                    "Unknown conversion specifier '{other}'"
                )));
            }
        };
        out.push_str(&Spec::parse(&spec)?.apply(&value)?);
    }
    out.push_str(rest);
    Ok(out)
}

fn field_value(
    name: &str,
    positional: &[Value],
    named: &dyn Fn(&str) -> Option<Value>,
    counter: &mut usize,
) -> Outcome<Value> {
    let split = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut path) = name.split_at(split);
    let missing = |index: usize| {
        Fault::other(format!(
            "Replacement index {index} out of range for positional args tuple"
        ))
    };
    let mut value = if first.is_empty() {
        let index = *counter;
        *counter += 1;
        positional
            .get(index)
            .cloned()
            .ok_or_else(|| missing(index))?
    } else if let Ok(index) = first.parse::<usize>() {
        positional
            .get(index)
            .cloned()
            .ok_or_else(|| missing(index))?
    } else {
        named(first).ok_or_else(|| Fault::other(format!("'{first}'")))?
    };
    while !path.is_empty() {
        if let Some(inner) = path.strip_prefix('[') {
            let (key, after) = inner
                .split_once(']')
                .ok_or_else(|| Fault::other("Missing ']' in format string"))?;
            let key = key
                .parse::<i64>()
                .map_or_else(|_| Value::from(key), Value::from);
            value = super::ops::item(&value, &key)?;
            path = after;
        } else {
            let inner = path.strip_prefix('.').unwrap_or(path);
            let end = inner.find(['.', '[']).unwrap_or(inner.len());
            let (attribute, after) = inner.split_at(end);
            value = super::ops::attribute(&value, attribute)?;
            path = after;
        }
    }
    if let Kind::Undefined(undefined) = Kind::of(&value) {
        return Err(Fault::other(undefined_text(undefined)));
    }
    Ok(value)
}

//! `template.format(*arguments)`.

use crate::node::Node;
use crate::number::{float_repr, parse_int};
use crate::object::Sequence;

/// Why a template cannot be filled in; the type of the exception.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// `IndexError`.
    #[error("Replacement index {0} out of range for positional args tuple")]
    Index(usize),
    /// `KeyError`.
    #[error("'{0}'")]
    Key(String),
    /// `AttributeError`. Here also for attributes that Python would find: values have none.
    #[error("object has no attribute '{0}'")]
    Attribute(String),
    /// `TypeError`.
    #[error("unsupported format string passed to {0}.__format__")]
    Type(String),
    /// `ValueError`.
    #[error("{0}")]
    Value(&'static str),
    /// `ValueError`: a type of presentation that the value does not have.
    #[error("Unknown format code '{0}' for object of type '{1}'")]
    Code(char, &'static str),
}

/// The deepest a field may stand in the format of another.
const DEPTH: usize = 2;

/// Source of the values for the fields of a template.
pub trait Arguments {
    /// A value.
    type Value;
    /// Why a field cannot be filled.
    type Error: From<FormatError>;

    /// The argument in this place.
    ///
    /// # Errors
    /// When there is none.
    fn positional(&self, index: usize) -> Result<Self::Value, Self::Error>;

    /// The argument of this name.
    ///
    /// # Errors
    /// When there is none.
    fn named(&self, name: &str) -> Result<Self::Value, Self::Error>;

    /// `value[key]`; a key of digits is a number.
    ///
    /// # Errors
    /// When there is no such item.
    fn item(&self, value: Self::Value, key: &str) -> Result<Self::Value, Self::Error>;

    /// `value.name`.
    ///
    /// # Errors
    /// When there is no such attribute.
    fn attribute(&self, value: Self::Value, name: &str) -> Result<Self::Value, Self::Error>;

    /// `format(value, spec)`.
    ///
    /// # Errors
    /// A format that the value does not know.
    fn formatted(&self, value: &Self::Value, spec: &str) -> Result<String, Self::Error>;

    /// `str(value)`.
    ///
    /// # Errors
    /// When it has none.
    fn text(&self, value: &Self::Value) -> Result<String, Self::Error>;

    /// `repr(value)`.
    ///
    /// # Errors
    /// When it has none.
    fn repr(&self, value: &Self::Value) -> Result<String, Self::Error>;
}

/// `template.format(*arguments)`.
///
/// # Errors
/// Fields that no argument fills, formats that a value does not know, and texts that are no template.
pub fn format(template: &str, arguments: &[Node]) -> Result<String, FormatError> {
    fill(template, &Positional(arguments))
}

/// `template.format(…)` over values of any kind.
///
/// # Errors
/// As [`format()`], and what the arguments say.
pub fn fill<A: Arguments>(template: &str, arguments: &A) -> Result<String, A::Error> {
    let mut filler = Filler {
        arguments,
        numbering: None,
    };
    filler.fill(template, DEPTH)
}

/// Arguments without names.
struct Positional<'a>(&'a [Node]);

impl<'a> Arguments for Positional<'a> {
    type Value = &'a Node;
    type Error = FormatError;

    fn positional(&self, index: usize) -> Result<&'a Node, FormatError> {
        self.0.get(index).ok_or(FormatError::Index(index))
    }

    fn named(&self, name: &str) -> Result<&'a Node, FormatError> {
        Err(FormatError::Key(name.to_owned()))
    }

    fn item(&self, value: &'a Node, key: &str) -> Result<&'a Node, FormatError> {
        item(value, key)
    }

    fn attribute(&self, _: &'a Node, name: &str) -> Result<&'a Node, FormatError> {
        Err(FormatError::Attribute(name.to_owned()))
    }

    fn formatted(&self, value: &&Node, spec: &str) -> Result<String, FormatError> {
        format_value(value, spec)
    }

    fn text(&self, value: &&Node) -> Result<String, FormatError> {
        Ok(value.text())
    }

    fn repr(&self, value: &&Node) -> Result<String, FormatError> {
        Ok(value.repr())
    }
}

/// How fields name their arguments; a template cannot do both.
#[derive(Clone, Copy)]
enum Numbering {
    Automatic(usize),
    Manual,
}

struct Filler<'a, A> {
    arguments: &'a A,
    numbering: Option<Numbering>,
}

impl<A: Arguments> Filler<'_, A> {
    fn fill(&mut self, template: &str, depth: usize) -> Result<String, A::Error> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(FormatError::Value("Max string recursion exceeded").into());
        };
        let mut out = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, tail) = rest.split_at(at);
            out.push_str(before);
            let doubled = tail.strip_prefix("{{").map(|tail| ('{', tail));
            let doubled = doubled.or_else(|| tail.strip_prefix("}}").map(|tail| ('}', tail)));
            if let Some((brace, tail)) = doubled {
                out.push(brace);
                rest = tail;
                continue;
            }
            let Some(tail) = tail.strip_prefix('{') else {
                return Err(FormatError::Value("Single '}' encountered in format string").into());
            };
            if tail.is_empty() {
                return Err(FormatError::Value("Single '{' encountered in format string").into());
            }
            let (field, tail) = split_field(tail)?;
            out.push_str(&self.field(field, depth)?);
            rest = tail;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn field(&mut self, field: &str, depth: usize) -> Result<String, A::Error> {
        let (name, conversion, spec) = parts_of(field)?;
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, path) = name.split_at(end);
        let value = match self.number(first)? {
            Some(index) => self.arguments.positional(index)?,
            None => self.arguments.named(first)?,
        };
        let value = self.follow(value, path)?;
        let spec = match spec.contains(['{', '}']) {
            true => self.fill(spec, depth)?,
            false => spec.to_owned(),
        };
        let text = match conversion {
            None => return self.arguments.formatted(&value, &spec),
            Some('s') => self.arguments.text(&value)?,
            Some('r') => self.arguments.repr(&value)?,
            Some('a') => ascii(&self.arguments.repr(&value)?),
            Some(_) => return Err(FormatError::Value("Unknown conversion specifier").into()),
        };
        Ok(format_text(&text, &spec)?)
    }

    /// The number of an argument; nothing for one with a name.
    fn number(&mut self, name: &str) -> Result<Option<usize>, FormatError> {
        let index = match (name, self.numbering) {
            ("", Some(Numbering::Manual)) => {
                return Err(FormatError::Value(
                    "cannot switch from manual field specification to automatic field numbering",
                ));
            }
            ("", numbering) => {
                let index = match numbering {
                    Some(Numbering::Automatic(next)) => next,
                    _ => 0,
                };
                self.numbering = Some(Numbering::Automatic(index + 1));
                index
            }
            (name, numbering) if name.bytes().all(|byte| byte.is_ascii_digit()) => {
                if matches!(numbering, Some(Numbering::Automatic(_))) {
                    return Err(FormatError::Value(
                        "cannot switch from automatic field numbering to manual field specification",
                    ));
                }
                self.numbering = Some(Numbering::Manual);
                name.parse()
                    .map_err(|_| FormatError::Value("Too many decimal digits in format string"))?
            }
            _ => return Ok(None),
        };
        Ok(Some(index))
    }

    /// Resolves `[key]`, `[0]` and `.attribute`.
    fn follow(&self, value: A::Value, path: &str) -> Result<A::Value, A::Error> {
        let empty = FormatError::Value("Empty attribute in format string");
        let mut value = value;
        let mut rest = path;
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('[') {
                let Some((key, tail)) = tail.split_once(']') else {
                    return Err(FormatError::Value("Missing ']' in format string").into());
                };
                if key.is_empty() {
                    return Err(empty.into());
                }
                value = self.arguments.item(value, key)?;
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix('.') {
                let (name, tail) = tail.split_at(tail.find(['.', '[']).unwrap_or(tail.len()));
                if name.is_empty() {
                    return Err(empty.into());
                }
                value = self.arguments.attribute(value, name)?;
                rest = tail;
            } else {
                let text = "Only '.' or '[' may follow ']' in format field specifier";
                return Err(FormatError::Value(text).into());
            }
        }
        Ok(value)
    }
}

/// The field up to its closing brace, and what follows. Brackets hide braces.
fn split_field(text: &str) -> Result<(&str, &str), FormatError> {
    let mut nested = 0_usize;
    let mut is_in_brackets = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '[' if !is_in_brackets && nested == 0 => is_in_brackets = true,
            ']' => is_in_brackets = false,
            _ if is_in_brackets => {}
            '{' => nested += 1,
            '}' if nested == 0 => {
                let (field, tail) = text.split_at(at);
                return Ok((field, tail.strip_prefix('}').unwrap_or(tail)));
            }
            '}' => nested -= 1,
            _ => {}
        }
    }
    Err(FormatError::Value("expected '}' before end of string"))
}

/// Name, conversion and format of a field.
fn parts_of(field: &str) -> Result<(&str, Option<char>, &str), FormatError> {
    let mut is_in_brackets = false;
    let end = field.find(|letter| {
        match letter {
            '[' => is_in_brackets = true,
            ']' => is_in_brackets = false,
            _ => {}
        }
        !is_in_brackets && matches!(letter, ':' | '!')
    });
    let (name, tail) = field.split_at(end.unwrap_or(field.len()));
    if name.contains('{') {
        return Err(FormatError::Value("unexpected '{' in field name"));
    }
    let Some(tail) = tail.strip_prefix('!') else {
        return Ok((name, None, tail.strip_prefix(':').unwrap_or(tail)));
    };
    let mut letters = tail.chars();
    let conversion = letters.next();
    let tail = letters.as_str();
    match (conversion, tail.strip_prefix(':')) {
        (None, _) => Err(FormatError::Value("unmatched '{' in format spec")),
        (Some(letter), Some(spec)) => Ok((name, Some(letter), spec)),
        (Some(letter), None) if tail.is_empty() => Ok((name, Some(letter), "")),
        _ => Err(FormatError::Value(
            "expected ':' after conversion specifier",
        )),
    }
}

fn item<'a>(value: &'a Node, key: &str) -> Result<&'a Node, FormatError> {
    let number = parse_int(key, 10).ok();
    let number = number.filter(|_| key.bytes().all(|byte| byte.is_ascii_digit()));
    match (value, number) {
        (Node::Dict(entries), _) => {
            let is_key = |node: &Node| match (node, number) {
                (Node::Int(own), Some(number)) => *own == number,
                (Node::Text(own), None) => own == key,
                _ => false,
            };
            let found = entries.iter().rev().find(|(node, _)| is_key(node));
            found
                .map(|(_, value)| value)
                .ok_or_else(|| FormatError::Key(key.to_owned()))
        }
        (Node::Sequence(Sequence::List | Sequence::Tuple, items), Some(number)) => {
            let index = usize::try_from(number).unwrap_or(usize::MAX);
            items.get(index).ok_or(FormatError::Index(index))
        }
        _ => Err(FormatError::Type(value.type_name().to_owned())),
    }
}

fn ascii(repr: &str) -> String {
    let mut out = String::with_capacity(repr.len());
    for letter in repr.chars() {
        let code = u32::from(letter);
        match code {
            0..=0x7f => out.push(letter),
            0x80..=0xff => out.push_str(&format!("\\x{code:02x}")),
            0x100..=0xffff => out.push_str(&format!("\\u{code:04x}")),
            _ => out.push_str(&format!("\\U{code:08x}")),
        }
    }
    out
}

/// `format(value, spec)`.
///
/// # Errors
/// A format that the value does not know.
pub fn format_value(value: &Node, spec: &str) -> Result<String, FormatError> {
    match value {
        _ if spec.is_empty() => Ok(value.text()),
        Node::Text(text) => format_text(text, spec),
        Node::Bool(flag) => format_int(i128::from(*flag), &Spec::parse(spec)?),
        Node::Int(number) => format_int(*number, &Spec::parse(spec)?),
        Node::Float(number) => format_float(*number, &Spec::parse(spec)?),
        _ => Err(FormatError::Type(value.type_name().to_owned())),
    }
}

/// A format: fill, alignment, sign, form, zero, width, grouping, precision and type.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    is_alternate: bool,
    is_zero_filled: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// Widths and precisions beyond these are refused, where Python would use up the memory.
const MAX_WIDTH: usize = 1_000_000;
const MAX_PRECISION: usize = 10_000;

impl Spec {
    fn parse(text: &str) -> Result<Self, FormatError> {
        let mut spec = Self::default();
        let mut letters = text.chars().peekable();
        let mut ahead = text.chars();
        let (first, second) = (ahead.next(), ahead.next());
        let is_align = |letter: Option<char>| matches!(letter, Some('<' | '>' | '=' | '^'));
        if is_align(second) {
            (spec.fill, spec.align) = (first, second);
            letters.next();
            letters.next();
        } else if is_align(first) {
            spec.align = first;
            letters.next();
        }
        spec.sign = letters.next_if(|letter| matches!(letter, '+' | '-' | ' '));
        spec.is_alternate = letters.next_if_eq(&'#').is_some();
        spec.is_zero_filled = letters.next_if_eq(&'0').is_some();
        spec.width = digits(&mut letters, MAX_WIDTH)?.unwrap_or(0);
        spec.grouping = letters.next_if(|letter| matches!(letter, ',' | '_'));
        if letters.next_if_eq(&'.').is_some() {
            let precision = digits(&mut letters, MAX_PRECISION)?;
            spec.precision =
                Some(precision.ok_or(FormatError::Value("Format specifier missing precision"))?);
        }
        spec.kind = letters.next();
        match letters.next() {
            None => Ok(spec),
            Some(_) => Err(FormatError::Value("Invalid format specifier")),
        }
    }

    /// The text in its width; `sign` letters stand before a fill between sign and digits.
    fn pad(&self, sign: &str, body: &str, default: char) -> String {
        let missing = self
            .width
            .saturating_sub(sign.chars().count() + body.chars().count());
        let zero = self.is_zero_filled && self.fill.is_none();
        let fill = self.fill.unwrap_or(if zero { '0' } else { ' ' });
        let align = match self.align {
            None if zero && default == '>' => '=',
            None => default,
            Some(align) => align,
        };
        let row = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
        match align {
            '<' => format!("{sign}{body}{}", row(missing)),
            '^' => format!(
                "{}{sign}{body}{}",
                row(missing / 2),
                row(missing - missing / 2)
            ),
            '=' => format!("{sign}{}{body}", row(missing)),
            _ => format!("{}{sign}{body}", row(missing)),
        }
    }
}

fn digits(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    max: usize,
) -> Result<Option<usize>, FormatError> {
    let mut number = None;
    while let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(10)) {
        letters.next();
        let digit = usize::try_from(digit).unwrap_or(0);
        let next = number.unwrap_or(0_usize) * 10 + digit;
        if next > max {
            return Err(FormatError::Value(
                "Too many decimal digits in format string",
            ));
        }
        number = Some(next);
    }
    Ok(number)
}

/// `format(text, spec)`.
///
/// # Errors
/// A format that a text does not know.
pub fn format_text(text: &str, spec: &str) -> Result<String, FormatError> {
    let spec = Spec::parse(spec)?;
    if spec.sign.is_some() || spec.is_alternate || spec.align == Some('=') {
        return Err(FormatError::Value("not allowed in string format specifier"));
    }
    match (spec.kind, spec.grouping) {
        (None | Some('s'), None) => {}
        (Some(code), None) => return Err(FormatError::Code(code, "str")),
        (_, Some(_)) => return Err(FormatError::Value("Cannot specify ',' with 's'.")),
    }
    let text: String = match spec.precision {
        Some(precision) => text.chars().take(precision).collect(),
        None => text.to_owned(),
    };
    Ok(spec.pad("", &text, '<'))
}

fn sign_of(is_negative: bool, spec: &Spec) -> String {
    match (is_negative, spec.sign) {
        (true, _) => "-".to_owned(),
        (false, Some(sign @ ('+' | ' '))) => sign.to_string(),
        _ => String::new(),
    }
}

fn format_int(number: i128, spec: &Spec) -> Result<String, FormatError> {
    if spec.precision.is_some()
        && !matches!(spec.kind, Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%'))
    {
        return Err(FormatError::Value(
            "Precision not allowed in integer format specifier",
        ));
    }
    let magnitude = number.unsigned_abs();
    let (prefix, digits, group) = match spec.kind {
        None | Some('d' | 'n') => ("", magnitude.to_string(), 3),
        Some('c') => ("", letter_of(number, spec)?.to_string(), 3),
        Some('x') => ("0x", format!("{magnitude:x}"), 4),
        Some('X') => ("0X", format!("{magnitude:X}"), 4),
        Some('o') => ("0o", format!("{magnitude:o}"), 4),
        Some('b') => ("0b", format!("{magnitude:b}"), 4),
        Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => return format_float(number as f64, spec),
        Some(code) => return Err(FormatError::Code(code, "int")),
    };
    if group == 4 && spec.grouping == Some(',') {
        return Err(FormatError::Value("Cannot specify ',' with this type"));
    }
    let mut sign = sign_of(number < 0, spec);
    if spec.is_alternate {
        sign.push_str(prefix);
    }
    Ok(spec.pad(&sign, &grouped(&digits, spec, group, sign.len()), '>'))
}

/// `%c` of a number.
fn letter_of(number: i128, spec: &Spec) -> Result<char, FormatError> {
    if spec.sign.is_some() || spec.is_alternate || spec.grouping.is_some() {
        return Err(FormatError::Value(
            "Sign not allowed with integer format specifier 'c'",
        ));
    }
    let letter = u32::try_from(number).ok().and_then(char::from_u32);
    letter.ok_or(FormatError::Value("%c arg not in range(0x110000)"))
}

/// Digits in groups. Zeros that fill the width are grouped as well.
fn grouped(digits: &str, spec: &Spec, group: usize, sign: usize) -> String {
    let Some(separator) = spec.grouping else {
        return digits.to_owned();
    };
    let (whole, fraction) = match digits.find(['.', 'e', '%']) {
        Some(at) => digits.split_at(at),
        None => (digits, ""),
    };
    let fills_zeros =
        spec.is_zero_filled && spec.fill.is_none() && matches!(spec.align, None | Some('='));
    let mut whole: Vec<char> = whole.chars().rev().collect();
    let mut out = String::new();
    let mut width = spec.width.saturating_sub(sign + fraction.len());
    if !fills_zeros {
        width = 0;
    }
    let mut index = 0;
    while index < whole.len() || out.len() < width {
        if index > 0 && index.is_multiple_of(group) {
            out.push(separator);
        }
        if index >= whole.len() {
            whole.push('0');
        }
        out.extend(whole.get(index));
        index += 1;
    }
    let whole: String = out.chars().rev().collect();
    whole + fraction
}

fn format_float(number: f64, spec: &Spec) -> Result<String, FormatError> {
    let magnitude = number.abs();
    let precision = spec.precision.unwrap_or(6);
    let is_upper = matches!(spec.kind, Some('E' | 'F' | 'G'));
    let body = match spec.kind {
        _ if !number.is_finite() => {
            let body = if number.is_nan() { "nan" } else { "inf" };
            let percent = if spec.kind == Some('%') { "%" } else { "" };
            format!("{body}{percent}")
        }
        Some('f' | 'F') => format!("{magnitude:.precision$}"),
        Some('%') => format!("{:.precision$}%", magnitude * 100.0),
        Some('e' | 'E') => scientific(magnitude, precision),
        Some('g' | 'G') => general(magnitude, precision.max(1), 0),
        Some('n') => general(magnitude, precision.max(1), 0),
        None => match spec.precision {
            None => float_repr(magnitude),
            Some(precision) => general(magnitude, precision.max(1), 1),
        },
        Some(code) => return Err(FormatError::Code(code, "float")),
    };
    let body = if is_upper { body.to_uppercase() } else { body };
    let is_negative = number.is_sign_negative() && !number.is_nan();
    let sign = sign_of(is_negative, spec);
    Ok(spec.pad(&sign, &grouped(&body, spec, 3, sign.len()), '>'))
}

fn scientific(magnitude: f64, precision: usize) -> String {
    let text = format!("{magnitude:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// As many digits as asked for, without trailing zeros but for the first `places` of them.
fn general(magnitude: f64, precision: usize, places: usize) -> String {
    let text = format!("{magnitude:.*e}", precision.saturating_sub(1));
    let exponent: i32 = text
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    let digits = i32::try_from(precision).unwrap_or(i32::MAX);
    // With places of its own, the form without exponent has one digit behind the point at least.
    let limit = if places > 0 { digits - 1 } else { digits };
    if exponent < -4 || exponent >= limit.max(1) && exponent >= limit {
        let text = scientific(magnitude, precision.saturating_sub(1));
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{exponent}", without_zeros(digits, 0));
    }
    let behind = usize::try_from(digits - 1 - exponent).unwrap_or(0);
    without_zeros(&format!("{magnitude:.behind$}"), places)
}

fn without_zeros(digits: &str, places: usize) -> String {
    let Some((whole, fraction)) = digits.split_once('.') else {
        return match places {
            0 => digits.to_owned(),
            _ => format!("{digits}.{}", "0".repeat(places)),
        };
    };
    let mut fraction = fraction.trim_end_matches('0').to_owned();
    while fraction.len() < places {
        fraction.push('0');
    }
    match fraction.is_empty() {
        true => whole.to_owned(),
        false => format!("{whole}.{fraction}"),
    }
}

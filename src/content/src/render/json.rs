//! JSON as Python reads and writes it: the order of keys is kept, `NaN` is a number, and texts are
//! written with Python's separators.

use saltern_wire::msgpack::Value as Data;

use super::jinja::fault::{Fault, Outcome};
use super::jinja::ops;
use super::jinja::text::float;
use super::jinja::value::{Kind, type_name, undefined_fault};
use minijinja::value::Value;

/// How deep documents are read and written.
const DEEPEST: usize = 200;
/// The longest document that is written.
const LONGEST: usize = 16 << 20;

/// Reads a document.
///
/// # Errors
/// A text that says what is wrong, in the words of Python where it has short ones.
pub fn parse(text: &str) -> Result<Data, String> {
    let mut reader = Reader { text, at: 0 };
    reader.space();
    let value = reader.value(0)?;
    reader.space();
    if reader.rest().is_empty() {
        Ok(value)
    } else {
        Err(reader.error("Extra data"))
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, what: &str) -> String {
        let before = self.text.get(..self.at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .map_or(0, |last| last.chars().count())
            + 1;
        format!(
            "{what}: line {line} column {column} (char {})",
            before.chars().count()
        )
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn skip(&mut self, mark: &str) -> bool {
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Data, String> {
        if depth > DEEPEST {
            return Err("maximum recursion depth exceeded".to_owned());
        }
        for (word, value) in [
            ("null", Data::Nil),
            ("true", Data::Bool(true)),
            ("false", Data::Bool(false)),
            ("NaN", Data::Float(f64::NAN)),
            ("Infinity", Data::Float(f64::INFINITY)),
            ("-Infinity", Data::Float(f64::NEG_INFINITY)),
        ] {
            if self.skip(word) {
                return Ok(value);
            }
        }
        match self.rest().chars().next() {
            Some('"') => self.text().map(Data::Str),
            Some('[') => {
                self.at += 1;
                let mut items = Vec::new();
                self.space();
                if self.skip("]") {
                    return Ok(Data::Array(items));
                }
                loop {
                    self.space();
                    items.push(self.value(depth + 1)?);
                    self.space();
                    if self.skip("]") {
                        return Ok(Data::Array(items));
                    }
                    if !self.skip(",") {
                        return Err(self.error("Expecting ',' delimiter"));
                    }
                }
            }
            Some('{') => self.object(depth),
            Some('-' | '0'..='9') => self.number(),
            _ => Err(self.error("Expecting value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Data, String> {
        self.at += 1;
        let mut entries: indexmap::IndexMap<String, Data> = indexmap::IndexMap::new();
        self.space();
        if !self.skip("}") {
            loop {
                self.space();
                if !self.rest().starts_with('"') {
                    return Err(self.error("Expecting property name enclosed in double quotes"));
                }
                let key = self.text()?;
                self.space();
                if !self.skip(":") {
                    return Err(self.error("Expecting ':' delimiter"));
                }
                self.space();
                let value = self.value(depth + 1)?;
                entries.insert(key, value);
                self.space();
                if self.skip("}") {
                    break;
                }
                if !self.skip(",") {
                    return Err(self.error("Expecting ',' delimiter"));
                }
            }
        }
        Ok(Data::Map(
            entries
                .into_iter()
                .map(|(key, value)| (Data::Str(key), value))
                .collect(),
        ))
    }

    fn number(&mut self) -> Result<Data, String> {
        let rest = self.rest();
        let end = rest
            .find(|letter: char| !matches!(letter, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
            .unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or_default();
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.") {
            self.at += text.len() - digits.len() + 1;
            return Err(self.error("Extra data"));
        }
        let value = if text.contains(['.', 'e', 'E']) {
            text.parse()
                .map(Data::Float)
                .map_err(|_| self.error("Expecting value"))?
        } else if let Ok(number) = text.parse::<i64>() {
            Data::Int(number)
        } else if let Ok(number) = text.parse::<u64>() {
            Data::Uint(number)
        } else {
            text.parse()
                .map(Data::Float)
                .map_err(|_| self.error("Expecting value"))?
        };
        self.at += end;
        Ok(value)
    }

    fn text(&mut self) -> Result<String, String> {
        let start = self.at;
        let unterminated = |reader: &mut Reader<'_>| {
            reader.at = start;
            reader.error("Unterminated string starting at")
        };
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(letter) = self.rest().chars().next() else {
                return Err(unterminated(self));
            };
            self.at += letter.len_utf8();
            match letter {
                '"' => return Ok(out),
                '\\' => {
                    let Some(escape) = self.rest().chars().next() else {
                        return Err(unterminated(self));
                    };
                    self.at += escape.len_utf8();
                    match escape {
                        'n' => out.push('\n'),
                        't' => out.push('\t'),
                        'r' => out.push('\r'),
                        'b' => out.push('\u{8}'),
                        'f' => out.push('\u{c}'),
                        '"' | '\\' | '/' => out.push(escape),
                        'u' => {
                            let first = self.code()?;
                            let second = if (0xd800..0xdc00).contains(&first)
                                && self.rest().starts_with("\\u")
                            {
                                self.at += 2;
                                Some(self.code()?)
                            } else {
                                None
                            };
                            let code = match second {
                                Some(low) if (0xdc00..0xe000).contains(&low) => {
                                    0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00)
                                }
                                _ => first,
                            };
                            out.push(char::from_u32(code).unwrap_or('\u{fffd}'));
                        }
                        _ => return Err(self.error("Invalid \\escape")),
                    }
                }
                '\0'..='\u{1f}' => {
                    self.at -= 1;
                    return Err(self.error("Invalid control character at"));
                }
                _ => out.push(letter),
            }
        }
    }

    fn code(&mut self) -> Result<u32, String> {
        let digits = self.rest().get(..4).unwrap_or_default();
        let code =
            u32::from_str_radix(digits, 16).map_err(|_| self.error("Invalid \\uXXXX escape"))?;
        self.at += 4;
        Ok(code)
    }
}

/// How a value is written.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub(crate) ascii: bool,
    pub(crate) sorted: bool,
    pub(crate) indent: Option<usize>,
}

/// `json.dumps(value)`.
pub(crate) fn dump(value: &Value, style: Style) -> Outcome<String> {
    let mut out = String::new();
    write(&mut out, value, style, 0)?;
    Ok(out)
}

fn write(out: &mut String, value: &Value, style: Style, depth: usize) -> Outcome<()> {
    if depth > DEEPEST {
        return Err(Fault::limit("Circular reference detected"));
    }
    // A list that holds another twice doubles it at each level.
    if out.len() > LONGEST {
        return Err(Fault::limit("the text of a value is too long"));
    }
    match Kind::of(value) {
        Kind::None => out.push_str("null"),
        Kind::Bool(flag) => out.push_str(if flag { "true" } else { "false" }),
        Kind::Int(number) => out.push_str(&number.to_string()),
        Kind::Float(number) => out.push_str(&number_text(number)),
        Kind::Str(text) => quote(out, text, style.ascii),
        Kind::List(_) | Kind::Tuple(_) => {
            let items = ops::items(value)?;
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                between(out, style, depth + 1, index > 0);
                write(out, item, style, depth + 1)?;
            }
            finish(out, style, depth, items.is_empty(), ']');
        }
        Kind::Dict(entries) => {
            let entries: Vec<(Value, Value)> = entries.0.lock().values().cloned().collect();
            let order: Vec<Value> = if style.sorted {
                let pairs = entries
                    .iter()
                    .enumerate()
                    .map(|(index, (key, _))| (key.clone(), Value::from(index)))
                    .collect();
                ops::sorted(pairs, false)?
            } else {
                (0..entries.len()).map(Value::from).collect()
            };
            out.push('{');
            let ordered = order
                .iter()
                .filter_map(|index| entries.get(index.as_usize()?));
            for (index, (key, value)) in ordered.enumerate() {
                between(out, style, depth + 1, index > 0);
                quote(out, &key_text(key)?, style.ascii);
                out.push_str(": ");
                write(out, value, style, depth + 1)?;
            }
            finish(out, style, depth, entries.is_empty(), '}');
        }
        Kind::Undefined(undefined) => return Err(undefined_fault(undefined)),
        _ => {
            return Err(Fault::other(format!(
                "Object of type {} is not JSON serializable",
                type_name(value)
            )));
        }
    }
    Ok(())
}

fn number_text(number: f64) -> String {
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
        float(number)
    }
}

fn key_text(key: &Value) -> Outcome<String> {
    Ok(match Kind::of(key) {
        Kind::Str(text) => text.to_owned(),
        Kind::None => "null".to_owned(),
        Kind::Bool(flag) => if flag { "true" } else { "false" }.to_owned(),
        Kind::Int(number) => number.to_string(),
        Kind::Float(number) => number_text(number),
        _ => {
            return Err(Fault::other(format!(
                "keys must be str, int, float, bool or None, not {}",
                type_name(key)
            )));
        }
    })
}

fn between(out: &mut String, style: Style, depth: usize, more: bool) {
    match style.indent {
        Some(width) => {
            out.push_str(if more { ",\n" } else { "\n" });
            out.push_str(&" ".repeat(width * depth));
        }
        None => out.push_str(if more { ", " } else { "" }),
    }
}

fn finish(out: &mut String, style: Style, depth: usize, empty: bool, end: char) {
    if let (Some(width), false) = (style.indent, empty) {
        out.push('\n');
        out.push_str(&" ".repeat(width * depth));
    }
    out.push(end);
}

fn quote(out: &mut String, text: &str, ascii: bool) {
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
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ if ascii && !letter.is_ascii() => {
                let mut units = [0_u16; 2];
                for unit in letter.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
}

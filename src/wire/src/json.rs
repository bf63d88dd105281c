//! JSON as Python reads it, into values of a load: the order of keys is kept, the last of two equal
//! keys counts, and `NaN` is a number. How Python writes JSON is in `saltern_python::json`.

use crate::msgpack::Value;

/// How deep documents are read.
const MAX_DEPTH: usize = 200;

/// Why a text is no document. The texts are Python's where it has short ones: templates show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text breaks the grammar.
    #[error("{what}: line {line} column {column} (char {at})")]
    Syntax {
        /// The fault.
        what: &'static str,
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// The character in the text, from 0.
        at: usize,
    },
    /// The document is nested too deep.
    #[error("maximum recursion depth exceeded")]
    Depth,
}

/// Reads a document.
///
/// # Errors
/// [`JsonError`]
pub fn parse(text: &str) -> Result<Value, JsonError> {
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

    fn error(&self, what: &'static str) -> JsonError {
        let before = self.text.get(..self.at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .map_or(0, |last| last.chars().count())
            + 1;
        JsonError::Syntax {
            what,
            line,
            column,
            at: before.chars().count(),
        }
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

    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::Depth);
        }
        for (word, value) in [
            ("null", Value::Nil),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ] {
            if self.skip(word) {
                return Ok(value);
            }
        }
        match self.rest().chars().next() {
            Some('"') => self.text().map(Value::Str),
            Some('[') => {
                self.at += 1;
                let mut items = Vec::new();
                self.space();
                if self.skip("]") {
                    return Ok(Value::Array(items));
                }
                loop {
                    self.space();
                    items.push(self.value(depth + 1)?);
                    self.space();
                    if self.skip("]") {
                        return Ok(Value::Array(items));
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

    fn object(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.at += 1;
        let mut entries: indexmap::IndexMap<String, Value> = indexmap::IndexMap::new();
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
        Ok(Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| (Value::Str(key), value))
                .collect(),
        ))
    }

    fn number(&mut self) -> Result<Value, JsonError> {
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
                .map(Value::Float)
                .map_err(|_| self.error("Expecting value"))?
        } else if let Ok(number) = text.parse::<i64>() {
            Value::Int(number)
        } else if let Ok(number) = text.parse::<u64>() {
            Value::Uint(number)
        } else {
            text.parse()
                .map(Value::Float)
                .map_err(|_| self.error("Expecting value"))?
        };
        self.at += end;
        Ok(value)
    }

    fn text(&mut self) -> Result<String, JsonError> {
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

    fn code(&mut self) -> Result<u32, JsonError> {
        let digits = self.rest().get(..4).unwrap_or_default();
        let code =
            u32::from_str_radix(digits, 16).map_err(|_| self.error("Invalid \\uXXXX escape"))?;
        self.at += 4;
        Ok(code)
    }
}

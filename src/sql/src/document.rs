//! Values as the text of a column: what a database refuses is escaped where everyone sees it, what is
//! longer than the column is cut with a mark. Both are counted.

use std::borrow::Cow;
use std::fmt::Write as _;

use saltern_python::json::{self, Style};
use saltern_python::repr::Limits;
use saltern_wire::msgpack::{self, Value};
use sha2::{Digest as _, Sha256};

/// How `json.dumps` of the returners writes.
const STYLE: Style = Style {
    ascii: false,
    sorted: false,
    indent: None,
};

/// For values that were bounded when they were read.
const LIMITS: Limits = Limits {
    depth: 1_000,
    bytes: usize::MAX,
};

/// Stands where a text was cut.
const CUT: char = '…';

/// Hexadecimal digits of the hash behind the mark of a cut key, so that two of them stay different.
const HASH_DIGITS: usize = 8;

/// Values that are not stored as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Values with escapes.
    pub escaped: u64,
    /// Values that were cut.
    pub cut: u64,
}

impl std::ops::AddAssign for Marks {
    fn add_assign(&mut self, other: Self) {
        self.escaped += other.escaped;
        self.cut += other.cut;
    }
}

/// Texts that a database takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextRules {
    /// Its documents are checked: neither `\u0000` nor `NaN` is in them (`jsonb`).
    pub(crate) strict_json: bool,
    /// Characters beyond U+FFFF have no place (MySQL's `utf8`).
    pub(crate) narrow: bool,
    /// Longest document, in bytes.
    pub(crate) document: usize,
}

/// Writes texts by the rules of a database, and counts its marks.
pub(crate) struct Texts {
    pub(crate) rules: TextRules,
    pub(crate) marks: Marks,
}

impl Texts {
    pub(crate) fn new(rules: TextRules) -> Self {
        let marks = Marks::default();
        Self { rules, marks }
    }

    /// A text of at most `width` characters that identifies something.
    pub(crate) fn key(&mut self, text: &str, width: usize) -> String {
        let text = self.plain(text);
        if text.chars().count() <= width {
            return text.into_owned();
        }
        self.marks.cut += 1;
        let kept = width.saturating_sub(HASH_DIGITS + 1);
        let mut cut: String = text.chars().take(kept).collect();
        cut.push(CUT);
        for byte in Sha256::digest(text.as_bytes()).iter().take(HASH_DIGITS / 2) {
            let _ = write!(cut, "{byte:02x}");
        }
        cut
    }

    /// A text of at most `width` characters.
    pub(crate) fn text(&mut self, text: &str, width: usize) -> String {
        let text = self.plain(text);
        if text.chars().count() <= width {
            return text.into_owned();
        }
        self.marks.cut += 1;
        let kept = text.chars().take(width.saturating_sub(1));
        kept.chain([CUT]).collect()
    }

    /// A text without what the database has no place for, of at most the length of a document.
    pub(crate) fn long_text(&mut self, text: &str) -> String {
        let text = self.plain(text);
        if text.len() <= self.rules.document {
            return text.into_owned();
        }
        self.marks.cut += 1;
        cut(&text, self.rules.document)
    }

    fn plain<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let narrow = self.rules.narrow;
        let is_refused = |c: char| c == '\0' || (narrow && c > '\u{ffff}');
        if !text.contains(is_refused) {
            return Cow::Borrowed(text);
        }
        self.marks.escaped += 1;
        let mut out = String::with_capacity(text.len() + 16);
        for c in text.chars() {
            match c {
                '\0' => out.push_str("\\x00"),
                c if is_refused(c) => {
                    let _ = write!(out, "\\U{:08x}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        Cow::Owned(out)
    }

    /// A value with nothing in it that JSON, or the database, lacks.
    pub(crate) fn clean(&mut self, value: Value) -> Value {
        let mut escaped = false;
        let value = self.cleaned(value, &mut escaped);
        self.marks.escaped += u64::from(escaped);
        value
    }

    fn cleaned(&self, value: Value, escaped: &mut bool) -> Value {
        match value {
            Value::Str(text) if self.rules.strict_json && text.contains('\0') => {
                *escaped = true;
                Value::Str(text.replace('\0', "\\x00"))
            }
            Value::Bin(bytes) => {
                *escaped |= std::str::from_utf8(&bytes).is_err();
                self.cleaned(Value::Str(shown_bytes(&bytes)), escaped)
            }
            Value::Ext(..) => {
                // Stock writes a time in the form of ISO 8601.
                Value::Str(saltern_python::str(&value).replacen(' ', "T", 1))
            }
            Value::Float(number) if self.rules.strict_json && !number.is_finite() => {
                *escaped = true;
                Value::Str(saltern_python::repr(&value))
            }
            Value::Array(items) => {
                let items = items.into_iter();
                Value::Array(items.map(|item| self.cleaned(item, escaped)).collect())
            }
            Value::Map(entries) => {
                let entries = entries.into_iter().map(|(key, value)| {
                    let key = match key {
                        Value::Array(_) | Value::Map(_) => Value::Str(saltern_python::repr(&key)),
                        key => key,
                    };
                    (self.cleaned(key, escaped), self.cleaned(value, escaped))
                });
                Value::Map(entries.collect())
            }
            value => value,
        }
    }

    /// A clean value as JSON on one line; `None` beyond the length of a document.
    pub(crate) fn json(&self, value: &Value) -> Option<String> {
        let mut out = String::new();
        // A clean value has a form, but for one that nests deeper than any peer may send.
        json::write(&mut out, value, STYLE, LIMITS).ok()?;
        if self.rules.narrow && out.contains(|c| c > '\u{ffff}') {
            out = without_wide(&out);
        }
        (out.len() <= self.rules.document).then_some(out)
    }

    /// The same, cut where it is too long: the head of its JSON as one text.
    pub(crate) fn json_or_cut(&mut self, value: &Value) -> (String, Option<Value>) {
        if let Some(text) = self.json(value) {
            return (text, None);
        }
        self.marks.cut += 1;
        let cut = self.cut_value(value);
        let text = self.json(&cut).unwrap_or_else(|| "null".to_owned());
        (text, Some(cut))
    }

    /// The head of a value's JSON, as a text with a mark.
    pub(crate) fn cut_value(&self, value: &Value) -> Value {
        let mut whole = String::new();
        let _ = json::write(&mut whole, value, STYLE, LIMITS);
        // Each of its bytes may take six once more.
        Value::Str(cut(&whole, self.rules.document / 8))
    }
}

/// The head of a text, with a mark and its length.
fn cut(text: &str, most: usize) -> String {
    let mark = format!("{CUT} [saltern: cut, {} bytes]", text.len());
    let end = text.floor_char_boundary(most.saturating_sub(mark.len()));
    format!("{}{mark}", text.get(..end).unwrap_or_default())
}

/// Unpacks a load as stock's returners read it: bytes that are UTF-8 are text.
pub(crate) fn unpack(packed: &[u8]) -> Value {
    let limits = msgpack::Limits::WIRE;
    msgpack::decode(packed, &limits).unwrap_or_else(|_| Value::Map(Vec::new()))
}

/// Bytes as text, with `\xff` for each that is no UTF-8.
fn shown_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// JSON with `\ud83d\ude00` for each character beyond U+FFFF: they stand inside texts only.
fn without_wide(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match c {
            c if c > '\u{ffff}' => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: TextRules = TextRules {
        strict_json: true,
        narrow: false,
        document: 1000,
    };
    const NARROW: TextRules = TextRules {
        strict_json: false,
        narrow: true,
        document: 1000,
    };

    fn json(rules: TextRules, value: Value) -> (String, Marks) {
        let mut texts = Texts::new(rules);
        let value = texts.clean(value);
        (texts.json_or_cut(&value).0, texts.marks)
    }

    #[test]
    fn what_a_database_refuses_is_escaped_and_counted() {
        for (rules, value, expected, escaped) in [
            (STRICT, Value::from("a\0b"), r#""a\\x00b""#, 1),
            (NARROW, Value::from("a\0b"), r#""a\u0000b""#, 0),
            (STRICT, f64::NAN.into(), r#""nan""#, 1),
            (NARROW, f64::NAN.into(), "NaN", 0),
            (STRICT, Value::Bin(b"a\xff"[..].into()), r#""a\\xff""#, 1),
            (STRICT, Value::from("😀"), "\"😀\"", 0),
            // Readers of JSON see what it was.
            (NARROW, Value::from("😀"), r#""\ud83d\ude00""#, 0),
            (
                STRICT,
                Value::map([(Value::from(1), Value::Nil)]),
                r#"{"1": null}"#,
                0,
            ),
        ] {
            let marks = Marks { escaped, cut: 0 };
            assert_eq!(json(rules, value), (expected.to_owned(), marks));
        }
    }

    #[test]
    fn long_values_are_cut_with_a_mark() {
        let mut texts = Texts::new(STRICT);
        let (one, other) = ("x".repeat(300), format!("{}y", "x".repeat(299)));
        let (one, other) = (texts.key(&one, 20), texts.key(&other, 20));
        assert_eq!(one.chars().count(), 20);
        assert_ne!(one, other, "keys stay different");
        assert_eq!(texts.text("größer", 4), "grö…");
        assert_eq!(texts.text("größe", 5), "größe");
        let (text, cut) = texts.json_or_cut(&Value::from("\u{1}".repeat(5000)));
        assert!(text.len() <= STRICT.document && text.contains("cut, 30002 bytes"));
        assert!(cut.is_some());
        assert_eq!(texts.marks.cut, 4);
    }

    #[test]
    fn names_have_escapes_for_what_has_no_place() {
        let mut texts = Texts::new(NARROW);
        assert_eq!(texts.key("a\0😀", 50), "a\\x00\\U0001f600");
        assert_eq!(texts.marks.escaped, 1);
    }
}

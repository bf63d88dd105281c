//! `repr(value)` and `str(value)`.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::number;
use crate::object::{Object, Sequence, TextError, Visitor};
use crate::text::is_printable;

/// How far a text may grow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The deepest nesting of containers.
    pub depth: usize,
    /// The bytes after which no further value is begun.
    pub bytes: usize,
}

impl Limits {
    /// For values that were bounded when they were read: deeper than any decoder allows.
    pub(crate) const OF_READ_VALUES: Self = Self {
        depth: 1_000,
        bytes: usize::MAX,
    };

    /// Whether a further value may begin at this depth, behind a text of this length; `too_deep` is the
    /// error of one that nests deeper.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check(
        self,
        depth: usize,
        written: &str,
        too_deep: TextError,
    ) -> Result<(), TextError> {
        if depth > self.depth {
            return Err(too_deep);
        }
        // A list that holds another twice doubles it at each level.
        if written.len() > self.bytes {
            return Err(TextError::TooLong);
        }
        Ok(())
    }
}

/// `repr(value)`, for values that were bounded when they were read. A text that would pass the
/// depth that decoders allow ends in `...`.
#[must_use]
pub fn repr<T: Object<Error = TextError>>(value: T) -> String {
    let mut out = String::new();
    if write_repr(&mut out, value, Limits::OF_READ_VALUES).is_err() {
        out.push_str("...");
    }
    out
}

/// `str(value)`, for values that were bounded when they were read.
#[must_use]
pub fn str<T: Object<Error = TextError>>(value: &T) -> Cow<'_, str> {
    match value.own_str() {
        Some(text) => text,
        None => Cow::Owned(repr(value)),
    }
}

/// Appends `repr(value)`.
///
/// # Errors
/// Beyond a limit, and what the value says.
pub fn write_repr<T: Object>(out: &mut String, value: T, limits: Limits) -> Result<(), T::Error> {
    let mut writer = Repr {
        out,
        limits,
        depth: 0,
    };
    writer.item(&value)
}

struct Repr<'o> {
    out: &'o mut String,
    limits: Limits,
    depth: usize,
}

impl Repr<'_> {
    fn item<T: Object>(&mut self, value: &T) -> Result<(), T::Error> {
        self.limits
            .check(self.depth, self.out, TextError::TooDeep)?;
        value.accept(self)
    }

    fn push(&mut self, text: &str) -> Result<(), TextError> {
        self.out.push_str(text);
        Ok(())
    }
}

impl Visitor for Repr<'_> {
    fn none(&mut self) -> Result<(), TextError> {
        self.push("None")
    }

    fn bool(&mut self, flag: bool) -> Result<(), TextError> {
        self.push(if flag { "True" } else { "False" })
    }

    fn int(&mut self, number: i128) -> Result<(), TextError> {
        let _ = write!(self.out, "{number}");
        Ok(())
    }

    fn float(&mut self, number: f64) -> Result<(), TextError> {
        self.push(&number::float_repr(number))
    }

    fn text(&mut self, text: &str) -> Result<(), TextError> {
        push_text(self.out, text);
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), TextError> {
        push_bytes(self.out, bytes);
        Ok(())
    }

    fn other(&mut self, _type_name: &str, repr: &str) -> Result<(), TextError> {
        self.push(repr)
    }

    fn wrapped<T: Object>(
        &mut self,
        _type_name: &str,
        before: &str,
        inner: T,
        after: &str,
    ) -> Result<(), T::Error> {
        self.out.push_str(before);
        self.depth += 1;
        self.item(&inner)?;
        self.depth -= 1;
        self.out.push_str(after);
        Ok(())
    }

    fn sequence<T: Object>(
        &mut self,
        kind: Sequence,
        items: impl IntoIterator<Item = T>,
    ) -> Result<(), T::Error> {
        let (open, close) = match kind {
            Sequence::List => ('[', ']'),
            Sequence::Tuple => ('(', ')'),
            Sequence::Set => ('{', '}'),
        };
        let start = self.out.len();
        self.out.push(open);
        self.depth += 1;
        let mut count = 0_usize;
        for item in items {
            if count > 0 {
                self.out.push_str(", ");
            }
            self.item(&item)?;
            count += 1;
        }
        self.depth -= 1;
        match (kind, count) {
            (Sequence::Set, 0) => {
                self.out.truncate(start);
                self.out.push_str("set()");
                return Ok(());
            }
            (Sequence::Tuple, 1) => self.out.push(','),
            _ => {}
        }
        self.out.push(close);
        Ok(())
    }

    fn dict<T: Object>(
        &mut self,
        entries: impl IntoIterator<Item = (T, T)>,
    ) -> Result<(), T::Error> {
        self.out.push('{');
        self.depth += 1;
        for (index, (key, value)) in entries.into_iter().enumerate() {
            if index > 0 {
                self.out.push_str(", ");
            }
            self.item(&key)?;
            self.out.push_str(": ");
            self.item(&value)?;
        }
        self.depth -= 1;
        self.out.push('}');
        Ok(())
    }
}

/// `repr` of a text.
#[must_use]
pub fn of_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_text(&mut out, text);
    out
}

/// `repr` of bytes.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 3);
    push_bytes(&mut out, bytes);
    out
}

fn push_text(out: &mut String, text: &str) {
    let mark = quotation_mark(text.as_bytes());
    out.push(mark);
    for letter in text.chars() {
        push_letter(out, letter, mark, is_printable(letter));
    }
    out.push(mark);
}

fn push_bytes(out: &mut String, bytes: &[u8]) {
    let mark = quotation_mark(bytes);
    out.push('b');
    out.push(mark);
    for byte in bytes {
        let is_plain = matches!(byte, b' '..=b'~');
        push_letter(out, char::from(*byte), mark, is_plain);
    }
    out.push(mark);
}

/// Double quotation marks only where they save escapes.
fn quotation_mark(text: &[u8]) -> char {
    match text.contains(&b'\'') && !text.contains(&b'"') {
        true => '"',
        false => '\'',
    }
}

fn push_letter(out: &mut String, letter: char, mark: char, is_plain: bool) {
    let code = u32::from(letter);
    let _ = match letter {
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\t' => write!(out, "\\t"),
        '\\' => write!(out, "\\\\"),
        _ if letter == mark => write!(out, "\\{letter}"),
        _ if is_plain => {
            out.push(letter);
            Ok(())
        }
        _ if code <= 0xff => write!(out, "\\x{code:02x}"),
        _ if code <= 0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

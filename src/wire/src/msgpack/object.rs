//! How Python shows decoded values; extension types are what stock's reader makes of them.

use std::borrow::Cow;

use saltern_python::repr::of_bytes;
use saltern_python::{Object, Sequence, TextError, Visitor};

use super::ext::{EXT_DATETIME, EXT_TIMESTAMP, is_known};
use super::value::Value;

impl Object for Value {
    type Error = TextError;

    fn accept<V: Visitor>(&self, visitor: &mut V) -> Result<(), TextError> {
        match self {
            Self::Nil => visitor.none(),
            Self::Bool(flag) => visitor.bool(*flag),
            Self::Int(number) => visitor.int((*number).into()),
            Self::Uint(number) => visitor.int((*number).into()),
            Self::Float(number) => visitor.float(*number),
            Self::Str(text) => visitor.text(text),
            Self::Bin(bytes) => visitor.bytes(bytes),
            Self::Array(items) => visitor.sequence(Sequence::List, items),
            Self::Map(entries) => visitor.dict(entries.iter().map(|(key, value)| (key, value))),
            Self::Ext(code, payload) => match DateTime::read(*code, payload) {
                Some(time) => visitor.other("datetime", &time.repr()),
                None => visitor.other("ExtType", &ext_repr(*code, payload)),
            },
        }
    }

    fn own_str(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Str(text) => Some(Cow::Borrowed(text)),
            Self::Ext(code, payload) => {
                DateTime::read(*code, payload).map(|time| Cow::Owned(time.text()))
            }
            _ => None,
        }
    }
}

/// Values of no meaning to stock, and MessagePack's own time stamps, which only libraries write.
fn ext_repr(code: i8, payload: &[u8]) -> String {
    let name = if code == EXT_TIMESTAMP {
        "Timestamp"
    } else {
        "ExtType"
    };
    format!("{name}(code={code}, data={})", of_bytes(payload))
}

/// A `datetime`: year, month, day, hour, minute, second, microsecond.
struct DateTime([u32; 7]);

impl DateTime {
    fn read(code: i8, payload: &[u8]) -> Option<Self> {
        if code != EXT_DATETIME || !is_known(code, payload) {
            return None;
        }
        let text = std::str::from_utf8(payload).ok()?;
        let number = |from: usize, to: usize| text.get(from..to)?.parse().ok();
        Some(Self([
            number(0, 4)?,
            number(4, 6)?,
            number(6, 8)?,
            number(9, 11)?,
            number(12, 14)?,
            number(15, 17)?,
            number(18, 24)?,
        ]))
    }

    fn repr(&self) -> String {
        let [.., second, microsecond] = self.0;
        let count = match (second, microsecond) {
            (0, 0) => 5,
            (_, 0) => 6,
            _ => 7,
        };
        let parts: Vec<String> = self.0.iter().take(count).map(u32::to_string).collect();
        format!("datetime.datetime({})", parts.join(", "))
    }

    fn text(&self) -> String {
        let [year, month, day, hour, minute, second, microsecond] = self.0;
        let text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
        match microsecond {
            0 => text,
            _ => format!("{text}.{microsecond:06}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_text_of_python() {
        let time = |text: &'static str| Value::Ext(EXT_DATETIME, text.as_bytes().into());
        let table = [
            (
                Value::map([("k", Value::from(vec![Value::Nil, 1e16.into()]))]),
                "{'k': [None, 1e+16]}",
                "{'k': [None, 1e+16]}",
            ),
            (Value::Bin(b"a\xff"[..].into()), r"b'a\xff'", r"b'a\xff'"),
            (
                Value::Uint(u64::MAX),
                "18446744073709551615",
                "18446744073709551615",
            ),
            (
                time("20261121T07:10:35.637714"),
                "datetime.datetime(2026, 11, 21, 7, 10, 35, 637714)",
                "2026-11-21 07:10:35.637714",
            ),
            (
                time("20261121T07:10:00.000000"),
                "datetime.datetime(2026, 11, 21, 7, 10)",
                "2026-11-21 07:10:00",
            ),
            (
                Value::Ext(5, b"x"[..].into()),
                "ExtType(code=5, data=b'x')",
                "ExtType(code=5, data=b'x')",
            ),
        ];
        for (value, repr, str) in table {
            assert_eq!(saltern_python::repr(&value), repr);
            assert_eq!(saltern_python::str(&value), str);
        }
    }
}

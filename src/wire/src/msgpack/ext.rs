//! Validity of extension values: which ones stock Salt can read back.
//!
//! Stock's reader gives up on a whole message when an ext payload is not what its code promises
//! (`salt/payload.py`, `ext_type_decoder`). One hostile value could so blind every listener on the
//! event bus. Here such a value counts as an unknown ext, of which stock keeps the payload.

use super::token::{Cursor, Token};

/// A `datetime`: ASCII `%Y%m%dT%H:%M:%S.%f`.
pub(super) const EXT_DATETIME: i8 = 78;
/// A named constant: `[name, value]`, packed with bin types.
const EXT_CONSTANT: i8 = 79;
/// MessagePack's own timestamp, which `msgpack-python` decodes by default.
pub(super) const EXT_TIMESTAMP: i8 = -1;

/// Whether this value may stay an ext; otherwise only its payload is kept.
pub(super) fn is_known(code: i8, payload: &[u8]) -> bool {
    match code {
        EXT_DATETIME => is_datetime(payload),
        EXT_CONSTANT => is_constant(payload),
        EXT_TIMESTAMP => is_timestamp(payload),
        _ => false,
    }
}

fn is_datetime(payload: &[u8]) -> bool {
    const SHAPE: &[u8] = b"00000000T00:00:00.000000";
    let fits = payload.len() == SHAPE.len()
        && payload.iter().zip(SHAPE).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            fixed => byte == fixed,
        });
    if !fits {
        return false;
    }
    let number = |from: usize, to: usize| {
        payload[from..to]
            .iter()
            .fold(0_u32, |sum, digit| sum * 10 + u32::from(digit - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    year >= 1
        && (1..=days).contains(&day)
        && number(9, 11) < 24
        && number(12, 14) < 60
        && number(15, 17) < 60
}

/// Only constants with a plain value: others cannot be map keys, and Salt has none.
fn is_constant(payload: &[u8]) -> bool {
    let mut cursor = Cursor::new(payload);
    let is_text = |bytes| std::str::from_utf8(bytes).is_ok();
    let pair = cursor.token() == Ok(Token::Array(2));
    let name = matches!(cursor.token(), Ok(Token::Raw(text) | Token::Str8(text)) if is_text(text));
    let value = match cursor.token() {
        Ok(Token::Raw(text) | Token::Str8(text)) => is_text(text),
        Ok(Token::Ext(..) | Token::Array(_) | Token::Map(_)) | Err(_) => false,
        Ok(_) => true,
    };
    pair && name && value && cursor.left() == 0
}

fn is_timestamp(payload: &[u8]) -> bool {
    const SECOND: u64 = 1_000_000_000;
    if let Ok(packed) = <[u8; 8]>::try_from(payload) {
        return u64::from_be_bytes(packed) >> 34 < SECOND;
    }
    match (payload.len(), payload.first_chunk()) {
        (4, _) => true,
        (12, Some(nanos)) => u64::from(u32::from_be_bytes(*nanos)) < SECOND,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datetime_must_exist() {
        for (payload, known) in [
            ("20261121T07:10:35.637714", true),
            ("20240229T23:59:59.000000", true),
            ("20260229T23:59:59.000000", false),
            ("20261321T07:10:35.637714", false),
            ("20261100T07:10:35.637714", false),
            ("00001121T07:10:35.637714", false),
            ("20261121T24:10:35.637714", false),
            ("20261121T07:10:60.637714", false),
            ("20261121 07:10:35.637714", false),
            ("20261121T07:10:35.63771", false),
            ("", false),
        ] {
            assert_eq!(
                is_known(EXT_DATETIME, payload.as_bytes()),
                known,
                "{payload}"
            );
        }
    }

    #[test]
    fn a_constant_is_a_name_and_a_plain_value() {
        for (payload, known) in [
            (&b"\x92\xa7NOT_SET\xc0"[..], true),
            (b"\x92\xa7NOT_SET\xc4\x01\xff", true),
            (b"\x92\xa7NOT_SET\xa1\xff", false),
            (b"\x92\xa7NOT_SET\x90", false),
            (b"\x92\xa7NOT_SET", false),
            (b"\x92\xa7NOT_SET\xc0\xc0", false),
            (b"\x91\xa7NOT_SET", false),
            (b"\x92\x01\xc0", false),
            (b"", false),
        ] {
            assert_eq!(is_known(EXT_CONSTANT, payload), known, "{payload:?}");
        }
    }

    #[test]
    fn a_timestamp_has_one_of_three_lengths() {
        assert!(is_known(EXT_TIMESTAMP, &[0; 4]));
        assert!(is_known(EXT_TIMESTAMP, &[0; 8]));
        assert!(is_known(EXT_TIMESTAMP, &[0; 12]));
        assert!(!is_known(EXT_TIMESTAMP, &[0; 5]));
        assert!(!is_known(EXT_TIMESTAMP, &[0xff; 8]));
        assert!(!is_known(EXT_TIMESTAMP, &[0xff; 12]));
    }
}

//! Transcoder of a scanned value into the other dialect, as stock would: it decodes (`loads`) and
//! packs the result (`dumps`).

use super::encode::{Dialect, Encoder};
use super::ext;
use super::token::{Cursor, DecodeError, Token};

/// Packs a value anew. The input was scanned before, so its depth and its items are bounded.
pub(super) fn transcode(packed: &[u8], dialect: Dialect) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(packed.len() + packed.len() / 16);
    let mut cursor = Cursor::new(packed);
    value(&mut cursor, &mut Encoder::new(&mut out, dialect))?;
    cursor.finish()?;
    Ok(out)
}

fn value(cursor: &mut Cursor<'_>, out: &mut Encoder<'_>) -> Result<(), DecodeError> {
    match cursor.token()? {
        Token::Nil => out.nil(),
        Token::Bool(flag) => out.bool(flag),
        Token::Int(number) => out.int(number),
        Token::Uint(number) => out.uint(number),
        Token::Float(number) => out.f64(number),
        Token::Raw(bytes) | Token::Str8(bytes) | Token::Bin(bytes) => guessed(bytes, out),
        Token::Ext(code, payload) if ext::is_known(code, payload) => out.ext(code, payload),
        Token::Ext(_, payload) => guessed(payload, out),
        Token::Array(len) => {
            out.array(len as usize);
            for _ in 0..len {
                value(cursor, out)?;
            }
            out
        }
        Token::Map(len) => {
            out.map(len as usize);
            for _ in 0..u64::from(len) * 2 {
                value(cursor, out)?;
            }
            out
        }
    };
    Ok(())
}

fn guessed<'e, 'b>(bytes: &[u8], out: &'e mut Encoder<'b>) -> &'e mut Encoder<'b> {
    match std::str::from_utf8(bytes) {
        Ok(text) => out.str(text),
        Err(_) => out.bin(bytes),
    }
}

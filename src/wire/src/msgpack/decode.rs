//! Decoder from packed bytes to a [`Value`].
//!
//! A peer can send one key of a map twice, also once as text and once as bytes. Stock reads maps
//! into dictionaries, where the last one counts; so it is here, in every map and before any caller
//! sees it. Otherwise code that takes the first and code that takes the last would see different
//! values (see `unique`).

use bytes::Bytes;

use super::ext;
use super::token::{Budget, Cursor, DecodeError, Limits, Token};
use super::unique::unique;
use super::value::Value;

/// Decodes as stock's `salt.payload.loads` decodes what a peer sent: valid UTF-8 is text, also in
/// bytes, and an unknown ext is its payload.
///
/// # Errors
/// Malformed or trailing bytes, or more than the limits.
pub fn decode_wire(packed: &[u8], limits: &Limits) -> Result<Value, DecodeError> {
    Reader { keep_types: false }.whole(packed, limits)
}

/// Short for [`decode_wire`], the right choice in nearly every place.
///
/// # Errors
/// As for [`decode_wire`].
pub fn decode(packed: &[u8], limits: &Limits) -> Result<Value, DecodeError> {
    decode_wire(packed, limits)
}

/// Decodes as packed: bytes stay bytes and every ext stays an ext, as in files and events (stock's
/// `loads(…, encoding="utf-8")`). A text that is not UTF-8 becomes bytes.
///
/// # Errors
/// As for [`decode_wire`].
pub fn decode_exact(packed: &[u8], limits: &Limits) -> Result<Value, DecodeError> {
    Reader { keep_types: true }.whole(packed, limits)
}

struct Reader {
    keep_types: bool,
}

impl Reader {
    fn whole(&self, packed: &[u8], limits: &Limits) -> Result<Value, DecodeError> {
        let mut budget = Budget::new(packed, limits)?;
        let mut cursor = Cursor::new(packed);
        let token = cursor.token()?;
        let value = self.value(token, &mut cursor, &mut budget)?;
        cursor.finish()?;
        Ok(value)
    }

    fn value(
        &self,
        token: Token<'_>,
        cursor: &mut Cursor<'_>,
        budget: &mut Budget,
    ) -> Result<Value, DecodeError> {
        Ok(match token {
            Token::Nil => Value::Nil,
            Token::Bool(flag) => Value::Bool(flag),
            Token::Int(number) => Value::Int(number),
            Token::Uint(number) => Value::Uint(number),
            Token::Float(number) => Value::Float(number),
            Token::Raw(bytes) | Token::Str8(bytes) => text_or_bytes(bytes),
            Token::Bin(bytes) if self.keep_types => Value::Bin(Bytes::copy_from_slice(bytes)),
            Token::Bin(bytes) => text_or_bytes(bytes),
            Token::Ext(code, payload) if self.keep_types || ext::is_known(code, payload) => {
                Value::Ext(code, Bytes::copy_from_slice(payload))
            }
            Token::Ext(_, payload) => text_or_bytes(payload),
            Token::Array(len) => self.array(len, cursor, budget)?,
            Token::Map(len) => self.map(len, cursor, budget)?,
        })
    }

    fn array(
        &self,
        len: u32,
        cursor: &mut Cursor<'_>,
        budget: &mut Budget,
    ) -> Result<Value, DecodeError> {
        let len = budget.open_array(len)?;
        let mut items = Vec::with_capacity(len);
        for _ in 0..len {
            let token = cursor.token()?;
            items.push(self.value(token, cursor, budget)?);
        }
        budget.close();
        Ok(Value::Array(items))
    }

    fn map(
        &self,
        len: u32,
        cursor: &mut Cursor<'_>,
        budget: &mut Budget,
    ) -> Result<Value, DecodeError> {
        let len = budget.open_map(len)?;
        let mut entries = Vec::with_capacity(len);
        for _ in 0..len {
            let token = cursor.token()?;
            if matches!(token, Token::Array(_) | Token::Map(_)) {
                return Err(DecodeError::KeyNotHashable);
            }
            let key = self.value(token, cursor, budget)?;
            let token = cursor.token()?;
            entries.push((key, self.value(token, cursor, budget)?));
        }
        budget.close();
        Ok(Value::Map(unique(entries)))
    }
}

fn text_or_bytes(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(
        |_| Value::Bin(Bytes::copy_from_slice(bytes)),
        |text| Value::Str(text.to_owned()),
    )
}

//! Validator of packed bytes, in one pass without decoding.
//!
//! This is the hot path: every return goes through it. It allocates nothing and records only
//! whether the bytes may be passed on unchanged in the other dialect.

use super::ext;
use super::token::{Budget, Cursor, DecodeError, Token};

/// Result of scanning a packed value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// The value reads differently to a peer that separates text and bytes.
    pub(super) alters_in_bin: bool,
    /// The value is unknown to the raw dialect in part.
    pub(super) alters_in_raw: bool,
}

impl Traits {
    const PLAIN: Self = Self {
        alters_in_bin: false,
        alters_in_raw: false,
    };

    #[inline]
    fn add(&mut self, other: Self) {
        self.alters_in_bin |= other.alters_in_bin;
        self.alters_in_raw |= other.alters_in_raw;
    }
}

/// Scans one value.
#[inline]
pub(super) fn value(cursor: &mut Cursor<'_>, budget: &mut Budget) -> Result<Traits, DecodeError> {
    if cursor.skip_plain() {
        return Ok(Traits::PLAIN);
    }
    let token = cursor.token()?;
    contents(token, cursor, budget)
}

/// Scans one map key.
#[inline]
pub(super) fn key(cursor: &mut Cursor<'_>, budget: &mut Budget) -> Result<Traits, DecodeError> {
    if cursor.skip_plain() {
        return Ok(Traits::PLAIN);
    }
    let token = cursor.token()?;
    if matches!(token, Token::Array(_) | Token::Map(_)) {
        return Err(DecodeError::KeyNotHashable);
    }
    contents(token, cursor, budget)
}

fn contents(
    token: Token<'_>,
    cursor: &mut Cursor<'_>,
    budget: &mut Budget,
) -> Result<Traits, DecodeError> {
    Ok(match token {
        Token::Nil | Token::Bool(_) | Token::Int(_) | Token::Uint(_) | Token::Float(_) => {
            Traits::PLAIN
        }
        Token::Raw(bytes) => Traits {
            alters_in_bin: !is_text(bytes),
            alters_in_raw: false,
        },
        Token::Str8(bytes) => Traits {
            alters_in_bin: !is_text(bytes),
            alters_in_raw: true,
        },
        Token::Bin(bytes) => Traits {
            alters_in_bin: is_text(bytes),
            alters_in_raw: true,
        },
        Token::Ext(code, payload) => {
            let unknown = !ext::is_known(code, payload);
            Traits {
                alters_in_bin: unknown,
                alters_in_raw: unknown,
            }
        }
        Token::Array(len) => array(len, cursor, budget)?,
        Token::Map(len) => map(len, cursor, budget)?,
    })
}

fn array(len: u32, cursor: &mut Cursor<'_>, budget: &mut Budget) -> Result<Traits, DecodeError> {
    let mut traits = Traits::PLAIN;
    for _ in 0..budget.open_array(len)? {
        traits.add(value(cursor, budget)?);
    }
    budget.close();
    Ok(traits)
}

fn map(len: u32, cursor: &mut Cursor<'_>, budget: &mut Budget) -> Result<Traits, DecodeError> {
    let mut traits = Traits::PLAIN;
    for _ in 0..budget.open_map(len)? {
        traits.add(key(cursor, budget)?);
        traits.add(value(cursor, budget)?);
    }
    budget.close();
    Ok(traits)
}

#[inline]
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

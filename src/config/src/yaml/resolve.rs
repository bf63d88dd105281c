//! Resolution of scalars: the implicit types of YAML 1.1 as PyYAML's `resolver.py` lists them, and
//! the conversions of its `constructor.py` with Salt's change to integers.
//!
//! The patterns look odd in places (`08` is text, `1_000` a number, `1e3` text) and are meant to:
//! they are the ones that existing files were written against.

use std::sync::LazyLock;

use regex::Regex;

use super::NodeValue;

/// The tags that the safe loader knows, without `tag:yaml.org,2002:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarTag {
    Bool,
    Float,
    Int,
    Merge,
    Null,
    Timestamp,
    /// A plain `=`: a key of that name, an error as a value.
    Value,
    Binary,
    Str,
}

static FLOAT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?
        | \.[0-9][0-9_]*(?:[eE][-+][0-9]+)?
        | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
        | [-+]?\.(?:inf|Inf|INF)
        | \.(?:nan|NaN|NAN)",
    )
});
static INT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"[-+]?0b[0-1_]+
        | [-+]?0[0-7_]+
        | [-+]?(?:0|[1-9][0-9_]*)
        | [-+]?0x[0-9a-fA-F_]+
        | [-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+",
    )
});
static TIMESTAMP: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}
        | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}
          (?:[Tt]|[\ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?
          (?:[\ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(&format!("^(?x:{text})$")).expect("invariant: the patterns of this file are valid")
}

/// The implicit type of a plain scalar.
pub(super) fn implicit(text: &str) -> ScalarTag {
    let Some(first) = text.chars().next() else {
        return ScalarTag::Null;
    };
    let numeric = matches!(first, '0'..='9' | '-' | '+');
    if matches!(
        text,
        "yes"
            | "Yes"
            | "YES"
            | "no"
            | "No"
            | "NO"
            | "true"
            | "True"
            | "TRUE"
            | "false"
            | "False"
            | "FALSE"
            | "on"
            | "On"
            | "ON"
            | "off"
            | "Off"
            | "OFF"
    ) {
        return ScalarTag::Bool;
    }
    if (numeric || first == '.') && FLOAT.is_match(text) {
        return ScalarTag::Float;
    }
    if numeric && INT.is_match(text) {
        return ScalarTag::Int;
    }
    match text {
        "<<" => return ScalarTag::Merge,
        "~" | "null" | "Null" | "NULL" => return ScalarTag::Null,
        "=" => return ScalarTag::Value,
        _ => {}
    }
    if first.is_ascii_digit() && TIMESTAMP.is_match(text) {
        return ScalarTag::Timestamp;
    }
    ScalarTag::Str
}

/// The tag that was written out, if the safe loader knows it for scalars.
pub(super) fn explicit(tag: &str) -> Option<ScalarTag> {
    Some(match tag.strip_prefix("tag:yaml.org,2002:")? {
        "bool" => ScalarTag::Bool,
        "float" => ScalarTag::Float,
        "int" => ScalarTag::Int,
        "merge" => ScalarTag::Merge,
        "null" => ScalarTag::Null,
        "timestamp" => ScalarTag::Timestamp,
        "binary" => ScalarTag::Binary,
        "str" | "python/unicode" => ScalarTag::Str,
        _ => return None,
    })
}

/// Why the text of a scalar is no value of its type.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScalarError {
    /// The text is no value of the type that its tag names.
    #[error("\"{text}\" is not {wanted}")]
    Type {
        /// The text.
        text: String,
        /// The type, with its article.
        wanted: &'static str,
    },
    /// The text of a `!!binary` is not base64.
    #[error("the text after \"!!binary\" is not base64")]
    Base64,
    /// A merge key where a value is wanted.
    #[error("\"<<\" is only allowed as a key; quote it to use the text")]
    MergeAsValue,
    /// A plain `=`, for which the safe loader has no constructor.
    #[error("a lone \"=\" has no value; quote it to use the text")]
    LoneEquals,
}

/// The value of a scalar of a given type.
///
/// # Errors
/// [`ScalarError`], without the place.
pub(super) fn scalar(tag: ScalarTag, text: &str) -> Result<NodeValue, ScalarError> {
    let not = |wanted| ScalarError::Type {
        text: text.to_owned(),
        wanted,
    };
    match tag {
        ScalarTag::Bool => boolean(text)
            .map(NodeValue::Bool)
            .ok_or_else(|| not("a boolean")),
        ScalarTag::Float => float(text)
            .map(NodeValue::Float)
            .ok_or_else(|| not("a number")),
        ScalarTag::Int => integer(text).ok_or_else(|| not("an integer")),
        ScalarTag::Null => Ok(NodeValue::Null),
        ScalarTag::Timestamp => Ok(NodeValue::Timestamp(text.to_owned())),
        ScalarTag::Binary => base64(text)
            .map(NodeValue::Binary)
            .ok_or(ScalarError::Base64),
        ScalarTag::Str => Ok(NodeValue::Str(text.to_owned())),
        ScalarTag::Merge => Err(ScalarError::MergeAsValue),
        ScalarTag::Value => Err(ScalarError::LoneEquals),
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "yes" | "true" | "on" => Some(true),
        "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn integer(text: &str) -> Option<NodeValue> {
    // Salt (`SaltYamlSafeLoader.construct_scalar`) takes the leading zeros off, so that 0644 is
    // read in base ten. A sign in front of the zeros hides them from it: -0644 is octal.
    let text = match text {
        "0" => text,
        _ if text.starts_with('0') && !text.starts_with("0b") && !text.starts_with("0x") => {
            match text.trim_start_matches('0') {
                "" => "0",
                rest => rest,
            }
        }
        _ => text,
    };
    let text = text.replace('_', "");
    let (negative, digits) = sign(&text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0'] => ("0", 10),
        [b'0', b'b', ..] => (digits.get(2..)?, 2),
        [b'0', b'x', ..] => (digits.get(2..)?, 16),
        [b'0', ..] => (digits, 8),
        _ if digits.contains(':') => return sexagesimal(negative, digits),
        _ => (digits, 10),
    };
    whole(negative, digits, radix)
}

fn sexagesimal(negative: bool, digits: &str) -> Option<NodeValue> {
    let mut total: i128 = 0;
    for part in digits.split(':') {
        total = total
            .checked_mul(60)?
            .checked_add(part.parse::<u32>().ok()?.into())?;
    }
    whole(negative, &total.to_string(), 10)
}

/// An integer of any length. The common case fits 64 bits; the other is turned into decimal.
fn whole(negative: bool, digits: &str, radix: u32) -> Option<NodeValue> {
    if digits.is_empty() {
        return None;
    }
    if let Ok(number) = i128::from_str_radix(digits, radix) {
        let number = if negative { -number } else { number };
        return Some(match i64::try_from(number) {
            Ok(number) => NodeValue::Int(number),
            Err(_) => NodeValue::BigInt(number.to_string()),
        });
    }
    // Decimal digits, least significant first. Python itself refuses more than 4300 of them.
    if digits.len() > 4300 {
        return None;
    }
    let mut decimal: Vec<u32> = vec![0];
    for digit in digits.chars() {
        let mut carry = digit.to_digit(radix)?;
        for place in &mut decimal {
            let value = *place * radix + carry;
            *place = value % 10;
            carry = value / 10;
        }
        while carry > 0 {
            decimal.push(carry % 10);
            carry /= 10;
        }
    }
    let mut text = String::from(if negative { "-" } else { "" });
    text.extend(
        decimal
            .iter()
            .rev()
            .filter_map(|digit| char::from_digit(*digit, 10)),
    );
    Some(NodeValue::BigInt(text))
}

fn float(text: &str) -> Option<f64> {
    let text = text.replace('_', "").to_lowercase();
    let (negative, digits) = sign(&text);
    let magnitude = match digits {
        ".inf" => f64::INFINITY,
        ".nan" => return Some(f64::NAN),
        _ if digits.contains(':') => {
            let mut total = 0.0;
            for part in digits.split(':') {
                total = total * 60.0 + part.parse::<f64>().ok()?;
            }
            total
        }
        _ => digits.parse().ok()?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Base64 as Python's `decodebytes` reads it: characters outside the alphabet are skipped. Salt
/// adds padding that is missing.
fn base64(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for byte in text.bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' if held > 0 => break,
            _ => continue,
        };
        bits = (bits << 6) | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    // Six left-over bits are a single character, which cannot be a byte.
    (held != 6).then_some(out)
}

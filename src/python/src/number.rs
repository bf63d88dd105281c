//! Numbers as Python writes and reads them.

use crate::text::digit_value;

/// `repr(number)`: the shortest digits that read back, with an exponent below 1e-4 and from 1e16
/// on.
#[must_use]
pub fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = shortest(number);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let places = digits.split_once('.').map_or(0, |(_, places)| places.len());
    let places = i32::try_from(places).unwrap_or(0).saturating_sub(exponent);
    format!("{number:.*}", usize::try_from(places).unwrap_or(0).max(1))
}

/// The shortest digits that read back. Of two that are equally near, Python takes the even ones.
fn shortest(number: f64) -> String {
    let nearest = format!("{number:e}");
    let (digits, _) = nearest.split_once('e').unwrap_or((&nearest, ""));
    let places = digits.split_once('.').map_or(0, |(_, places)| places.len());
    let even = format!("{number:.places$e}");
    match even.parse() == Ok(number) {
        true => even,
        false => nearest,
    }
}

/// `round(number, digits)`: the nearest of the exact value, an even last digit where two are equally
/// near.
#[must_use]
pub fn round(number: f64, digits: usize) -> f64 {
    if !number.is_finite() {
        return number;
    }
    format!("{number:.digits$}").parse().unwrap_or(number)
}

/// Why a text is no integer here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntError {
    /// Python knows no such integer.
    #[error("invalid literal for an integer")]
    Invalid,
    /// An integer for Python, but above 127 bits.
    #[error("an integer is too large")]
    TooLarge,
}

/// `int(text, base)`: white space around it, a sign, single underscores between digits, decimal
/// digits of any script, and the prefix of base 16, 8 or 2. The base is 2 to 36. White space is not
/// that of `str.strip` here: without the separators U+001C to U+001F.
///
/// # Errors
/// When Python knows no such integer, or it has more than 127 bits.
pub fn parse_int(text: &str, base: u32) -> Result<i128, IntError> {
    if !(2..=36).contains(&base) {
        return Err(IntError::Invalid);
    }
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_negative = text.starts_with('-');
    let unprefixed = without_prefix(digits, base);
    let mut may_be_underscore = unprefixed.is_some();
    let digits = unprefixed.unwrap_or(digits);
    let mut number = Some(0_i128);
    let mut has_digit = false;
    for letter in digits.chars() {
        if letter == '_' {
            if !may_be_underscore {
                return Err(IntError::Invalid);
            }
            (may_be_underscore, has_digit) = (false, false);
            continue;
        }
        let digit = match digit_value(letter) {
            Some(digit) => Some(digit).filter(|digit| *digit < base),
            None => letter.to_digit(base),
        };
        let digit = i128::from(digit.ok_or(IntError::Invalid)?);
        number = number.and_then(|number| number.checked_mul(base.into())?.checked_add(digit));
        (may_be_underscore, has_digit) = (true, true);
    }
    if !has_digit {
        return Err(IntError::Invalid);
    }
    let number = number.ok_or(IntError::TooLarge)?;
    Ok(if is_negative { -number } else { number })
}

/// The text without the mark of its base.
fn without_prefix(digits: &str, base: u32) -> Option<&str> {
    let marks = match base {
        16 => ['x', 'X'],
        8 => ['o', 'O'],
        2 => ['b', 'B'],
        _ => return None,
    };
    digits.strip_prefix('0')?.strip_prefix(marks)
}

/// `float(text)`: white space around it as for [`parse_int`], single underscores between digits, decimal digits of any
/// script, `inf`, `infinity` and `nan`. Nothing where Python knows no such number.
#[must_use]
pub fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim();
    let mut plain = String::with_capacity(text.len());
    let mut before = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let digit = digit_value(letter).and_then(|digit| char::from_digit(digit, 10));
        if letter == '_' {
            let is_digit = |c: char| digit_value(c).is_some();
            let is_between =
                before.is_some_and(is_digit) && letters.peek().copied().is_some_and(is_digit);
            if !is_between {
                return None;
            }
        } else {
            plain.push(digit.unwrap_or(letter));
        }
        before = Some(letter);
    }
    plain.parse().ok()
}

//! Comparison with `allow_undefined`: an undefined value equals undefined values only, is contained
//! in nothing, and contains nothing.

use minijinja::value::Value;

use super::fault::Outcome;
use super::value::{is_silent, is_undefined};
use super::{Run, ops};

/// Compares; with strict rules, anything undefined is an error.
pub(crate) fn with_undefined(run: &Run, sign: &str, left: &Value, right: &Value) -> Outcome<bool> {
    let (first, second) = (is_undefined(left), is_undefined(right));
    let lenient = !run.strict() || is_silent(left) || is_silent(right);
    if !lenient || (!first && !second) {
        return ops::compare(sign, left, right);
    }
    match sign {
        "==" => Ok(first && second),
        "!=" => Ok(!(first && second)),
        "in" if second => Ok(false),
        "not in" if second => Ok(true),
        _ => ops::compare(sign, left, right),
    }
}

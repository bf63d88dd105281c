//! JSON as Python reads and writes it, with values of templates.

use minijinja::value::Value;
pub(crate) use saltern_python::json::Style;
use saltern_python::repr::Limits;
pub use saltern_wire::json::{JsonError, parse};

use super::jinja::fault::Outcome;
use super::jinja::text::{Form, Shown};

/// How deep documents are written.
const MAX_DEPTH: usize = 200;

const LIMITS: Limits = Limits {
    depth: MAX_DEPTH,
    bytes: 16 << 20,
};

/// `json.dumps(value)`.
pub(crate) fn dump(value: &Value, style: Style) -> Outcome<String> {
    let mut out = String::new();
    saltern_python::json::write(&mut out, Shown::new(value, Form::Json), style, LIMITS)?;
    Ok(out)
}

//! `error.error`: fails on request, to test how failures are handled. The runner module of that
//! name is the same (`salt/runners/error.py`, `salt/wheel/error.py`).

use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::Optional;

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[function(
    "error",
    &[Optional("name"), Optional("message")],
    error,
)];

fn error(_: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let Some(name) = bound.text("name")? else {
        return Ok(Value::Map(Vec::new()));
    };
    let name = if name.is_empty() { "Exception" } else { &name };
    let message = bound.text("message")?.unwrap_or_default();
    Err(RunnerError::Refused(format!("{name}: {message}")))
}

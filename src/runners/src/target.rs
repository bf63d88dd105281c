//! The minions that a call is about: its arguments `tgt` and `tgt_type`.

use saltern_model::{Target, TargetType};
use saltern_wire::msgpack::Value;

use crate::call::{Bound, RunnerError};
use crate::python;

/// The target of a call, all minions by default; `None` for an unknown `tgt_type`, which matches no
/// minion, as for a publish.
pub(crate) fn of_call(call: &Bound<'_>) -> Result<Option<Target>, RunnerError> {
    let kind = match call.text("tgt_type")? {
        None => TargetType::Glob,
        Some(name) => match TargetType::from_wire(&name) {
            Some(kind) => kind,
            None => return Ok(None),
        },
    };
    Ok(Some(match call.get("tgt") {
        Some(Value::Array(names)) if kind == TargetType::List => {
            Target::List(names.iter().filter_map(python::scalar).collect())
        }
        _ => Target::Expression(kind, call.text("tgt")?.unwrap_or_else(|| "*".to_owned())),
    }))
}

//! `minions.connected` (`salt/wheel/minions.py`).
//!
//! Lists minions that hold a connection, or may hold one. Stock compares the addresses in cached
//! grains with those of connections.

use saltern_model::{Target, TargetType};
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[function("connected", &[], connected)];

fn connected(context: &RunnerContext, _: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let fleet = context.fleet()?;
    let everybody = Target::Expression(TargetType::Glob, "*".to_owned());
    let minions = fleet.matching(&everybody)?.into_iter();
    let connected = minions.filter(|minion| fleet.standing(minion).is_present());
    Ok(Value::Array(
        connected.map(|id| Value::from(id.as_str())).collect(),
    ))
}

//! `mine.get`: mine data of minions (`salt/runners/mine.py`).
//!
//! The master asks under its own id, so an entry with `allow_tgt` is withheld from it unless the
//! target covers that id. `mine.update` is not here: it publishes a job and waits for it.

use saltern_model::{Compat, MinionId, Target, TargetType};
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use crate::{python, target};
use Parameter::{Needed, Optional};

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[function(
    "get",
    &[Needed("tgt"), Needed("fun"), Optional("tgt_type")],
    get,
)];

fn get(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let nothing = Value::Map(Vec::new());
    let (functions, is_one) = match bound.get("fun") {
        Some(Value::Str(names)) => {
            let names: Vec<String> = names.split(',').map(str::to_owned).collect();
            let is_one = names.iter().all(|name| Some(name) == names.first());
            (names, is_one)
        }
        Some(Value::Array(names)) => (names.iter().filter_map(python::scalar).collect(), false),
        _ => return Ok(nothing),
    };
    let Some(target) = target::of_call(bound)? else {
        return Ok(nothing);
    };
    let found = context
        .master()?
        .site
        .mine_get(&own_id(context)?, &exactly(target), &functions);
    Ok(match functions.first() {
        Some(name) if is_one => found.get(name).cloned().unwrap_or(nothing),
        _ => found,
    })
}

/// The id under which the master asks; in 3007 without the suffix `_master`.
fn own_id(context: &RunnerContext) -> Result<MinionId, RunnerError> {
    let id = context.config.id.as_str();
    let id = match context.config.salt_compat {
        Compat::V3006 => id,
        Compat::V3007 => id.strip_suffix("_master").unwrap_or(id),
        Compat::V3008 => id,
    };
    MinionId::parse(id).map_err(|error| RunnerError::Refused(format!("{error}: \"{id}\"")))
}

/// Pillar targets of mines are compared exactly.
fn exactly(target: Target) -> Target {
    match target {
        Target::Expression(TargetType::Pillar, text) => {
            Target::Expression(TargetType::PillarExact, text)
        }
        other => other,
    }
}

//! `cache.*`: the data that the master caches of its minions, and the banks of files that hold it
//! (`salt/runners/cache.py`).
//!
//! `cache.cloud` and `cache.migrate` are not here: they need modules of stock that this master does
//! not have.

mod banks;

use std::sync::Arc;

use saltern_model::MinionId;
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::master::Master;
use crate::notices::Notices;
use crate::registry::RunnerContext;
use crate::{python, target};
use Parameter::{Keywords, Needed, Optional};

const OF_TARGET: &[Parameter] = &[Optional("tgt"), Optional("tgt_type")];
const OF_ANY_TARGET: &[Parameter] = &[Optional("tgt"), Optional("tgt_type"), Keywords];

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    function("clear_all", OF_TARGET, |context, bound, _| {
        clear(context, bound, &Cleared::ALL)
    }),
    function(
        "clear_git_lock",
        &[Needed("role"), Optional("remote"), Keywords],
        clear_git_lock,
    ),
    function("clear_grains", OF_TARGET, |context, bound, _| {
        let grains = Cleared {
            grains: true,
            ..Cleared::NOTHING
        };
        clear(context, bound, &grains)
    }),
    function("clear_mine", OF_TARGET, |context, bound, _| {
        let mine = Cleared {
            mine: true,
            ..Cleared::NOTHING
        };
        clear(context, bound, &mine)
    }),
    function(
        "clear_mine_func",
        &[
            Optional("tgt"),
            Optional("tgt_type"),
            Optional("clear_mine_func_flag"),
        ],
        |context, bound, _| {
            let function = Cleared {
                mine_function: bound.get("clear_mine_func_flag").cloned(),
                ..Cleared::NOTHING
            };
            clear(context, bound, &function)
        },
    ),
    function("clear_pillar", OF_TARGET, |context, bound, _| {
        let pillar = Cleared {
            pillar: true,
            ..Cleared::NOTHING
        };
        clear(context, bound, &pillar)
    }),
    function(
        "fetch",
        &[Needed("bank"), Needed("key"), Optional("cachedir")],
        banks::fetch,
    ),
    function(
        "flush",
        &[Needed("bank"), Optional("key"), Optional("cachedir")],
        banks::flush,
    ),
    function(
        "grains",
        &[Needed("tgt"), Optional("tgt_type"), Keywords],
        |context, bound, _| of_each(context, bound, |master, id| master.minion_data.grains(id)),
    ),
    function("list", &[Needed("bank"), Optional("cachedir")], banks::list),
    function("mine", OF_ANY_TARGET, |context, bound, _| {
        of_each(context, bound, |master, id| master.minion_data.mine(id))
    }),
    function("pillar", OF_ANY_TARGET, |context, bound, _| {
        of_each(context, bound, |master, id| master.minion_data.pillar(id))
    }),
    function(
        "store",
        &[
            Needed("bank"),
            Needed("key"),
            Needed("data"),
            Optional("cachedir"),
        ],
        banks::store,
    ),
];

/// The minions of `tgt` and `tgt_type`; none when there is no target.
fn targeted(context: &RunnerContext, bound: &Bound<'_>) -> Result<Vec<MinionId>, RunnerError> {
    Ok(match target::of_call(bound)? {
        Some(target) if bound.get("tgt").is_some() => context.fleet()?.matching(&target)?,
        _ => Vec::new(),
    })
}

/// Maps each minion to its cached data; without a target, every minion that has some.
fn of_each(
    context: &RunnerContext,
    bound: &Bound<'_>,
    read: impl Fn(&Master, &MinionId) -> Result<Option<Arc<Value>>, StoreError>,
) -> CallResult {
    let master = context.master()?;
    let minions = match bound.get("tgt") {
        Some(_) => targeted(context, bound)?,
        None => master.minion_data.known()?.to_vec(),
    };
    let mut kept = Vec::with_capacity(minions.len());
    for minion in minions {
        let value = read(master, &minion).unwrap_or_else(|error| {
            tracing::warn!(%minion, %error, "cached data cannot be read: it counts as absent");
            None
        });
        let value = value.map_or(Value::Map(Vec::new()), |value| value.as_ref().clone());
        kept.push((Value::from(minion.as_str()), value));
    }
    Ok(Value::Map(kept))
}

/// Caches that `clear_*` removes.
struct Cleared {
    grains: bool,
    pillar: bool,
    mine: bool,
    /// One function of the mine.
    mine_function: Option<Value>,
}

impl Cleared {
    const NOTHING: Self = Self {
        grains: false,
        pillar: false,
        mine: false,
        mine_function: None,
    };

    const ALL: Self = Self {
        grains: true,
        pillar: true,
        mine: true,
        mine_function: None,
    };

    fn is_nothing(&self) -> bool {
        !(self.grains || self.pillar || self.mine || self.mine_function.is_some())
    }
}

/// `False` when no minion or nothing to clear was named; otherwise `True`, whether or not anything
/// was removed.
fn clear(context: &RunnerContext, bound: &Bound<'_>, what: &Cleared) -> CallResult {
    if bound.get("tgt").is_none() || what.is_nothing() {
        return Ok(false.into());
    }
    let data = &context.master()?.minion_data;
    for minion in targeted(context, bound)? {
        if what.grains || what.pillar {
            data.clear(&minion, what.grains, what.pillar)?;
        }
        if what.mine {
            data.mine_flush(&minion)?;
        } else if let Some(function) = &what.mine_function {
            data.mine_delete(&minion, function)?;
        }
    }
    Ok(true.into())
}

/// Removes no lock: a lock of this master's clones ends with the process that holds it.
fn clear_git_lock(_: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let role = bound.text("role")?.unwrap_or_default();
    let unknown = bound.own_keywords().filter(|(name, _)| *name != "type");
    let shown = |(name, value): (&str, &Value)| {
        format!("{name}={}", python::scalar(value).unwrap_or_default())
    };
    let unknown: Vec<String> = unknown.map(shown).collect();
    if !unknown.is_empty() {
        let problem = format!(
            "The following keyword arguments are not valid: {}",
            unknown.join(", ")
        );
        return Err(wrong_arguments(problem));
    }
    match role.as_str() {
        "gitfs" | "git_pillar" | "winrepo" => Ok("No locks were removed".into()),
        _ => Err(wrong_arguments(format!("Invalid role '{role}'"))),
    }
}

fn wrong_arguments(problem: String) -> RunnerError {
    RunnerError::Arguments {
        problem,
        usage: "clear_git_lock(role, [remote], [type])".to_owned(),
    }
}

#[cfg(test)]
mod tests;

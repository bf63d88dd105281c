//! `manage.*`: which minions are up and which are not (`salt/runners/manage.py`).
//!
//! All answers come from the master's table of connections; no minion is asked. A minion that may
//! be connected counts as up. Stock pings for `up`, `down` and `status`, and compares addresses of
//! cached grains with those of connections for the others. Differences are listed in
//! `DIFFERENCES.md`.

use std::cmp::Ordering;

use saltern_base::clock::civil;
use saltern_model::{MinionId, Standing, Target, TargetType};
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, Work};
use crate::fleet::Fleet;
use crate::notices::Notices;
use crate::registry::RunnerContext;
use crate::{python, target};
use Parameter::Optional;

const OF_TARGET: &[Parameter] = &[
    Optional("tgt"),
    Optional("tgt_type"),
    Optional("timeout"),
    Optional("gather_job_timeout"),
];

const OF_SUBSET: &[Parameter] = &[Optional("subset"), Optional("show_ip")];

const fn listing(name: &'static str, run: Work) -> Function {
    Function {
        name,
        parameters: OF_SUBSET,
        run,
    }
}

/// The functions of the module. Stock has ten names for two of them.
pub(crate) const FUNCTIONS: &[Function] = &[
    listing("alived", present),
    listing("allowed", present),
    Function {
        name: "down",
        parameters: &[
            Optional("removekeys"),
            Optional("tgt"),
            Optional("tgt_type"),
            Optional("timeout"),
            Optional("gather_job_timeout"),
        ],
        run: down,
    },
    listing("joined", present),
    listing("list_not_state", not_present),
    listing("list_state", present),
    listing("not_alived", not_present),
    listing("not_allowed", not_present),
    listing("not_joined", not_present),
    listing("not_present", not_present),
    listing("not_reaped", not_present),
    listing("present", present),
    listing("reaped", present),
    Function {
        name: "standing",
        parameters: OF_TARGET,
        run: standing,
    },
    Function {
        name: "status",
        parameters: &[
            Optional("output"),
            Optional("tgt"),
            Optional("tgt_type"),
            Optional("timeout"),
            Optional("gather_job_timeout"),
        ],
        run: status,
    },
    Function {
        name: "up",
        parameters: OF_TARGET,
        run: up,
    },
    Function {
        name: "versions",
        parameters: &[],
        run: versions,
    },
];

/// The minions of `tgt` and `tgt_type`; without a target, all.
fn targeted(fleet: &dyn Fleet, call: &Bound<'_>) -> Result<Vec<MinionId>, RunnerError> {
    match target::of_call(call)? {
        Some(target) => with_those_below(fleet, &target),
        None => Ok(Vec::new()),
    }
}

fn all(fleet: &dyn Fleet) -> Result<Vec<MinionId>, RunnerError> {
    let everybody = Target::Expression(TargetType::Glob, "*".to_owned());
    with_those_below(fleet, &everybody)
}

/// The minions of a target, those below syndics too, as far as these announce them.
fn with_those_below(fleet: &dyn Fleet, target: &Target) -> Result<Vec<MinionId>, RunnerError> {
    let mut minions = fleet.matching(target)?;
    let below = fleet.matching_below(target)?;
    if !below.is_empty() {
        minions.extend(below);
        minions.sort_unstable();
    }
    Ok(minions)
}

/// The minions that are up, and those that are not.
fn split(context: &RunnerContext, call: &Bound<'_>) -> Result<[Value; 2], RunnerError> {
    let fleet = context.fleet()?;
    let is_up = |minion: &MinionId| fleet.standing(minion).is_present();
    let (up, down): (Vec<_>, Vec<_>) = targeted(fleet, call)?.into_iter().partition(is_up);
    Ok([ids(&up), ids(&down)])
}

fn ids(minions: &[MinionId]) -> Value {
    let ids = minions.iter().map(|minion| Value::from(minion.as_str()));
    Value::Array(ids.collect())
}

fn status(context: &RunnerContext, call: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let [up, down] = split(context, call)?;
    Ok(Value::map([("up", up), ("down", down)]))
}

fn up(context: &RunnerContext, call: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let [up, _] = split(context, call)?;
    Ok(up)
}

fn down(context: &RunnerContext, call: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    if call.flag("removekeys", false) {
        return Err(RunnerError::Refused(
            "removekeys is not done here: delete the keys with salt-key -d".to_owned(),
        ));
    }
    let [_, down] = split(context, call)?;
    Ok(down)
}

/// The minions that `subset` admits, by whether they are up.
fn listed(fleet: &dyn Fleet, call: &Bound<'_>, is_up: bool) -> Result<Vec<MinionId>, RunnerError> {
    let subset = call.truthy("subset").map(python::split_input);
    let is_wanted = |minion: &MinionId| {
        let names = subset.as_ref();
        names.is_none_or(|names| names.iter().any(|name| name == minion.as_str()))
            && fleet.standing(minion).is_present() == is_up
    };
    let mut minions = all(fleet)?;
    minions.retain(is_wanted);
    Ok(minions)
}

fn present(context: &RunnerContext, call: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let fleet = context.fleet()?;
    let minions = listed(fleet, call, true)?;
    if !call.flag("show_ip", false) {
        return Ok(ids(&minions));
    }
    let addresses = minions.iter().map(|minion| {
        let address = fleet.address(minion).map(|address| address.to_string());
        let address = address.map_or(Value::Nil, Value::from);
        (Value::from(minion.as_str()), address)
    });
    Ok(Value::Map(addresses.collect()))
}

fn not_present(context: &RunnerContext, call: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    Ok(ids(&listed(context.fleet()?, call, false)?))
}

/// Our own: each minion's standing with its reason, when it was last heard, and its address.
fn standing(context: &RunnerContext, call: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let fleet = context.fleet()?;
    let minions = targeted(fleet, call)?;
    let described = minions.iter().map(|minion| {
        let text = |text: Option<String>| text.map_or(Value::Nil, Value::from);
        let standing = fleet.standing(minion);
        let address = fleet.address(minion).map(|address| address.to_string());
        let about = Value::map([
            ("standing", Value::from(standing.to_string())),
            ("since", text(since(standing).map(time_text))),
            ("last_heard", text(fleet.last_heard(minion).map(time_text))),
            ("address", text(address)),
        ]);
        (Value::from(minion.as_str()), about)
    });
    Ok(Value::Map(described.collect()))
}

fn since(standing: Standing) -> Option<i64> {
    match standing {
        Standing::Away(absence) => absence.at(),
        _ => None,
    }
}

/// A moment in UTC, to the second.
fn time_text(unix_micros: i64) -> String {
    civil(unix_micros).strftime("%FT%TZ").to_string()
}

/// Versions that the minions reported, against the one that the master is compatible with.
fn versions(context: &RunnerContext, _: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let fleet = context.fleet()?;
    let master = context.config.salt_compat.release();
    let mut groups: [(&str, Vec<(Value, Value)>); 4] = [
        ("Minion offline", Vec::new()),
        ("Minion requires update", Vec::new()),
        ("Up to date", Vec::new()),
        ("Minion newer than master", Vec::new()),
    ];
    let [(_, offline), (_, old), (_, same), (_, new)] = &mut groups;
    for minion in all(fleet)? {
        let version = fleet.version(&minion);
        let version = version.filter(|_| fleet.standing(&minion).is_present());
        let (group, shown) = match version {
            None => (&mut *offline, Value::Bool(false)),
            Some(version) => {
                let group = match release_of(&version).cmp(&release_of(master)) {
                    Ordering::Less => &mut *old,
                    Ordering::Equal => &mut *same,
                    Ordering::Greater => &mut *new,
                };
                (group, Value::from(version))
            }
        };
        group.push((Value::from(minion.as_str()), shown));
    }
    let mut answer = vec![(Value::from("Master"), Value::from(master))];
    for (label, members) in groups {
        if !members.is_empty() {
            answer.push((Value::from(label), Value::Map(members)));
        }
    }
    Ok(Value::Map(answer))
}

/// The numbers that a version begins with: `3006.28` of `3006.28+12.g1a2b3c4`.
fn release_of(version: &str) -> Vec<u64> {
    let end = version.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let numbers = version.get(..end.unwrap_or(version.len())).unwrap_or("");
    numbers
        .split('.')
        .map_while(|number| number.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests;

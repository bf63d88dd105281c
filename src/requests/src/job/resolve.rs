//! The minions that the target of a job matches, and those whose returns are expected.

use saltern_model::Target;
use saltern_policy::acl::Whom;
use saltern_policy::matching::MatchOptions;
use saltern_policy::target::Resolved;
use saltern_wire::msgpack::Value;

use super::load::DEFAULT_DELIMITER;
use super::refusal::Refused;
use super::request::Request;
use crate::credentials::Sender;
use crate::{Services, targets};

/// The minions that the target of a request matches, when its sender may run the functions on them.
/// An unusable target matches none.
pub(crate) fn resolve_allowed(
    load: &Value,
    request: &Request<'_>,
    sender: &Sender,
    services: &Services,
) -> Result<Resolved, Refused> {
    let resolved = match &request.target {
        Some(target) => resolve(load, &request.functions, target, services)?,
        None => Resolved::default(),
    };
    // Syndics count here: their machines may have a minion of the same name.
    let whom = Whom::These(&resolved.minions);
    match sender.may_publish(load, &request.functions, whom, services) {
        true => Ok(without_syndics(resolved, services)),
        false => Err(Refused::NotAuthorised {
            owner: sender.owner(),
        }),
    }
}

/// Functions whose return a minion merges with those of its resources (3008).
const MERGING: [&str; 5] = [
    "state.apply",
    "state.highstate",
    "state.sls",
    "state.sls_id",
    "state.single",
];

/// The minions that the target of a load matches, syndics among them. Minions decide for themselves
/// once more. A range matches none without a range server, as with stock.
pub(crate) fn resolve(
    load: &Value,
    functions: &[String],
    target: &Target,
    services: &Services,
) -> Result<Resolved, Refused> {
    let options = MatchOptions {
        expands_ranges: false,
        ..match_options(load, functions)
    };
    resolve_with(target, &options, services)
}

/// Options for matching the target of a load.
pub(crate) fn match_options<'a>(load: &'a Value, functions: &[String]) -> MatchOptions<'a> {
    MatchOptions {
        delimiter: match load
            .get("kwargs")
            .and_then(|kwargs| kwargs.get("delimiter"))
        {
            None => DEFAULT_DELIMITER,
            // A delimiter that is no text separates nothing, like the empty one: an error, so no
            // match.
            Some(delimiter) => delimiter.as_str().unwrap_or_default(),
        },
        merges_resources: matches!(functions, [one] if MERGING.contains(&one.as_str())),
        ..MatchOptions::default()
    }
}

/// The minions that a target matches, syndics among them.
pub(crate) fn resolve_with(
    target: &Target,
    options: &MatchOptions<'_>,
    services: &Services,
) -> Result<Resolved, Refused> {
    targets::resolve(services, target, options).map_err(|error| {
        tracing::error!(%error, "accepted keys cannot be listed");
        Refused::Because("the accepted keys cannot be listed; see the master's log".to_owned())
    })
}

/// The minions whose returns are expected. A syndic is no minion, unless it acts as one, too: it announces the minions
/// below it that have the job.
pub(crate) fn without_syndics(mut resolved: Resolved, services: &Services) -> Resolved {
    if services.site.order_masters {
        resolved
            .minions
            .retain(|id| !services.minions.syndics.is_only_syndic(id));
    }
    resolved
}

/// The minions of a target as the wire has them.
pub(crate) fn names(resolved: &Resolved) -> Value {
    let names = resolved.minions.iter().map(|id| id.as_str().into());
    Value::Array(names.collect())
}

/// The names in a target that match no minion.
pub(crate) fn missing(resolved: &Resolved) -> Value {
    let names = resolved.missing.iter().map(|id| id.as_str().into());
    Value::Array(names.collect())
}

//! Job of one part of a batch: the publish that a client would send to these minions under the jid
//! of the batch, as stock's batch manager does it (`salt/utils/batch_manager.py`).
//!
//! The user of the batch was authenticated when it began, or could write below `cachedir`. A
//! function that has been barred since is not sent any more.

use std::collections::HashSet;

use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use crate::job::jid_owner::BACKEND;
use crate::job::{self, Recipients, Refused, Request, SentAs};
use crate::{BatchPlan, Services, StartJob};

/// One part of a batch: the job to start, and minions that dropped out.
pub struct BatchPart {
    /// The job; `None` when none of the minions is accepted any more.
    pub start: Option<StartJob>,
    /// Minions that are not accepted any more.
    pub gone: Vec<MinionId>,
}

/// Error of a part that is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartRefused {
    /// A retry may succeed.
    #[error("the accepted keys cannot be listed")]
    NotNow,
    /// A retry cannot succeed.
    #[error("{0}")]
    Never(&'static str),
}

/// The job that sends these minions their part of a batch.
///
/// # Errors
/// [`PartRefused`]; then nothing is to be sent.
pub fn batch_part(
    plan: &BatchPlan,
    minions: &[MinionId],
    services: &Services,
) -> Result<BatchPart, PartRefused> {
    let load = load(plan, minions);
    let refused = |refused| match refused {
        Refused::Malformed(_) => PartRefused::Never("malformed"),
        _ => PartRefused::NotNow,
    };
    let request = Request::read(&load, services.config.salt_compat).map_err(refused)?;
    if request.is_barred(&services.users) {
        return Err(PartRefused::Never("barred"));
    }
    let target = request.target.as_ref();
    let target = target.ok_or(PartRefused::Never("malformed"))?;
    let resolved = job::resolve(&load, &request.functions, target, services);
    let resolved = job::without_syndics(resolved.map_err(refused)?, services);
    // Whoever began the batch was admitted with its minions.
    let below = job::below::of_load(&load, &request, target, services);
    let found: HashSet<&MinionId> = resolved.minions.iter().chain(&below.minions).collect();
    let gone = minions.iter().filter(|id| !found.contains(id)).cloned();
    let gone = gone.collect();
    let is_nobody = found.is_empty();
    let job = || {
        job::job(
            &load,
            &request,
            target,
            plan.jid.clone(),
            Recipients::new(resolved, below, SentAs::Target),
            services,
        )
    };
    Ok(BatchPart {
        start: (!is_nobody).then(job),
        gone,
    })
}

/// The load that a client would send, without a key.
fn load(plan: &BatchPlan, minions: &[MinionId]) -> Value {
    let names = minions.iter().map(|id| id.as_str().into()).collect();
    let mut entries = vec![
        ("cmd", "publish".into()),
        ("tgt", Value::Array(names)),
        ("fun", plan.fun.clone()),
        ("arg", Value::Array(arguments(plan))),
        ("tgt_type", "list".into()),
        ("ret", plan.ret.clone()),
        ("jid", plan.jid.as_str().into()),
    ];
    if plan.options.as_map().is_some_and(|map| !map.is_empty()) {
        entries.push(("kwargs", plan.options.clone()));
    }
    entries.push(("user", plan.user.as_str().into()));
    if let Some(backend) = &plan.backend {
        entries.push((BACKEND, backend.as_str().into()));
    }
    Value::map(entries)
}

/// The arguments as a minion takes them: named ones last, in a map marked as such
/// (`condition_input` in `salt/utils/args.py`).
fn arguments(plan: &BatchPlan) -> Vec<Value> {
    let mut arguments = plan.arg.clone();
    let named = plan.kwargs.as_map().unwrap_or_default();
    if !named.is_empty() {
        let mark = (Value::from("__kwarg__"), Value::from(true));
        let named = std::iter::once(mark).chain(named.iter().cloned());
        arguments.push(Value::Map(named.collect()));
    }
    arguments
}

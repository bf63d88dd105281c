//! The job of one part of a batch: what a client would publish to these minions under the jid of
//! the batch, as stock's batch manager does it (`salt/utils/batch_manager.py`).
//!
//! Who asked for the batch was authenticated when it began, or could write below `cachedir`; a
//! function that has been barred since is not sent any more.

use std::collections::HashSet;

use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use crate::jid_owner::BACKEND;
use crate::publication::SentAs;
use crate::publish::{self, Request};
use crate::publish_refusal::Refused;
use crate::{BatchPlan, Services, StartJob};

/// What is to be done for some minions of a batch.
pub struct BatchPart {
    /// The job; nothing when none of the minions is accepted any more.
    pub start: Option<StartJob>,
    /// Minions that are not accepted any more.
    pub gone: Vec<MinionId>,
}

/// Why a part is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartRefused {
    /// It may work later.
    #[error("the accepted keys cannot be listed")]
    NotNow,
    /// It never will.
    #[error("{0}")]
    Never(&'static str),
}

/// The job that sends these minions of a batch their part.
///
/// # Errors
/// See [`PartRefused`]; then nothing is to be sent.
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
    if request.is_barred(services) {
        return Err(PartRefused::Never("barred"));
    }
    let target = request.target.as_ref();
    let target = target.ok_or(PartRefused::Never("malformed"))?;
    let resolved = publish::resolve(&load, &request.functions, target, services);
    let resolved = publish::without_syndics(resolved.map_err(refused)?, services);
    let found: HashSet<&MinionId> = resolved.minions.iter().collect();
    let gone = minions.iter().filter(|id| !found.contains(id)).cloned();
    let gone = gone.collect();
    let is_nobody = resolved.minions.is_empty();
    let job = || {
        publish::job(
            &load,
            &request,
            target,
            plan.jid.clone(),
            (resolved, SentAs::Target),
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

/// The arguments as a minion takes them: those with a name last, in a map that says so
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

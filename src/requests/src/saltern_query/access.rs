//! `access.check`: which functions of the master the sender may call, and which jobs he may publish, so
//! that a program offers what will be admitted. The gate is asked as for the call itself; nothing runs.

use std::sync::Arc;

use saltern_model::MinionId;
use saltern_policy::acl::{Verdict, Whom};
use saltern_runners::Arguments;
use saltern_wire::msgpack::Value;

use super::answer;
use crate::credentials::{NotProved, Sender};
use crate::master_gate::{self, FunctionKind};
use crate::{Outcome, Services};

/// Its name. It stands in no table: every sender who is proved may ask it about himself.
pub(super) const NAME: &str = "access.check";

/// The most functions of one request.
const MAX_FUNCTIONS: usize = 100;

/// Minions of one job that is asked about.
const MAX_MINIONS: usize = 1_000;

/// Answers with one flag for each entry of `functions`: a text such as `runner jobs.list_jobs` or
/// `wheel key.accept`, or a job with `fun`, `arg` and a list of minions, `tgt`. What is neither is not
/// allowed.
pub(super) fn handle(
    load: &Value,
    proof: Result<Sender, NotProved>,
    services: &Arc<Services>,
) -> Outcome {
    let sender = match master_gate::proved(FunctionKind::Runner, load, proof) {
        Ok(sender) => sender,
        Err(denied) => return denied.outcome(load, services),
    };
    let functions = load.get("kwarg").and_then(|kwarg| kwarg.get("functions"));
    let functions = functions.and_then(Value::as_array).unwrap_or_default();
    let nothing = Arguments::default();
    let may_call = |function: &Value| {
        if function.as_map().is_some() {
            return may_publish(function, &sender, services);
        }
        let (kind, function) = function.as_str()?.split_once(' ')?;
        let kind = [FunctionKind::Runner, FunctionKind::Wheel]
            .into_iter()
            .find(|known| known.command() == kind)?;
        let verdict = sender.may_call(kind.form(), function, &nothing, services);
        Some(matches!(verdict, Verdict::Allowed))
    };
    let flags = functions.iter().take(MAX_FUNCTIONS);
    let flags: Vec<bool> = flags
        .map(|function| may_call(function).unwrap_or_default())
        .collect();
    Outcome::reply(answer(&flags))
}

/// Whether the sender may publish a job for the minions that it lists.
fn may_publish(job: &Value, sender: &Sender, services: &Services) -> Option<bool> {
    let function = job.get("fun")?.as_str()?.to_owned();
    let minions = job.get("tgt")?.as_array()?.iter().take(MAX_MINIONS);
    let minions = minions.map(|id| MinionId::parse(id.as_str()?).ok());
    let minions: Vec<MinionId> = minions.collect::<Option<_>>()?;
    // Nobody is covered by every rule.
    let whom = match minions.as_slice() {
        [] => Whom::Anybody,
        minions => Whom::These(minions),
    };
    Some(sender.may_publish(job, &[function], whom, services))
}

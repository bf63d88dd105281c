//! `access.check`: which functions of the master the sender may call, so that a program offers what will
//! be admitted. The gate is asked as for the call itself; nothing runs.

use std::sync::Arc;

use saltern_policy::acl::Verdict;
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

/// Answers with one flag for each text of `functions`, such as `runner jobs.list_jobs` or
/// `wheel key.accept`. What is no such text is not allowed.
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

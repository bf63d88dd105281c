//! Functions that are not built in: stock's and a site's own, run by Python.
//!
//! Such a function may publish jobs and wait for them (`state.orchestrate`): it does so as any
//! client of this machine, over the master's own ports. Only its own thread waits for it.

use std::time::Duration;

use saltern_bridge::{Bridge, BridgeError, Work};
use saltern_model::Tag;
use saltern_wire::msgpack::Value;

use crate::call::Call;
use crate::notices::Notices;
use crate::registry::{Kind, Ran};

/// Functions whose steps bear a jid in their events: that of the call, as `salt-run` has it.
const ORCHESTRATIONS: [&str; 3] = ["state.orch", "state.orchestrate", "state.sls"];

/// Word of the helper for the end of a step.
const STEP: &str = "saltern_step";

/// The jid of an orchestration as its function takes it.
const ORCHESTRATION_JID: &str = "orchestration_jid";

fn named(kind: Kind, call: &Call) -> Vec<(String, Value)> {
    let mut named = call.arguments.named.clone();
    let is_given = named.iter().any(|(name, _)| name == ORCHESTRATION_JID);
    if kind == Kind::Runner && ORCHESTRATIONS.contains(&call.fun.as_str()) && !is_given {
        named.push((ORCHESTRATION_JID.to_owned(), call.jid.as_str().into()));
    }
    named
}

/// Adds the caller to the data of an event: the reactor passes over what it led to itself.
fn of_user(data: Value, user: &str) -> Value {
    let mut entries = match data {
        Value::Map(entries) => entries,
        _ => Vec::new(),
    };
    entries.push(("user".into(), user.into()));
    Value::Map(entries)
}

/// Runs a function; blocks for as long as it takes, a wheel function for at most `patience`: its
/// client holds one of the master's threads.
pub(crate) fn run(
    bridge: &Bridge,
    kind: Kind,
    call: &Call,
    patience: Duration,
    notices: &mut Notices<'_>,
) -> Ran {
    let prefix = match kind {
        Kind::Runner => "salt/run",
        Kind::Wheel => "salt/wheel",
    };
    let tag = format!("{prefix}/{}", call.jid);
    let asked = saltern_bridge::Call {
        fun: call.fun.clone(),
        positional: call.arguments.positional.clone(),
        named: named(kind, call),
        jid: call.jid.to_string(),
        tag: tag.clone(),
        user: call.user.clone(),
    };
    let (work, within) = match kind {
        Kind::Runner => (Work::Runner(&asked), Duration::MAX),
        Kind::Wheel => (Work::Wheel(&asked), patience),
    };
    let mut notify = |suffix: &str, data: Value| match suffix {
        "new" => notices.began(),
        "progress" => notices.progress(data),
        STEP => notices.fire(Tag::step(&call.jid), of_user(data, &call.user)),
        other => match Tag::parse(&format!("{tag}/{other}")) {
            Ok(tag) => notices.fire(tag, data),
            Err(error) => tracing::debug!(%error, fun = call.fun, "an event without a usable tag"),
        },
    };
    match bridge.call_with_progress(&work, within, &mut notify) {
        Ok(data) => Ran {
            success: data.get("success").is_some_and(Value::is_truthy),
            retcode: data.get("retcode").and_then(Value::as_i64),
            value: data.get("return").cloned().unwrap_or(Value::Nil),
        },
        Err(error) => {
            let (kind, fun) = (kind.name(), &call.fun);
            let problem = match &error {
                // In stock's words first: it is not known whether Python would have it.
                BridgeError::Off { .. } | BridgeError::NotFound { .. } => {
                    format!("'{fun}' is not available. ({error})")
                }
                _ => error
                    .problem()
                    .map_or_else(|| error.to_string(), str::to_owned),
            };
            Ran {
                value: format!("Exception occurred in {kind} {fun}: {problem}").into(),
                success: false,
                retcode: Some(1),
            }
        }
    }
}

//! `minion_runner`: a minion runs a function of the master, as far as the option `peer_run` allows,
//! and waits for its return (`RemoteFuncs.minion_runner` in `salt/daemons/masterapi.py`).
//!
//! The call is one of the master's own: reported on the bus and kept like those of `salt-run`. It
//! is made beside the workers. When the function takes too long, the minion is answered in the
//! words that it would use itself (`publish.runner`), and the call goes on.

use std::borrow::Cow;
use std::sync::Arc;

use saltern_runners::{Arguments, Call};
use saltern_wire::msgpack::{Dialect, Value, decode_wire, encode};

use crate::audit::AuditNote;
use crate::envelope::{LOAD_LIMITS, Sealed};
use crate::outcome::{PeerCall, PeerCallWork, PeerRun};
use crate::peer_publish::{MAX_WAIT, verbatim};
use crate::{Effect, Outcome, Services, runner, typed_arguments};

/// Runs the function, or answers with a refusal.
pub(crate) fn handle(sealed: Sealed, services: &Arc<Services>) -> Outcome {
    let seal = |value: &Value| sealed.answer.seal(&encode(value, Dialect::Raw));
    let call = match call(&sealed, services) {
        Ok(call) => call,
        Err((reason, answer)) => {
            services.metrics.refuse("peer");
            complain!(
                services,
                cmd = "minion_runner", minion = %sealed.minion, reason,
                "request refused"
            );
            return Outcome::refused(seal(&answer), reason);
        }
    };
    let failed = seal(&Value::from(""));
    let too_late = seal(
        &format!("'{}' runner publish timed out", call.fun)
            .as_str()
            .into(),
    );
    let minion = sealed.minion.clone();
    let jid = call.jid.clone();
    tracing::info!(jid = %call.jid, %minion, fun = call.fun, "running on the master");
    let lost = runner::lost(&call, services);
    let is_python = services.runners.is_python(&call.fun);
    let services = Arc::clone(services);
    let run = PeerRun {
        lost,
        too_late,
        is_python,
        work: Box::new(move |fire| {
            let mut reply = None;
            let ran = runner::carry_out(&call, None, &services, fire, |ran, has_begun| {
                let value = answer_value(&ran.value, has_begun, &call);
                reply = Some(sealed.answer.seal(&encode(&value, Dialect::Raw)));
            });
            (ran, reply.unwrap_or_default())
        }),
    };
    let call = PeerCall {
        minion,
        wait: MAX_WAIT,
        work: PeerCallWork::Run(run),
    };
    Outcome {
        reply: failed.clone(),
        reply_if_not_stored: failed,
        effects: vec![Effect::RunPeerCall(Box::new(call))],
        later: None,
        audit: AuditNote {
            refusal: None,
            jid: Some(jid),
        },
    }
}

/// The call, or the reason why there is none and stock's answer to that.
fn call(sealed: &Sealed, services: &Services) -> Result<Call, (&'static str, Value)> {
    let refused = |reason| (reason, Value::Map(Vec::new()));
    let failed = |reason| (reason, Value::from(""));
    let load = decode_wire(&sealed.load.pack(), &LOAD_LIMITS)
        .map_err(|_| failed("the load cannot be decoded"))?;
    let (Some(fun), Some(arg)) = (load.get("fun"), load.get("arg")) else {
        return Err(refused("the request is incomplete"));
    };
    let fun = fun.as_str().ok_or(failed("the function is no text"))?;
    if !services.users.rules().peer_runs.allow(&sealed.minion, fun) {
        return Err(refused("the option \"peer_run\" does not allow it"));
    }
    let arg = arg.as_array().ok_or(failed("the arguments are no list"))?;
    // Twice, as stock does: by the handler, and by the runner that it makes.
    let typed = typed_arguments(arg.iter().cloned(), &verbatim(&load));
    Ok(Call {
        jid: services.minter.mint(),
        fun: fun.to_owned(),
        arguments: arguments(typed_arguments(typed, &[])),
        user: services.config.user.clone(),
    })
}

/// The minion's answer; for an unknown function, only stock's sentence about it (`Runner.run` in
/// `salt/runner.py`).
fn answer_value<'v>(value: &'v Value, has_begun: bool, call: &Call) -> Cow<'v, Value> {
    match has_begun {
        true => Cow::Borrowed(value),
        false => Cow::Owned(format!("'{}' is not available.", call.fun).as_str().into()),
    }
}

fn arguments(mut positional: Vec<Value>) -> Arguments {
    let is_named = |value: &mut Value| value.get("__kwarg__").is_some();
    let named = match positional.pop_if(is_named) {
        Some(Value::Map(named)) => named,
        _ => Vec::new(),
    };
    let named = named.into_iter().filter_map(|(name, value)| match name {
        Value::Str(name) if name != "__kwarg__" => Some((name, value)),
        _ => None,
    });
    Arguments {
        named: named.collect(),
        positional,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_marked_map_is_the_named_arguments() {
        let marked =
            |name: &str| Value::map([("__kwarg__", Value::from(true)), (name, 2_i64.into())]);
        let found = arguments(vec![Value::from(1_i64), marked("a")]);
        assert_eq!(found.positional, [Value::from(1_i64)]);
        assert_eq!(found.named, [("a".to_owned(), Value::from(2_i64))]);
        // Only the last.
        let found = arguments(vec![marked("a"), Value::from(1_i64)]);
        assert_eq!(found.positional, [marked("a"), Value::from(1_i64)]);
        assert!(found.named.is_empty());
    }
}

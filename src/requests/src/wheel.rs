//! `wheel`, clear: a function that reads or changes the master (`ClearFuncs.wheel` in
//! `salt/master.py`, `SyncClientMixin.low` in `salt/client/mixins.py`).
//!
//! The client waits for the value, which is computed beside the workers. Events report the call:
//! `salt/wheel/<jid>/new` when it begins, `…/ret` when it is done. 3006 and 3007 fire them twice,
//! once for the request and once, with another jid, for the call in it. It is not kept in the job
//! cache.

use std::sync::Arc;

use saltern_model::{Compat, Event, Jid, Tag};
use saltern_runners::{Call, Notice, Notices, Ran};
use saltern_wire::msgpack::Value;
use serde::Serialize;

use crate::event_data::Stamped;
use crate::events::FunctionCall;
use crate::master_gate::Admitted;
use crate::outcome::{EventSink, Finished};
use crate::{Outcome, Services, event_data, reply};

/// Answers with the value, later.
pub(crate) fn handle(load: &Value, admitted: Admitted, services: &Arc<Services>) -> Outcome {
    let Some(call) = admitted.call(load, services) else {
        return Outcome::reply(reply::no_answer());
    };
    tracing::info!(jid = %call.jid, user = call.user, fun = call.fun, "a wheel function runs");
    let identity = call_identity(&call, load, services);
    let services = Arc::clone(services);
    let jid = call.jid.clone();
    let outcome = Outcome::later_for(call.user.clone(), move || {
        carry_out(call, identity, &services)
    });
    outcome.naming(jid)
}

/// Jid and user in the events of the call itself. In 3008 they are those of the request; before,
/// the call has a jid of its own and no user.
///
/// Stock's `wheel_async` waits for the events of a jid that the client has made up, and names it in
/// `__jid__`. 3008 ignores that entry, so such a client is never answered; here it is honoured.
struct CallIdentity {
    jid: Jid,
    user: String,
}

fn call_identity(call: &Call, load: &Value, services: &Services) -> CallIdentity {
    let text = |name| load.get(name).and_then(Value::as_str);
    let asked_for = text("__jid__").and_then(|jid| Jid::parse(jid).ok());
    if services.config.salt_compat == Compat::V3008 {
        return CallIdentity {
            jid: asked_for.unwrap_or_else(|| call.jid.clone()),
            user: call.user.clone(),
        };
    }
    CallIdentity {
        jid: asked_for.unwrap_or_else(|| services.minter.mint()),
        user: text("__user__").unwrap_or("UNKNOWN").to_owned(),
    }
}

fn carry_out(call: Call, identity: CallIdentity, services: &Services) -> Finished {
    let fires_twice = services.config.salt_compat != Compat::V3008;
    let wheel = format!("wheel.{}", call.fun);
    let tag = format!("salt/wheel/{}", call.jid);
    let data = FunctionCall {
        tag: Some(&tag),
        ..FunctionCall::new(&wheel, &call.jid, &call.user)
    };
    let mut events = Vec::new();
    if fires_twice {
        let tag = Tag::wheel(&call.jid, "new");
        events.push(event_data::master_event(services, tag, &data));
    }
    let (ran, end_event) =
        run_with_events(&call, &identity, services, &mut |event| events.push(event));
    events.push(end_event);
    let ended = FunctionCall {
        retcode: None,
        ..data.ended(&ran)
    };
    // Stock stamps the very mapping that it answers with.
    let stamp = fires_twice.then(|| event_data::now(services));
    if fires_twice {
        let tag = Tag::wheel(&call.jid, "ret");
        events.push(event_data::master_event(services, tag, &ended));
    }
    let reply = Answer {
        tag: &tag,
        data: Stamped { data: ended, stamp },
    };
    Finished {
        reply: reply::clear(&reply),
        events,
    }
}

/// The answer.
#[derive(Serialize)]
struct Answer<'a> {
    tag: &'a str,
    data: Stamped<FunctionCall<'a>>,
}

/// Makes a call without a waiting client. Returns its outcome, and the event of its end.
pub fn call_it(call: &Call, services: &Services, fire: EventSink<'_>) -> (Ran, Event) {
    let identity = CallIdentity {
        jid: call.jid.clone(),
        user: call.user.clone(),
    };
    run_with_events(call, &identity, services, fire)
}

/// Event for such a call that never ends.
pub fn lost(call: &Call, services: &Services) -> Event {
    let reason = format!(
        "Exception occurred in wheel {}: the call was lost; see the master's log",
        call.fun
    );
    let lost = Ran {
        value: reason.into(),
        success: false,
        retcode: Some(1),
    };
    let fun = format!("wheel.{}", call.fun);
    let data = FunctionCall::new(&fun, &call.jid, &call.user).ended(&lost);
    event_data::master_event(services, Tag::wheel(&call.jid, "ret"), &data)
}

fn run_with_events(
    call: &Call,
    identity: &CallIdentity,
    services: &Services,
    fire: EventSink<'_>,
) -> (Ran, Event) {
    let tag = |what| Tag::wheel(&identity.jid, what);
    let fun = format!("wheel.{}", call.fun);
    let mut data = FunctionCall::new(&fun, &identity.jid, &identity.user);
    let wheels = services.runners.wheels();
    // For an unknown function, stock fires only the last event.
    if wheels.has(&call.fun) {
        data.fun_args = Some(call.arguments.to_value());
        fire(event_data::master_event(services, tag("new"), &data));
    }
    let mut notify = |notice: Notice| match notice {
        Notice::Began => {
            data.fun_args = Some(call.arguments.to_value());
            fire(event_data::master_event(services, tag("new"), &data));
        }
        Notice::Event(tag, Value::Map(data)) => {
            fire(event_data::event(services, tag, data));
        }
        Notice::KeyGone(minion) => _ = services.minions.forget(&minion),
        // A call that is answered with its value reports no progress.
        Notice::Progress(_) | Notice::Event(..) => {}
    };
    let ran = wheels.run(call, &mut Notices::new(&mut notify));
    let end = event_data::master_event(services, tag("ret"), &data.ended(&ran));
    (ran, end)
}

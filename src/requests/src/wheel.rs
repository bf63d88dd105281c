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

use crate::event_data::{Fields, fields};
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
    Outcome::later_for(call.user.clone(), move || {
        carry_out(call, identity, &services)
    })
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
    let mut answer = fields([
        ("fun", Value::from(wheel.as_str())),
        ("jid", call.jid.as_str().into()),
        ("tag", tag.as_str().into()),
        ("user", call.user.as_str().into()),
    ]);
    let mut events = Vec::new();
    if fires_twice {
        events.push(event(services, &call.jid, "new", &answer));
    }
    let (ran, end_event) =
        run_with_events(&call, &identity, services, &mut |event| events.push(event));
    let end = fields([("return", ran.value), ("success", ran.success.into())]);
    events.push(end_event);
    answer.extend(end);
    if fires_twice {
        events.push(event(services, &call.jid, "ret", &answer));
        // Stock stamps the very mapping that it answers with.
        answer.push(("_stamp".into(), event_data::now(services).into()));
    }
    let reply = Value::map([("tag", Value::from(tag)), ("data", Value::Map(answer))]);
    Finished {
        reply: reply::clear(&reply),
        events,
    }
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
    let data = fields([
        ("fun", Value::from(format!("wheel.{}", call.fun))),
        ("jid", call.jid.as_str().into()),
        ("user", call.user.as_str().into()),
        ("return", reason.into()),
        ("success", false.into()),
        ("retcode", 1.into()),
    ]);
    event(services, &call.jid, "ret", &data)
}

fn run_with_events(
    call: &Call,
    identity: &CallIdentity,
    services: &Services,
    fire: EventSink<'_>,
) -> (Ran, Event) {
    let mut entries = fields([
        ("fun", Value::from(format!("wheel.{}", call.fun))),
        ("jid", identity.jid.as_str().into()),
        ("user", identity.user.as_str().into()),
    ]);
    let wheels = services.runners.wheels();
    // For an unknown function, stock fires only the last event.
    if wheels.has(&call.fun) {
        entries.push(("fun_args".into(), call.arguments.to_value()));
        fire(event(services, &identity.jid, "new", &entries));
    }
    let mut notify = |notice: Notice| match notice {
        Notice::Began => {
            entries.push(("fun_args".into(), call.arguments.to_value()));
            fire(event(services, &identity.jid, "new", &entries));
        }
        Notice::Event(tag, Value::Map(data)) => {
            fire(event_data::event(services, tag, data));
        }
        Notice::KeyGone(minion) => _ = services.minions.forget(&minion),
        // A call that is answered with its value reports no progress.
        Notice::Progress(_) | Notice::Event(..) => {}
    };
    let ran = wheels.run(call, &mut Notices::new(&mut notify));
    entries.push(("return".into(), ran.value.clone()));
    entries.push(("success".into(), ran.success.into()));
    if let Some(retcode) = ran.retcode {
        entries.push(("retcode".into(), retcode.into()));
    }
    let end = event(services, &identity.jid, "ret", &entries);
    (ran, end)
}

fn event(services: &Services, jid: &Jid, what: &'static str, data: &Fields) -> Event {
    event_data::event(services, Tag::wheel(jid, what), data.clone())
}

//! `runner`, clear: a function runs on the master (`ClearFuncs.runner` in `salt/master.py`,
//! `SyncClientMixin.low` in `salt/client/mixins.py`).
//!
//! The client is answered at once with the tag of the call's events: `salt/run/<jid>/new` when it
//! begins, `…/ret` when it is done. The call itself is made beside the workers, and is kept in the
//! job cache like a job of the master's own (`runner_returns`).
//!
//! `auth.mk_token` is a log-in like any other: its backend is asked on the same threads as for
//! `mk_token`, within the same bounds, and the function begins when that is done.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use saltern_model::{Event, Jid, JobRecord, MinionId, Packed, ReturnRecord, Tag};
use saltern_runners::{Call, Notice, Notices};
use saltern_wire::msgpack::{Dialect, Value, decode_wire, encode, pack};
use serde::Serialize;

use crate::audit::AuditNote;
use crate::credentials::{LoggedIn, NotProved};
use crate::event_data::Stamped;
use crate::events::FunctionCall;
use crate::handle::Handled;
use crate::master_gate::{Admitted, FunctionKind};
use crate::outcome::{EventSink, Ran, Run};
use crate::proved::{LOGINS_FULL, TOKEN_LIMITS};
use crate::{
    Effect, LogIn, LoginEnd, Outcome, ReceivedReturn, Services, credentials, event_data, mk_token,
    reply,
};

/// The function that logs a user in.
const LOG_IN: &str = "auth.mk_token";

/// The backend's verdict on the user of a call; `None` where it logs no user in.
pub(crate) type Known = Option<Result<LoggedIn, NotProved>>;

/// Answers with the tag; the call follows.
pub(crate) fn handle(
    load: &Value,
    admitted: Admitted,
    from: IpAddr,
    services: &Arc<Services>,
) -> Outcome {
    let backend = admitted.backend.clone();
    let Some(call) = admitted.call(load, services) else {
        return Outcome::reply(reply::no_answer());
    };
    let call = OwnedCall { call, backend };
    match call.call.fun.as_str() {
        LOG_IN => log_in_first(call, from, services),
        _ => begin(call, None, services),
    }
}

/// A call, with the backend that knows its user: together they own its jid (`jid_owner`).
struct OwnedCall {
    call: Call,
    backend: Option<String>,
}

/// Queues the log-in before the call, apart from the workers and the threads of functions.
fn log_in_first(owned: OwnedCall, from: IpAddr, services: &Arc<Services>) -> Outcome {
    let call = &owned.call;
    let named = call.arguments.named.iter();
    let load = named.filter(|(name, _)| !name.starts_with("__"));
    let load = Value::map(load.map(|(name, value)| (name.as_str(), value.clone())));
    let all = Value::Array(vec![
        Value::Array(call.arguments.positional.clone()),
        Value::map(call.arguments.named.iter().cloned()),
    ]);
    let packed = encode(&all, Dialect::Bin);
    if decode_wire(&packed, &TOKEN_LIMITS).is_err() {
        services.metrics.refuse("login_too_large");
        return not_asked("the load of a log-in is too large");
    }
    let user = load.get("username").and_then(Value::as_str);
    let user = user.unwrap_or_default().to_owned();
    let services = Arc::clone(services);
    let jid = call.jid.clone();
    let log_in = LogIn::new(from, &user, move || {
        let known = credentials::log_in(&load, &services.users);
        LoginEnd {
            is_refused: known.is_err(),
            handled: Handled {
                outcome: begin(owned, Some(known), &services),
                command: FunctionKind::Runner.command(),
                minion: None,
                span: None,
                audit: None,
            },
        }
    });
    Outcome {
        effects: vec![Effect::LogIn(log_in)],
        ..not_asked(LOGINS_FULL).naming(jid)
    }
}

fn not_asked(text: &str) -> Outcome {
    Outcome::reply(reply::named_error("EauthAuthenticationError", text))
}

/// The answer, while the call is made.
#[derive(Serialize)]
struct Begun<'a> {
    tag: String,
    jid: &'a Jid,
}

fn begin(owned: OwnedCall, known: Known, services: &Arc<Services>) -> Outcome {
    let call = &owned.call;
    let jid = call.jid.clone();
    let answer = Begun {
        tag: format!("salt/run/{}", call.jid),
        jid: &call.jid,
    };
    tracing::info!(jid = %call.jid, user = call.user, fun = call.fun, "running on the master");
    Outcome {
        reply: reply::clear(&answer),
        reply_if_not_stored: reply::named_error(
            "SaltClientError",
            "the master has too many calls of runner functions waiting; try again later",
        ),
        effects: vec![Effect::Run(Box::new(run(owned, known, services)))],
        later: None,
        audit: AuditNote {
            refusal: None,
            jid: Some(jid),
        },
    }
}

fn run(owned: OwnedCall, known: Known, services: &Arc<Services>) -> Run {
    let lost = lost(&owned.call, services);
    let services = Arc::clone(services);
    let is_python = services.runners.is_python(&owned.call.fun);
    let run = Run::new(lost, move |fire| {
        let caller = (&owned.call, owned.backend.as_deref());
        carry_out_of(caller, known, &services, fire, |_, _| ())
    });
    if is_python { run.in_python() } else { run }
}

/// Event for a call that never ends.
pub fn lost(call: &Call, services: &Services) -> Event {
    let reason = format!(
        "Exception occurred in runner {}: the call was lost; see the master's log",
        call.fun
    );
    let lost = saltern_runners::Ran {
        value: reason.into(),
        success: false,
        retcode: Some(1),
    };
    let fun = format!("runner.{}", call.fun);
    let data = FunctionCall::new(&fun, &call.jid, &call.user).ended(&lost);
    event_data::master_event(services, Tag::run(&call.jid, "ret"), &data)
}

/// Makes a call that was admitted and has no waiting client, and fires its events. `returned` gets
/// the outcome.
pub fn call_it(
    call: &Call,
    services: &Services,
    fire: EventSink<'_>,
    returned: impl FnOnce(&saltern_runners::Ran),
) -> Ran {
    carry_out(call, None, services, fire, |ran, _| returned(ran))
}

/// Makes the call and fires its events. Returns the value for a waiting caller, and whether there
/// is such a function at all.
pub(crate) fn carry_out(
    call: &Call,
    known: Known,
    services: &Services,
    fire: &mut dyn FnMut(Event),
    returned: impl FnOnce(&saltern_runners::Ran, bool),
) -> Ran {
    carry_out_of((call, None), known, services, fire, returned)
}

/// The same of a user whom a backend knows, if one does.
fn carry_out_of(
    (call, backend): (&Call, Option<&str>),
    known: Known,
    services: &Services,
    fire: &mut dyn FnMut(Event),
    returned: impl FnOnce(&saltern_runners::Ran, bool),
) -> Ran {
    let tag = |suffix| Tag::run(&call.jid, suffix);
    let fun = format!("runner.{}", call.fun);
    let mut data = FunctionCall::new(&fun, &call.jid, &call.user);
    let new = FunctionCall {
        fun_args: Some(call.arguments.to_value()),
        ..data.clone()
    };
    let mut has_begun = services.runners.has(&call.fun);
    // For an unknown function, stock fires only the last event.
    if has_begun {
        fire(event_data::master_event(services, tag("new"), &new));
    }
    let mut notify = |notice: Notice| match notice {
        Notice::Began => {
            has_begun = true;
            fire(event_data::master_event(services, tag("new"), &new));
        }
        Notice::Progress(Value::Map(message)) => {
            fire(event_data::event(services, tag("progress"), message));
        }
        Notice::Event(tag, Value::Map(data)) => fire(event_data::event(services, tag, data)),
        Notice::KeyGone(minion) => _ = services.minions.forget(&minion),
        // The data of an event is a mapping.
        Notice::Progress(_) | Notice::Event(..) => {}
    };
    let logs_in = known.is_some();
    let known = Cell::new(known);
    let log_in = |load: &Value| {
        let known = known.take();
        let token = known.and_then(|known| mk_token::make(load, known, services, &services.users));
        token.map_or_else(|| "".into(), |token| token.to_value().clone())
    };
    let mut notices = Notices::new(&mut notify);
    if logs_in {
        notices = notices.with_log_in(&log_in);
    }
    let ran = services.runners.run(call, &mut notices);
    returned(&ran, has_begun);
    if has_begun {
        data = new;
    }
    let data = data.ended(&ran);
    let keep = services.config.job_cache && services.site.runner_returns;
    let store = if keep {
        let retcode = ran.retcode.unwrap_or(i64::from(!ran.success));
        kept((call, backend), &data, (retcode, ran.success), services)
    } else {
        None
    };
    Ran {
        store,
        end: Some(event_data::master_event(services, tag("ret"), &data)),
    }
}

/// The load of a kept call.
#[derive(Serialize)]
struct KeptCall<'a> {
    id: &'a str,
    tgt: &'a str,
    jid: &'a Jid,
    #[serde(rename = "return")]
    value: Stamped<&'a FunctionCall<'a>>,
    fun: &'a str,
    user: &'a str,
    /// As `jid_owner::BACKEND`.
    #[serde(rename = "saltern_backend", skip_serializing_if = "Option::is_none")]
    backend: Option<&'a str>,
}

/// The call as a job of the master with one return, its own (`store_job` in `salt/utils/job.py`).
fn kept(
    (call, backend): (&Call, Option<&str>),
    data: &FunctionCall<'_>,
    (retcode, success): (i64, bool),
    services: &Services,
) -> Option<ReceivedReturn> {
    let id = services.config.id.as_str();
    let load = KeptCall {
        id,
        tgt: id,
        jid: &call.jid,
        value: Stamped {
            data,
            stamp: Some(event_data::now(services)),
        },
        fun: data.fun,
        user: &call.user,
        backend,
    };
    let load = Packed::new(pack(&load, Dialect::Bin));
    of_the_master(
        call,
        data.fun.to_owned(),
        load,
        (retcode, success),
        services,
    )
}

/// The return of a function that ran on the master, with its job, which no client awaits.
pub fn of_the_master(
    call: &Call,
    fun: String,
    load: Packed,
    (retcode, success): (i64, bool),
    services: &Services,
) -> Option<ReceivedReturn> {
    let id = services.config.id.as_str();
    let minion = MinionId::parse(id)
        .inspect_err(|error| tracing::error!(%error, jid = %call.jid, "the return of a call cannot be stored"))
        .ok()?;
    let received = services.clock.unix_micros();
    Some(ReceivedReturn {
        record: ReturnRecord {
            jid: call.jid.clone(),
            minion,
            received,
            fun: fun.clone(),
            retcode,
            success,
            load: load.clone(),
        },
        job: JobRecord {
            jid: call.jid.clone(),
            created: received,
            user: call.user.clone(),
            fun,
            tgt: id.to_owned(),
            tgt_type: "list".to_owned(),
            load,
            minions: Vec::new(),
            nocache: false,
        },
        reporter: None,
        standalone: true,
        forwarded: false,
        confirms_only: false,
        events: Vec::new(),
        keep: true,
    })
}

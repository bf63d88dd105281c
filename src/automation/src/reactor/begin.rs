//! Begins a reaction: makes a job or a call of a function of the master.
//!
//! Jobs bear the name of the master's own user, as stock's, so clients cannot distinguish them;
//! calls bear the name [`USER`]. `saltern_reactor_acl`, where set, limits reactions in both cases.

use std::sync::Arc;

use saltern_bridge::Work;
use saltern_model::{AuditDoor, AuditRecord, Event, Jid, MinionId, Tag};
use saltern_policy::acl::{Form, Verdict, Whom};
use saltern_requests::audit;
use saltern_requests::event_data;
use saltern_requests::job::{self, Refused};
use saltern_requests::{Ran, Run, Sender, Services, StartJob, runner, wheel};
use saltern_runners::{Arguments, Call};
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::USER;
use super::reaction::{Function, ReactionCall};

/// Reaction that can be carried out.
pub enum Begun {
    /// A job, to be begun like a client's.
    Job(Box<StartJob>),
    /// A job whose target matches no minion: there is nothing to do.
    Nobody,
    /// A call of a function of the master.
    Call(PendingCall),
}

/// Call that lacks only the callback for its end.
pub struct PendingCall {
    make: Box<dyn FnOnce(Settle) -> Run + Send>,
    is_python: bool,
    row: Box<AuditRecord>,
}

impl PendingCall {
    fn new(
        is_python: bool,
        row: AuditRecord,
        make: impl FnOnce(Settle) -> Run + Send + 'static,
    ) -> Self {
        Self {
            make: Box::new(make),
            is_python,
            row: Box::new(row),
        }
    }

    /// Whether Python runs it: it may take very long.
    pub fn is_python(&self) -> bool {
        self.is_python
    }

    /// The jid of the call.
    pub fn jid(&self) -> Option<&Jid> {
        self.row.jid.as_ref()
    }

    /// The call; it passes its outcome to `settle`. If it never runs, `settle` is dropped.
    pub fn run(self, settle: Settle) -> Run {
        let run = (self.make)(settle).audited(*self.row);
        match self.is_python {
            true => run.in_python(),
            false => run,
        }
    }
}

/// Callback with the outcome of a reaction.
pub type Settle = Box<dyn FnOnce(End) + Send>;

/// Outcome of a reaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It succeeded.
    Done,
    /// It failed, with the reason.
    Failed(String),
}

/// Reason why a reaction is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotBegun(String);

/// Makes a job or a call of a reaction.
///
/// # Errors
/// When the rules do not allow it, or it cannot be carried out.
pub fn begin(call: &ReactionCall, services: &Arc<Services>) -> Result<Begun, NotBegun> {
    match call {
        ReactionCall::Local(load) => job(load, services),
        ReactionCall::Runner(function) => run_runner(function, services).map(Begun::Call),
        ReactionCall::Wheel(function) => run_wheel(function, services).map(Begun::Call),
        ReactionCall::Caller(function) => run_caller(function, services).map(Begun::Call),
    }
}

fn not_begun<T>(text: impl Into<String>) -> Result<T, NotBegun> {
    Err(NotBegun(text.into()))
}

fn job(load: &Value, services: &Services) -> Result<Begun, NotBegun> {
    let load = &publishable(load, services)?;
    let start = job::of_reactor(load, services).map_err(|refused| match refused {
        Refused::NotAuthorised { .. } => NotBegun(NOT_ALLOWED.to_owned()),
        refused => NotBegun(refused.to_string()),
    })?;
    let Some(mut start) = start else {
        return Ok(Begun::Nobody);
    };
    let jid = Some(start.job.jid.clone());
    let row = audit::of_own_job(AuditDoor::Reactor, load, jid, services);
    start.audit = Some(Box::new(row));
    Ok(Begun::Job(Box::new(start)))
}

/// The row of a call in the audit trail.
fn row(cmd: &'static str, call: &Call, services: &Services) -> AuditRecord {
    let asked = (cmd, call.fun.as_str(), &call.arguments);
    let jid = Some(call.jid.clone());
    audit::of_own(AuditDoor::Reactor, asked, (&call.user, jid), services)
}

/// The row of a reaction that [`begin`] has refused.
pub fn refusal_row(call: &ReactionCall, reason: &NotBegun, services: &Services) -> AuditRecord {
    let of_call = |cmd, function: &Function| {
        let asked = (cmd, function.fun.as_str(), &function.arguments);
        audit::of_own(AuditDoor::Reactor, asked, (USER, None), services)
    };
    let row = match call {
        ReactionCall::Local(load) => audit::of_own_job(AuditDoor::Reactor, load, None, services),
        ReactionCall::Runner(function) => of_call("runner", function),
        ReactionCall::Wheel(function) => of_call("wheel", function),
        ReactionCall::Caller(function) => of_call("caller", function),
    };
    audit::refused(row, &reason.to_string())
}

const NOT_ALLOWED: &str = "saltern_reactor_acl does not allow it";

/// The load with what stock's client adds to it: the user, the site's job cache, and nodegroups
/// written out (`LocalClient._prep_pub`).
fn publishable(load: &Value, services: &Services) -> Result<Value, NotBegun> {
    let text = |name| load.get(name).and_then(Value::as_str);
    let (target, kind) = written_out(load, services)?;
    let ret = job::with_job_cache(text("ret").unwrap_or_default(), services);
    let mut entries = load.as_map().unwrap_or_default().to_vec();
    entries.retain(|(name, _)| {
        let name = name.as_str();
        name != Some("to") || services.site.order_masters
    });
    for (name, value) in &mut entries {
        match name.as_str() {
            Some("tgt") => *value = target.clone(),
            Some("tgt_type") => *value = kind.clone(),
            Some("ret") if value.as_str().is_some() => *value = ret.as_str().into(),
            _ => {}
        }
    }
    let user = services.config.user.as_str();
    entries.push(("user".into(), user.into()));
    Ok(Value::Map(entries))
}

fn written_out(load: &Value, services: &Services) -> Result<(Value, Value), NotBegun> {
    let target = load.get("tgt").unwrap_or(&Value::Nil);
    let kind = load.get("tgt_type").unwrap_or(&Value::Nil);
    let words: Vec<String> = match (kind.as_str(), target) {
        (Some("nodegroup"), Value::Str(name)) => vec![format!("N@{name}")],
        (Some("compound"), Value::Str(text)) => {
            text.split_whitespace().map(str::to_owned).collect()
        }
        (Some("compound"), Value::Array(words)) => {
            let words = words.iter().filter_map(Value::as_str);
            words.map(str::to_owned).collect()
        }
        _ => return Ok((target.clone(), kind.clone())),
    };
    match services.targeting.without_nodegroups(&words) {
        Ok(words) => Ok((words.join(" ").as_str().into(), "compound".into())),
        Err(error) => not_begun(format!("the target cannot be used: {error}")),
    }
}

/// Whether reactions may call the function.
fn allow(form: Form, call: &Call, services: &Services) -> Result<(), NotBegun> {
    let sender = Sender::of_reactor(services);
    match sender.may_call(form, &call.fun, &call.arguments, services) {
        Verdict::Allowed => Ok(()),
        Verdict::Refused => not_begun(NOT_ALLOWED),
        Verdict::NoFunction => not_begun(format!("\"{}\" is no name of a function", call.fun)),
    }
}

/// The call. In the old form it gets those of the compiler's words that the function has parameters
/// for, and required parameters are given by position, as stock's `format_call` does.
fn call(function: &Function, parameters: &[(&str, bool)], services: &Services) -> Call {
    let mut arguments = function.arguments.clone();
    let is_parameter = |name: &str| parameters.iter().any(|(known, _)| *known == name);
    let taken = function.if_taken.iter();
    let taken = taken.filter(|(name, _)| is_parameter(name));
    arguments.named.extend(taken.cloned());
    if function.is_flat && arguments.positional.is_empty() {
        for (name, _) in parameters.iter().take_while(|(_, is_needed)| *is_needed) {
            let at = arguments.named.iter().position(|(known, _)| known == name);
            let Some(at) = at else {
                break;
            };
            let (_, value) = arguments.named.remove(at);
            arguments.positional.push(value);
        }
    }
    Call {
        jid: services.minter.mint(),
        fun: function.fun.clone(),
        arguments,
        user: USER.to_owned(),
    }
}

const NOT_AVAILABLE: &str = "there is no such function";

fn run_runner(function: &Function, services: &Arc<Services>) -> Result<PendingCall, NotBegun> {
    let runners = &services.runners;
    let is_python = runners.is_python(&function.fun);
    let parameters = runners.parameters(&function.fun);
    if function.is_flat && parameters.is_none() && !is_python {
        return not_begun(NOT_AVAILABLE);
    }
    let call = call(function, &parameters.unwrap_or_default(), services);
    allow(Form::Runner, &call, services)?;
    if let Some(problem) = runners.problem(&call).filter(|_| function.is_flat) {
        return not_begun(problem);
    }
    let row = row("runner", &call, services);
    let services = Arc::clone(services);
    Ok(PendingCall::new(is_python, row, move |settle| {
        let lost = runner::lost(&call, &services);
        Run::new(lost, move |fire| {
            let mut end = End::Done;
            let ran = runner::call_it(&call, &services, fire, |ran| end = end_of(ran));
            settle(end);
            ran
        })
    }))
}

fn run_wheel(function: &Function, services: &Arc<Services>) -> Result<PendingCall, NotBegun> {
    let wheels = services.runners.wheels();
    let is_python = wheels.is_python(&function.fun);
    let parameters = wheels.parameters(&function.fun);
    if function.is_flat && parameters.is_none() && !is_python {
        return not_begun(NOT_AVAILABLE);
    }
    let call = call(function, &parameters.unwrap_or_default(), services);
    allow(Form::Wheel, &call, services)?;
    if let Some(problem) = wheels.problem(&call).filter(|_| function.is_flat) {
        return not_begun(problem);
    }
    let row = row("wheel", &call, services);
    let services = Arc::clone(services);
    Ok(PendingCall::new(is_python, row, move |settle| {
        let lost = wheel::lost(&call, &services);
        Run::new(lost, move |fire| {
            let (ran, end) = wheel::call_it(&call, &services, fire);
            settle(end_of(&ran));
            Ran {
                store: None,
                end: Some(end),
            }
        })
    }))
}

/// A function of a minion runs where stock runs it: in Python, by a minion made of the master's own
/// configuration (`salt.client.Caller`).
fn run_caller(function: &Function, services: &Arc<Services>) -> Result<PendingCall, NotBegun> {
    let call = call(function, &[], services);
    let sender = Sender::of_reactor(services);
    let own = MinionId::parse(&services.config.id);
    let own: Vec<MinionId> = own.into_iter().collect();
    let functions = [call.fun.clone()];
    let load = Value::map([
        ("fun", Value::from(call.fun.as_str())),
        ("arg", as_list(&call.arguments)),
    ]);
    if !sender.may_publish(&load, &functions, Whom::These(&own), services) {
        return not_begun(NOT_ALLOWED);
    }
    let row = row("caller", &call, services);
    let services = Arc::clone(services);
    Ok(PendingCall::new(true, row, move |settle| {
        Run::new(lost_caller(&call, &services), move |_| {
            settle(caller(&call, &services));
            Ran {
                store: None,
                end: None,
            }
        })
    }))
}

fn as_list(arguments: &Arguments) -> Value {
    let mut list = arguments.positional.clone();
    if !arguments.named.is_empty() {
        let named = arguments.named.iter().cloned();
        let marked = [("__kwarg__".to_owned(), Value::from(true))];
        list.push(Value::map(marked.into_iter().chain(named)));
    }
    Value::Array(list)
}

fn caller(call: &Call, services: &Services) -> End {
    let asked = saltern_bridge::Call {
        fun: call.fun.clone(),
        positional: call.arguments.positional.clone(),
        named: call.arguments.named.clone(),
        jid: call.jid.to_string(),
        tag: String::new(),
        user: call.user.clone(),
    };
    let patience = services.config.python_bridge.timeout;
    match services.bridge.call(&Work::Caller(&asked), patience) {
        Ok(_) => End::Done,
        Err(error) => End::Failed(error.to_string()),
    }
}

/// Data of `saltern/reactor/lost`: a call of a Python function never ends.
#[derive(Serialize)]
struct LostCall<'a> {
    fun: &'a str,
    user: &'a str,
}

/// Event for such a call that never ends.
fn lost_caller(call: &Call, services: &Services) -> Event {
    let data = LostCall {
        fun: &call.fun,
        user: USER,
    };
    event_data::master_event(services, Tag::reactor("lost"), &data)
}

fn end_of(ran: &saltern_runners::Ran) -> End {
    /// The most characters of a reason that are kept.
    const MAX_REASON_CHARS: usize = 1_000;
    if ran.success {
        return End::Done;
    }
    let shown = saltern_python::str(&ran.value);
    End::Failed(shown.chars().take(MAX_REASON_CHARS).collect())
}

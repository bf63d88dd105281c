//! `reactor.*`: reads and changes the rules of the reactor (`salt/runners/reactor.py`).
//!
//! Stock's functions ask the reactor by an event that carries the master's key, readable by every
//! subscriber, and wait for its answer on the bus. Here they ask it directly and fire the answer
//! alone.

use saltern_model::Tag;
use saltern_model::query::{DeadLettersPage, ReactorReport};
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::{Needed, Optional};

/// The reactor of the master.
pub trait Reactor: Send + Sync {
    /// Its rules, as they are written in the option `reactor`.
    fn list(&self) -> Value;
    /// Adds a rule: `{status, comment}`.
    fn add(&self, tags: &str, references: &Value) -> Value;
    /// Removes a rule: `{status, comment}`.
    fn delete(&self, tags: &str) -> Value;
    /// Whether events lead to reactions.
    fn is_leader(&self) -> bool;
    /// Sets whether events lead to reactions.
    fn set_leader(&self, is_leader: bool);
    /// The rules with what they did.
    fn report(&self) -> ReactorReport;
    /// Dead letters older than one, newest first.
    fn dead_letters(&self, before: Option<&str>, limit: usize) -> DeadLettersPage;
    /// Replays a dead letter. Blocks until it was begun, for seconds at most.
    ///
    /// # Errors
    /// When it is not begun.
    fn replay(&self, letter: &str) -> Result<(), NotReplayed>;
}

/// Why a dead letter is not replayed.
#[derive(Debug, thiserror::Error)]
pub enum NotReplayed {
    /// The reactor cannot replay it.
    #[error("{0}")]
    Refused(String),
    /// It waits behind other events, and may be begun later.
    #[error("it waits behind other events, and is replayed after them")]
    Waits,
}

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    function(
        "add",
        &[
            Needed("event"),
            Needed("reactors"),
            Optional("saltenv"),
            Optional("test"),
        ],
        add,
    ),
    function(
        "delete",
        &[Needed("event"), Optional("saltenv"), Optional("test")],
        delete,
    ),
    function("is_leader", &[], is_leader),
    function("list", &[Optional("saltenv"), Optional("test")], list),
    function("set_leader", &[Optional("value")], set_leader),
];

fn reactor(context: &RunnerContext) -> Result<&dyn Reactor, RunnerError> {
    context
        .reactor
        .as_deref()
        .ok_or_else(|| RunnerError::Refused("Reactor system is not running.".to_owned()))
}

fn fire(notices: &mut Notices<'_>, what: &str, data: Value) {
    if let Ok(tag) = Tag::parse(&format!("salt/reactors/manage/{what}")) {
        notices.fire(tag, data);
    }
}

fn list(context: &RunnerContext, _: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    let rules = reactor(context)?.list();
    fire(
        notices,
        "list-results",
        Value::map([("reactors", rules.clone())]),
    );
    Ok(rules)
}

fn add(context: &RunnerContext, bound: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    let reactor = reactor(context)?;
    let tags = bound.text("event")?.unwrap_or_default();
    let references = match bound.get("reactors") {
        Some(Value::Str(one)) => Value::Array(vec![one.as_str().into()]),
        Some(list) => list.clone(),
        None => Value::Nil,
    };
    let result = reactor.add(&tags, &references);
    let data = [("reactors", reactor.list()), ("result", result.clone())];
    fire(notices, "add-complete", Value::map(data));
    Ok(result)
}

fn delete(context: &RunnerContext, bound: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    let reactor = reactor(context)?;
    let result = reactor.delete(&bound.text("event")?.unwrap_or_default());
    let data = [("reactors", reactor.list()), ("result", result.clone())];
    fire(notices, "delete-complete", Value::map(data));
    Ok(result)
}

fn is_leader(context: &RunnerContext, _: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    let leads = Value::from(reactor(context)?.is_leader());
    fire(
        notices,
        "leader/value",
        Value::map([("result", leads.clone())]),
    );
    Ok(leads)
}

fn set_leader(context: &RunnerContext, bound: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    reactor(context)?.set_leader(bound.flag("value", true));
    is_leader(context, bound, notices)
}

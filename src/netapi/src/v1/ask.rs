//! Asks the master: commands of the request port with the caller's token, and what a refusal means.

use std::sync::Arc;

use saltern_wire::msgpack::{Dialect, Limits, Value, decode_wire, from_slice, pack};
use serde::de::DeserializeOwned;

use super::Backend;
use super::caller::Caller;
use super::problem::Problem;

/// Arguments by name; those without a value are left out.
pub type Arguments = Vec<(&'static str, Option<Value>)>;

fn map(entries: Vec<(&'static str, Value)>) -> Value {
    Value::map(entries)
}

/// Sends a clear load and gives the reply, unless that is an error.
async fn send(backend: &Arc<dyn Backend>, caller: &Caller, load: Value) -> Result<Value, Problem> {
    let envelope = map(vec![
        ("enc", "clear".into()),
        ("load", load),
        ("version", 3_i64.into()),
    ]);
    let request = pack(&envelope, Dialect::Raw).into();
    let no_room = || Problem::busy("the master is too busy to handle the request");
    let reply = backend
        .ask(request, &caller.token, caller.from)
        .await
        .ok_or_else(no_room)?;
    let reply = decode_wire(&reply, &Limits::WIRE)
        .map_err(|_| Problem::failed("the master's reply cannot be read"))?;
    match reply.get("error") {
        Some(error) => Err(refused(error)),
        // The master's text for a request that it had no room for.
        None if reply.as_map().is_none() => Err(no_room()),
        None => Ok(reply),
    }
}

/// The problem that stands for an error of the master.
fn refused(error: &Value) -> Problem {
    let part = |name: &str| error.get(name).and_then(Value::as_str);
    let message = part("message")
        .or_else(|| error.as_str())
        .unwrap_or_default();
    match part("name").unwrap_or_default() {
        // In stock's words, which tell the two apart: whoever is proved is named.
        "TokenAuthenticationError" if message.contains(" for user ") => Problem::forbidden(),
        "AuthorizationError" => Problem::forbidden(),
        name if name.ends_with("AuthenticationError") => Problem::unauthenticated(),
        "SaltInvocationError" => Problem::invalid(part("argument"), message),
        "NotFoundError" => Problem::not_found(message),
        "SaltReqTimeoutError" | "SaltClientError" => Problem::busy(message),
        "ConflictError" | "" => Problem::conflict(message),
        _ => Problem::failed(message),
    }
}

/// Asks a query (`saltern_query`) for its page.
///
/// # Errors
/// What the master refuses, or cannot do now.
pub async fn query<T: DeserializeOwned>(
    backend: &Arc<dyn Backend>,
    caller: &Caller,
    fun: &'static str,
    arguments: Arguments,
) -> Result<T, Problem> {
    let arguments = arguments.into_iter();
    let arguments = arguments.filter_map(|(name, value)| Some((name, value?)));
    let load = map(vec![
        ("cmd", "saltern_query".into()),
        ("fun", fun.into()),
        ("kwarg", map(arguments.collect())),
        ("token", caller.token.as_str().into()),
    ]);
    let reply = send(backend, caller, load).await?;
    let unreadable = || Problem::failed("the master's page cannot be read");
    let page = reply.get("return").ok_or_else(unreadable)?;
    from_slice(&pack(page, Dialect::Bin), &Limits::WIRE).map_err(|_| unreadable())
}

/// Calls a wheel function, and gives what it returns.
///
/// # Errors
/// What the master refuses, or cannot do now.
pub async fn wheel(
    backend: &Arc<dyn Backend>,
    caller: &Caller,
    fun: &'static str,
    arguments: Vec<(&'static str, Value)>,
) -> Result<Value, Problem> {
    let mut load = vec![
        ("cmd", Value::from("wheel")),
        ("fun", fun.into()),
        ("token", caller.token.as_str().into()),
    ];
    load.extend(arguments);
    let reply = send(backend, caller, map(load)).await?;
    let data = reply.get("data");
    let part = |name: &str| data.and_then(|data| data.get(name));
    match part("success").and_then(Value::as_bool) {
        Some(true) => Ok(part("return").cloned().unwrap_or(Value::Nil)),
        _ => {
            let text = part("return").and_then(Value::as_str);
            Err(Problem::failed(text.unwrap_or("the function failed")))
        }
    }
}

/// Begins a function of the master; gives the reply, which names its jid.
///
/// # Errors
/// What the master refuses, or cannot do now.
pub async fn runner(
    backend: &Arc<dyn Backend>,
    caller: &Caller,
    fun: &'static str,
    arguments: Vec<(&'static str, Value)>,
) -> Result<Value, Problem> {
    let load = vec![
        ("cmd", Value::from("runner")),
        ("fun", fun.into()),
        ("kwarg", map(arguments)),
        ("token", caller.token.as_str().into()),
    ];
    send(backend, caller, map(load)).await
}

/// Publishes a job, as a batch when it has an entry `batch`; gives the load of the reply.
///
/// # Errors
/// What the master refuses, or cannot do now; also when no minion matches.
pub async fn publish(
    backend: &Arc<dyn Backend>,
    caller: &Caller,
    job: Vec<(&'static str, Value)>,
) -> Result<Value, Problem> {
    let is_batch = job.iter().any(|(name, _)| *name == "batch");
    let command = if is_batch { "saltern_batch" } else { "publish" };
    let mut load = vec![
        ("cmd", Value::from(command)),
        ("ret", "".into()),
        ("jid", "".into()),
        // The gate puts the proved name in its place, and refuses a load without this entry.
        ("user", "api".into()),
        ("kwargs", map(vec![("token", caller.token.as_str().into())])),
    ];
    load.extend(job);
    let reply = send(backend, caller, map(load)).await?;
    // Where nobody matches, the reply has a jid that is none.
    let has_jid = |load: &&Value| {
        let jid = load.get("jid").and_then(Value::as_str);
        jid.is_some_and(|jid| !jid.is_empty())
    };
    let published = reply.get("load").filter(has_jid);
    published.cloned().ok_or_else(|| {
        let error = reply.get("load").and_then(|load| load.get("error"));
        let text = error.and_then(Value::as_str);
        Problem::conflict(text.unwrap_or("no minion matches the target; nothing was sent"))
    })
}

//! `batches.page`, `.status`, `.pause`, `.resume` and `.stop`: the functions of the runner `batch`,
//! answered in the reply. The last three are no queries; they wait until the change is stored.

use bytes::Bytes;
use saltern_model::Jid;
use saltern_runners::{Arguments, Call, Notices};
use saltern_wire::msgpack::{Limits, RawValue, Value};

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::credentials::Sender;
use crate::{BatchPlan, Services};

pub(super) fn page(_: &QueryArguments<'_>, services: &Services) -> Result<Bytes, QueryError> {
    Ok(answer(&run("batch.list_active", Vec::new(), services)?))
}

pub(super) fn status(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let jid = arguments.needed("jid", Jid::parse)?;
    let named = vec![("jid".to_owned(), jid.as_str().into())];
    match run("batch.status", named, services)? {
        Value::Nil => Err(QueryError::NoJob(jid.to_string())),
        status => Ok(answer(&status)),
    }
}

pub(super) fn stop(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let kill = arguments.flag("kill")?.unwrap_or_default();
    change(
        "batch.stop",
        vec![("kill".to_owned(), kill.into())],
        arguments,
        services,
    )
}

pub(super) fn pause(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    change("batch.pause", Vec::new(), arguments, services)
}

pub(super) fn resume(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    change("batch.resume", Vec::new(), arguments, services)
}

/// Whether a load names a batch that its sender began.
pub(super) fn is_own(sender: &Sender, load: &Value, services: &Services) -> bool {
    let jid = load.get("kwarg").and_then(|kwarg| kwarg.get("jid"));
    let Some(Ok(jid)) = jid.and_then(Value::as_str).map(Jid::parse) else {
        return false;
    };
    let stored = match services.runners.jobs().batch(&jid) {
        Ok(stored) => stored,
        Err(error) => {
            tracing::error!(%jid, %error, "a batch cannot be looked up");
            return false;
        }
    };
    let plan = stored.and_then(|stored| {
        let state = RawValue::parse(stored.plan.bytes().clone(), &Limits::WIRE).ok()?;
        Some(BatchPlan::from_state(&state).ok()?.0)
    });
    plan.is_some_and(|plan| sender.began(&plan))
}

fn change(
    fun: &'static str,
    mut named: Vec<(String, Value)>,
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let jid = arguments.needed("jid", Jid::parse)?;
    named.push(("jid".to_owned(), jid.as_str().into()));
    tracing::info!(%jid, fun, "a user changes a batch");
    Ok(answer(&run(fun, named, services)?))
}

fn run(fun: &str, named: Vec<(String, Value)>, services: &Services) -> Result<Value, QueryError> {
    let call = Call {
        jid: services.minter.mint(),
        fun: fun.to_owned(),
        arguments: Arguments {
            positional: Vec::new(),
            named,
        },
        user: String::new(),
    };
    let ran = services.runners.run(&call, &mut Notices::new(&mut |_| {}));
    match ran.success {
        true => Ok(ran.value),
        false => Err(QueryError::NotYet(
            saltern_python::str(&ran.value).into_owned(),
        )),
    }
}

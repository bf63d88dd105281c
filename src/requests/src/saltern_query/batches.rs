//! `batches.page`, `batches.status` and `batches.stop`: the functions of the runner `batch`, answered
//! in the reply. The last one is no query; it waits until the end of the batch is stored.

use bytes::Bytes;
use saltern_model::Jid;
use saltern_runners::{Arguments, Call, Notices};
use saltern_wire::msgpack::Value;

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::Services;

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
    let jid = arguments.needed("jid", Jid::parse)?;
    let kill = arguments.flag("kill")?.unwrap_or_default();
    let named = vec![
        ("jid".to_owned(), jid.as_str().into()),
        ("kill".to_owned(), kill.into()),
    ];
    tracing::info!(%jid, kill, "a user stops a batch");
    Ok(answer(&run("batch.stop", named, services)?))
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

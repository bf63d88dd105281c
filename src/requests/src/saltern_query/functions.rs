//! `calls.running`: functions of the master that run; `functions.names` and `functions.doc`: functions of
//! minions that were called before, as shells complete them, and what minions returned about one.

use bytes::Bytes;
use saltern_model::Jid;
use saltern_model::query::MAX_ROWS;
use saltern_python::expression::Pattern;
use saltern_store::StoreError;
use saltern_store::jobs::{JobQueries, JobSearch};
use saltern_wire::msgpack::{Limits, MapView, Value, decode_exact};

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::Services;

/// The function of minions whose returns are documentation.
const DOCUMENTATION: &str = "sys.doc";

/// Jobs of it, and returns of each, that are looked through.
const MAX_JOBS: usize = 20;
const MAX_RETURNS: usize = 3;

/// Bytes of the returns of one of them.
const MAX_BYTES: usize = 4 << 20;

pub(super) fn running(_: &QueryArguments<'_>, services: &Services) -> Result<Bytes, QueryError> {
    Ok(answer(&services.runners.running_calls().all()))
}

/// The names that begin with `prefix`, sorted.
pub(super) fn names(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let prefix = arguments.text("prefix")?.unwrap_or_default();
    let jobs = services.runners.jobs();
    let mut names = jobs.functions(prefix, MAX_ROWS)?;
    // Functions of the master are kept with their kind, and several of one job with commas.
    names.retain(|name| {
        !name.starts_with("runner.") && !name.starts_with("wheel.") && !name.contains(',')
    });
    names.truncate(arguments.rows()?);
    Ok(answer(&names))
}

/// The documentation that the latest kept return of `sys.doc` has of a function; null without one.
pub(super) fn doc(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let name = arguments.text("function")?;
    let name = name.ok_or_else(|| QueryError::argument("function", "is missing"))?;
    Ok(answer(&documentation(services.runners.jobs(), name)?))
}

fn documentation(jobs: &dyn JobQueries, name: &str) -> Result<Option<String>, StoreError> {
    let Ok(function) = Pattern::glob(DOCUMENTATION) else {
        return Ok(None);
    };
    let found = jobs.search_jobs(&JobSearch {
        function: Some(&function),
        limit: MAX_JOBS,
        ..JobSearch::default()
    })?;
    for job in found.jobs {
        if let Some(text) = documented(jobs, &job.jid, name)? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

fn documented(jobs: &dyn JobQueries, jid: &Jid, name: &str) -> Result<Option<String>, StoreError> {
    let page = jobs.returns_page(jid, None, MAX_RETURNS, MAX_BYTES)?;
    let mut returns = page.returns.into_iter();
    Ok(returns.find_map(|record| {
        let load = MapView::parse(record.load.bytes().clone(), &Limits::WIRE).ok()?;
        let value: Value = decode_exact(load.get("return")?.bytes(), &Limits::WIRE).ok()?;
        value.get(name)?.as_str().map(str::to_owned)
    }))
}

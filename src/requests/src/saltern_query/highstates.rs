//! `highstates.groups`, `highstates.page`: the last highstate of each accepted minion.

use bytes::Bytes;
use saltern_model::MinionId;
use saltern_model::query::MAX_ROWS;

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::Services;
use crate::highstates::{Highstates, Wanted};

/// The parameters.
pub(super) const PAGE: &[&str] = &["verdict", "group", "minions", "after", "limit"];

/// Steps in which a query reads returns that came since maintenance did.
const STEPS: usize = 4;

pub(super) fn groups(_: &QueryArguments<'_>, services: &Services) -> Result<Bytes, QueryError> {
    let accepted = services.keys.pki.accepted()?;
    let behind = catch_up(services)?;
    let groups = services.jobs.highstates.groups(accepted.sorted(), behind);
    Ok(answer(&groups))
}

pub(super) fn page(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let wanted = Wanted {
        verdict: arguments.one_of("verdict", &Highstates::verdicts())?,
        group: arguments.text("group")?,
        after: arguments.text("after")?,
        limit: arguments.rows()?,
    };
    let accepted = services.keys.pki.accepted()?;
    let named = arguments.texts("minions")?;
    let named = named.iter().filter_map(|name| MinionId::parse(name).ok());
    let mut named: Vec<MinionId> = named.take(MAX_ROWS).collect();
    named.sort_unstable();
    let minions = match named.is_empty() {
        true => accepted.sorted(),
        false => &named,
    };
    catch_up(services)?;
    Ok(answer(&services.jobs.highstates.page(minions, &wanted)))
}

fn catch_up(services: &Services) -> Result<u64, QueryError> {
    let jobs = &services.jobs;
    let left = jobs.highstates.catch_up(&*jobs.reader, STEPS)?;
    Ok(left.unwrap_or_default())
}

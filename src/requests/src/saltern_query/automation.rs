//! `reactor.report`, `reactor.letters`, `reactor.replay` and `schedule.report`. The third is no query: it
//! waits until the reaction was begun.

use bytes::Bytes;
use saltern_runners::{NoAnswer, NotReplayed};

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::Services;

/// Answers null where no reactor is configured.
pub(super) fn reactor(_: &QueryArguments<'_>, services: &Services) -> Result<Bytes, QueryError> {
    let reactor = services.runners.reactor();
    Ok(answer(&reactor.map(saltern_runners::Reactor::report)))
}

pub(super) fn letters(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let (before, rows) = (arguments.text("before")?, arguments.rows()?);
    let reactor = services.runners.reactor();
    let page = reactor.map(|reactor| reactor.dead_letters(before, rows));
    Ok(answer(&page.unwrap_or_default()))
}

pub(super) fn replay(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let letter = arguments.text("letter")?;
    let letter = letter.ok_or_else(|| QueryError::argument("letter", "is missing"))?;
    let none = || QueryError::Refused("this master has no reactor".to_owned());
    let reactor = services.runners.reactor().ok_or_else(none)?;
    tracing::info!(letter, "a user replays a dead letter");
    match reactor.replay(letter) {
        Ok(()) => Ok(answer(&true)),
        Err(NotReplayed::Refused(reason)) => Err(QueryError::Refused(reason)),
        Err(waits @ NotReplayed::Waits) => Err(QueryError::Refused(waits.to_string())),
    }
}

pub(super) fn schedule(_: &QueryArguments<'_>, services: &Services) -> Result<Bytes, QueryError> {
    let live = services.runners.live().ok_or(NoAnswer)?;
    Ok(answer(&live.schedule()))
}

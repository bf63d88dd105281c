//! `saltern.health` and `saltern.version`.

use bytes::Bytes;
use saltern_model::query::Versions;
use saltern_runners::NoAnswer;

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::Services;

pub(super) fn health(_: &QueryArguments<'_>, services: &Services) -> Result<Bytes, QueryError> {
    let live = services.runners.live().ok_or(NoAnswer)?;
    Ok(answer(&live.health()))
}

pub(super) fn version(_: &QueryArguments<'_>, services: &Services) -> Result<Bytes, QueryError> {
    Ok(answer(&Versions {
        saltern: env!("CARGO_PKG_VERSION").to_owned(),
        salt: services.config.salt_compat.release().to_owned(),
    }))
}

//! `minions.page`: accepted minions with presence and some cached grains. `minions.grains`,
//! `minions.pillar`, `minions.mine`: what the master has cached of one.

use std::time::Duration;

use bytes::Bytes;
use saltern_model::MinionId;
use saltern_model::query::{LastJobRow, MAX_ROWS, MinionsPage};
use saltern_wire::msgpack::Value;

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::{MasterFleet, Services};

/// After a start the cached data of all minions is read; who asks for grains waits for it so long.
const INDEX_TIME: Duration = Duration::from_secs(8);

/// All cached grains of one minion.
pub(super) fn grains(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let minion = arguments.needed("minion", MinionId::parse)?;
    let grains = services.minions.data.grains(&minion)?;
    Ok(answer(grains.as_deref().unwrap_or(&Value::Nil)))
}

/// The cached pillar of one minion.
pub(super) fn pillar(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let minion = arguments.needed("minion", MinionId::parse)?;
    let pillar = services.minions.data.pillar(&minion)?;
    Ok(answer(pillar.as_deref().unwrap_or(&Value::Nil)))
}

/// The last jobs of some minions, as far as their returns are among the newest of all.
pub(super) fn last_jobs(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let names = arguments.texts("minions")?;
    if names.len() > MAX_ROWS {
        return Err(QueryError::argument(
            "minions",
            "names more minions than a page has",
        ));
    }
    let ids = names.iter().filter_map(|name| MinionId::parse(name).ok());
    let ids: Vec<MinionId> = ids.collect();
    let jobs = &services.jobs;
    let last = jobs.last_returns.of(&*jobs.reader, &ids)?;
    let rows = ids.into_iter().zip(last).filter_map(|(minion, last)| {
        let last = last?;
        Some(LastJobRow {
            minion,
            jid: last.jid.to_string(),
            function: last.fun.to_string(),
            received: last.received,
            retcode: last.retcode,
        })
    });
    Ok(answer(&rows.collect::<Vec<_>>()))
}

/// The mine of one minion: functions with their results.
pub(super) fn mine(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let minion = arguments.needed("minion", MinionId::parse)?;
    let mine = services.minions.data.mine(&minion)?;
    Ok(answer(mine.as_deref().unwrap_or(&Value::Nil)))
}

pub(super) fn page(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let target = arguments.text("target")?;
    let minion = arguments.parsed("minion", MinionId::parse)?;
    let present = arguments.flag("present")?;
    let grains = arguments.texts("grains")?;
    let after = arguments.text("after")?;
    let limit = arguments.rows()?;
    let fleet = MasterFleet::of_services(services);
    if target.is_some() || !grains.is_empty() {
        let waited = fleet.wait_for_index(INDEX_TIME);
        waited.map_err(|being| QueryError::NotYet(being.to_string()))?;
    }
    let mut minions = match &minion {
        Some(minion) => fleet.accepted_one(minion)?,
        None => {
            let target = target.unwrap_or("*");
            let refused = |error| QueryError::of_target(error, target);
            fleet.resolve(target).map_err(refused)?
        }
    };
    let total = minions.len();
    let start = after.map_or(0, |after| {
        minions.partition_point(|id| id.as_str() <= after)
    });
    minions.drain(..start);
    if let Some(present) = present {
        minions.retain(|id| fleet.is_present(id) == present);
    }
    let has_more = minions.len() > limit;
    minions.truncate(limit);
    let last = minions.last().map(MinionId::to_string);
    let rows = fleet.rows(minions, &grains);
    Ok(answer(&MinionsPage {
        next: last.filter(|_| has_more),
        minions: rows.map_err(QueryError::of_inventory)?,
        total,
    }))
}

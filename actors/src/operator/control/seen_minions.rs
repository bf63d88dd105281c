//! Accepted minions and their state, for local programs such as `saltern top`.

use saltern_model::control::SeenMinion;
use saltern_model::{Target, TargetType};
use saltern_requests::MasterFleet;
use saltern_runners::Fleet as _;

use super::Refusal;

/// The minions with an accepted key, sorted by id.
pub(super) fn seen(fleet: &MasterFleet) -> Result<Vec<SeenMinion>, Refusal> {
    let everybody = Target::Expression(TargetType::Glob, "*".to_owned());
    let ids = fleet.matching(&everybody).map_err(Refusal::of)?;
    Ok(ids.into_iter().map(|id| fleet.seen(id)).collect())
}

//! Accepted minions and their state, for local programs such as `saltern top`.

use saltern_model::control::SeenMinion;
use saltern_model::{MinionId, Target, TargetType};
use saltern_runners::Fleet;

use super::Refusal;

/// The minions with an accepted key, sorted by id.
pub(super) fn seen(fleet: &dyn Fleet) -> Result<Vec<SeenMinion>, Refusal> {
    let everybody = Target::Expression(TargetType::Glob, "*".to_owned());
    let ids = fleet.matching(&everybody).map_err(Refusal::of)?;
    let ids = ids.into_iter();
    Ok(ids.map(|id| seen_minion(fleet, id)).collect())
}

fn seen_minion(fleet: &dyn Fleet, id: MinionId) -> SeenMinion {
    let standing = fleet.standing(&id);
    SeenMinion {
        is_present: standing.is_present(),
        last_heard: fleet.last_heard(&id),
        address: fleet.address(&id),
        standing: standing.to_string(),
        id,
    }
}

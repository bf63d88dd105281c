//! Incremental integrity check of the job database: a slice in each round; damage is reported
//! until a whole pass has found none.

use saltern_store::jobs::{Scrub, ScrubSlice};
use saltern_store::sqlite::Scrubber;

use crate::upkeep::maintenance_tasks::TaskError;

/// Size of a slice: a tenth of a second of a slow disk.
const SLICE: ScrubSlice = ScrubSlice {
    rows: 20_000,
    bytes: 16 << 20,
};

/// State of the integrity check.
#[derive(Default)]
pub(super) struct DatabaseCheck {
    scrub: Scrub,
    /// Damage found in this pass.
    met: Option<TaskError>,
    /// Damage found in the last whole pass.
    before: Option<TaskError>,
}

impl DatabaseCheck {
    /// Checks the next slice.
    pub(super) fn look(&mut self, jobs: &Scrubber) -> Result<(), TaskError> {
        match jobs.scrub(&mut self.scrub, SLICE) {
            Ok(true) => self.before = self.met.take(),
            Ok(false) => {}
            Err(error) => self.met = Some(TaskError::of(error)),
        }
        let known = self.met.as_ref().or(self.before.as_ref());
        known.map_or(Ok(()), |damage| Err(damage.clone()))
    }
}

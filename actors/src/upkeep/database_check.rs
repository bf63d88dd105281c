//! Reads a slice of the job database in each round, and remembers the damage that it met until a
//! whole reading has met none.

use saltern_base::chain;
use saltern_store::jobs::{JobReader, Scrub, ScrubSlice};

/// What one round reads: a tenth of a second of a slow disk.
const SLICE: ScrubSlice = ScrubSlice {
    rows: 20_000,
    bytes: 16 << 20,
};

/// See the module.
#[derive(Default)]
pub(super) struct DatabaseCheck {
    scrub: Scrub,
    /// What this reading has met so far.
    met: Option<String>,
    /// What the last whole reading had met.
    before: Option<String>,
}

impl DatabaseCheck {
    /// Reads the next slice.
    pub(super) fn look(&mut self, jobs: &JobReader) -> Result<(), String> {
        match jobs.scrub(&mut self.scrub, SLICE) {
            Ok(true) => self.before = self.met.take(),
            Ok(false) => {}
            Err(error) => self.met = Some(chain(&error)),
        }
        let known = self.met.as_ref().or(self.before.as_ref());
        known.map_or(Ok(()), |damage| Err(damage.clone()))
    }
}

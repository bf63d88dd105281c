//! Changes of the cached data of minions: what the store reports and the index of targets follows.

use crate::MinionId;

/// Changes since an earlier generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataChanges {
    /// The present generation. It never returns to a number that it had.
    pub generation: u64,
    /// The minions.
    pub changed: Changed,
}

/// Minions whose data have changed, or that came, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// These; it may also be that some of them have not.
    These(Vec<MinionId>),
    /// Possibly all: the earlier generation is too old, or there is none.
    Everything,
}

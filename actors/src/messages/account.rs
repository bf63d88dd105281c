//! Account of an open job, as the tracker gives it.

use std::time::Duration;

use saltern_model::MinionId;
use serde::{Deserialize, Serialize};

/// A minion that has not returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Which.
    pub minion: MinionId,
    /// Its state in one word, as on the bus: `expected`, `delivered`, `running`, `unreachable` or
    /// `unknown`.
    pub state: String,
    /// The evidence for it, for people.
    pub why: String,
}

/// Account of an open job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Rounds of probes so far.
    pub rounds: u32,
    /// Time until the next look at the job, if one is scheduled.
    pub next_look: Option<Duration>,
    /// Minions that have not returned.
    pub missing: Vec<Missing>,
}

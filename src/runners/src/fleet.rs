//! Interface to what the master knows of its minions; the implementation lives above this crate.

use std::net::IpAddr;

use saltern_model::{MinionId, Standing, Target};
use saltern_store::StoreError;

/// The minions with an accepted key.
pub trait Fleet: Send + Sync {
    /// The minions that the target matches, sorted.
    ///
    /// # Errors
    /// When the accepted keys cannot be listed. An unusable target matches no minion.
    fn matching(&self, target: &Target) -> Result<Vec<MinionId>, StoreError>;

    /// The minions below syndics that the target matches, as far as these announce them.
    ///
    /// # Errors
    /// When the accepted keys cannot be listed.
    fn matching_below(&self, target: &Target) -> Result<Vec<MinionId>, StoreError> {
        let _ = target;
        Ok(Vec::new())
    }

    /// Presence of a minion.
    fn standing(&self, minion: &MinionId) -> Standing;

    /// When it was last heard, in microseconds since 1970.
    fn last_heard(&self, minion: &MinionId) -> Option<i64>;

    /// Address of its connection, or of its last request.
    fn address(&self, minion: &MinionId) -> Option<IpAddr>;

    /// The version of Salt that it runs, as far as it has said so.
    fn version(&self, minion: &MinionId) -> Option<String>;
}

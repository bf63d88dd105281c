//! Planted bugs: mutations of our own code that the simulation of a whole master has to find.
//!
//! Each stands at the place that it breaks. Only builds with the feature `fault-injection` have them,
//! and there only a thread that simulates a master which was asked for one.

/// A mutation of our own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A return is acknowledged before it is committed.
    AcknowledgedBeforeCommit,
    /// A commit that failed is taken for one that succeeded.
    FailedCommitBelieved,
    /// A job is published before it is committed.
    PublishedBeforeCommit,
    /// Open jobs are not taken up again by a restarted master.
    OpenJobsForgotten,
    /// Returns of an open job are not taken up again by a restarted master.
    ReturnsForgotten,
    /// The serial of publications is not saved.
    SerialNotSaved,
    /// A return of a job that has ended does not change its verdict.
    LateReturnIgnored,
    /// That a job has left is not recorded, so each restart sends it again.
    DepartureNotRecorded,
    /// A connection that ended still counts against the limit of connections.
    SlotsNotReleased,
    /// Deadlines of jobs follow the time of day.
    DeadlinesByTimeOfDay,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::AcknowledgedBeforeCommit,
        Self::FailedCommitBelieved,
        Self::PublishedBeforeCommit,
        Self::OpenJobsForgotten,
        Self::ReturnsForgotten,
        Self::SerialNotSaved,
        Self::LateReturnIgnored,
        Self::DepartureNotRecorded,
        Self::SlotsNotReleased,
        Self::DeadlinesByTimeOfDay,
    ];

    /// Whether it is planted on this thread.
    #[inline]
    #[must_use]
    pub fn is_planted(self) -> bool {
        crate::simulation::has_planted(self)
    }
}

//! The tasks of periodic maintenance, by their names.

/// A maintenance task. Names are those of `saltern task` and of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MaintenanceTask {
    /// A new shared key, when a dropfile asks for one or the present one is too old.
    SharedKey,
    /// Closes the connections of minions whose keys went, and probes the others.
    Subscribers,
    /// Publishes presence, and saves it.
    Presence,
    /// Removes old jobs from the job database.
    JobExpiry,
    /// Removes old jobs from the SQL database of `master_job_cache`.
    SqlJobs,
    /// Removes old job-cache files, and those of `publish_auth`.
    JobFiles,
    /// Purges cached data of minions whose keys went.
    OrphanedData,
    /// Notices minion data that another program changed.
    MinionData,
    /// Removes tokens that have expired.
    Tokens,
    /// Purges nonces that have expired, of minions that have been silent since.
    Nonces,
    /// Builds the file lists ahead of requests for them.
    FileLists,
    /// Publishes what has changed below `file_roots` (`fileserver_events`).
    FileEvents,
    /// Writes the list of accepted minions for other programs (`key_cache`).
    KeyCache,
    /// Compares the master's key on the disk with the one in use.
    MasterKey,
    /// Compares the accepted minions with the limit of open files.
    OpenFiles,
    /// Fetches the git remotes that are due.
    Remotes,
    /// Checks a slice of the job database, to detect corruption early.
    DatabaseCheck,
    /// Reads the returns of highstates, and keeps the last one of each minion in a few words.
    Highstates,
}

impl MaintenanceTask {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 18] = [
        Self::SharedKey,
        Self::Subscribers,
        Self::Presence,
        Self::JobExpiry,
        Self::SqlJobs,
        Self::JobFiles,
        Self::OrphanedData,
        Self::MinionData,
        Self::Tokens,
        Self::Nonces,
        Self::FileLists,
        Self::FileEvents,
        Self::KeyCache,
        Self::MasterKey,
        Self::OpenFiles,
        Self::Remotes,
        Self::DatabaseCheck,
        Self::Highstates,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SharedKey => "shared_key",
            Self::Subscribers => "subscribers",
            Self::Presence => "presence",
            Self::JobExpiry => "job_expiry",
            Self::SqlJobs => "sql_jobs",
            Self::JobFiles => "job_files",
            Self::OrphanedData => "orphaned_data",
            Self::MinionData => "minion_data",
            Self::Tokens => "tokens",
            Self::Nonces => "nonces",
            Self::FileLists => "file_lists",
            Self::FileEvents => "file_events",
            Self::KeyCache => "key_cache",
            Self::MasterKey => "master_key",
            Self::OpenFiles => "open_files",
            Self::Remotes => "remotes",
            Self::DatabaseCheck => "database_check",
            Self::Highstates => "highstates",
        }
    }

    /// The task of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.name() == name)
    }
}

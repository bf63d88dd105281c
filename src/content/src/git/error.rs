//! Errors of a git remote.

/// Why a remote cannot be used, or cannot be fetched. Texts never hold credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    /// A remote, or an option of all remotes, is configured in a way that cannot work.
    #[error("option \"{option}\": {problem}")]
    Option {
        /// The option, as `gitfs_remotes`.
        option: String,
        /// The reason.
        problem: String,
    },
    /// The system's git is missing or too old.
    #[error("git {0} or newer is needed for remotes: {1}")]
    Missing(&'static str, String),
    /// A call of git failed.
    #[error("git {action} failed for \"{remote}\": {problem}")]
    Failed {
        /// The subcommand, as `fetch`.
        action: &'static str,
        /// The remote.
        remote: String,
        /// The error text of git, or how its process ended.
        problem: String,
    },
    /// A directory of the clone cannot be used.
    #[error("cannot use \"{path}\": {problem}")]
    Io {
        /// The path.
        path: String,
        /// The error of the system call.
        problem: String,
    },
    /// A tree is larger than one that is served.
    #[error("\"{remote}\" has a tree of more than {limit} entries")]
    TooLarge {
        /// The remote.
        remote: String,
        /// The bound.
        limit: usize,
    },
}

impl GitError {
    pub(crate) fn option(option: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Option {
            option: option.into(),
            problem: problem.into(),
        }
    }

    pub(crate) fn io(path: &std::path::Path, error: impl std::fmt::Display) -> Self {
        Self::Io {
            path: path.display().to_string(),
            problem: error.to_string(),
        }
    }
}

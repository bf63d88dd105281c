//! The error of a call into Python.

/// Why a piece of work was not done. The texts may be shown to the caller; they hold no traceback.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// The option `python_bridge` is off.
    #[error("{what} can only be run by Python, and the option \"python_bridge\" is off")]
    Off {
        /// The module or function that was asked for.
        what: String,
    },
    /// There is no Salt installation to run it.
    #[error(
        "{what} can only be run by Python, but {reason}; the option \"python_bridge\" names the \
         Python of a Salt installation"
    )]
    NotFound {
        /// The module or function that was asked for.
        what: String,
        /// Where was looked.
        reason: String,
    },
    /// No helper process can be started.
    #[error("{what} cannot be run: the Python helper (option \"python_bridge\") {reason}")]
    NoHelper {
        /// The module or function that was asked for.
        what: String,
        /// What the last one said, or what the system did.
        reason: String,
    },
    /// Too many others wait.
    #[error("{what} cannot be run: too many calls wait for a Python helper")]
    Busy {
        /// The module or function that was asked for.
        what: String,
    },
    /// Its time is over, waiting included; the helper was ended.
    #[error("{what} took longer than {milliseconds} ms in Python")]
    Timeout {
        /// The module or function that was asked for.
        what: String,
        /// How long it had.
        milliseconds: u128,
    },
    /// The helper process ended in the middle.
    #[error("the Python helper that ran {what} {how}")]
    Died {
        /// The module or function that was asked for.
        what: String,
        /// How it ended.
        how: String,
    },
    /// The request or the answer is too large, or not a value of MessagePack.
    #[error("{what} cannot be run: {problem}")]
    Unfit {
        /// The module or function that was asked for.
        what: String,
        /// In what way.
        problem: String,
    },
    /// The master stops.
    #[error("{what} was not run to its end, because the master stops")]
    Stopped {
        /// The module or function that was asked for.
        what: String,
    },
    /// It is not there, or refused its arguments (stock's `SaltInvocationError`,
    /// `CommandExecutionError`).
    #[error("{what}: {problem}")]
    Refused {
        /// The module or function that was asked for.
        what: String,
        /// The text of the exception.
        problem: String,
    },
    /// It raised another exception.
    #[error("{what}: {problem}")]
    Failed {
        /// The module or function that was asked for.
        what: String,
        /// The text of the exception.
        problem: String,
    },
}

impl BridgeError {
    /// The text of the exception alone, where a module raised one.
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Refused { problem, .. } | Self::Failed { problem, .. } => Some(problem),
            _ => None,
        }
    }

    /// Its kind, for metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Off { .. } | Self::NotFound { .. } => "unavailable",
            Self::NoHelper { .. } => "no_helper",
            Self::Busy { .. } => "busy",
            Self::Timeout { .. } => "timeout",
            Self::Died { .. } => "died",
            Self::Unfit { .. } => "unfit",
            Self::Stopped { .. } => "stopped",
            Self::Refused { .. } | Self::Failed { .. } => "raised",
        }
    }
}

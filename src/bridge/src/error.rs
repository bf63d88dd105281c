//! The errors of a call into Python.

use std::path::PathBuf;

use crate::exchange::MAX_FRAME_BYTES;

/// Why there is no Python to run anything, as the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPython {
    /// The option `python_bridge` is off.
    #[error("the option is off")]
    Off,
    /// The option names a path below which there is no interpreter.
    #[error("there is no Python at \"{}\"", .0.display())]
    NoInterpreter(PathBuf),
    /// The interpreter of the option has no Salt.
    #[error("Salt cannot be imported by \"{}\"", .0.display())]
    NoSalt(PathBuf),
    /// None of the usual places has a Python with Salt.
    #[error("no Salt installation was found")]
    NoInstallation,
    /// None has one, but one did not say so in time.
    #[error("a Python did not answer within a minute whether it has Salt")]
    NoAnswer,
}

/// A request that is longer than a frame may be, as the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its arguments have {bytes} bytes, {MAX_FRAME_BYTES} are allowed")]
pub struct FrameTooLong {
    /// The length of the request in bytes.
    pub bytes: usize,
}

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
        /// The reason.
        reason: NoPython,
    },
    /// No helper process can be started.
    #[error("{what} cannot be run: the Python helper (option \"python_bridge\") {reason}")]
    NoHelper {
        /// The module or function that was asked for.
        what: String,
        /// Error line of the last helper, or the error of the system.
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
    /// The request is too large.
    #[error("{what} cannot be run: {problem}")]
    Unfit {
        /// The module or function that was asked for.
        what: String,
        /// By how much.
        problem: FrameTooLong,
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
    /// The reason why there is no Python, of what is named so.
    pub(crate) fn without_python(what: String, reason: NoPython) -> Self {
        match reason {
            NoPython::Off => Self::Off { what },
            reason => Self::NotFound { what, reason },
        }
    }

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

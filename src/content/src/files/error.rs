//! Errors of serving and receiving files.
//!
//! A file that is not there is no error: stock has an answer for it, and so have the functions of
//! this module. An error stands for the cases in which a stock master raises an exception, whose
//! answer to the minion is an encrypted empty string.

use std::io;

use saltern_store::StoreError;

use crate::git::GitError;

/// Why the file server cannot be made, or cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// An option has a value that cannot work.
    #[error("option \"{name}\": {problem}")]
    Option {
        /// The option as it is written in the configuration.
        name: &'static str,
        /// The reason.
        problem: String,
    },
    /// The offset of a chunk is negative.
    #[error("a file has no offset {0}")]
    Offset(i64),
    /// The compression level is none of zlib's (-1 to 9).
    #[error("gzip has no level {0}")]
    GzipLevel(i64),
    /// A file or directory that is there cannot be read or written.
    #[error("cannot {action} \"{path}\"")]
    Io {
        /// The failed action, as a verb.
        action: &'static str,
        /// The path, for the log; never sent to a minion.
        path: String,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// An environment holds more entries than a list may have.
    #[error("environment \"{saltenv}\" has more than {limit} entries")]
    TooManyEntries {
        /// The environment.
        saltenv: String,
        /// The bound.
        limit: usize,
    },
    /// A git remote cannot be used or read.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The last scan of the files cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An environment holds directories nested deeper than the walk goes.
    #[error("environment \"{saltenv}\" has directories nested deeper than {limit}")]
    TooDeep {
        /// The environment.
        saltenv: String,
        /// The bound.
        limit: usize,
    },
}

impl FilesError {
    /// Whether the master is at fault (no descriptors, no memory, a failing disk, a clone that git
    /// cannot read): the file may well be there, so no answer may say that it is not.
    pub fn is_local_fault(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_local_fault(source),
            Self::Git(GitError::Failed { .. } | GitError::Io { .. } | GitError::Missing(..)) => {
                true
            }
            _ => false,
        }
    }

    pub(crate) fn option(name: &'static str, problem: impl Into<String>) -> Self {
        Self::Option {
            name,
            problem: problem.into(),
        }
    }

    pub(crate) fn io(action: &'static str, path: &str, source: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// `None` for what is not there or not to be seen.
///
/// # Errors
/// When the master is at fault, see [`FilesError::is_local_fault`].
pub(crate) fn or_absent<T>(
    result: io::Result<T>,
    action: &'static str,
    path: &str,
) -> Result<Option<T>, FilesError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_local_fault(&error) => Err(FilesError::io(action, path, error)),
        Err(_) => Ok(None),
    }
}

/// Whether an error says nothing of the file, only of the system that should open it.
pub(super) fn is_local_fault(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        code,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO | Errno::NOBUFS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_error_is_not_a_missing_file() {
        let result =
            |code: i32| or_absent::<()>(Err(io::Error::from_raw_os_error(code)), "open", "x");
        // ENOENT, EACCES, ENOTDIR, ELOOP, EXDEV.
        for code in [2, 13, 20, 40, 18] {
            assert!(matches!(result(code), Ok(None)), "{code}");
        }
        // EIO, ENOMEM, ENFILE, EMFILE.
        for code in [5, 12, 23, 24] {
            assert!(
                result(code).is_err_and(|error| error.is_local_fault()),
                "{code}"
            );
        }
        assert!(matches!(or_absent(Ok(1), "open", "x"), Ok(Some(1))));
    }
}

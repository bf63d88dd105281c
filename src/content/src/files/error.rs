//! What can go wrong when files are served or received.
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
        /// What is wrong with it.
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
        /// What was tried, as a verb.
        action: &'static str,
        /// The path, for the log; never sent to a minion.
        path: String,
        /// What the system said.
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
    /// What is kept of the last look at the files cannot be written.
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

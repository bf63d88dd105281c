//! Why one exchange with the master, or an operation on a file, failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use saltern_base::chain;

/// Why one request to the master did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No connection, or it broke.
    #[error("the connection to the master failed: {}", chain(.0.as_ref()))]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No reply in time.
    #[error("the master did not answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The reply is not one for this request, even after signing in anew.
    #[error("the master's reply cannot be opened: {0}")]
    Reply(String),
    /// Signing in was needed and failed.
    #[error("signing in to the master failed: {0}")]
    SignIn(#[from] crate::sign_in::SignInError),
}

/// A file operation and what the system said.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} \"{path}\"")]
pub struct FileError {
    pub(crate) action: &'static str,
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) source: io::Error,
}

impl FileError {
    pub(crate) fn new(action: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        Self {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

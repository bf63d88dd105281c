//! Why the minion cannot go on, and why one exchange with the master failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use saltern_base::chain;

/// Error that ends a minion.
#[derive(Debug, thiserror::Error)]
pub enum MinionError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// A key file cannot be read, written or used.
    #[error(transparent)]
    Keys(#[from] crate::keys::KeyError),
    /// The master cannot be trusted, or does not want this minion.
    #[error("signing in to the master failed: {0}")]
    SignIn(#[from] crate::sign_in::SignInError),
    /// The master's host name has no address.
    #[error("the master \"{0}\" has no address")]
    Address(String),
}

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

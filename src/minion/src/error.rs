//! Why the minion cannot go on.

/// Error that ends a minion.
#[derive(Debug, thiserror::Error)]
pub enum MinionError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] saltern_channel::ConfigError),
    /// TLS towards the master cannot be set up.
    #[error(transparent)]
    Tls(#[from] saltern_wire::port::TlsError),
    /// A key file cannot be read, written or used.
    #[error(transparent)]
    Keys(#[from] saltern_channel::KeyError),
    /// The master cannot be trusted, or does not want this minion.
    #[error("signing in to the master failed: {0}")]
    SignIn(#[from] saltern_channel::SignInError),
    /// The master's host name has no address.
    #[error("the master \"{0}\" has no address")]
    Address(String),
}

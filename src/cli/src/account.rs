//! The user that a command works as: that of the configuration, as in stock (`check_user`), so that
//! the files it writes belong to the master.

use std::ffi::CString;

use nix::unistd::{Uid, User, initgroups, setgid, setuid};

/// Exit code of stock for a user that does not exist (`EX_NOUSER`).
const NO_USER: u8 = 67;

/// Why the command cannot work as that user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccountError {
    /// There is no such user.
    #[error("Failed to prepare the Salt environment for user {0}. The user is not available.")]
    Unknown(String),
    /// Only root can become somebody else.
    #[error("Salt configured to run as user \"{0}\" but unable to switch.")]
    NotRoot(String),
    /// The system refused.
    #[error("cannot become user \"{user}\": {source}")]
    System {
        /// The user.
        user: String,
        /// The error of the system.
        source: nix::Error,
    },
}

impl AccountError {
    /// The exit code of stock.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Unknown(_) => NO_USER,
            Self::NotRoot(_) => 0,
            Self::System { .. } => 1,
        }
    }
}

/// Becomes a user, with the groups of that user. Must run before any thread is started.
///
/// # Errors
/// There is no such user, or this process may not become that user.
pub(crate) fn become_user(user: &str) -> Result<(), AccountError> {
    let system = |source| AccountError::System {
        user: user.to_owned(),
        source,
    };
    let account = User::from_name(user).map_err(system)?;
    let account = account.ok_or_else(|| AccountError::Unknown(user.to_owned()))?;
    if account.uid == Uid::effective() {
        return Ok(());
    }
    if !Uid::effective().is_root() {
        return Err(AccountError::NotRoot(user.to_owned()));
    }
    let name = CString::new(user).map_err(|_| system(nix::Error::EINVAL))?;
    initgroups(&name, account.gid).map_err(system)?;
    setgid(account.gid).map_err(system)?;
    setuid(account.uid).map_err(system)
}

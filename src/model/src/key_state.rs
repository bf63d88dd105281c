//! The four states of a minion's key.

use std::fmt;

/// In which directory of the PKI tree a minion's key lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyState {
    /// `minions/`
    Accepted,
    /// `minions_pre/`
    Pending,
    /// `minions_rejected/`
    Rejected,
    /// `minions_denied/`
    Denied,
}

impl KeyState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Pending, Self::Rejected, Self::Denied];

    /// The name of its directory under `pki_dir`.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Accepted => "minions",
            Self::Pending => "minions_pre",
            Self::Rejected => "minions_rejected",
            Self::Denied => "minions_denied",
        }
    }
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Pending => "pending",
            Self::Rejected => "rejected",
            Self::Denied => "denied",
        })
    }
}

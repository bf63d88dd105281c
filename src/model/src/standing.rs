//! Where a minion stands with the master: whether it would get a publication sent now.
//!
//! Only the words. What they are concluded from, and how surely, is the business of whoever
//! watches the publish port.

use std::fmt;

/// Whether a minion would get a publication sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its key is accepted, and no more is known: nothing has been heard or seen of it since the
    /// master started, or it may hold a connection that comes from elsewhere.
    Known,
    /// It holds a connection to the publish port.
    Connected,
    /// It may hold one.
    Stale(Doubt),
    /// It holds none.
    Away(Absence),
}

/// Why it is not certain that a minion is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Fewer connections come from its address than minions were heard from there, and which of
    /// them is missing has not shown yet.
    AddressShared,
    /// Its connection was asked for a sign of life and owes it.
    Silent,
}

/// Why a minion is not connected. Times are microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was heard on the request port, and never had a connection to the publish port.
    NeverConnected,
    /// Its end closed the connection.
    Closed {
        /// When.
        at: i64,
    },
    /// The connection was given up, because the other end did not answer any more.
    Lost {
        /// When.
        at: i64,
    },
    /// The master ended the connection: its peer read too slowly, or broke the protocol.
    CutOff {
        /// When.
        at: i64,
    },
    /// It has no accepted key.
    NoKey,
}

impl Standing {
    /// Whether it is, or may be, connected.
    pub fn is_present(self) -> bool {
        matches!(self, Self::Connected | Self::Stale(_))
    }
}

impl fmt::Display for Standing {
    /// One word and, where there is one, the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Known => "known: not heard since the master started",
            Self::Connected => "connected",
            Self::Stale(Doubt::AddressShared) => "stale: it shares an address with others",
            Self::Stale(Doubt::Silent) => "stale: its connection does not answer",
            Self::Away(Absence::NeverConnected) => "away: it has not connected",
            Self::Away(Absence::Closed { .. }) => "away: it closed its connection",
            Self::Away(Absence::Lost { .. }) => "away: its connection was lost",
            Self::Away(Absence::CutOff { .. }) => "away: its connection was cut off",
            Self::Away(Absence::NoKey) => "away: it has no accepted key",
        })
    }
}

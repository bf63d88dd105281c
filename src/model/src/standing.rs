//! Presence of a minion: whether it would get a publication sent now.
//!
//! Only the states. The actor that watches the publish port concludes them.

use std::fmt;

/// Whether a minion would get a publication sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its key is accepted, and no more is known: no request or connection of it came since the
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
    /// Fewer connections come from its address than minions sent requests from there, and which of
    /// them is missing is not known yet.
    AddressShared,
    /// Its connection was probed and has not answered yet.
    Silent,
}

/// Why a minion is not connected. Times are microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It sent requests, and never had a connection to the publish port.
    NeverConnected,
    /// The minion closed the connection.
    Closed {
        /// When.
        at: i64,
    },
    /// The connection timed out: the peer did not answer any more.
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
    /// It is below a syndic that is not connected.
    SyndicAway,
    /// The syndic that it is below announces that it is not connected there.
    AwayBelow,
}

impl Absence {
    /// When the connection ended, if it is known.
    pub fn at(self) -> Option<i64> {
        match self {
            Self::Closed { at } | Self::Lost { at } | Self::CutOff { at } => Some(at),
            Self::NeverConnected | Self::NoKey | Self::SyndicAway | Self::AwayBelow => None,
        }
    }
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
            Self::Known => "known: not seen since the master started",
            Self::Connected => "connected",
            Self::Stale(Doubt::AddressShared) => "stale: it shares an address with others",
            Self::Stale(Doubt::Silent) => "stale: its connection does not answer",
            Self::Away(Absence::NeverConnected) => "away: it has not connected",
            Self::Away(Absence::Closed { .. }) => "away: it closed its connection",
            Self::Away(Absence::Lost { .. }) => "away: its connection was lost",
            Self::Away(Absence::CutOff { .. }) => "away: its connection was cut off",
            Self::Away(Absence::NoKey) => "away: it has no accepted key",
            Self::Away(Absence::SyndicAway) => "away: its syndic is not connected",
            Self::Away(Absence::AwayBelow) => "away: it is not connected to its syndic's master",
        })
    }
}

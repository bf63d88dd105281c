//! Vocabulary of the audit trail: its end, queries for its rows, and what a check of it finds.

use std::fmt;
use std::str::FromStr;

use saltern_base::{hex, unhex};
use saltern_model::{AuditDoor, AuditVerdict};

/// Number and hash of a row: as a rule the last one. Its text is `NUMBER:HASH`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditHead {
    /// The number; 0 before the first row.
    pub number: i64,
    /// The hash.
    pub hash: [u8; 32],
}

/// A text that is no `NUMBER:HASH`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a number and a SHA-256 hash with a colon between them")]
pub struct AuditHeadError(String);

impl fmt::Display for AuditHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, hex(&self.hash))
    }
}

impl FromStr for AuditHead {
    type Err = AuditHeadError;

    fn from_str(text: &str) -> std::result::Result<Self, AuditHeadError> {
        let read = || {
            let (number, digits) = text.trim().split_once(':')?;
            let number = number.parse().ok().filter(|number| *number >= 0)?;
            let hash = unhex(digits)?.try_into().ok()?;
            Some(Self { number, hash })
        };
        read().ok_or_else(|| AuditHeadError(text.to_owned()))
    }
}

/// A fault of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditBreak {
    /// Its hash is not that of its content behind the row before.
    #[error("its content, or that of the rows before it, is not what was written")]
    Content,
    /// Rows between it and the one before are gone.
    #[error("rows {first} to {last} are missing before it")]
    Gap {
        /// The first of them.
        first: i64,
        /// The last of them.
        last: i64,
    },
    /// It lies before the end of what retention has removed.
    #[error("it has the number of a row that was removed long ago")]
    BelowAnchor,
    /// It has another hash than was noted.
    #[error("it is not the row that was noted: the trail was rewritten")]
    NotAsNoted,
    /// It was noted, and there is no such row any more, nor one behind it.
    #[error("it was noted, and the end of the trail is missing")]
    Missing,
    /// It was noted, and retention has removed it since.
    #[error("it was noted and is no longer kept, so nothing can be compared with it")]
    Removed,
}

/// The first row that is not as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenRow {
    /// Its number.
    pub number: i64,
    /// The fault.
    pub fault: AuditBreak,
}

/// Result of a check of the whole trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditCheck {
    /// Rows that are as they were written.
    pub rows: u64,
    /// The last row that retention has removed, or what stands for it before the first one.
    pub anchor: AuditHead,
    /// The last row that is as it was written.
    pub head: AuditHead,
    /// The first one that is not.
    pub broken: Option<BrokenRow>,
}

/// Which rows to read, the newest first.
#[derive(Clone, Debug, Default)]
pub struct AuditPage<'a> {
    /// Only of this user or minion.
    pub user: Option<&'a str>,
    /// Only through this door.
    pub door: Option<AuditDoor>,
    /// Only functions like this; `*`, `?` and `[…]` as in SQLite's `GLOB`.
    pub fun: Option<&'a str>,
    /// Only with this verdict.
    pub verdict: Option<AuditVerdict>,
    /// Only of this time or later, in microseconds since 1970.
    pub since: Option<i64>,
    /// Only before this time, in microseconds since 1970.
    pub until: Option<i64>,
    /// Only rows with a lower number.
    pub before: Option<i64>,
    /// How many at most.
    pub limit: usize,
}

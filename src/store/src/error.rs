//! Errors of durable state; one enum for the whole crate.
//!
//! Every variant names the path, so that the text alone shows an operator where to look. No
//! variant carries file content: keys never reach a log through here.

use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why durable state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("cannot {action} \"{}\"", path.display())]
    Io {
        /// The failed action, as in "cannot *read* …".
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// No space, no quota, or the configured size is reached. Reads still work.
    #[error("no space left to write \"{}\"", path.display())]
    Full {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// Not enough space to write a whole file; nothing of it was written.
    #[error("writing \"{}\" takes {needed} bytes, and {free} are free", path.display())]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The job database is not where its path says: what is committed now would be lost.
    #[error(
        "the job database \"{}\" was removed or replaced while it was in use, and is not in its \
         place yet",
        path.display()
    )]
    Displaced {
        /// The path of the database.
        path: PathBuf,
    },
    /// The engine of the job database failed before it replied.
    #[error(
        "the job database \"{}\" was interrupted: nobody knows whether the changes are stored",
        path.display()
    )]
    Interrupted {
        /// The path of the database.
        path: PathBuf,
    },
    /// Another process owns the jobs that this one wrote: nothing that it appends is stored any more.
    #[error("the job database \"{}\" has another owner now", path.display())]
    NotOwner {
        /// The place of the database.
        path: PathBuf,
    },
    /// A file has more bytes than its kind can have.
    #[error("\"{}\" has more than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read, in bytes.
        limit: usize,
    },
    /// More entries than a file may have.
    #[error("\"{}\" would have more than {limit} entries", path.display())]
    TooMany {
        /// The file, which stays as it was.
        path: PathBuf,
        /// The most that it may have.
        limit: usize,
    },
    /// The data to be written exceeds the limits of its reader.
    #[error("the data for \"{}\" exceeds the limits of its reader", path.display())]
    Unreadable {
        /// The file, which stays as it was.
        path: PathBuf,
        /// The limit that it exceeds.
        source: saltern_wire::msgpack::DecodeError,
    },
    /// A name that cannot be one entry of a directory.
    #[error("\"{name}\" cannot be a file name in \"{}\"", root.display())]
    UnsafeName {
        /// The name.
        name: String,
        /// The directory.
        root: PathBuf,
    },
    /// A key file is not what it should be.
    #[error("cannot use the key in \"{}\"", path.display())]
    Key {
        /// The key file.
        path: PathBuf,
        /// Why: not PEM, a wrong passphrase, …
        source: saltern_crypto::KeyError,
    },
    /// A computation with a key failed.
    #[error("cannot {action} with a key of the master")]
    Crypto {
        /// The failed action.
        action: &'static str,
        /// Why.
        source: saltern_crypto::RsaError,
    },
    /// A file holds something else than it should.
    #[error("\"{}\" is damaged: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// In what way.
        reason: &'static str,
    },
    /// A file that the configuration demands is not there.
    #[error("\"{}\" does not exist: {reason}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// Why it is needed and where it comes from.
        reason: &'static str,
    },
    /// A member of a cluster would take away more accepted keys at once than it may.
    #[error(
        "{lost} of {accepted} accepted keys {reason}; if that is right, make the file \"{}\" and it is done",
        confirmation.display()
    )]
    TooManyKeysLost {
        /// Keys that would be accepted no longer.
        lost: usize,
        /// All accepted ones.
        accepted: usize,
        /// In what way.
        reason: &'static str,
        /// The file by which an operator confirms it.
        confirmation: PathBuf,
    },
    /// Other members took keys away that are accepted on this machine still.
    #[error("{minions} keys that were taken away on other members cannot be taken away here")]
    KeysNotTakenAway {
        /// How many.
        minions: usize,
    },
    /// Keys that other members changed cannot be made files on this machine.
    #[error("keys of {minions} minions that were changed on other members cannot be written here")]
    KeysNotWritten {
        /// Minions with such keys.
        minions: usize,
    },
    /// The head of a table of a cluster goes back while it is read.
    #[error("the revisions of a table of the cluster go back while it is read")]
    RowsGoBack,
    /// The master's key was replaced while the master runs.
    #[error(
        "\"{}\" is another key than the one in use: restart the master to use it, and remove the \
         master's key from each minion, or put the old one back",
        path.display()
    )]
    Replaced {
        /// The key file.
        path: PathBuf,
    },
    /// An option has a value that cannot be honoured here.
    #[error("the value of \"{option}\" cannot be used: {reason}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Why.
        reason: String,
    },
    /// The job database is damaged.
    #[error("the job database \"{}\" is damaged: {detail}", path.display())]
    Corrupt {
        /// The database file.
        path: PathBuf,
        /// The error of the engine.
        detail: String,
    },
    /// The job database was written by a newer release.
    #[error(
        "the job database \"{}\" has layout {found}, this release knows up to {known}",
        path.display()
    )]
    Schema {
        /// The database file.
        path: PathBuf,
        /// The layout's number in the file.
        found: i64,
        /// The newest number this release knows.
        known: i64,
    },
    /// The database of the cluster did not have a change of the shared state in time.
    #[error("the shared state of the cluster in \"{}\" was not written in time", path.display())]
    NotShared {
        /// The place of the database.
        path: PathBuf,
    },
    /// The last returns of minions are being read, which takes long.
    #[error("the last returns of all minions are still being read; ask again later")]
    LastReturnsBusy,
    /// A change of the shared state cannot be sealed.
    #[error("a change of the shared state cannot be sealed")]
    Sealed(#[source] saltern_crypto::SealError),
    /// Any other answer of the engine.
    #[error("the job database \"{}\" failed to {action}", path.display())]
    Database {
        /// The failed action.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// Another program held the database for as long as a commit waits.
        is_busy: bool,
        /// The error of the engine.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// An I/O error; a full disk or quota becomes [`StoreError::Full`].
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        let path = path.as_ref().to_path_buf();
        let source = source.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io {
                action,
                path,
                source,
            },
        }
    }

    /// The file was read and holds something else than it should: asking again does not help, and
    /// what can be recreated is recreated.
    pub(crate) fn is_damaged(&self) -> bool {
        matches!(self, Self::Malformed { .. } | Self::TooLarge { .. })
    }

    /// Whether it is done here, and only the other masters of the cluster may not have it.
    pub fn is_done_here(&self) -> bool {
        matches!(self, Self::NotShared { .. })
    }

    /// The file's permissions keep this process from it.
    pub(crate) fn is_forbidden(&self) -> bool {
        let denied = io::ErrorKind::PermissionDenied;
        matches!(self, Self::Io { source, .. } if source.kind() == denied)
    }

    /// There is no space: new durable work must be refused, reads go on.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::NoRoom { .. })
    }

    /// Another program held the job database for as long as a commit waits.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Database { is_busy: true, .. })
    }

    /// The job database must be set aside before a new one can be made.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }
}

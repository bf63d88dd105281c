//! Kinds of shared files, and the directory of each.

use std::path::{Path, PathBuf};

use saltern_config::MasterConfig;

use crate::error::Result;
use crate::files;

/// A kind of shared file. The numbers are in rows: none is ever used for something else. 6 is that of keys of
/// minions, 7 of grains, 8 of mines and 9 of what is forgotten with them, whose rows are in tables of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateKind {
    /// The shared key of publications, with the numbers that are reserved.
    SharedKey = 1,
    /// Session keys of minions.
    Session = 2,
    /// Tokens of users.
    Token = 3,
    /// Sessions of the API.
    ApiSession = 4,
    /// Sessions of the console.
    ConsoleSession = 5,
}

impl StateKind {
    /// All of them, the one that the whole fleet needs first.
    pub const ALL: [Self; 5] = [
        Self::SharedKey,
        Self::Session,
        Self::Token,
        Self::ApiSession,
        Self::ConsoleSession,
    ];

    /// The kind of a number.
    pub(super) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether a name can be one of this kind; others in its directory belong to somebody else.
    fn has_name(self, name: &str) -> bool {
        match self {
            Self::SharedKey => name == SHARED_KEY,
            Self::Session | Self::ApiSession | Self::ConsoleSession => !name.starts_with('.'),
            Self::Token => {
                let stem = name.strip_suffix(".p").unwrap_or(name);
                !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
            }
        }
    }
}

/// The directory of the API's sessions, in `cachedir`.
pub const API_SESSIONS: &str = "saltern_api_sessions";

/// The directory of the console's sessions, in `cachedir`.
pub const CONSOLE_SESSIONS: &str = "saltern_console_sessions";

/// The file of the shared key.
pub(crate) const SHARED_KEY: &str = "shared_key";

/// Directories of the kinds on one machine.
#[derive(Clone, Debug)]
pub struct StatePlaces {
    cachedir: PathBuf,
    token_dir: PathBuf,
}

impl StatePlaces {
    /// Those below two directories.
    pub fn new(cachedir: &Path, token_dir: &Path) -> Self {
        Self {
            cachedir: cachedir.to_owned(),
            token_dir: token_dir.to_owned(),
        }
    }

    /// The directory of a kind.
    pub fn directory(&self, kind: StateKind) -> PathBuf {
        match kind {
            StateKind::SharedKey => self.cachedir.join("saltern"),
            StateKind::Session => self.cachedir.join("sessions"),
            StateKind::Token => self.token_dir.clone(),
            StateKind::ApiSession => self.cachedir.join(API_SESSIONS),
            StateKind::ConsoleSession => self.cachedir.join(CONSOLE_SESSIONS),
        }
    }

    /// The file of a name.
    pub(super) fn file(&self, kind: StateKind, name: &str) -> Result<PathBuf> {
        files::child(&self.directory(kind), name)
    }

    /// The names of the files that are there.
    pub(super) fn names(&self, kind: StateKind) -> Result<Vec<String>> {
        let mut names = Vec::new();
        files::each_entry(&self.directory(kind), |name, entry| {
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && kind.has_name(name) {
                names.push(name.to_owned());
            }
        })?;
        Ok(names)
    }
}

impl From<&MasterConfig> for StatePlaces {
    fn from(config: &MasterConfig) -> Self {
        Self::new(&config.cachedir, &config.token_dir)
    }
}

//! Why a member does not share its keys as it should, in a file for commands of its machine: the member refuses to
//! join, or holds deletions back, until an operator confirms them or puts the keys back, or keys of others cannot be
//! made files here, which refuses a takeover.

use std::path::{Path, PathBuf};
use std::time::Duration;

use saltern_base::chain;
use saltern_base::log_throttle::LogThrottle;
use saltern_config::MasterConfig;

use crate::error::{Result, StoreError};
use crate::files::{self, Create};

/// Room for a sentence with a path.
const MAX_FILE_LEN: usize = 16 << 10;

/// Minimum time between two log lines about the file.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The file, as this process left it.
pub(super) struct Refusal {
    path: PathBuf,
    text: Option<String>,
    failures: LogThrottle,
}

fn file_of(cachedir: &Path) -> PathBuf {
    cachedir.join("saltern").join("cluster_keys_refused")
}

impl Refusal {
    /// # Errors
    /// The file cannot be read.
    pub(super) fn load(cachedir: &Path) -> Result<Self> {
        let path = file_of(cachedir);
        let text = files::read_replaceable(&path, MAX_FILE_LEN)?;
        let failures = LogThrottle::new(LOG_INTERVAL);
        Ok(Self {
            path,
            text,
            failures,
        })
    }

    /// Notes how a round has ended. An error that passes by itself, as without the table, says nothing about it. That
    /// the file cannot be written is logged: it only explains, and the round is no worse for it.
    pub(super) fn note(&mut self, done: &Result<()>) {
        let text = match done {
            Ok(()) => None,
            Err(
                error @ (StoreError::TooManyKeysLost { .. }
                | StoreError::KeysNotTakenAway { .. }
                | StoreError::KeysNotWritten { .. }
                | StoreError::Missing { .. }),
            ) => Some(format!("{}\n", chain(error))),
            Err(_) => return,
        };
        if let Err(error) = self.write(text)
            && let Some(times) = self.failures.record()
        {
            let error = chain(&error);
            tracing::warn!(
                error,
                times,
                "how the keys of minions are shared cannot be noted for commands"
            );
        }
    }

    /// Its text.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref().map(str::trim_end)
    }

    fn write(&mut self, text: Option<String>) -> Result<()> {
        if text == self.text {
            return Ok(());
        }
        match &text {
            Some(text) => {
                if let Some(directory) = self.path.parent() {
                    files::ensure_dir(directory, 0o700)?;
                }
                files::write_atomic(&self.path, text.as_bytes(), Create::PRIVATE)?;
            }
            None => _ = files::remove(&self.path)?,
        }
        self.text = text;
        Ok(())
    }
}

/// Why this member does not share the keys of minions as it should, as it said last; `None` when it does.
///
/// # Errors
/// The file cannot be read.
pub fn keys_not_shared(config: &MasterConfig) -> Result<Option<String>> {
    let text = files::read_replaceable(&file_of(&config.cachedir), MAX_FILE_LEN)?;
    Ok(text.map(|text| text.trim_end().to_owned()))
}

//! The clones of one kind of remotes, and which of them are due for a fetch.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::clone::Clone;
use super::command;
use super::error::GitError;
use super::fetch::Fetch;
use super::origin::Origin;

/// The clones of one kind of remotes. Remotes of the same source share one.
pub(crate) struct Clones {
    directory: PathBuf,
    clones: Vec<Arc<Clone>>,
}

impl Clones {
    /// No clones yet, below this directory.
    ///
    /// # Errors
    /// [`GitError::Missing`] if there is no git that can be used.
    pub(crate) fn new(directory: PathBuf) -> Result<Self, GitError> {
        command::check()?;
        Ok(Self {
            directory,
            clones: Vec::new(),
        })
    }

    /// The clone of a source, to be fetched no more often than `interval`.
    pub(crate) fn of(&mut self, origin: Origin, interval: Duration) -> Arc<Clone> {
        if let Some(clone) = self.clones.iter().find(|clone| *clone.origin() == origin) {
            clone.schedule().shorten(interval);
            return Arc::clone(clone);
        }
        let clone = Arc::new(Clone::new(&self.directory, origin, interval));
        self.clones.push(Arc::clone(&clone));
        clone
    }

    /// The fetches whose time has come. A clone is in one of them at a time.
    pub(crate) fn due(&self) -> Vec<Fetch> {
        self.clones.iter().filter_map(Fetch::if_due).collect()
    }

    /// Fetches every clone, one after the other, whether or not its time has come; not the ones that
    /// are being fetched.
    pub(crate) fn fetch_now(&self) {
        for fetch in self.clones.iter().filter_map(Fetch::now) {
            let _changed = fetch.run(None);
        }
    }

    /// Fetches every clone whose time has come, one after the other. Returns whether anything is
    /// different.
    pub(crate) fn refresh(&self) -> bool {
        let fetched = self.due().into_iter();
        let fetched = fetched.map(|fetch| fetch.run(None).is_change());
        fetched.fold(false, |changed, different| changed | different)
    }
}

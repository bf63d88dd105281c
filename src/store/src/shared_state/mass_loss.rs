//! Losses of much at once are held back until an operator confirms them: a directory may be lost, or not mounted.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::files;

/// Entries that may go at once unless an operator confirms it.
pub(super) const MAX_LOST: usize = 20;

/// The same, as a part of all.
const MAX_LOST_PART: usize = 5;

/// Asks for confirmation of what is above the bound.
pub(super) struct MassLoss {
    /// The file by which an operator confirms it.
    confirmation: PathBuf,
    /// It was there, until what it confirms is done.
    is_confirmed: bool,
}

impl MassLoss {
    /// The file has this name.
    pub(super) fn new(cachedir: &Path, name: &str) -> Self {
        Self {
            confirmation: cachedir.join("saltern").join(name),
            is_confirmed: false,
        }
    }

    pub(super) fn confirmation(&self) -> &Path {
        &self.confirmation
    }

    /// Whether so many of all may go. Takes the confirmation, if that matters.
    ///
    /// # Errors
    /// The confirmation cannot be removed.
    pub(super) fn allows(&mut self, (lost, all): (usize, usize)) -> Result<bool> {
        if lost <= MAX_LOST || lost.saturating_mul(MAX_LOST_PART) <= all {
            return Ok(true);
        }
        // Once for each confirmation, so that it does not hold for the next loss.
        self.is_confirmed = self.is_confirmed || files::remove(&self.confirmation)?;
        Ok(self.is_confirmed)
    }

    /// Notes that all that was confirmed is done.
    pub(super) fn end(&mut self) {
        self.is_confirmed = false;
    }
}

//! Losses of much at once are held back until an operator confirms them: a directory may be lost, or not mounted.

use std::path::{Path, PathBuf};

use saltern_base::chain;

use crate::error::Result;
use crate::files;

/// Entries that may go at once unless an operator confirms it.
pub(super) const MAX_LOST: usize = 20;

/// The same, as a part of all.
const MAX_LOST_PART: usize = 5;

/// A loss above the bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    None,
    /// It is held back.
    Reported,
    /// It may go, until that is done.
    Confirmed,
}

/// Asks for confirmation of what is above the bound.
pub(super) struct MassLoss {
    /// The file by which an operator confirms it.
    confirmation: PathBuf,
    loss: Loss,
}

impl MassLoss {
    /// The file has this name.
    pub(super) fn new(cachedir: &Path, name: &str) -> Self {
        Self {
            confirmation: cachedir.join("saltern").join(name),
            loss: Loss::None,
        }
    }

    pub(super) fn confirmation(&self) -> &Path {
        &self.confirmation
    }

    /// Whether so many of all may go. The first answer to a loss above the bound is no: a confirmation that is there
    /// already was of another one, or is of nobody who has seen the report. It is removed, and so is the one that counts.
    ///
    /// # Errors
    /// The confirmation cannot be removed, so it does not count.
    pub(super) fn allows(&mut self, (lost, all): (usize, usize)) -> Result<bool> {
        if lost <= MAX_LOST || lost.saturating_mul(MAX_LOST_PART) <= all {
            return Ok(true);
        }
        if self.loss != Loss::Confirmed {
            let is_there = files::remove(&self.confirmation)?;
            if is_there && self.loss == Loss::None {
                let path = self.confirmation.display();
                tracing::warn!(%path, "it was made before the loss was reported, and does not count: make it anew");
            }
            self.loss = match (is_there, self.loss) {
                (true, Loss::Reported) => Loss::Confirmed,
                _ => Loss::Reported,
            };
        }
        Ok(self.loss == Loss::Confirmed)
    }

    /// Notes that nothing is held back any more: all that was confirmed is done, or nothing had to be. A confirmation
    /// that nobody needed is removed, so that it does not hold for the next loss.
    pub(super) fn end(&mut self) {
        self.loss = Loss::None;
        if let Err(error) = files::remove(&self.confirmation) {
            // The next loss is held back until it is gone, and says so.
            let error = chain(&error);
            tracing::debug!(error, "a confirmation that is not needed stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MANY: (usize, usize) = (30, 30);

    #[test]
    fn confirmation_counts_for_the_loss_that_was_reported_and_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut losses = MassLoss::new(dir.path(), "confirm");
        fs::create_dir(dir.path().join("saltern")).expect("made");
        let confirm = || fs::write(dir.path().join("saltern/confirm"), "").expect("confirmed");
        let mut allows = |numbers, is_end: bool| {
            let allows = losses.allows(numbers).expect("an answer");
            if is_end {
                losses.end();
            }
            allows
        };
        // From before the report.
        confirm();
        assert!(!allows(MANY, false));
        assert!(!allows(MANY, false), "it is gone");
        confirm();
        assert!(allows(MANY, false) && allows(MANY, false));
        assert!(allows(MANY, true));
        assert!(!allows(MANY, false), "for the next one it does not count");
        // What was lost is there again, and the confirmation came too late.
        confirm();
        assert!(allows((2, 30), true));
        assert!(!dir.path().join("saltern/confirm").exists());
        assert!(!allows(MANY, false));
        // One that cannot be removed would count for ever.
        fs::create_dir(dir.path().join("saltern/confirm")).expect("made");
        assert!(losses.allows(MANY).is_err());
    }
}

//! Losses of much at once are held back until an operator confirms them: a directory may be lost, or not mounted.
//!
//! A confirmation counts for a loss that was reported before it. The report outlives the process, in a file beside the
//! confirmation: a takeover that is refused ends the process, so no other one could ever count it.

use std::path::{Path, PathBuf};

use saltern_base::chain;

use crate::error::Result;
use crate::files::{self, Create};

/// Entries that may go at once unless an operator confirms it.
pub(super) const MAX_LOST: usize = 20;

/// The same, as a part of all.
const MAX_LOST_PART: usize = 5;

/// Room for a number.
const MAX_REPORT_LEN: usize = 32;

/// A loss above the bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    None,
    /// A process before has held so many back. More than these are another loss: whoever confirms has not seen it.
    ReportedBefore(usize),
    /// It is held back.
    Reported,
    /// It may go, until that is done.
    Confirmed,
}

/// Asks for confirmation of what is above the bound.
pub(super) struct MassLoss {
    /// The file by which an operator confirms it.
    confirmation: PathBuf,
    /// The file that has the report, and the number that it has.
    report: PathBuf,
    reported: Option<usize>,
    loss: Loss,
}

impl MassLoss {
    /// The file has this name.
    pub(super) fn new(cachedir: &Path, name: &str) -> Self {
        let confirmation = cachedir.join("saltern").join(name);
        let report = files::beside(&confirmation, ".reported");
        let text = files::read_replaceable(&report, MAX_REPORT_LEN).unwrap_or_else(|error| {
            let error = chain(&error);
            tracing::warn!(error, "a loss that was reported has to be confirmed anew");
            None
        });
        let reported = text.and_then(|text| text.trim_end().parse().ok());
        Self {
            confirmation,
            report,
            reported,
            loss: reported.map_or(Loss::None, Loss::ReportedBefore),
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
            let is_reported = match self.loss {
                Loss::None => false,
                Loss::ReportedBefore(number) => lost <= number,
                Loss::Reported | Loss::Confirmed => true,
            };
            if is_there && !is_reported {
                let path = self.confirmation.display();
                tracing::warn!(%path, "it was made before the loss was reported, and does not count: make it anew");
            }
            self.loss = match is_there && is_reported {
                true => Loss::Confirmed,
                false => Loss::Reported,
            };
        }
        if self.loss == Loss::Reported {
            // After the removal: one that is found beside the report was made later.
            self.note_report(lost);
        }
        Ok(self.loss == Loss::Confirmed)
    }

    /// Has the next process know that it was reported.
    fn note_report(&mut self, lost: usize) {
        if self.reported == Some(lost) {
            return;
        }
        // Also where it cannot be written: not tried in each round, but when the number changes.
        self.reported = Some(lost);
        let directory = self.report.parent();
        let made = directory.map_or(Ok(()), |directory| files::ensure_dir(directory, 0o700));
        let text = format!("{lost}\n");
        let written =
            made.and_then(|()| files::write_atomic(&self.report, text.as_bytes(), Create::PRIVATE));
        if let Err(error) = written {
            let error = chain(&error);
            tracing::warn!(
                error,
                "a loss has to be confirmed anew when this process ends before"
            );
        }
    }

    /// Notes that nothing is held back any more: all that was confirmed is done, or nothing had to be, or another member
    /// has reported its own loss since. A confirmation
    /// that nobody needed is removed, so that it does not hold for the next loss.
    pub(super) fn end(&mut self) {
        self.loss = Loss::None;
        if let Err(error) = files::remove(&self.confirmation) {
            // The next loss is held back until it is gone, and says so.
            let error = chain(&error);
            tracing::debug!(error, "a confirmation that is not needed stays");
        }
        if self.reported.is_none() {
            return;
        }
        match files::remove(&self.report) {
            Ok(_) => self.reported = None,
            Err(error) => {
                let error = chain(&error);
                tracing::debug!(error, "the report of a loss that is none any more stays");
            }
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

    #[test]
    fn report_of_a_process_before_counts_for_no_larger_loss_and_until_it_is_over() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("saltern")).expect("made");
        let confirm = || fs::write(dir.path().join("saltern/confirm"), "").expect("confirmed");
        // Each as a process of its own.
        let start = || MassLoss::new(dir.path(), "confirm");
        let allows = |numbers| start().allows(numbers).expect("an answer");
        assert!(!allows((30, 100)));
        assert!(!allows((30, 100)), "nobody has confirmed it");
        confirm();
        assert!(!allows((31, 100)), "that is another one");
        assert!(!allows((31, 100)), "its confirmation is gone");
        confirm();
        assert!(allows((30, 100)));
        // It was killed before that was done.
        assert!(!allows((30, 100)));
        confirm();
        let mut losses = start();
        assert!(losses.allows((30, 100)).expect("an answer"));
        losses.end();
        confirm();
        assert!(!allows((30, 100)), "the next one");
        start().end();
        confirm();
        assert!(!allows((30, 100)), "what was lost was there again");
        // A damaged report is none.
        fs::write(dir.path().join("saltern/confirm.reported"), "many").expect("damaged");
        confirm();
        assert!(!allows((30, 100)));
    }
}

//! The bar of a copy: what is copied of how much, on standard error where that is a terminal.
//!
//! `indicatif` draws it; in a pipe it draws nothing. Names come from outside and are sanitized.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plain;

/// Between two drawings while nothing happens, so that the time goes on.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Most characters of a name.
const MAX_NAME: usize = 24;

/// Unit of the bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyUnit {
    /// Bytes of the files that are copied.
    Bytes,
    /// Sources: of what minions send, nobody knows the size before.
    Sources,
}

impl CopyUnit {
    const fn template(self) -> &'static str {
        match self {
            Self::Bytes => {
                "{prefix} [{bar:16}] {binary_bytes} of {binary_total_bytes}, {elapsed}{wide_msg}"
            }
            Self::Sources => "{prefix} [{bar:16}] {pos} of {len}, {elapsed}{wide_msg}",
        }
    }
}

/// The bar; gone when it is dropped.
pub(crate) struct CopyBar(ProgressBar);

impl CopyBar {
    /// A bar on standard error, not drawn before [`begin`](Self::begin).
    pub(crate) fn on_stderr(unit: CopyUnit) -> Self {
        Self::new(unit, ProgressDrawTarget::stderr())
    }

    fn new(unit: CopyUnit, target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(None, target);
        // The templates are constants; without one there is the default of the crate.
        if let Ok(style) = ProgressStyle::with_template(unit.template()) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// Draws it from now on, for so much in all.
    pub(crate) fn begin(&self, total: u64) {
        self.0.set_length(total);
        if !self.0.is_hidden() {
            self.0.enable_steady_tick(REDRAW_INTERVAL);
        }
    }

    /// Shows which file is copied.
    pub(crate) fn name(&self, name: &str) {
        if !self.0.is_hidden() {
            self.0.set_prefix(plain(name, MAX_NAME));
        }
    }

    /// Shows how many minions have the part that was sent last.
    pub(crate) fn returned(&self, returned: usize, expected: usize) {
        if !self.0.is_hidden() {
            let text = format!("; {returned} of {expected} minions have it");
            self.0.set_message(text);
        }
    }

    /// So much more is copied.
    pub(crate) fn add(&self, amount: u64) {
        self.0.inc(amount);
    }

    /// Erases the bar, does something that prints, and draws it again.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for CopyBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use indicatif::style::TemplateError;

    use super::*;

    #[test]
    fn templates_of_both_units_are_valid() -> Result<(), TemplateError> {
        for unit in [CopyUnit::Bytes, CopyUnit::Sources] {
            ProgressStyle::with_template(unit.template())?;
        }
        Ok(())
    }

    #[test]
    fn names_and_counts_are_shown_and_cannot_steer_the_terminal() {
        let bar = CopyBar::new(CopyUnit::Bytes, ProgressDrawTarget::hidden());
        bar.begin(10);
        bar.name("a\x1b[2J");
        bar.add(4);
        // Nobody looks: nothing is kept for drawing.
        assert_eq!((bar.0.position(), bar.0.prefix()), (4, String::new()));
        assert_eq!(bar.aside(|| 7), 7);
    }
}

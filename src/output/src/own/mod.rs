//! Outputters of our own: one line a minion, for programs and for people, and what a state run changed.
//!
//! Whatever a minion returned cannot steer the terminal here: control, bidirectional and invisible
//! characters are shown as their codes.

mod changes_only;
mod json_lines;
mod run;
mod safe;
mod summary;

pub(crate) use changes_only::changes_only;
pub(crate) use json_lines::json_lines;
pub(crate) use summary::summary;

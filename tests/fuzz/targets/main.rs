//! Everything that bytes of strangers reach, as targets. The table is `docs/fuzzing.md`.

#![allow(
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test, in helpers too"
)]

mod frames;
mod http;
mod keys;
mod packed;
mod requests;
mod site;
mod texts;

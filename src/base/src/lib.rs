//! Utilities that every other crate may need and that know nothing of Salt.
//!
//! The clock, byte sizes, work that blocks, the panic hook, stack frames, exit codes, the umask of children, fault
//! injection, the seams of a simulated master, the locale of programs, log throttles, traces, the limit of open files, error chains,
//! percent encoding, hexadecimal digits, standard output, characters unsafe for a terminal, and
//! helpers that register metrics. Anything that knows a protocol or an option lives above.

pub mod blocking;
pub mod bytesize;
mod chain;
pub mod clock;
pub mod exit;
pub mod fail_point;
pub mod frames;
mod hex;
mod is_unsafe_for_terminal;
pub mod locale;
pub mod log_throttle;
pub mod metrics;
pub mod open_files;
pub mod panic_hook;
mod percent;
pub mod planted_bug;
pub mod simulation;
pub mod stdio;
pub mod trace;
pub mod umask;

pub use chain::chain;
pub use hex::{hex, unhex};
pub use is_unsafe_for_terminal::{
    escaped_for_terminal, escaped_json_for_terminal, is_unsafe_for_terminal,
};
pub use percent::{form_pairs, form_text, percent_decoded, percent_encoded};

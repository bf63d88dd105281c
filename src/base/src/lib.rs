//! The ground floor: small things that every other crate may need and that know nothing of Salt.
//!
//! What belongs here has no opinion: the clock, byte sizes, the panic hook, stack frames, process
//! exit codes, the places where tests may end the process, lines that the log has seldom, traces, an error's text,
//! percent signs, the characters that steer a terminal, and the helpers that register metrics.
//! Anything that knows a protocol or an option lives above.

pub mod bytesize;
mod chain;
pub mod clock;
pub mod exit;
pub mod fail_point;
pub mod frames;
pub mod metrics;
pub mod panic_hook;
mod percent;
pub mod seldom;
mod steers;
pub mod trace;

pub use chain::chain;
pub use percent::percent_decoded;
pub use steers::steers;

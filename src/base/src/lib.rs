//! The ground floor: small things that every other crate may need and that know nothing of Salt.
//!
//! What belongs here has no opinion: the clock, byte sizes, the panic hook, process exit codes and
//! the helpers that register metrics. Anything that knows a protocol or an option lives above.

pub mod bytesize;
pub mod clock;
pub mod exit;
pub mod metrics;
pub mod panic_hook;

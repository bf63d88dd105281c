//! The minion's end of the protocol: its configuration file and keys, how it authenticates and
//! verifies a master, sealed requests, and publications that are opened and verified.
//!
//! Used by the native minion and by the syndic's uplink, which is a minion of the master above.
//! Suggested reading order: [`config`], `keys`, `sign_in` (what is verified and why), [`envelope`],
//! [`channel`] (requests), `subscription` (publications). It knows no job and runs nothing.

mod backoff;
pub mod channel;
pub mod config;
pub mod envelope;
mod error;
mod keys;
mod sign_in;
mod subscription;

pub use backoff::{Backoff, between};
pub use channel::{Channel, ChannelObserver, Identity, Unobserved};
pub use config::{ConfigError, Finding, LoadedMinion, MinionConfig};
pub use envelope::{FrameAgreement, Session};
pub use error::{FileError, RequestError};
pub use keys::{KeyError, MasterKeyStore, MemoryStore, MinionKeys, PkiDir};
pub use sign_in::{MAX_EPOCH, SignInAnswer, SignInError, SignInRequest};
pub use subscription::{asctime, resolve};

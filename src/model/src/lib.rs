//! The domain model: Salt's terms as types that can only be built from valid input.
//!
//! Everything that comes from outside as text and names something (a minion, a job, an event, an
//! environment) is parsed into one of these types in one place, here, and only travels on as that
//! type. No file system, no network, no byte layout: a [`Packed`] value is opaque here.

pub mod audit;
pub mod batch_size;
pub mod compat;
pub mod control;
pub mod data_changes;
pub mod event;
pub mod jid;
pub mod job;
pub mod key_state;
pub mod minion_id;
pub mod packed;
pub mod query;
pub mod salt_env;
pub mod standing;
pub mod tag;
pub mod target;
mod text_serde;

pub use audit::{AuditDoor, AuditProof, AuditRecord, AuditRow, AuditVerdict};
pub use batch_size::{BatchSize, BatchSizeError};
pub use compat::{Compat, stamp};
pub use data_changes::{Changed, DataChanges};
pub use event::Event;
pub use jid::{Jid, JidError, JidMinter};
pub use job::{JobRecord, ReturnRecord};
pub use key_state::KeyState;
pub use minion_id::{IdError, MinionId};
pub use packed::Packed;
pub use salt_env::{SaltEnv, SaltEnvError};
pub use standing::{Absence, Doubt, Standing};
pub use tag::{Tag, TagError};
pub use target::{Target, TargetType};

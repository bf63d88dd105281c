//! Durable state of the master: keys, sessions and jobs, on disk and in memory.
//!
//! The files that stock shares with its tools (`pki_dir`, `cachedir`) are kept exactly as the
//! version in `salt_compat` keeps them; what stock has no file for lies in `cachedir/saltern`.
//! This crate stores and finds. Authorization is in `policy`, the meaning of messages in
//! `requests`, and when to write in the actors; nothing here waits for time, and only the engine of the
//! job database and [`shared_state`] start a thread, for their commits.
//!
//! Suggested reading order: [`files`] (how a file is written), [`pki`], [`sessions`],
//! [`shared_key`], [`shared_state`], then [`jobs`] and what is derived from it, [`mirror`].

pub mod dead_letters;
pub mod dropfile;
mod early_jobs;
mod engine;
pub mod error;
pub mod files;
mod follower;
mod history_file;
mod job_cursor;
pub mod jobs;
pub mod master_keys;
pub mod minion_clocks;
pub mod minion_data;
pub mod mirror;
pub mod options;
pub mod pki;
pub mod replay;
pub mod resources;
pub mod sessions;
pub mod sha1_minions;
pub mod shared_key;
pub mod shared_state;
pub mod sqlite;
pub mod syndics;
pub mod tokens;
pub mod user_keys;

pub use dead_letters::{DeadLetter, DeadLetters, dead_letters};
pub use dropfile::Dropfile;
pub use early_jobs::EarlyJobs;
pub use engine::{examine, open_engine, open_reader};
pub use error::{Result, StoreError};
pub use follower::{Followed, JobFollower, ReadTo, WentBack};
pub use history_file::{HistoryFile, SavedHistory};
pub use job_cursor::JobCursor;
pub use jobs::{
    AuditBreak, AuditCheck, AuditHead, AuditHeadError, AuditPage, BrokenRow, EventRange,
    EventSlice, EventsPage, FreeSpace, Housekeeping, Imported, JobLog, JobQueries, JobState,
    KeptEvent, NewEvent, Numbered, OpenJob, Reason, Recovered, Removed, Restored, Retention, Size,
    StoredBatch, StoredJob, Write, Written,
};
pub use master_keys::{BothKeys, MasterKey, MasterKeyRotation, MasterKeys, RotationError};
pub use minion_data::MinionDataStore;
pub use mirror::{
    BatchFiles, CachedJob, JobCacheReader, JobFiles, Mirror, MirrorLag, USER_OF_MINION,
    USER_OF_SYNDIC, endtime_text,
};
pub use options::{MirrorMode, StoreOptions};
pub use pki::{AcceptedIds, AcceptedKey, PkiTree};
pub use replay::{Freshness, ReplayWindow};
pub use resources::{Registered, ResourceStore};
pub use sessions::{Session, Sessions};
pub use shared_key::{SharedKey, SharedKeys};
pub use shared_state::{SharedState, StateKind};
pub use sqlite::{CheckpointPass, DatabaseLimits, JobDatabase, set_aside};
pub use syndics::{RoleAfter, RoleBounds, SyndicStore};
pub use tokens::{Claims, Token, Tokens};
pub use user_keys::{KeyProof, UserKeys};

//! PostgreSQL as an engine of the job database: the jobs of one owner in a schema of the cluster's
//! name, behind the three traits of [`saltern_store::jobs`].
//!
//! **Numbered batches.** Each batch is one transaction. It moves the `head` of the writer's row by one,
//! in a statement that finds the row only under the owner's epoch and behind the batch before. So that
//! row is counter, fence and record of a commit: an owner that another one has followed changes nothing
//! any more ([`StoreError::NotOwner`](saltern_store::StoreError::NotOwner)), and a commit whose answer
//! was lost is looked for by its number.
//!
//! **Nothing is guessed.** An owner reads what its batch depends on under the lock of its row, decides
//! what becomes of each change ([`decide`]), and writes. A commit counts when PostgreSQL has said so
//! without a warning; a warning is what it gives when a synchronous standby has not confirmed.
//!
//! **One active master.** [`membership`] stands by until the lease of the jobs is free, takes it, renews it
//! and opens the engine under it; who loses it ends. There are not yet several writers of jobs in
//! one schema. Keys of minions ([`key_table`]) every member writes; grains and mines ([`data_table`]) the active one
//! does, and every member follows them.
//!
//! Suggested reading order: [`layout`], [`session`], [`decide`], [`changes`], [`writer`], [`engine`], then
//! the reads, one file a subject, as in the engine on SQLite.

mod audit;
mod batches;
mod changes;
mod data_table;
mod decide;
mod engine;
mod error;
mod events;
mod glob;
mod import;
mod jobs;
mod key_table;
mod layout;
mod lease;
mod lease_table;
mod members;
mod membership;
mod metrics;
mod moving;
mod queries;
mod reader;
mod retention;
mod returns;
mod revisioned;
mod runtime;
mod search;
mod session;
mod state_table;
mod text;
mod writer;

pub use engine::{ClusterOptions, open_cluster};
pub use error::ClusterError;
pub use layout::Layout;
pub use lease::{LeaseAction, LeaseHolder, LeaseRequest};
pub use lease_table::LeaseTable;
pub use members::{ClusterState, LeaseState, Member, MemberIdentity, MemberReport};
pub(crate) use membership::open_cluster_reader;
pub use membership::{
    ActiveMaster, ClusterCheck, ClusterFigures, Membership, SharedTable, Standing, Tables,
    check_cluster, cluster_place, cluster_secret, cluster_state, contract_cluster, forget_member,
    init_cluster, missing_tables, set_cluster_secret,
};
pub use metrics::register_cluster_metrics;
pub use moving::{export_jobs, import_jobs};

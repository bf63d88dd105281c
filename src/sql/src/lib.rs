//! Writes jobs, returns and events into PostgreSQL and MySQL, in the tables of stock's returners
//! `pgjsonb`, `postgres`, `postgres_local_cache` and `mysql`.
//!
//! The job database stays the source of truth: a [`SqlWriter`] is given rows in order and again after
//! a failure, and writes each of them once. It blocks, and is called by a thread of its own. It knows
//! neither cursors nor actors. One connection, no pool; each batch is one transaction.
//!
//! A row that a database refuses does not keep the others: NUL bytes, bytes that are no UTF-8 and
//! numbers that JSON lacks are escaped visibly, what is too long is cut with a mark, and both are
//! counted. What is refused all the same is stored without its content, or skipped.

mod blocking_runtime;
mod care;
mod cluster;
mod connection;
mod document;
mod error;
mod job_reader;
mod mysql;
mod postgres;
mod reader;
mod row;
mod schema;
mod tls;
mod writer;

pub use care::{Cutoff, SqlCare, Step, purge_steps};
pub use cluster::{
    ActiveMaster, ClusterCheck, ClusterError, ClusterFigures, ClusterOptions, ClusterState, Layout,
    LeaseAction, LeaseHolder, LeaseRequest, LeaseState, LeaseTable, Member, MemberIdentity,
    MemberReport, Membership, SharedTable, Standing, Tables, check_cluster, cluster_place,
    cluster_secret, cluster_state, contract_cluster, export_jobs, forget_member, import_jobs,
    init_cluster, missing_tables, open_cluster, register_cluster_metrics, set_cluster_secret,
};
pub use document::Marks;
pub use error::SqlError;
pub use job_reader::{job_database_place, open_reader};
pub use reader::{JobRange, JobSlice, ReturnCounts, SqlReader};
pub use schema::tables;
pub use writer::{SqlWriter, Stored};

//! Why a master is not a member of its cluster, or no longer its active one.

use saltern_store::StoreError;

use super::layout::FIRST_WITH_FLOOR;
use crate::error::SqlError;

/// A refusal, or a loss.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The database has no tables of the cluster.
    #[error("there is no cluster \"{name}\" in {place}: run \"saltern cluster init\" once")]
    NotInitialised {
        /// The name of the cluster.
        name: String,
        /// The database.
        place: String,
    },
    /// Another master has the name.
    #[error(
        "another master of the cluster has the id \"{name}\" (at \"{address}\", seen {seconds} s ago): \
         give each an id of its own"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// Where the other one is reached.
        address: String,
        /// Seconds since it was seen.
        seconds: i64,
    },
    /// Minions would refuse this master.
    #[error(
        "the master \"{other}\" of the cluster has another key than this one: its minions would refuse \
         this master; give both the same keys (pki_dir)"
    )]
    OtherKey {
        /// The other member.
        other: String,
    },
    /// An older release made the tables.
    #[error(
        "the tables of the cluster in {place} have layout {found}, and this release needs {known}: run \
         \"saltern cluster init\" of this release once; {}",
        meanwhile(*.found)
    )]
    Older {
        /// The database.
        place: String,
        /// The layout of the tables.
        found: i64,
        /// The layout of this release.
        known: i64,
    },
    /// The members have another secret.
    #[error(
        "the other masters of the cluster \"{name}\" have another secret than this one: copy their \
         secret_file here"
    )]
    OtherSecret {
        /// The name of the cluster.
        name: String,
    },
    /// The members have a secret.
    #[error(
        "the masters of the cluster \"{name}\" share a secret, and this one has none: copy their \
         secret_file here and name it in saltern_cluster"
    )]
    NoSecret {
        /// The name of the cluster.
        name: String,
    },
    /// The cluster has no secret yet.
    #[error(
        "the cluster \"{name}\" has no secret yet: run \"saltern cluster init\" once with secret_file in \
         saltern_cluster"
    )]
    NewSecret {
        /// The name of the cluster.
        name: String,
    },
    /// A newer release made the tables.
    #[error(
        "the tables of the cluster in {place} have layout {found}, and this release knows {known}: all members \
         were upgraded, and \"saltern cluster contract\" was run; upgrade this one, too"
    )]
    Newer {
        /// The database.
        place: String,
        /// The layout of the tables.
        found: i64,
        /// The layout of this release.
        known: i64,
    },
    /// A newer release has added to the tables, and not ended the upgrade.
    #[error(
        "the tables of the cluster in {place} have layout {found}, and this release knows {known}: \
         \"saltern cluster contract\" is for the release that knows layout {found}, which \"saltern cluster init\" \
         was run with"
    )]
    Expanded {
        /// The database.
        place: String,
        /// The layout of the tables.
        found: i64,
        /// The layout of this release.
        known: i64,
    },
    /// Tables of the cluster are used by others, which a change of them waits for.
    #[error(
        "the tables of the cluster in {place} are in use, so nothing was changed: run \"saltern cluster init\" \
         again when the database has less to do"
    )]
    TablesInUse {
        /// The database.
        place: String,
        /// The answer of the database.
        #[source]
        source: SqlError,
    },
    /// A member's release does not know the present layout.
    #[error(
        "the master \"{name}\" is a live member of release {version}, which does not know the present tables: \
         upgrade it first; one that was killed counts as gone after two leases"
    )]
    NotUpgraded {
        /// The member.
        name: String,
        /// Its release.
        version: String,
    },
    /// The lease was not renewed in time.
    #[error(
        "the lease of the cluster was not renewed for {seconds} s, so this master is no longer the \
         active one ({reason})"
    )]
    NotRenewed {
        /// Seconds since the last renewal that was granted.
        seconds: u64,
        /// The last error, or that nothing was answered.
        reason: String,
    },
    /// The lease was taken by another master.
    #[error("another master took over the lease of the cluster, so this one is no longer active")]
    TakenOver,
    /// The task that stores jobs and returns is over; the log has its panic.
    #[error("the writer of the job database has ended, so nothing can be stored any more")]
    WriterEnded,
    /// Only members that are gone are removed.
    #[error(
        "the master \"{name}\" is a live member of the cluster, seen {seconds} s ago: stop it first; one \
         that was killed counts as gone after two leases"
    )]
    Lives {
        /// The member.
        name: String,
        /// Seconds since it was seen.
        seconds: i64,
    },
    /// Jobs are moved only while no master writes them, nor is about to.
    #[error(
        "the master \"{name}\" is a live member of the cluster: stop all masters of the cluster first; one \
         that was killed counts as gone after two leases"
    )]
    InUse {
        /// The master.
        name: String,
    },
    /// Jobs are moved only into a cluster that never had any.
    #[error("the cluster in {place} has jobs, events or an audit trail, or had: nothing was moved")]
    HasJobs {
        /// The database.
        place: String,
    },
    /// The cluster has the rows of this job database.
    #[error("this job database has been moved into the cluster in {place} before")]
    MovedBefore {
        /// The database.
        place: String,
    },
    /// The database or its options.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Part of the masters of the release before, whose layout this is, during an upgrade.
fn meanwhile(found: i64) -> &'static str {
    match found < FIRST_WITH_FLOOR {
        true => {
            "masters of the release before go on until they are restarted, and do not take over any more"
        }
        false => "masters of the release before take part meanwhile",
    }
}

//! Answers to `saltern_query`: pages of what the master knows. Written by `saltern-runners`, read by
//! whoever asks, such as the API.
//!
//! Times are microseconds since 1970. `next` is the cursor of the following page, none at the end; a
//! page may be short, or empty, although more follow.

use serde::{Deserialize, Serialize};

use crate::control::{InventoryRow, Missing};
use crate::{Jid, MinionId};

/// The most rows of one page.
pub const MAX_ROWS: usize = 500;

/// Some jobs, highest jid first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsPage {
    /// The jobs.
    pub jobs: Vec<JobRow>,
    /// For `before`.
    pub next: Option<String>,
    /// Why old jobs are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
}

/// One job of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its id.
    pub jid: Jid,
    /// When it was made.
    pub created: i64,
    /// When it ended.
    pub finished: Option<i64>,
    /// The user that published it.
    pub user: String,
    /// The function, or the functions of a compound command joined by commas.
    pub function: String,
    /// The target as text.
    pub target: String,
    /// The name of the target's type.
    pub target_type: String,
    /// `open`, `complete`, `expired` or `killed`.
    pub state: String,
    /// How many minions are expected.
    pub expected: usize,
    /// How many returned.
    pub returned: usize,
    /// How many of these with a return code other than 0.
    pub failed: usize,
}

/// A job with the verdict for each minion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// When it was made.
    pub created: i64,
    /// How many minions are expected, or returned unexpected.
    pub expected: usize,
    /// When it ended.
    pub finished: Option<i64>,
    /// The function.
    pub function: String,
    /// Null when the job is over.
    pub is_master_running: Option<bool>,
    /// Its id.
    pub jid: Jid,
    /// Minions that have not returned, with the reason.
    pub missing: Vec<Missing>,
    /// Since when it is a batch that pauses.
    #[serde(default)]
    pub paused_since: Option<i64>,
    /// When its load went to the publish port, if that is known.
    pub published: Option<i64>,
    /// The minion that it was published for.
    pub publisher: Option<MinionId>,
    /// Minions that returned.
    pub returned: Vec<ReturnedMinion>,
    /// `open`, `complete`, `expired` or `killed`.
    pub state: String,
    /// The target as text.
    pub target: String,
    /// The name of the target's type.
    pub target_type: String,
    /// The user that published it.
    pub user: String,
}

/// Request of a job, with all of its arguments. `V` is a value of the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRequest<V> {
    /// Its id.
    pub jid: Jid,
    /// The function, or a list of them.
    pub function: V,
    /// The arguments; a list of lists when there are several functions.
    pub arguments: V,
    /// The target, a text or a list.
    pub target: V,
    /// The name of the target's type.
    pub target_type: String,
    /// The user that published it.
    pub user: String,
    /// The minion or syndic that reported it; none of a job that this master published.
    pub reporter: Option<MinionId>,
}

/// A minion that returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedMinion {
    /// Which.
    pub minion: MinionId,
    /// When its return came.
    pub received: i64,
    /// Its return code.
    pub retcode: i64,
}

/// Some returns of a job, by minion. `V` is a returned value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReturnsPage<V> {
    /// The returns.
    pub returns: Vec<ReturnRow<V>>,
    /// For `after`.
    pub next: Option<String>,
}

/// One return.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReturnRow<V> {
    /// The minion.
    pub minion: MinionId,
    /// When it came.
    pub received: i64,
    /// The function.
    pub function: String,
    /// Its return code.
    pub retcode: i64,
    /// Whether the minion counts it as a success.
    pub success: bool,
    /// The return value; `None` where the load has none.
    pub value: V,
}

/// Some accepted minions, sorted by id. `V` is the value of a grain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MinionsPage<V> {
    /// The minions.
    pub minions: Vec<InventoryRow<V>>,
    /// How many match in all, before those of one presence were chosen.
    pub total: usize,
    /// For `after`.
    pub next: Option<String>,
}

/// Some rows of the audit trail, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// The rows.
    pub rows: Vec<AuditLine>,
    /// For `before`.
    pub next: Option<String>,
}

/// One row of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// Its number.
    pub number: i64,
    /// When it was decided.
    pub at: i64,
    /// The way in, such as `port` or `api`.
    pub door: String,
    /// The user, or the minion; only claimed where `proof` is `none`.
    pub user: String,
    /// The backend that knows the user.
    pub backend: Option<String>,
    /// How the user was proved, such as `token`.
    pub proof: String,
    /// The address from which it came.
    pub origin: Option<String>,
    /// The command on the wire.
    pub command: String,
    /// The function, or several joined by commas.
    pub function: String,
    /// The target.
    pub target: Option<String>,
    /// The name of its type.
    pub target_type: Option<String>,
    /// The arguments, as JSON.
    pub arguments: String,
    /// `allowed` or `refused`.
    pub verdict: String,
    /// Why, of a refusal.
    pub reason: Option<String>,
    /// The job or call that it led to.
    pub jid: Option<String>,
    /// Refusals since the row before that have none of their own.
    pub suppressed: u64,
    /// Its number and hash, as `saltern audit verify --head` takes them.
    pub head: String,
}

/// Some keys of minions, sorted by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysPage {
    /// The keys.
    pub keys: Vec<KeyRow>,
    /// For `after`.
    pub next: Option<String>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    /// Whose.
    pub minion: MinionId,
    /// `accepted`, `pending`, `rejected` or `denied`.
    pub state: String,
    /// Its fingerprint, by the master's `hash_type`.
    pub fingerprint: Option<String>,
    /// When its file was written.
    pub written: Option<i64>,
    /// When its minion was last heard; only of an accepted one.
    pub last_heard: Option<i64>,
    /// Whether its minion is, or may be, connected; only of an accepted one.
    pub is_present: Option<bool>,
}

/// Whether the master serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether every check passed.
    pub is_ready: bool,
    /// The checks.
    pub checks: Vec<HealthCheck>,
    /// The latest findings of `saltern doctor`.
    #[serde(default)]
    pub findings: Vec<DoctorFinding>,
    /// When, in seconds since 1970; `None` before its first report.
    #[serde(default)]
    pub diagnosed: Option<i64>,
}

/// A problem with its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorFinding {
    /// The part that was examined.
    pub subject: String,
    /// `error`, `warning` or `note`.
    pub severity: String,
    /// The problem.
    pub finding: String,
    /// The remedy.
    pub advice: String,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// Its name.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// The finding.
    pub reason: String,
}

/// Versions of the running master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The version of this program.
    pub saltern: String,
    /// The release of Salt that it imitates.
    pub salt: String,
}

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
    /// Its row of the audit trail, as far as that is kept.
    #[serde(default)]
    pub asked: Option<AskedFrom>,
}

/// Way in which a job was asked for, by the audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedFrom {
    /// The way in, such as `port` or `console`.
    pub door: String,
    /// The address of the client; none on this machine.
    pub origin: Option<String>,
    /// The backend that knows the user.
    pub backend: Option<String>,
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

/// The last return of a minion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastJobRow {
    /// The minion.
    pub minion: MinionId,
    /// The job.
    pub jid: String,
    /// Its function.
    pub function: String,
    /// When the return came.
    pub received: i64,
    /// Its return code.
    pub retcode: i64,
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

/// State of the audit trail's chain of hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditState {
    /// Number and hash of the last row, as `NUMBER:HASH`; none of an empty trail.
    pub head: Option<String>,
    /// The last row that retention has removed; 0 before the first time.
    pub removed: i64,
    /// The last check, if there was one.
    pub check: Option<AuditVerification>,
}

/// A check of the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditVerification {
    /// When it ended.
    pub at: i64,
    /// The user who asked for it.
    pub by: String,
    /// Rows that are as they were written.
    pub rows: u64,
    /// The last of them, as `NUMBER:HASH`.
    pub head: String,
    /// The first row that is not as it was written, and its fault.
    pub fault: Option<String>,
}

/// Some rows of the last highstates, sorted by minion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighstatesPage {
    /// The rows.
    pub rows: Vec<HighstateRow>,
    /// How many match in all.
    pub total: usize,
    /// For `after`.
    pub next: Option<String>,
}

/// The last highstate of a minion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighstateRow {
    /// The minion.
    pub minion: MinionId,
    /// `in_line`, `corrected`, `drifted`, `failed` or `unknown`.
    pub verdict: String,
    /// Its result; none of a minion whose verdict is `unknown`.
    pub run: Option<HighstateRun>,
}

/// The result of a highstate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighstateRun {
    /// Its job.
    pub jid: Jid,
    /// When its return came.
    pub received: i64,
    /// Whether it was a dry run (`test=True`), as far as the return says.
    pub is_test: bool,
    /// The group of minions with the same change.
    pub group: String,
    /// States that succeeded, with or without a change.
    pub succeeded: usize,
    /// States that changed something.
    pub changed: usize,
    /// States that would change something.
    pub would_change: usize,
    /// States that failed.
    pub failed: usize,
    /// States that make the verdict, as far as they are kept.
    pub states: Vec<String>,
    /// How many more of them there are.
    pub more: usize,
    /// SLS files of its states.
    pub files: Vec<String>,
}

/// Minions by the verdict on their last highstate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighstateGroups {
    /// How many minions have each verdict.
    pub counts: HighstateCounts,
    /// Groups of minions with the same change: first those that failed, then the largest.
    pub groups: Vec<HighstateGroup>,
    /// How many more groups there are.
    pub more: usize,
    /// Returns of jobs that were not read yet.
    pub behind: u64,
}

/// How many minions have each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighstateCounts {
    /// Nothing had to change.
    pub in_line: usize,
    /// The run changed something, and nothing failed.
    pub corrected: usize,
    /// A dry run would have changed something.
    pub drifted: usize,
    /// A state failed, or nothing could be run.
    pub failed: usize,
    /// No highstate is known.
    pub unknown: usize,
}

/// Minions whose last highstate made the same change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighstateGroup {
    /// Its id.
    pub group: String,
    /// As in [`HighstateRow`].
    pub verdict: String,
    /// The states, as far as they are kept.
    pub states: Vec<String>,
    /// How many more states there are.
    pub more: usize,
    /// How many minions.
    pub total: usize,
    /// Some of the minions.
    pub minions: Vec<MinionId>,
    /// When the oldest of the returns came.
    pub oldest: i64,
    /// When the newest came.
    pub newest: i64,
}

/// Changes of a minion's presence, newest first, as far as events are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinionHistory {
    /// The events.
    pub events: Vec<MinionEvent>,
    /// When the oldest event was kept that was looked at; none when no event is kept.
    pub since: Option<i64>,
}

/// A change of a minion's presence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinionEvent {
    /// When it was kept.
    pub at: i64,
    /// `connected`, `lost`, `started`, `authenticated`, `refused` or `key`.
    pub kind: String,
    /// The action on its key; of authentications and keys only.
    pub detail: Option<String>,
    /// Position of the event among all that are kept.
    pub position: i64,
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
    /// The address that it came from, where that is known; of IPv6 the network, of a key that is not
    /// accepted.
    #[serde(default)]
    pub address: Option<String>,
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
    /// How far behind the readers of the job database are.
    #[serde(default)]
    pub lags: Vec<Lag>,
}

/// Lag of a reader of the job database: the mirror, a follower for a returner, or an outbox for a
/// master above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lag {
    /// The reader.
    pub name: String,
    /// Rows that it has not taken yet.
    pub rows: u64,
    /// The age of the oldest of them in seconds, where that is known.
    pub seconds: Option<u64>,
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

/// The reactor: its rules, and what they did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactorReport {
    /// Whether events lead to reactions (`reactor.set_leader`).
    pub is_leader: bool,
    /// The rules, in their order.
    pub rules: Vec<ReactorRule>,
    /// Files whose reactions have ended, sorted by name.
    pub files: Vec<ReactorFile>,
    /// The latest reactions that ended, newest first.
    pub latest: Vec<ReactionRow>,
    /// Events that wait.
    pub waiting: usize,
    /// Events and calls that were dropped.
    pub dropped: u64,
}

/// One rule of the reactor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactorRule {
    /// The pattern of the tags.
    pub tags: String,
    /// The files, as they are written.
    pub references: Vec<String>,
    /// Events that matched.
    pub events: u64,
    /// The time of the last one.
    pub last: Option<i64>,
}

/// Counts of the reactions of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactorFile {
    /// The file.
    pub sls: String,
    /// Reactions that succeeded, or had no minion.
    pub done: u64,
    /// Those that failed, were lost or dropped.
    pub failed: u64,
    /// The end of the last one.
    pub last: i64,
}

/// A reaction that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactionRow {
    /// The end.
    pub at: i64,
    /// The tag of the event.
    pub tag: String,
    /// The file; none of a whole event.
    pub sls: Option<String>,
    /// The id of the reaction.
    pub id: Option<String>,
    /// Its type, such as `local`.
    pub kind: Option<String>,
    /// Its function.
    pub function: Option<String>,
    /// `done`, `nobody`, `failed`, `lost` or `dropped`.
    pub outcome: String,
    /// The reason, of a failure.
    pub reason: Option<String>,
    /// The job or call that it began.
    pub jid: Option<Jid>,
}

/// Some dead letters of the reactor, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLettersPage {
    /// The letters.
    pub letters: Vec<DeadLetterRow>,
    /// How many there are in all.
    pub total: usize,
    /// For `before`.
    pub next: Option<String>,
}

/// A dead letter, without the data of its event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterRow {
    /// Its name.
    pub name: String,
    /// The failed reaction.
    pub reaction: ReactionRow,
}

/// The master's schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleReport {
    /// The jobs, as they are written.
    pub jobs: Vec<ScheduledJob>,
    /// The time zone of the slots.
    pub zone: String,
}

/// One job of the schedule, with its runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledJob {
    /// Its name.
    pub name: String,
    /// The function that it runs.
    pub function: String,
    /// Its timing, as it is written.
    pub timing: String,
    /// Whether it runs when the master starts.
    pub at_start: bool,
    /// Its next turn, without a splay.
    pub next: Option<i64>,
    /// The reason why it will not run then, in a word.
    pub skip: Option<String>,
    /// Runs that have begun.
    pub begun: u64,
    /// Those of them that failed or were lost.
    pub failed: u64,
    /// Turns that brought no run.
    pub skipped: u64,
    /// The reason of the last of them, in a word.
    pub last_skip: Option<String>,
    /// The latest runs, newest first.
    pub runs: Vec<ScheduledRun>,
}

/// A run of a job of the schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledRun {
    /// The jid of its call.
    pub jid: Jid,
    /// The function.
    pub function: String,
    /// When it began.
    pub began: i64,
    /// When it ended.
    pub ended: Option<i64>,
    /// `running`, `done`, `failed` or `lost`.
    pub outcome: String,
    /// The reason, of a failure.
    pub reason: Option<String>,
    /// Whether its return is kept among the jobs.
    pub is_kept: bool,
}

/// A function of the master that runs. `V` is a value of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningCall<V> {
    /// The jid of the call.
    pub jid: Jid,
    /// The function, with `runner.` or `wheel.` before it.
    pub function: String,
    /// The user.
    pub user: String,
    /// Its arguments.
    pub arguments: V,
    /// When it began.
    pub began: i64,
    /// Its steps so far, of an orchestration.
    pub steps: Vec<CallStep<V>>,
    /// Steps beyond those that are remembered.
    pub left_out: usize,
}

/// Step of an orchestration that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallStep<V> {
    /// The time of its event.
    pub at: i64,
    /// `state`, `function`, `runner`, `wheel` or `progress`; `result` of a step that ended.
    pub kind: String,
    /// The state's name, or the function.
    pub name: String,
    /// The id of the state, of one that ended: it says more than the name.
    #[serde(default)]
    pub id: Option<String>,
    /// The target, of a step on minions.
    pub target: V,
    /// Whether it succeeded, of one that ended: null for a dry run with changes.
    pub result: Option<bool>,
    /// The comment, of one that ended.
    pub comment: Option<String>,
}

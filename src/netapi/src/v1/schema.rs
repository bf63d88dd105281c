//! Requests and answers of `/v1`: their comments are the texts of the OpenAPI document.
//!
//! Rows of `saltern_model::query` stand here again: those travel between parts of one master and may
//! change, these are a public contract. `cursor` and `limit` stand in each list of parameters, because
//! serde refuses unknown fields only where no field is flattened.

use std::collections::BTreeMap;

use jiff::Timestamp;
use saltern_model::control::{InventoryRow, Missing};
use saltern_model::query;
use saltern_requests::as_json;
use saltern_wire::msgpack::Value;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;
use utoipa::{IntoParams, ToSchema};

/// A time from the master's microseconds.
fn time(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| time.to_string())
}

/// A time from seconds since 1970, as stock's states have them.
fn time_from_seconds<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    let seconds = Option::<f64>::deserialize(input)?;
    Ok(seconds.map(|seconds| time((seconds * 1e6).round() as i64)))
}

/// Filters of jobs. All that are given hold.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobsParams {
    /// Only jobs of functions that this pattern matches, such as `state.*`.
    pub function: Option<String>,
    /// Only jobs of this user.
    pub user: Option<String>,
    /// Only jobs whose target, as text, this pattern matches.
    pub target: Option<String>,
    /// Only jobs that this minion was to run, or returned.
    pub minion: Option<String>,
    /// Only jobs in this state: `open`, `ended`, or `failed` (a minion returned a code other than 0,
    /// or did not return before the job ended).
    pub state: Option<String>,
    /// Only jobs made at this time or later.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Only jobs made at this time or earlier.
    #[param(format = DateTime)]
    pub until: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// Jobs of a page: 100 unless it is given.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
}

/// A page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// Rows of a page: 100 unless it is given.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
}

/// Filters of minions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MinionsParams {
    /// A compound target, such as `web* and G@os:Debian`; all minions unless it is given.
    pub target: Option<String>,
    /// Only minions that are connected, or only those that are not.
    pub present: Option<bool>,
    /// Grains to show, with commas between, such as `os,ip4_interfaces:eth0`.
    pub grains: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// Minions of a page: 100 unless it is given.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
}

/// Parameters of a minion's page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MinionParams {
    /// Grains to show, with commas between.
    pub grains: Option<String>,
}

/// Filters of keys.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct KeysParams {
    /// Only keys of minions whose id this pattern matches.
    #[serde(rename = "match")]
    pub pattern: Option<String>,
    /// Only keys in this state: `accepted`, `pending`, `rejected` or `denied`.
    pub state: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// Keys of a page: 100 unless it is given.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
}

/// Filters of the audit trail. All that are given hold.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditParams {
    /// Only requests of this user or minion.
    pub user: Option<String>,
    /// Only requests that came this way: `port`, `api`, `console`, `reactor`, `schedule`, `minion`,
    /// `syndic` or `master`.
    pub door: Option<String>,
    /// Only functions like this, such as `state.*`.
    pub function: Option<String>,
    /// Only rows with this verdict: `allowed` or `refused`.
    pub verdict: Option<String>,
    /// Only rows of this time or later.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Only rows before this time.
    #[param(format = DateTime)]
    pub until: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// Rows of a page: 100 unless it is given. An export has no pages and takes none.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
}

/// How to stop a batch.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StopParams {
    /// Whether to end the processes of minions that run their part, too.
    pub kill: Option<bool>,
}

/// Rows of the audit trail, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Audit {
    /// The rows.
    pub rows: Vec<AuditRow>,
    /// Cursor of the next page; null at the end.
    pub next: Option<String>,
    /// State of the chain of hashes; null on all pages but the first.
    pub chain: Option<AuditChain>,
}

/// State of the chain of hashes of the audit trail.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditChain {
    /// Number and hash of the last row, as `saltern audit verify --head` takes them.
    pub head: Option<String>,
    /// The last row that retention has removed.
    pub removed: i64,
    /// The last check of the chain, if there was one.
    pub check: Option<AuditCheck>,
}

/// A check of the chain.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditCheck {
    /// When it ended.
    #[schema(format = DateTime)]
    pub time: String,
    /// The user who asked for it.
    pub by: String,
    /// Rows that are as they were written.
    pub rows: u64,
    /// The last of them.
    pub head: String,
    /// The first row that is not as it was written, and its fault.
    pub fault: Option<String>,
}

/// A row of the audit trail; its fields are the columns of the table, as `saltern audit --json` names
/// them.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditRow {
    /// Its number.
    pub number: i64,
    /// When it was decided, in microseconds since 1970.
    pub at: i64,
    /// The same.
    #[schema(format = DateTime)]
    pub time: String,
    /// The way in.
    pub door: String,
    /// The user or minion; only claimed where `proof` is `none`.
    pub user: String,
    /// The backend that knows the user.
    pub backend: Option<String>,
    /// How the user was proved.
    pub proof: String,
    /// The address that it came from.
    pub origin: Option<String>,
    /// The command on the wire.
    pub cmd: String,
    /// The function; several have commas between.
    pub fun: String,
    /// The target of a job.
    pub tgt: Option<String>,
    /// How the target was read.
    pub tgt_type: Option<String>,
    /// The arguments, without what is hidden.
    pub arguments: Json,
    /// `allowed` or `refused`.
    pub verdict: String,
    /// Why it was refused.
    pub reason: Option<String>,
    /// The job or call that it led to.
    pub jid: Option<String>,
    /// Refusals since the row before that have none of their own.
    pub suppressed: u64,
    /// The hash of the row, which covers the one before.
    pub hash: String,
}

impl From<query::AuditLine> for AuditRow {
    fn from(line: query::AuditLine) -> Self {
        let hash = line.head.split_once(':').map(|(_, hash)| hash.to_owned());
        Self {
            number: line.number,
            at: line.at,
            time: time(line.at),
            door: line.door,
            user: line.user,
            backend: line.backend,
            proof: line.proof,
            origin: line.origin,
            cmd: line.command,
            fun: line.function,
            tgt: line.target,
            tgt_type: line.target_type,
            arguments: serde_json::from_str(&line.arguments).unwrap_or_default(),
            verdict: line.verdict,
            reason: line.reason,
            jid: line.jid,
            suppressed: line.suppressed,
            hash: hash.unwrap_or_default(),
        }
    }
}

impl From<query::AuditState> for AuditChain {
    fn from(state: query::AuditState) -> Self {
        let check = state.check.map(|check| AuditCheck {
            time: time(check.at),
            by: check.by,
            rows: check.rows,
            head: check.head,
            fault: check.fault,
        });
        Self {
            head: state.head,
            removed: state.removed,
            check,
        }
    }
}

/// A job to publish.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// The target: a text, or a list of minions for `target_type` `list`.
    pub target: Json,
    /// How the target is read, such as `glob`, `list`, `compound` or `grain`.
    #[serde(default = "glob")]
    #[schema(default = "glob")]
    pub target_type: String,
    /// The function, such as `test.ping`.
    pub function: String,
    /// Arguments by position.
    #[serde(default)]
    pub arguments: Vec<Json>,
    /// Arguments by name.
    #[serde(default)]
    pub keyword_arguments: BTreeMap<String, Json>,
}

fn glob() -> String {
    "glob".to_owned()
}

/// A job that was published.
#[derive(Debug, Serialize, ToSchema)]
pub struct PublishedJob {
    /// Its id.
    pub jid: String,
    /// The minions that it was sent to.
    pub minions: Vec<String>,
    /// Names in the target that the master does not know.
    pub missing: Vec<String>,
}

/// Jobs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Jobs {
    /// The jobs.
    pub jobs: Vec<JobSummary>,
    /// Cursor of the next page; null at the end.
    pub next: Option<String>,
    /// Why old jobs are missing: the SQL database that has them cannot be read. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
}

/// State of a job.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobSummary {
    /// Its id.
    pub jid: String,
    /// When it was made.
    #[schema(format = DateTime)]
    pub created: String,
    /// When it ended.
    #[schema(format = DateTime)]
    pub finished: Option<String>,
    /// The user that published it.
    pub user: String,
    /// The function; those of a compound command have commas between.
    pub function: String,
    /// The target as text.
    pub target: String,
    /// How the target was read.
    pub target_type: String,
    /// `open`, `complete`, `expired` or `killed`.
    pub state: String,
    /// How many minions are expected.
    pub expected: usize,
    /// How many returned.
    pub returned: usize,
    /// How many of these returned a code other than 0.
    pub failed: usize,
}

/// A job with the verdict for each minion.
#[derive(Debug, Serialize, ToSchema)]
pub struct Job {
    /// The job.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// When it was handed to the minions' connections, if that is known.
    #[schema(format = DateTime)]
    pub published: Option<String>,
    /// The minion for which it was published.
    pub publisher: Option<String>,
    /// Every minion, sorted by verdict and id.
    pub minions: Vec<JobMinion>,
}

/// Verdict for a minion of a job.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobMinion {
    /// Its id.
    pub id: String,
    /// `returned`, or for one that has not: `expected`, `delivered`, `running`, `unreachable` or
    /// `unknown`.
    pub verdict: String,
    /// Why it has not returned.
    pub reason: Option<String>,
    /// When its return came.
    #[schema(format = DateTime)]
    pub received: Option<String>,
    /// Its return code.
    pub retcode: Option<i64>,
}

/// Returns of a job, sorted by minion.
#[derive(Debug, Serialize, ToSchema)]
pub struct Returns {
    /// The returns.
    pub returns: Vec<Return>,
    /// Cursor of the next page; null at the end.
    pub next: Option<String>,
}

/// Return of a minion.
#[derive(Debug, Serialize, ToSchema)]
pub struct Return {
    /// The minion.
    pub minion: String,
    /// When it came; null in a stream, of one that has just come.
    #[schema(format = DateTime)]
    pub received: Option<String>,
    /// The return code.
    pub retcode: i64,
    /// The return value of the function.
    pub value: Json,
}

/// Accepted minions, sorted by id.
#[derive(Debug, Serialize, ToSchema)]
pub struct Minions {
    /// The minions.
    pub minions: Vec<Minion>,
    /// How many the target means, connected or not.
    pub total: usize,
    /// Cursor of the next page; null at the end.
    pub next: Option<String>,
}

/// An accepted minion.
#[derive(Debug, Serialize, ToSchema)]
pub struct Minion {
    /// Its id.
    pub id: String,
    /// Whether it is, or may be, connected.
    pub present: bool,
    /// Its presence in words.
    pub standing: String,
    /// When it was last heard.
    #[schema(format = DateTime)]
    pub last_heard: Option<String>,
    /// The address of its connection, or of its last request.
    pub address: Option<String>,
    /// The grains that were asked for; null where it has none.
    pub grains: BTreeMap<String, Json>,
}

/// Keys, sorted by minion.
#[derive(Debug, Serialize, ToSchema)]
pub struct Keys {
    /// The keys.
    pub keys: Vec<Key>,
    /// Cursor of the next page; null at the end.
    pub next: Option<String>,
}

/// The key of a minion.
#[derive(Debug, Serialize, ToSchema)]
pub struct Key {
    /// The minion.
    pub minion: String,
    /// `accepted`, `pending`, `rejected` or `denied`.
    pub state: String,
    /// Its fingerprint.
    pub fingerprint: Option<String>,
    /// When its file was written.
    #[schema(format = DateTime)]
    pub written: Option<String>,
    /// When the minion was last heard; of an accepted key only.
    #[schema(format = DateTime)]
    pub last_heard: Option<String>,
    /// Whether the minion is, or may be, connected; of an accepted key only.
    pub present: Option<bool>,
    /// The address that it came from, where that is known; of IPv6 the network, of a key that is not
    /// accepted.
    pub address: Option<String>,
}

/// A key that was moved or deleted.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeyChange {
    /// The minion.
    pub minion: String,
    /// `accepted`, `rejected` or `deleted`.
    pub state: String,
}

/// Batches that are not over.
#[derive(Debug, Serialize, ToSchema)]
pub struct Batches {
    /// The batches.
    pub batches: Vec<Batch>,
}

/// State of a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// The jid of all its parts.
    pub jid: String,
    /// Minions in all.
    pub total: usize,
    /// Minions that returned.
    pub completed: usize,
    /// Minions that run their part.
    pub active: usize,
    /// Minions that are still to be sent their part.
    pub pending: usize,
    /// Minions that were given up.
    pub failed: usize,
    /// Since when it pauses; null while it goes on.
    #[serde(default, deserialize_with = "time_from_seconds")]
    pub paused_since: Option<String>,
    /// Whether it was ended before its time.
    pub halted: bool,
    /// Why.
    pub halted_reason: Option<String>,
    /// The user that began it.
    pub user: Option<String>,
}

/// A batch that was paused, resumed or stopped.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchChange {
    /// Its jid.
    pub jid: String,
}

/// Whether the master serves.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// Whether every check passed.
    pub ready: bool,
    /// The checks.
    pub checks: Vec<Check>,
    /// The latest findings of `saltern doctor`; asking has it look again in the background, at most
    /// twice a minute.
    pub findings: Vec<Finding>,
    /// When it looked; null before its first report.
    pub diagnosed: Option<String>,
    /// How far behind the readers of the job database are.
    pub lags: Vec<Lag>,
}

/// Lag of a reader of the job database: the mirror, a follower for a returner, or an outbox for a
/// master above.
#[derive(Debug, Serialize, ToSchema)]
pub struct Lag {
    /// The reader.
    pub name: String,
    /// Rows that it has not taken yet.
    pub rows: u64,
    /// The age of the oldest of them in seconds, where that is known.
    pub seconds: Option<u64>,
}

/// A problem of the master or its surroundings, with the remedy. It makes no master unready.
#[derive(Debug, Serialize, ToSchema)]
pub struct Finding {
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
#[derive(Debug, Serialize, ToSchema)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// The finding.
    pub reason: String,
}

/// Versions of the running master.
#[derive(Debug, Serialize, ToSchema)]
pub struct Version {
    /// The version of the master.
    pub saltern: String,
    /// The release of Salt that it imitates.
    pub salt: String,
}

impl From<query::JobsPage> for Jobs {
    fn from(page: query::JobsPage) -> Self {
        Self {
            jobs: page.jobs.into_iter().map(JobSummary::from).collect(),
            next: page.next,
            incomplete: page.incomplete,
        }
    }
}

impl From<query::JobRow> for JobSummary {
    fn from(row: query::JobRow) -> Self {
        Self {
            jid: row.jid.to_string(),
            created: time(row.created),
            finished: row.finished.map(time),
            user: row.user,
            function: row.function,
            target: row.target,
            target_type: row.target_type,
            state: row.state,
            expected: row.expected,
            returned: row.returned,
            failed: row.failed,
        }
    }
}

impl From<query::JobReport> for Job {
    fn from(report: query::JobReport) -> Self {
        let failed = report.returned.iter().filter(|one| one.retcode != 0);
        let summary = JobSummary {
            jid: report.jid.to_string(),
            created: time(report.created),
            finished: report.finished.map(time),
            user: report.user,
            function: report.function,
            target: report.target,
            target_type: report.target_type,
            state: report.state,
            expected: report.expected,
            returned: report.returned.len(),
            failed: failed.count(),
        };
        let missing = report.missing.into_iter().map(JobMinion::missing);
        let returned = report.returned.into_iter().map(JobMinion::returned);
        let mut minions: Vec<JobMinion> = missing.chain(returned).collect();
        minions.sort_by(|one, other| (&one.verdict, &one.id).cmp(&(&other.verdict, &other.id)));
        Self {
            summary,
            published: report.published.map(time),
            publisher: report.publisher.map(|minion| minion.to_string()),
            minions,
        }
    }
}

impl JobMinion {
    fn missing(one: Missing) -> Self {
        Self {
            id: one.minion.to_string(),
            verdict: one.state,
            reason: Some(one.why),
            received: None,
            retcode: None,
        }
    }

    fn returned(one: query::ReturnedMinion) -> Self {
        Self {
            id: one.minion.to_string(),
            verdict: "returned".to_owned(),
            reason: None,
            received: Some(time(one.received)),
            retcode: Some(one.retcode),
        }
    }
}

impl From<query::ReturnsPage<Value>> for Returns {
    fn from(page: query::ReturnsPage<Value>) -> Self {
        let returns = page.returns.into_iter().map(|row| Return {
            minion: row.minion.to_string(),
            received: Some(time(row.received)),
            retcode: row.retcode,
            value: as_json(&row.value),
        });
        Self {
            returns: returns.collect(),
            next: page.next,
        }
    }
}

impl Minions {
    /// The page, whose grains are those at these paths.
    pub(super) fn of(page: query::MinionsPage<Value>, paths: &[String]) -> Self {
        let minions = page.minions.into_iter();
        Self {
            minions: minions.map(|row| Minion::of(row, paths)).collect(),
            total: page.total,
            next: page.next,
        }
    }
}

impl Minion {
    fn of(row: InventoryRow<Value>, paths: &[String]) -> Self {
        let grains = paths.iter().cloned().zip(row.grains);
        let grains = grains.map(|(path, value)| {
            let value = value.as_ref().map_or(Json::Null, as_json);
            (path, value)
        });
        Self {
            id: row.minion.id.to_string(),
            present: row.minion.is_present,
            standing: row.minion.standing,
            last_heard: row.minion.last_heard.map(time),
            address: row.minion.address.map(|address| address.to_string()),
            grains: grains.collect(),
        }
    }
}

impl From<query::KeysPage> for Keys {
    fn from(page: query::KeysPage) -> Self {
        let keys = page.keys.into_iter().map(|row| Key {
            minion: row.minion.to_string(),
            state: row.state,
            fingerprint: row.fingerprint,
            written: row.written.map(time),
            last_heard: row.last_heard.map(time),
            present: row.is_present,
            address: row.address,
        });
        Self {
            keys: keys.collect(),
            next: page.next,
        }
    }
}

impl From<query::Health> for Health {
    fn from(health: query::Health) -> Self {
        let checks = health.checks.into_iter().map(|check| Check {
            name: check.name,
            passed: check.passed,
            reason: check.reason,
        });
        let findings = health.findings.into_iter().map(|finding| Finding {
            subject: finding.subject,
            severity: finding.severity,
            finding: finding.finding,
            advice: finding.advice,
        });
        let diagnosed = health.diagnosed.and_then(|at| at.checked_mul(1_000_000));
        let lags = health.lags.into_iter().map(|lag| Lag {
            name: lag.name,
            rows: lag.rows,
            seconds: lag.seconds,
        });
        Self {
            ready: health.is_ready,
            checks: checks.collect(),
            findings: findings.collect(),
            lags: lags.collect(),
            diagnosed: diagnosed.map(time),
        }
    }
}

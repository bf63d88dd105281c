//! Scheduler of the option `schedule`: runner functions that the master runs by the clock
//! (`salt/utils/schedule.py`).
//!
//! It has no clock of its own: a caller passes the time and gets the runs that are due. Its rules
//! are in `turn.rs`. Clock and threads are the actor's (`actors/scheduler.rs`). Nothing of it is
//! durable: as with stock, a master that starts knows of no earlier run.

mod conditions;
mod history;
mod job;
mod local_time;
mod moment;
mod run;
mod timing;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use saltern_config::yaml::{Mapping, Mark, Node};
use saltern_config::{Finding, MasterConfig, Severity};
use saltern_model::Compat;

use job::{Common, Fault};
use local_time::turn_after;
use turn::{Change, Look, Turn};

pub use history::History;
pub use job::Job;
pub use turn::Running;

/// The option.
const OPTION: &str = "schedule";

/// Jobs of a schedule with the state of each.
pub struct Schedule {
    jobs: Vec<(Arc<Job>, Turn)>,
    zone: TimeZone,
    grace: SignedDuration,
    /// The latest time at which `due` was called.
    seen: Option<Timestamp>,
}

/// Run of a job that is due.
#[derive(Debug)]
pub struct Due {
    /// The job.
    pub job: Arc<Job>,
    /// The function that runs: the job's, or `skip_function`.
    pub function: String,
    /// The delay between its time and the call of `due`.
    pub late: Duration,
    /// To be held until the run has ended.
    pub running: Running,
}

/// Reason why a job's turn was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// `enabled: False`, of the job or of the schedule.
    Disabled,
    /// Outside of `range`.
    NotInRange,
    /// Within `skip_during_range`.
    InSkipRange,
    /// `until` has passed.
    UntilPassed,
    /// `after` has not.
    AfterNotPassed,
    /// As many runs as `maxrunning` are under way.
    MaxRunning,
    /// `due` was called too late, and a slot other than cron's is not made up for.
    Missed,
    /// The clock went back, and this slot has run already.
    Repeated,
    /// Too many calls of runner functions wait.
    QueueFull,
}

impl Skip {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Disabled,
        Self::NotInRange,
        Self::InSkipRange,
        Self::UntilPassed,
        Self::AfterNotPassed,
        Self::MaxRunning,
        Self::Missed,
        Self::Repeated,
        Self::QueueFull,
    ];

    /// The reason as a word: stock's, where it has one.
    pub fn word(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::NotInRange => "not_in_range",
            Self::InSkipRange => "in_skip_range",
            Self::UntilPassed => "until_passed",
            Self::AfterNotPassed => "after_not_passed",
            Self::MaxRunning => "maxrunning",
            Self::Missed => "missed",
            Self::Repeated => "repeated",
            Self::QueueFull => "queue_full",
        }
    }

    fn is_range(self) -> bool {
        matches!(self, Self::NotInRange | Self::InSkipRange)
    }
}

/// Forecast of a job.
#[derive(Debug)]
pub struct Outlook<'s> {
    /// The job.
    pub job: &'s Job,
    /// Its timing, as it is written.
    pub timing: &'s str,
    /// Whether it runs when the master starts.
    pub at_start: bool,
    /// Its next turn, without a splay.
    pub next: Option<Timestamp>,
    /// The reason why it will not run then.
    pub skip: Option<Skip>,
}

impl Schedule {
    /// [`Self::read`] in the zone of this machine.
    pub fn of_site(config: &MasterConfig) -> (Self, Vec<Finding>) {
        Self::read(config, TimeZone::system())
    }

    /// Reads the schedule of a configuration, in a time zone, with findings. A job in error is left
    /// out.
    pub fn read(config: &MasterConfig, zone: TimeZone) -> (Self, Vec<Finding>) {
        let grace = SignedDuration::try_from(config.loop_interval);
        let mut schedule = Self {
            jobs: Vec::new(),
            zone,
            grace: grace.unwrap_or(SignedDuration::MAX),
            seen: None,
        };
        let mut findings = Vec::new();
        let followed = config.followed();
        if let Some(entries) = followed.schedule().as_map() {
            let common = common(entries, config.salt_compat, &mut findings);
            for (key, entry) in entries.iter() {
                let name = job::name_of(key);
                if Common::NAMES.contains(&name.as_str()) {
                    continue;
                }
                let mut warn = |fault| findings.push(finding(&name, fault, ""));
                match job::read(&name, &entry.value, &common, &mut warn) {
                    Ok(job) => schedule.add(job),
                    Err(fault) => findings.push(finding(&name, fault, "; the job is not run")),
                }
            }
        }
        (schedule, findings)
    }

    fn add(&mut self, job: Job) {
        let turn = Turn::new(&job);
        self.jobs.push((Arc::new(job), turn));
    }

    /// Whether there is no job at all.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The jobs, in the order in which they are written.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().map(|(job, _)| job.as_ref())
    }

    /// Takes the jobs and the zone of another schedule. A job whose name is in both keeps its
    /// running and past runs, and its turn unless its timing changed. A new job does not count this
    /// as a start.
    pub fn become_like(&mut self, other: Self) {
        let mut old = std::mem::take(&mut self.jobs);
        let change = Change {
            is_same_zone: self.zone == other.zone,
            seen: self.seen,
        };
        for (job, turn) in other.jobs {
            // Two jobs may bear one name, and a turn is of one of them.
            let known = old.iter().position(|(known, _)| known.name == job.name);
            let turn = match known.map(|place| old.remove(place)) {
                Some((known, turn)) => turn.of_edited(&known, &job, &change),
                None => turn.without_start(),
            };
            self.jobs.push((job, turn));
        }
        self.zone = other.zone;
    }

    /// The time at which a job may be due; `None` when none ever is.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let wakes = self
            .jobs
            .iter()
            .filter_map(|(job, turn)| turn.wake(job, now));
        wakes.min()
    }

    /// The runs that are due. `draw` draws a number between two bounds, inclusive; `skipped` is
    /// called for each turn without a run.
    pub fn due(
        &mut self,
        now: Timestamp,
        draw: &mut dyn FnMut(u64, u64) -> u64,
        skipped: &mut dyn FnMut(&Job, Skip),
    ) -> Vec<Due> {
        if let Some(seen) = self.seen.replace(now).filter(|seen| *seen > now) {
            let by = seen.duration_since(now);
            for (job, turn) in &mut self.jobs {
                turn.set_back(seen, by, job);
            }
        }
        let mut look = Look {
            now,
            zone: &self.zone,
            grace: self.grace,
            draw,
        };
        let jobs = self.jobs.iter_mut();
        jobs.filter_map(|(job, turn)| turn.take(job, &mut look, &mut |why| skipped(job, why)))
            .collect()
    }

    /// Forecast of each job, in the order in which they are written.
    pub fn outlook(&self, now: Timestamp) -> impl Iterator<Item = Outlook<'_>> {
        self.jobs.iter().map(move |(job, _)| {
            let next = turn_after(&job.timing, &self.zone, now).map(|(at, _)| at);
            let at_turn = next.map(|next| self.zone.to_datetime(next));
            Outlook {
                job,
                timing: &job.timing_text,
                at_start: job.run_on_start && job.enabled,
                next,
                skip: match (job.enabled, at_turn) {
                    (false, _) => Some(Skip::Disabled),
                    (true, Some(turn)) => job.conditions.refuse(turn),
                    (true, None) => Some(Skip::Missed),
                },
            }
        })
    }

    /// The zone of the slots.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

/// Reads the options beside the jobs.
fn common(entries: &Mapping, compat: Compat, findings: &mut Vec<Finding>) -> Common {
    let mut faults = Vec::new();
    let mut splay = None;
    if let Some(node) = entries.get("splay") {
        match job::splay(node, &mut |fault| faults.push(fault)) {
            Ok(read) => splay = read,
            Err(fault) => faults.push(fault),
        }
    }
    let mut skip_during = None;
    if let Some(node) = entries
        .get("skip_during_range")
        .filter(|node| node.is_truthy())
    {
        match job::window("skip_during_range", node) {
            Ok(read) => skip_during = Some(read),
            Err(fault) => faults.push(fault),
        }
    }
    findings.extend(
        faults
            .into_iter()
            .map(|fault| warning(fault.mark, fault.message)),
    );
    Common {
        disabled: entries.get("enabled").is_some_and(|node| !node.is_truthy()),
        splay,
        skip_during,
        skip_function: entries
            .get("skip_function")
            .and_then(Node::as_str)
            .map(str::to_owned),
        intervals_start_at_once: compat == Compat::V3008,
    }
}

fn finding(job: &str, fault: Fault, end: &str) -> Finding {
    let message = format!("job \"{job}\": {}{end}", fault.message);
    warning(fault.mark, message)
}

fn warning(mark: Mark, message: String) -> Finding {
    Finding {
        severity: Severity::Warning,
        file: mark.file.to_string(),
        line: mark.line,
        option: OPTION.to_owned(),
        message,
        suggestion: None,
        needs_python: false,
    }
}

#[cfg(test)]
mod tests;

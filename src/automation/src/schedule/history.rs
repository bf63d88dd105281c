//! Runs of scheduled jobs since the master started: what became of the latest ones, and of turns that
//! brought none. For people; nothing is decided by it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_model::Jid;
use saltern_model::query::{ScheduleReport, ScheduledJob, ScheduledRun};
use saltern_runners::Call;

use super::job::Job;
use super::{Outlook, Schedule, Skip};

/// Runs of one job that are remembered.
const MAX_RUNS: usize = 10;

/// Jobs that are remembered: more than a schedule has, unless it is written anew all the time.
const MAX_JOBS: usize = 10_000;

/// Characters of a reason.
const MAX_REASON: usize = 500;

/// History of the jobs of a schedule, by name. It survives a reload.
#[derive(Default)]
pub struct History(Mutex<BTreeMap<String, JobHistory>>);

#[derive(Default)]
struct JobHistory {
    begun: u64,
    failed: u64,
    skipped: u64,
    last_skip: Option<Skip>,
    /// The latest first.
    runs: VecDeque<ScheduledRun>,
}

impl History {
    fn of<T>(&self, job: &str, change: impl FnOnce(&mut JobHistory) -> T) -> Option<T> {
        let mut jobs = self.0.lock();
        if jobs.len() >= MAX_JOBS && !jobs.contains_key(job) {
            return None;
        }
        Some(change(jobs.entry(job.to_owned()).or_default()))
    }

    /// Records a turn without a run.
    pub fn skipped(&self, job: &Job, why: Skip) {
        self.of(&job.name, |history| {
            history.skipped += 1;
            history.last_skip = Some(why);
        });
    }

    /// Records the start of a run; its end is recorded by what this returns.
    pub(super) fn begin(self: &Arc<Self>, job: &Job, call: &Call, clock: &Clock) -> RecordedRun {
        let run = ScheduledRun {
            jid: call.jid.clone(),
            function: call.fun.clone(),
            began: clock.unix_micros(),
            ended: None,
            outcome: "running".to_owned(),
            reason: None,
            is_kept: job.report.keep,
        };
        self.of(&job.name, |history| {
            history.begun += 1;
            history.runs.push_front(run);
            history.runs.truncate(MAX_RUNS);
        });
        RecordedRun {
            history: Arc::clone(self),
            clock: clock.clone(),
            job: job.name.clone(),
            jid: call.jid.clone(),
            has_ended: false,
        }
    }

    /// The jobs of a schedule with their forecast and their history.
    pub fn report(&self, schedule: &Schedule, now: Timestamp) -> ScheduleReport {
        let histories = self.0.lock();
        let jobs = schedule.outlook(now).map(|outlook| {
            let history = histories.get(&outlook.job.name);
            reported(&outlook, history)
        });
        ScheduleReport {
            jobs: jobs.collect(),
            zone: match schedule.zone().iana_name() {
                Some(name) => name.to_owned(),
                None => now
                    .to_zoned(schedule.zone().clone())
                    .strftime("%:z")
                    .to_string(),
            },
        }
    }
}

fn reported(outlook: &Outlook<'_>, history: Option<&JobHistory>) -> ScheduledJob {
    let skip = outlook.skip.map(|skip| skip.word().to_owned());
    ScheduledJob {
        name: outlook.job.name.clone(),
        function: outlook.job.function.clone(),
        timing: outlook.timing.to_owned(),
        at_start: outlook.at_start,
        next: outlook.next.map(Timestamp::as_microsecond),
        skip,
        begun: history.map_or(0, |history| history.begun),
        failed: history.map_or(0, |history| history.failed),
        skipped: history.map_or(0, |history| history.skipped),
        last_skip: history
            .and_then(|history| history.last_skip)
            .map(|skip| skip.word().to_owned()),
        runs: history.map_or_else(Vec::new, |history| history.runs.iter().cloned().collect()),
    }
}

/// A run under way. Dropped without an end, it is recorded as lost.
pub(super) struct RecordedRun {
    history: Arc<History>,
    clock: Clock,
    job: String,
    jid: Jid,
    has_ended: bool,
}

impl RecordedRun {
    /// Records the end: a failure with its reason, or a success.
    pub(super) fn end(mut self, problem: Option<&str>) {
        self.record(
            if problem.is_some() { "failed" } else { "done" },
            problem.map(|problem| problem.chars().take(MAX_REASON).collect()),
        );
    }

    fn record(&mut self, outcome: &str, reason: Option<String>) {
        self.has_ended = true;
        let (jid, now) = (&self.jid, self.clock.unix_micros());
        self.history.of(&self.job, |history| {
            history.failed += u64::from(outcome != "done");
            let run = history.runs.iter_mut().find(|run| run.jid == *jid);
            if let Some(run) = run {
                run.ended = Some(now);
                outcome.clone_into(&mut run.outcome);
                run.reason = reason;
            }
        });
    }
}

impl Drop for RecordedRun {
    fn drop(&mut self) {
        if !self.has_ended {
            self.record("lost", None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use saltern_runners::Arguments;

    use super::super::tests::read;
    use super::*;

    #[test]
    fn run_is_recorded_with_its_end_or_as_lost() {
        let zone = jiff::tz::TimeZone::UTC;
        let (schedule, _) = read("job: {function: test.arg, hours: 1}", &zone);
        let history = Arc::new(History::default());
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_secs(1_000_000));
        let job = schedule.jobs().next().unwrap().clone();
        let begin = |number: u32| {
            let call = Call {
                jid: Jid::parse(&format!("202601020304050{number:05}")).unwrap(),
                fun: "test.arg".to_owned(),
                arguments: Arguments::default(),
                user: "root".to_owned(),
            };
            history.begin(&job, &call, &clock)
        };
        begin(1).end(None);
        clock.advance(Duration::from_secs(5));
        begin(2).end(Some("no"));
        drop(begin(3));
        let running = begin(4);
        history.skipped(&job, Skip::MaxRunning);
        let report = history.report(&schedule, Timestamp::from_second(1_000_000).unwrap());
        let [job] = report.jobs.as_slice() else {
            panic!("{report:?}")
        };
        assert_eq!((job.begun, job.failed, job.skipped), (4, 2, 1));
        assert_eq!(job.last_skip.as_deref(), Some("maxrunning"));
        let runs = job.runs.iter();
        let runs: Vec<_> = runs
            .map(|run| (run.outcome.as_str(), run.reason.as_deref()))
            .collect();
        let expected = [
            ("running", None),
            ("lost", None),
            ("failed", Some("no")),
            ("done", None),
        ];
        assert_eq!(runs, expected);
        drop(running);
        for number in 5..30 {
            begin(number).end(None);
        }
        let report = history.report(&schedule, Timestamp::UNIX_EPOCH);
        let runs = report.jobs.first().map(|job| job.runs.len());
        assert_eq!(runs, Some(MAX_RUNS));
    }
}

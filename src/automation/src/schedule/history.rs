//! Runs of scheduled jobs: what became of the latest ones, and of turns that brought none. For people;
//! nothing is decided by it. It lasts over a restart in a file of its own, but for the last seconds
//! before a crash.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_config::MasterConfig;
use saltern_model::Jid;
use saltern_model::query::{ScheduleReport, ScheduledJob, ScheduledRun};
use saltern_runners::Call;
use saltern_store::{HistoryFile, SavedHistory};
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::{Outlook, Schedule, Skip};

/// Name of the file.
const FILE: &str = "schedule_history";

/// Runs of one job that are remembered.
const MAX_RUNS: usize = 10;

/// Jobs that are remembered: more than a schedule has, unless it is written anew all the time.
const MAX_JOBS: usize = 10_000;

/// Those that are taken over from an earlier process, the newest ones: the rest is room for new
/// names.
const MAX_RESTORED: usize = MAX_JOBS / 2;

/// Characters of a reason.
const MAX_REASON: usize = 500;

/// History of the jobs of a schedule, by name. It survives a reload.
pub struct History {
    entries: Mutex<Entries>,
    file: HistoryFile,
}

#[derive(Default)]
struct Entries {
    jobs: BTreeMap<String, JobHistory>,
    /// Counts the changes.
    changes: u64,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct JobHistory {
    begun: u64,
    failed: u64,
    skipped: u64,
    /// In a word.
    last_skip: Option<String>,
    /// The latest first.
    runs: VecDeque<ScheduledRun>,
}

impl JobHistory {
    /// When the latest run began; a job without one is the oldest.
    fn latest(&self) -> Option<i64> {
        self.runs.front().map(|run| run.began)
    }

    /// Ends the runs that the process which wrote this did not end.
    fn without_running(mut self) -> Self {
        let running = self.runs.iter_mut().filter(|run| run.outcome == RUNNING);
        for run in running {
            LOST.clone_into(&mut run.outcome);
            run.reason = Some("the master ended before it did".to_owned());
            run.ended = Some(run.began);
            self.failed += 1;
        }
        self.runs.truncate(MAX_RUNS);
        self
    }
}

/// Outcomes of a run that has not ended, and of one whose end nobody has seen.
const RUNNING: &str = "running";
const LOST: &str = "lost";

/// Content of the file: jobs by name, that of the latest run first.
#[derive(Default, Serialize, Deserialize)]
struct SavedJobs {
    jobs: Vec<(String, JobHistory)>,
}

impl SavedHistory for SavedJobs {
    fn shorten(&mut self) -> bool {
        self.jobs.truncate(self.jobs.len() / 2);
        !self.jobs.is_empty()
    }
}

impl History {
    /// The history of a master, with what an earlier process wrote of it.
    pub fn open(config: &MasterConfig) -> Self {
        let file = HistoryFile::new(config, FILE);
        let saved: SavedJobs = file.read().unwrap_or_default();
        let jobs = saved.jobs.into_iter().take(MAX_RESTORED);
        let jobs = jobs.map(|(name, job)| (name, job.without_running()));
        let entries = Entries {
            jobs: jobs.collect(),
            changes: 0,
        };
        Self {
            entries: Mutex::new(entries),
            file,
        }
    }

    /// Whether something has not been written.
    pub fn has_news(&self) -> bool {
        self.file.lacks(self.entries.lock().changes)
    }

    /// Writes the file. Blocks.
    pub fn save(&self) {
        self.file.save(|| {
            let entries = self.entries.lock();
            let jobs = entries.jobs.iter();
            let mut jobs: Vec<(String, JobHistory)> = jobs
                .map(|(name, job)| (name.clone(), job.clone()))
                .collect();
            jobs.sort_by_key(|(_, job)| Reverse(job.latest()));
            (SavedJobs { jobs }, entries.changes)
        });
    }

    fn of<T>(&self, job: &str, change: impl FnOnce(&mut JobHistory) -> T) -> Option<T> {
        let mut entries = self.entries.lock();
        if entries.jobs.len() >= MAX_JOBS && !entries.jobs.contains_key(job) {
            return None;
        }
        entries.changes += 1;
        Some(change(entries.jobs.entry(job.to_owned()).or_default()))
    }

    /// Records a turn without a run.
    pub fn skipped(&self, job: &Job, why: Skip) {
        self.of(&job.name, |history| {
            history.skipped += 1;
            history.last_skip = Some(why.word().to_owned());
        });
    }

    /// Records the start of a run; its end is recorded by what this returns.
    pub(super) fn begin(self: &Arc<Self>, job: &Job, call: &Call, clock: &Clock) -> RecordedRun {
        let run = ScheduledRun {
            jid: call.jid.clone(),
            function: call.fun.clone(),
            began: clock.unix_micros(),
            ended: None,
            outcome: RUNNING.to_owned(),
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
        let entries = self.entries.lock();
        let jobs = schedule.outlook(now).map(|outlook| {
            let history = entries.jobs.get(&outlook.job.name);
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
        last_skip: history.and_then(|history| history.last_skip.clone()),
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
            self.record(LOST, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use saltern_config::load_master;
    use saltern_runners::Arguments;

    use super::super::tests::read;
    use super::*;

    fn config(dir: &tempfile::TempDir) -> MasterConfig {
        let text = format!("root_dir: {}\n", dir.path().display());
        std::fs::write(dir.path().join("master"), text).unwrap();
        load_master(dir.path()).unwrap().config
    }

    fn call(number: u32) -> Call {
        Call {
            jid: Jid::parse(&format!("202601020304050{number:05}")).unwrap(),
            fun: "test.arg".to_owned(),
            arguments: Arguments::default(),
            user: "root".to_owned(),
        }
    }

    #[test]
    fn history_lasts_over_a_restart_and_runs_that_it_cut_off_are_lost() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(&dir);
        let zone = jiff::tz::TimeZone::UTC;
        let (schedule, _) = read("job: {function: test.arg, hours: 1}", &zone);
        let job = schedule.jobs().next().unwrap().clone();
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_secs(1_000_000));
        let history = Arc::new(History::open(&config));
        assert!(!history.has_news());
        history.begin(&job, &call(1), &clock).end(None);
        history.skipped(&job, Skip::Missed);
        let running = history.begin(&job, &call(2), &clock);
        assert!(history.has_news());
        history.save();
        assert!(!history.has_news());
        // As it is when the process is killed now.
        let next = History::open(&config);
        let report = next.report(&schedule, Timestamp::UNIX_EPOCH);
        let [found] = report.jobs.as_slice() else {
            panic!("{report:?}")
        };
        assert_eq!((found.begun, found.failed, found.skipped), (2, 1, 1));
        assert_eq!(found.last_skip.as_deref(), Some("missed"));
        let outcomes: Vec<_> = found.runs.iter().map(|run| run.outcome.as_str()).collect();
        assert_eq!(outcomes, ["lost", "done"]);
        assert!(found.runs.iter().all(|run| run.ended.is_some()));
        drop(running);
        assert!(history.has_news());
    }

    #[test]
    fn run_is_recorded_with_its_end_or_as_lost() {
        let zone = jiff::tz::TimeZone::UTC;
        let (schedule, _) = read("job: {function: test.arg, hours: 1}", &zone);
        let dir = tempfile::tempdir().unwrap();
        let history = Arc::new(History::open(&config(&dir)));
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_secs(1_000_000));
        let job = schedule.jobs().next().unwrap().clone();
        let begin = |number: u32| history.begin(&job, &call(number), &clock);
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

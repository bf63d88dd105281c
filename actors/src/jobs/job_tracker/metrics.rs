//! Metrics of the tracker.

use saltern_base::metrics::{
    HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry, counter, counter_vec, gauge,
    histogram_vec,
};
use saltern_store::jobs::JobState;

use super::machine::{Counted, TrackerEffect};
use super::news::{JobNews, state_word};

/// Buckets in seconds, from a ping to a day.
const SECONDS: [f64; 13] = [
    0.05, 0.25, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0,
];

/// Counters, gauges and histograms of the tracker.
#[derive(Clone)]
pub(crate) struct TrackerMetrics {
    pub(super) open: IntGauge,
    pub(super) finished: IntCounterVec,
    seconds: HistogramVec,
    pub(super) verdicts: IntCounterVec,
    pub(super) returns: IntCounter,
    pub(super) duplicates: IntCounter,
    rounds: IntCounter,
    pub(super) probes: IntCounter,
    probed: IntCounter,
    merged: IntCounter,
    capped: IntCounter,
    pub(super) polls: IntCounter,
    answers: IntCounter,
    leaves_refused: IntCounter,
    said_below: IntCounterVec,
    pub(super) strays: IntCounter,
    pub(super) over_quota: IntCounter,
}

impl TrackerMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |name, help| counter(registry, name, help);
        let finished = counter_vec(
            registry,
            "saltern_jobs_finished_total",
            "Jobs that are no longer waited for, by verdict; one that a late return completes \
             counts once more.",
            &["verdict"],
        );
        // Counters start at 0: a first increase would not show otherwise.
        for state in [JobState::Complete, JobState::Expired, JobState::Killed] {
            finished.with_label_values(&[state_word(state)]).inc_by(0);
        }
        Self {
            open: gauge(registry, "saltern_jobs_open", "Jobs that are waited for."),
            finished,
            seconds: histogram_vec(
                registry,
                "saltern_job_seconds",
                "Time from the beginning of a job to its end, by verdict.",
                &["verdict"],
                &SECONDS,
            ),
            verdicts: counter_vec(
                registry,
                "saltern_minion_verdicts_total",
                "Minions of jobs that were given up, are back, or returned after all.",
                &["verdict"],
            ),
            returns: counter("saltern_returns_total", "Returns stored."),
            duplicates: counter(
                "saltern_returns_duplicate_total",
                "Returns that were stored already.",
            ),
            rounds: counter(
                "saltern_probe_rounds_total",
                "Silences of jobs after which their minions were asked what they run.",
            ),
            probes: counter("saltern_probes_total", "Probes published."),
            probed: counter("saltern_probed_minions_total", "Minions named in probes."),
            merged: counter(
                "saltern_probes_merged_total",
                "Minions that were to be asked and were being asked already.",
            ),
            capped: counter(
                "saltern_probes_capped_total",
                "Probes that had to wait because of saltern_probe_rate.",
            ),
            polls: counter(
                "saltern_polls_answered_total",
                "Questions of clients about running jobs that were not passed on to minions.",
            ),
            answers: counter(
                "saltern_poll_answers_total",
                "Answers given to clients in the name of minions.",
            ),
            leaves_refused: counter(
                "saltern_syndic_minions_refused_total",
                "Minions below syndics that are not waited for: there is no room, or it is too late.",
            ),
            said_below: counter_vec(
                registry,
                "saltern_syndic_verdicts_received_total",
                "Verdicts of syndics on minions that have not returned, by what became of them: kept, no_job \
                 (it is not remembered), or no_room.",
                &["result"],
            ),
            strays: counter(
                "saltern_probe_answers_expired_total",
                "Answers through syndics to questions that are forgotten, and were passed over.",
            ),
            over_quota: counter(
                "saltern_reports_refused_total",
                "Returns that no job expects and that were refused, because their minion had spent \
                 its quota of the day.",
            ),
        }
    }

    pub(super) fn count(&self, effect: &TrackerEffect) {
        match effect {
            TrackerEffect::Report(JobNews::Verdict { changes, .. }) => {
                for change in changes {
                    let verdicts = &self.verdicts;
                    verdicts.with_label_values(&[change.verdict()]).inc();
                }
            }
            TrackerEffect::Report(JobNews::Finished(ending)) => {
                let verdict = state_word(ending.state);
                self.finished.with_label_values(&[verdict]).inc();
                let seconds = self.seconds.with_label_values(&[verdict]);
                seconds.observe(ending.took.as_secs_f64());
            }
            TrackerEffect::Probe { minions, .. } => {
                self.probes.inc();
                self.probed.inc_by(minions.len() as u64);
            }
            TrackerEffect::PendingReply { .. } => self.answers.inc(),
            TrackerEffect::Count(Counted::Round) => self.rounds.inc(),
            TrackerEffect::Count(Counted::Merged) => self.merged.inc(),
            TrackerEffect::Count(Counted::Capped) => self.capped.inc(),
            TrackerEffect::Count(Counted::LeavesRefused(count)) => {
                self.leaves_refused.inc_by(*count as u64);
            }
            TrackerEffect::Count(Counted::SaidBelow(word)) => {
                self.said_below.with_label_values(&[word]).inc();
            }
            TrackerEffect::Report(_) | TrackerEffect::Keep { .. } | TrackerEffect::SendAgain(_) => {
            }
        }
    }
}

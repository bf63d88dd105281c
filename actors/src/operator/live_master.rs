//! Live state of the master for queries of users: accounts of open jobs, and readiness.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use actix::Recipient;
use jiff::Timestamp;
use parking_lot::Mutex;
use saltern_automation::schedule::{History, Schedule};
use saltern_base::clock::Clock;
use saltern_base::metrics::IntGauge;
use saltern_model::Jid;
use saltern_model::control::Account;
use saltern_model::query::{
    DoctorFinding, Health as HealthReport, HealthCheck, Lag, ScheduleReport,
};
use saltern_runners::{LiveMaster, NoAnswer};

use super::health::{Checks as _, Health};
use crate::messages::ExplainTo;
use crate::syndic::view::SyndicView;

/// The tracker answers between two messages, so within this unless it is overloaded.
const ACCOUNT: Duration = Duration::from_secs(5);

/// Seconds after which a diagnosis is made anew for whoever asks.
const DIAGNOSIS_AGE: u64 = 30;

/// The running master.
pub(crate) struct RunningMaster {
    pub(crate) tracker: Recipient<ExplainTo>,
    /// Gone when the master is: it holds the tree, whose actors hold this.
    pub(crate) health: Weak<Health>,
    pub(crate) diagnosis: Option<LatestDiagnosis>,
    pub(crate) schedule: Arc<Mutex<Schedule>>,
    pub(crate) scheduled: Arc<History>,
    pub(crate) readers: Arc<ReaderLags>,
    pub(crate) syndics: Arc<SyndicView>,
    pub(crate) clock: Clock,
}

/// Lags of the mirror and of the followers for returners, whose actors are started later than the
/// queries.
#[derive(Default)]
pub(crate) struct ReaderLags(Mutex<Vec<(String, IntGauge)>>);

impl ReaderLags {
    /// Adds a reader with the gauge of the rows that it has not taken yet.
    pub(crate) fn add(&self, name: impl Into<String>, rows: IntGauge) {
        self.0.lock().push((name.into(), rows));
    }

    fn all(&self) -> Vec<Lag> {
        let readers = self.0.lock();
        let readers = readers.iter().map(|(name, rows)| Lag {
            name: name.clone(),
            rows: u64::try_from(rows.get()).unwrap_or_default(),
            seconds: None,
        });
        readers.collect()
    }
}

/// Diagnosis of this master by `saltern doctor`: reads the disk and asks the control socket, so it
/// blocks.
pub type Diagnose = Arc<dyn Fn() -> Vec<DoctorFinding> + Send + Sync>;

/// The latest diagnosis. It is made on a thread of its own, so whoever asks gets the one before.
pub(crate) struct LatestDiagnosis {
    diagnose: Diagnose,
    clock: Clock,
    latest: Arc<Mutex<Latest>>,
}

#[derive(Default)]
struct Latest {
    findings: Vec<DoctorFinding>,
    /// In seconds since 1970.
    at: Option<i64>,
    is_under_way: bool,
}

impl LatestDiagnosis {
    pub(crate) fn new(diagnose: Diagnose, clock: Clock) -> Self {
        Self {
            diagnose,
            clock,
            latest: Arc::default(),
        }
    }

    /// The findings and when they were made; begins the next diagnosis when that is long ago.
    fn get(&self) -> (Vec<DoctorFinding>, Option<i64>) {
        let mut latest = self.latest.lock();
        let now = self.clock.unix();
        let is_old = latest.at.is_none_or(|at| now.abs_diff(at) >= DIAGNOSIS_AGE);
        if is_old && !latest.is_under_way {
            latest.is_under_way = self.begin();
        }
        (latest.findings.clone(), latest.at)
    }

    /// Whether a thread could be had.
    fn begin(&self) -> bool {
        let (diagnose, clock) = (self.diagnose.clone(), self.clock.clone());
        let under_way = UnderWay(self.latest.clone());
        let started = thread::Builder::new()
            .name("diagnosis".to_owned())
            .spawn(move || {
                let findings = diagnose();
                let mut latest = under_way.0.lock();
                latest.findings = findings;
                latest.at = Some(clock.unix());
            });
        started.is_ok()
    }
}

/// Ends with the thread, also if that panics.
struct UnderWay(Arc<Mutex<Latest>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().is_under_way = false;
    }
}

impl LiveMaster for RunningMaster {
    fn account(&self, jid: &Jid) -> Result<Option<Account>, NoAnswer> {
        let (answer, account) = sync_channel(1);
        let jid = jid.clone();
        let asked = self.tracker.try_send(ExplainTo { jid, answer });
        asked.map_err(|_| NoAnswer)?;
        account.recv_timeout(ACCOUNT).map_err(|_| NoAnswer)
    }

    fn schedule(&self) -> ScheduleReport {
        let now = Timestamp::from_microsecond(self.clock.unix_micros());
        let schedule = self.schedule.lock();
        self.scheduled
            .report(&schedule, now.unwrap_or(Timestamp::MAX))
    }

    fn health(&self) -> HealthReport {
        let health = self.health.upgrade();
        let checks = health.map(|health| health.ready()).unwrap_or_default();
        let diagnosis = self.diagnosis.as_ref().map(LatestDiagnosis::get);
        let (findings, diagnosed) = diagnosis.unwrap_or_default();
        let mut lags = self.readers.all();
        let outboxes = self.syndics.outboxes().into_iter().map(|outbox| Lag {
            name: format!("outbox {}", outbox.outbox),
            rows: outbox.lag_rows,
            seconds: Some(outbox.lag_seconds),
        });
        lags.extend(outboxes);
        HealthReport {
            lags,
            is_ready: !checks.is_empty() && checks.iter().all(|check| check.passed),
            findings,
            diagnosed,
            checks: checks
                .into_iter()
                .map(|check| HealthCheck {
                    name: check.name.to_owned(),
                    passed: check.passed,
                    reason: check.reason,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn diagnosis_is_made_beside_whoever_asks_and_kept_for_a_while() {
        let (begun, begins) = mpsc::channel();
        let clock = Clock::manual(std::time::SystemTime::UNIX_EPOCH);
        let diagnose = Arc::new(move || {
            begun.send(()).unwrap();
            vec![DoctorFinding {
                subject: "disk".to_owned(),
                severity: "note".to_owned(),
                finding: "it is small".to_owned(),
                advice: "make room".to_owned(),
            }]
        });
        let latest = LatestDiagnosis::new(diagnose, clock.clone());
        assert_eq!(latest.get(), (Vec::new(), None));
        begins.recv().unwrap();
        while latest.latest.lock().is_under_way {
            thread::yield_now();
        }
        let (findings, at) = latest.get();
        assert_eq!((findings.len(), at), (1, Some(0)));
        assert!(begins.try_recv().is_err(), "it is new");
        clock.advance(Duration::from_secs(DIAGNOSIS_AGE));
        assert_eq!(latest.get().1, Some(0));
        begins.recv().unwrap();
    }
}

//! History of a run, and the invariants at its end:
//!
//! 1. A return that was acknowledged is in the job database, once, as it was sent.
//! 2. A job whose jid a client or a minion has is in the job database.
//! 3. Every job ends; it is complete when all of its minions returned, and not before. A return that
//!    comes when the job had ended and the master was restarted meanwhile is stored, and changes no verdict.
//! 4. What came to a minion is returned and acknowledged in the end, however bad the network was.
//! 5. A job comes to a minion once, unless a master died before it could record that the job left, or
//!    had no room to.
//! 6. When all faults are over, a job comes to all minions and is complete: no serial went back, no
//!    session and no slot is lost.
//! 7. A client that asks about a job never hears less than what was acknowledged before it asked.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use saltern_model::Jid;
use saltern_store::jobs::{JobQueries, JobState};
use saltern_wire::msgpack::{Limits, MapView};

use super::site::minion_id;
use super::world::MINIONS;

/// Time within which a master records that a job left, with the slowest commits.
const RECORDED_WITHIN: Duration = Duration::from_secs(9);

/// Kind of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Started,
    Killed,
    /// A client has the answer: the job's jid, and whether it is the last one.
    Published(String, bool),
    NotPublished(String),
    Subscribed,
    SubscriptionLost,
    /// A publication came to a minion.
    Arrived(String),
    Acknowledged(String),
    NotAcknowledged(String),
    /// A client asked about a job, and was answered.
    Read(String),
}

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Duration,
    pub(super) who: String,
    pub(super) what: What,
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:9.3} {:6} {:?}",
            self.at.as_secs_f64(),
            self.who,
            self.what
        )
    }
}

/// The history of a run, and what was found to be wrong on the way.
#[derive(Default)]
pub(super) struct History {
    lines: RefCell<Vec<Line>>,
    wrong: RefCell<Vec<String>>,
    /// Writes may have been refused.
    was_disk_full: Cell<bool>,
}

impl History {
    /// A disk of the run is full for a while.
    pub(super) fn disk_was_full(&self) {
        self.was_disk_full.set(true);
    }

    pub(super) fn note(&self, at: Duration, who: &str, what: What) {
        let who = who.to_owned();
        self.lines.borrow_mut().push(Line { at, who, what });
    }

    pub(super) fn complain(&self, problem: String) {
        self.wrong.borrow_mut().push(problem);
    }

    /// Minions whose return of a job was acknowledged.
    pub(super) fn acknowledged(&self, jid: &str) -> BTreeSet<String> {
        let lines = self.lines.borrow();
        let of_job = lines
            .iter()
            .filter(|line| matches!(&line.what, What::Acknowledged(of) if of == jid));
        of_job.map(|line| line.who.clone()).collect()
    }

    /// Jobs that a client was answered about.
    pub(super) fn published(&self) -> Vec<String> {
        let lines = self.lines.borrow();
        let jids = lines.iter().filter_map(|line| match &line.what {
            What::Published(jid, _) => Some(jid.clone()),
            _ => None,
        });
        jids.collect()
    }

    pub(super) fn into_parts(self) -> (Vec<Line>, Vec<String>) {
        (self.lines.into_inner(), self.wrong.into_inner())
    }

    /// Judges the run by what the job database has at its end.
    pub(super) fn judge(&self, jobs: &dyn JobQueries) {
        let lines = self.lines.borrow().clone();
        let mut jids = BTreeSet::new();
        for line in &lines {
            match &line.what {
                What::Published(jid, _) | What::Arrived(jid) => drop(jids.insert(jid.clone())),
                _ => {}
            }
        }
        for jid in &jids {
            self.judge_job(jid, &lines, jobs);
        }
        let last = lines.iter().find_map(|line| match &line.what {
            What::Published(jid, true) => Some(jid.clone()),
            _ => None,
        });
        match last {
            None => self.complain("the last job was not published".to_owned()),
            Some(jid) => {
                let returned = self.acknowledged(&jid);
                if returned.len() != MINIONS {
                    self.complain(format!(
                        "the last job {jid} was only returned by {returned:?}"
                    ));
                }
            }
        }
    }

    fn judge_job(&self, jid: &str, lines: &[Line], jobs: &dyn JobQueries) {
        let parsed = Jid::parse(jid).unwrap();
        let Some(job) = jobs.load(&parsed).unwrap() else {
            return self.complain(format!("{jid} is not stored"));
        };
        if job.reporter.is_some() {
            self.complain(format!("{jid} is only known by what a minion returned"));
        }
        let returns = jobs.returns(&parsed).unwrap();
        let returned: BTreeSet<String> = returns.iter().map(|one| one.minion.to_string()).collect();
        if returned.len() != returns.len() {
            self.complain(format!("{jid} has a return twice: {returns:?}"));
        }
        for one in &returns {
            let load = MapView::parse(one.load.bytes().clone(), &Limits::WIRE).unwrap();
            let value = load.str("return").unwrap_or_default();
            if value != value_of(one.minion.as_str(), jid) {
                self.complain(format!("{jid} has \"{value}\" of {}", one.minion));
            }
        }
        for minion in self.acknowledged(jid).difference(&returned) {
            self.complain(format!(
                "the return of {minion} to {jid} was acknowledged and is lost"
            ));
        }
        let expected = job.record.minions.iter().map(ToString::to_string);
        let is_complete = expected.clone().all(|minion| returned.contains(&minion));
        match job.state {
            JobState::Open => self.complain(format!("{jid} has no end: {job:?}, {returned:?}")),
            state if (state == JobState::Complete) != is_complete => {
                self.complain(format!("{jid} is {state:?}, and {returned:?} returned"));
            }
            _ => {}
        }
        for number in 0..MINIONS {
            self.judge_arrivals(jid, &minion_id(number), &returned, lines);
        }
    }

    fn judge_arrivals(&self, jid: &str, minion: &str, returned: &BTreeSet<String>, lines: &[Line]) {
        let arrived: Vec<Duration> = lines
            .iter()
            .filter(|line| line.who == minion && line.what == What::Arrived(jid.to_owned()))
            .map(|line| line.at)
            .collect();
        let Some(first) = arrived.first() else {
            return;
        };
        if !returned.contains(minion) {
            self.complain(format!(
                "{jid} came to {minion}, and its return never got through"
            ));
        }
        let deaths = lines.iter().filter(|line| line.what == What::Killed);
        let soon = deaths.filter(|line| line.at < *first + RECORDED_WITHIN);
        let may_repeat = self.was_disk_full.get() || soon.count() > 0;
        if arrived.len() > 1 && !may_repeat || arrived.len() > 1 + 3 {
            self.complain(format!("{jid} came to {minion} at {arrived:?}"));
        }
    }
}

/// The return value of a minion.
pub(super) fn value_of(minion: &str, jid: &str) -> String {
    format!("{minion} did {jid}")
}

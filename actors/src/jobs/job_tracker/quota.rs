//! Daily quota of unsolicited returns of a minion: returns of jobs which this master did not
//! publish, or not for that minion (`salt-call`, the minion's schedule, and anything a minion
//! makes up).
//!
//! Counted by minion and UTC day, in memory: a restart resets it. A return that a job awaits is
//! never counted, nor is what a syndic forwards.
//!
//! The job database is asked whether a job that ended long ago expects the return: a few times a
//! minute for each minion, because the tracker blocks on the answer. So is the look-up of an ended job
//! that the return may complete, which is bounded over all returns too.

use std::collections::HashMap;
use std::time::Duration;

use saltern_model::{Jid, MinionId};

use super::moment::Moment;

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;

/// Lookups that one source of returns may cause, per [`LOOKUP_PERIOD`].
const LOOKUPS: u32 = 30;
/// Lookups of ended jobs that all returns together may cause, per [`LOOKUP_PERIOD`]: each may read a
/// whole job.
const RELOADS: u32 = 120;
const LOOKUP_PERIOD: Duration = Duration::from_secs(60);

/// Quota of one minion a day; 0 is unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuotaLimits {
    /// Returns (`saltern_max_reports`).
    pub(crate) reports: usize,
    /// Their bytes as they are stored (`saltern_max_report_bytes`).
    pub(crate) bytes: usize,
}

/// Use of the quotas today.
#[derive(Debug)]
pub(super) struct ReportQuota {
    limits: QuotaLimits,
    day: i64,
    spent: HashMap<MinionId, Spent>,
    lookups: LookupQuota,
    /// Of ended jobs, for returns within the quota.
    reloads: LookupQuota,
}

/// The source of returns that a lookup is charged to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LookupSource {
    /// The minion that returned.
    Minion(MinionId),
    /// The job: a syndic forwards the returns of many minions, and the master has some of its own.
    Job(Jid),
}

/// Lookups of the current period.
#[derive(Debug)]
struct LookupQuota {
    since: Moment,
    by_source: HashMap<LookupSource, u32>,
    total: u32,
    most: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    reports: usize,
    bytes: usize,
}

impl ReportQuota {
    pub(super) fn new(limits: QuotaLimits) -> Self {
        Self {
            limits,
            day: 0,
            spent: HashMap::new(),
            // Each minion has its own; of the minions there is a bounded number.
            lookups: LookupQuota::new(u32::MAX),
            reloads: LookupQuota::new(RELOADS),
        }
    }

    /// Charges a report of so many bytes to the quota of a minion; `false`, and nothing is
    /// charged, when it does not suffice. `now` is in microseconds since 1970.
    pub(super) fn take(&mut self, minion: &MinionId, bytes: usize, now: i64) -> bool {
        let day = now.div_euclid(DAY);
        if day != self.day {
            self.day = day;
            self.spent.clear();
        }
        let spent = self.spent.get(minion).copied().unwrap_or_default();
        let after = Spent {
            reports: spent.reports.saturating_add(1),
            bytes: spent.bytes.saturating_add(bytes),
        };
        let fits = |value: usize, most: usize| most == 0 || value <= most;
        let is_within =
            fits(after.reports, self.limits.reports) && fits(after.bytes, self.limits.bytes);
        if is_within {
            self.spent.insert(minion.clone(), after);
        }
        is_within
    }

    /// Charges one lookup to a minion over its quota; `false` when none is left.
    pub(super) fn take_lookup(&mut self, minion: &MinionId, now: Moment) -> bool {
        self.lookups.take(LookupSource::Minion(minion.clone()), now)
    }

    /// Charges one lookup of an ended job; `false` when the source, or all together, have none left.
    pub(super) fn take_reload(&mut self, source: LookupSource, now: Moment) -> bool {
        self.reloads.take(source, now)
    }
}

impl LookupQuota {
    fn new(most: u32) -> Self {
        Self {
            since: Moment::default(),
            by_source: HashMap::new(),
            total: 0,
            most,
        }
    }

    fn take(&mut self, source: LookupSource, now: Moment) -> bool {
        if now.since(self.since) >= LOOKUP_PERIOD {
            self.since = now;
            self.by_source.clear();
            self.total = 0;
        }
        if self.total >= self.most {
            return false;
        }
        let count = self.by_source.entry(source).or_default();
        let is_left = *count < LOOKUPS;
        *count += u32::from(is_left);
        self.total = self.total.saturating_add(u32::from(is_left));
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spent_report_quota_refuses_that_minion_until_the_next_day() {
        let id = |name: &str| MinionId::parse(name).unwrap();
        let mut quota = ReportQuota::new(QuotaLimits {
            reports: 3,
            bytes: 100,
        });
        assert!(!quota.take(&id("a"), 101, 1), "larger than the whole quota");
        assert!(quota.take(&id("a"), 60, 1) && !quota.take(&id("a"), 60, 2));
        assert!(quota.take(&id("a"), 20, 3) && quota.take(&id("a"), 20, 4));
        assert!(!quota.take(&id("a"), 0, 5), "the fourth");
        assert!(quota.take(&id("b"), 100, 6), "another minion's is its own");
        assert!(!quota.take(&id("a"), 1, DAY - 1) && quota.take(&id("a"), 100, DAY));
        assert!(quota.take(&id("a"), 1, 0), "the clock was set back");
    }

    #[test]
    fn lookups_beyond_the_quota_are_a_few_a_minute_for_each_minion() {
        let at = |seconds| Moment::at(Duration::from_secs(seconds));
        let (one, other) = (MinionId::parse("a").unwrap(), MinionId::parse("b").unwrap());
        let mut quota = ReportQuota::new(QuotaLimits::default());
        let mut count = |minion, at| (0..100).filter(|_| quota.take_lookup(minion, at)).count();
        let all = LOOKUPS as usize;
        assert_eq!(count(&one, at(60)), all);
        assert_eq!((count(&one, at(119)), count(&other, at(119))), (0, all));
        assert_eq!(count(&one, at(120)), all);
    }

    #[test]
    fn lookups_of_ended_jobs_are_bounded_by_source_and_in_total() {
        let at = |seconds| Moment::at(Duration::from_secs(seconds));
        let jid = |number: u32| Jid::parse(&format!("{number:020}")).unwrap();
        let mut quota = ReportQuota::new(QuotaLimits::default());
        let mut count = |number, at| {
            let source = || LookupSource::Job(jid(number));
            let taken = (0..100).filter(|_| quota.take_reload(source(), at));
            u32::try_from(taken.count()).unwrap()
        };
        let all: u32 = (0..1_000).map(|number| count(number, at(1))).sum();
        assert_eq!(all, RELOADS);
        assert_eq!((count(0, at(60)), count(0, at(60))), (LOOKUPS, 0));
        assert!(quota.reloads.by_source.len() == 1);
    }

    #[test]
    fn report_quota_of_zero_is_no_bound() {
        let mut quota = ReportQuota::new(QuotaLimits::default());
        let minion = MinionId::parse("a").unwrap();
        assert!((0..1000).all(|_| quota.take(&minion, usize::MAX, 1)));
    }
}

//! Daily quota of unsolicited returns of a minion: returns of jobs which this master did not
//! publish, or not for that minion (`salt-call`, the minion's schedule, and anything a minion
//! makes up).
//!
//! Counted by minion and UTC day, in memory: a restart resets it. A return that a job awaits is
//! never counted, nor is what a syndic forwards.
//!
//! The job database is asked whether a job that ended long ago expects the return: a few times a
//! minute for each minion, because the tracker blocks on the answer.

use std::collections::HashMap;
use std::time::Duration;

use saltern_model::MinionId;

use super::moment::Moment;

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;

/// Lookups that the returns of one minion may cause, per [`LOOKUP_PERIOD`].
const LOOKUPS: u32 = 30;
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
    /// Of returns within the quota.
    recalls: LookupQuota,
}

/// Lookups that the returns of each minion have caused.
#[derive(Debug, Default)]
struct LookupQuota(HashMap<MinionId, Lookups>);

/// Lookups since a moment.
#[derive(Clone, Copy, Debug)]
struct Lookups {
    since: Moment,
    count: u32,
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
            lookups: LookupQuota::default(),
            recalls: LookupQuota::default(),
        }
    }

    /// Charges a report of so many bytes to the quota of a minion; `false`, and nothing is
    /// charged, when it does not suffice. `now` is in microseconds since 1970.
    pub(super) fn take(&mut self, minion: &MinionId, bytes: usize, now: i64) -> bool {
        let day = now.div_euclid(DAY);
        if day != self.day {
            self.day = day;
            self.spent.clear();
            self.lookups.0.clear();
            self.recalls.0.clear();
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
        self.lookups.take(minion, now)
    }

    /// Charges one lookup to a minion within its quota; `false` when none is left.
    pub(super) fn take_recall(&mut self, minion: &MinionId, now: Moment) -> bool {
        self.recalls.take(minion, now)
    }
}

impl LookupQuota {
    fn take(&mut self, minion: &MinionId, now: Moment) -> bool {
        let fresh = Lookups {
            since: now,
            count: 0,
        };
        let lookups = self.0.entry(minion.clone()).or_insert(fresh);
        if now.since(lookups.since) >= LOOKUP_PERIOD {
            *lookups = fresh;
        }
        let is_left = lookups.count < LOOKUPS;
        lookups.count += u32::from(is_left);
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
        assert_eq!(count(&one, at(1)), all);
        assert_eq!((count(&one, at(60)), count(&other, at(60))), (0, all));
        assert_eq!(count(&one, at(61)), all);
    }

    #[test]
    fn report_quota_of_zero_is_no_bound() {
        let mut quota = ReportQuota::new(QuotaLimits::default());
        let minion = MinionId::parse("a").unwrap();
        assert!((0..1000).all(|_| quota.take(&minion, usize::MAX, 1)));
    }
}

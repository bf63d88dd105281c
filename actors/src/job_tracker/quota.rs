//! How much a minion may have stored that nobody asked it for: returns of jobs which this master
//! did not publish, or not for that minion (`salt-call`, the schedule of a minion, and anything a
//! minion makes up).
//!
//! Counted by minion and UTC day, in memory: a start begins anew. A return that a job awaits is
//! never counted, nor is what a syndic forwards.

use std::collections::HashMap;

use saltern_model::MinionId;

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;

/// What one minion may report in a day; 0 is no such bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuotaLimits {
    /// Returns (`saltern_max_reports`).
    pub(crate) reports: usize,
    /// Their bytes as they are stored (`saltern_max_report_bytes`).
    pub(crate) bytes: usize,
}

/// What minions have reported today.
#[derive(Debug)]
pub(super) struct ReportQuota {
    limits: QuotaLimits,
    day: i64,
    spent: HashMap<MinionId, Spent>,
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
        }
    }

    /// Takes a report of so many bytes off the quota of a minion; `false`, and nothing is taken,
    /// when it does not suffice. `now` is in microseconds since 1970.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_quota_spent_refuses_that_minion_until_the_next_day() {
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
    fn report_quota_of_zero_is_no_bound() {
        let mut quota = ReportQuota::new(QuotaLimits::default());
        let minion = MinionId::parse("a").unwrap();
        assert!((0..1000).all(|_| quota.take(&minion, usize::MAX, 1)));
    }
}

//! Check of the limit of open files against the accepted minions, by stock's rule: four files for
//! each (`check_max_open_files` in `salt/utils/verify.py`).
//!
//! Stock logs it in every round of maintenance; here it is logged once for each step that it gets
//! worse. A minion needs two files at most here, so stock's "will crash" is left out.

use rustix::process::{Resource, getrlimit};

/// How many files may be open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// The limit in effect.
    pub(super) soft: u64,
    /// As far as this process could raise it.
    pub(super) hard: u64,
}

/// The limit of this process.
pub(super) fn limit() -> Limit {
    let limit = getrlimit(Resource::Nofile);
    Limit {
        soft: limit.current.unwrap_or(u64::MAX),
        hard: limit.maximum.unwrap_or(u64::MAX),
    }
}

/// How far the accepted minions use up the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strain {
    /// There is room for four files each.
    #[default]
    None,
    /// For three: stock's INFO.
    Some,
    /// For two: stock's WARNING.
    High,
    /// For fewer: stock's CRITICAL.
    Severe,
}

impl Strain {
    fn of(accepted: u64, soft: u64) -> Self {
        let needs = |files: u64| accepted.saturating_mul(files);
        if needs(4) <= soft {
            Self::None
        } else if needs(2) >= soft {
            Self::Severe
        } else if needs(3) >= soft {
            Self::High
        } else {
            Self::Some
        }
    }
}

/// State of the check.
#[derive(Default)]
pub(super) struct OpenFiles {
    /// The level at the last look.
    reported: Strain,
}

impl OpenFiles {
    /// Logs when it has got worse; `configured` is `max_open_files`.
    pub(super) fn look(&mut self, accepted: u64, limit: Limit, configured: u64) -> Strain {
        let strain = Strain::of(accepted, limit.soft);
        let is_worse = strain > self.reported;
        self.reported = strain;
        if !is_worse {
            return strain;
        }
        let soft = limit.soft;
        let margin = limit.hard.saturating_sub(configured);
        let advice = "the accepted minions need more open files than a fourth of the limit each; \
                      raise max_open_files, or the limit that the master is started with";
        match strain {
            Strain::None => {}
            Strain::Some => tracing::info!(accepted, soft, margin, "{advice}"),
            Strain::High => tracing::warn!(accepted, soft, margin, "{advice}"),
            Strain::Severe => tracing::error!(accepted, soft, margin, "{advice}"),
        }
        strain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_those_of_stock() {
        let soft = 1_200;
        let cases = [
            (0, Strain::None),
            (300, Strain::None),
            (301, Strain::Some),
            (399, Strain::Some),
            (400, Strain::High),
            (599, Strain::High),
            (600, Strain::Severe),
            (1_200, Strain::Severe),
        ];
        for (accepted, expected) in cases {
            assert_eq!(Strain::of(accepted, soft), expected, "{accepted}");
        }
    }

    #[test]
    fn strain_is_logged_again_after_recovery() {
        let limit = Limit {
            soft: 100,
            hard: 200,
        };
        let mut open_files = OpenFiles::default();
        assert_eq!(open_files.look(60, limit, 100), Strain::Severe);
        assert_eq!(open_files.look(10, limit, 100), Strain::None);
        assert_eq!(open_files.reported, Strain::None);
        assert_eq!(open_files.look(30, limit, 100), Strain::Some);
    }
}

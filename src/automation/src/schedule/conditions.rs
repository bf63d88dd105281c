//! Conditions of a job's run at its turn: `range`, `skip_during_range`, `after` and `until`.
//!
//! In stock the last of them that is written overrules the others; here all of them have to allow a
//! run.

use jiff::ToSpan;
use jiff::civil::{DateTime, Time};

use super::Skip;
use super::moment::Moment;

/// Conditions under which a job runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conditions {
    pub(super) range: Option<Range>,
    pub(super) skip_during: Option<Window>,
    pub(super) until: Option<Moment>,
    pub(super) after: Option<Moment>,
}

/// `range`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) window: Window,
    /// Runs outside of the window only.
    pub(super) invert: bool,
}

/// Window of time with a start and an end, both inclusive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) start: Moment,
    pub(super) end: Moment,
}

impl Window {
    /// Whether the end comes first on every day.
    pub(super) fn ends_first(&self) -> bool {
        let day = jiff::civil::Date::constant(2000, 1, 1);
        let is_daily = self.start.is_daily() && self.end.is_daily();
        is_daily && self.start.on(day) >= self.end.on(day)
    }

    /// Start and end on the day of a local time; `None` where the end comes first, where stock runs
    /// the job as little as outside of a range.
    fn bounds(&self, now: DateTime) -> Option<(DateTime, DateTime)> {
        let (start, end) = (self.start.on(now.date())?, self.end.on(now.date())?);
        (start < end).then_some((start, end))
    }

    /// The first time after a local time at which this window, which kept a job from running, may
    /// be over.
    fn may_be_over(&self, now: DateTime) -> Option<DateTime> {
        match self.bounds(now) {
            Some((_, end)) if end >= now => end.checked_add(1.second()).ok(),
            // A weekend on its last days, whose start is already that of the next one.
            _ => self.next_change(now),
        }
    }

    /// The first time after a local time at which the window may move to another date, or begin.
    fn next_change(&self, now: DateTime) -> Option<DateTime> {
        let midnight = DateTime::from_parts(now.date().tomorrow().ok()?, Time::midnight());
        let bounds = [self.start.on(now.date()), self.end.on(now.date())];
        let bounds = bounds.into_iter().flatten();
        bounds
            .chain([midnight])
            .filter(|change| *change > now)
            .min()
    }
}

impl Conditions {
    /// The reason why a job does not run at a local time.
    pub(super) fn refuse(&self, now: DateTime) -> Option<Skip> {
        if let Some(range) = &self.range {
            let allows = range
                .window
                .bounds(now)
                .is_some_and(|(start, end)| match range.invert {
                    true => now <= start || now >= end,
                    false => start <= now && now <= end,
                });
            if !allows {
                return Some(Skip::NotInRange);
            }
        }
        if let Some(window) = &self.skip_during {
            let bounds = window.bounds(now);
            if bounds.is_none_or(|(start, end)| start <= now && now <= end) {
                return Some(Skip::InSkipRange);
            }
        }
        let on_day = |moment: &Option<Moment>| moment.as_ref()?.on(now.date());
        if on_day(&self.until).is_some_and(|until| until <= now) {
            return Some(Skip::UntilPassed);
        }
        if on_day(&self.after).is_some_and(|after| after >= now) {
            return Some(Skip::AfterNotPassed);
        }
        None
    }

    /// When to check again a job that was not in its range.
    pub(super) fn range_changes(&self, now: DateTime) -> Option<DateTime> {
        self.range.as_ref()?.window.next_change(now)
    }

    /// When to check again a job that `skip_during_range` kept from running.
    pub(super) fn skip_changes(&self, now: DateTime) -> Option<DateTime> {
        self.skip_during.as_ref()?.may_be_over(now)
    }
}

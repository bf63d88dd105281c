//! Wall-clock time as an argument.
//!
//! No other file of the workspace asks the system for the time of day (clippy refuses it), so a
//! test can hold time still, step it, or set it back. Durations and deadlines are not this file's
//! business: those use `tokio::time`, which a paused runtime controls.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// A source of wall-clock time; cheap to clone.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Manual(Arc<Mutex<SystemTime>>),
}

impl Clock {
    /// The time of day of this machine.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until [`Clock::advance`] or [`Clock::set`] moves it.
    pub fn manual(start: SystemTime) -> Self {
        Self(Source::Manual(Arc::new(Mutex::new(start))))
    }

    /// The present moment.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that asks the system"
    )]
    pub fn now(&self) -> SystemTime {
        match &self.0 {
            Source::System => SystemTime::now(),
            Source::Manual(time) => *time.lock(),
        }
    }

    /// Whole seconds since 1970-01-01 UTC; negative before.
    pub fn unix(&self) -> i64 {
        self.unix_micros().div_euclid(1_000_000)
    }

    /// Microseconds since 1970-01-01 UTC; negative before.
    pub fn unix_micros(&self) -> i64 {
        unix_micros(self.now())
    }

    /// Moves a manual clock forward. A system clock is not moved.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(time) = &self.0 {
            *time.lock() += by;
        }
    }

    /// Sets a manual clock, also backwards. A system clock is not set.
    pub fn set(&self, to: SystemTime) {
        if let Source::Manual(time) = &self.0 {
            *time.lock() = to;
        }
    }
}

/// Microseconds since 1970-01-01 UTC of any moment, saturating far away from today.
pub fn unix_micros(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |v| -v),
    }
}

/// A UTC date and time of day in the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CivilTime {
    /// Year, astronomical numbering.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59 (UTC as Unix counts it, without leap seconds).
    pub second: u8,
    /// Microsecond, 0 to 999,999.
    pub micros: u32,
}

/// Splits microseconds since 1970-01-01 UTC into a calendar date and a time of day.
///
/// The day arithmetic counts in 400-year cycles that begin on 1 March, so that the leap day is the
/// last day of a counted year.
pub fn civil(unix_micros: i64) -> CivilTime {
    let seconds = unix_micros.div_euclid(1_000_000);
    let micros = unix_micros.rem_euclid(1_000_000) as u32;
    let days = seconds.div_euclid(86_400);
    let second_of_day = seconds.rem_euclid(86_400);

    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);

    CivilTime {
        year,
        month: month as u8,
        day,
        hour: (second_of_day / 3_600) as u8,
        minute: (second_of_day % 3_600 / 60) as u8,
        second: (second_of_day % 60) as u8,
        micros,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        let table = [
            (0, (1970, 1, 1, 0, 0, 0, 0)),
            (-1, (1969, 12, 31, 23, 59, 59, 999_999)),
            (951_782_400_000_000, (2000, 2, 29, 0, 0, 0, 0)),
            (1_795_244_782_637_714, (2026, 11, 21, 7, 6, 22, 637_714)),
            (4_107_542_399_000_000, (2100, 2, 28, 23, 59, 59, 0)),
            (4_107_542_400_000_000, (2100, 3, 1, 0, 0, 0, 0)),
        ];
        for (micros, (year, month, day, hour, minute, second, rest)) in table {
            let expected = CivilTime {
                year,
                month,
                day,
                hour,
                minute,
                second,
                micros: rest,
            };
            assert_eq!(civil(micros), expected, "{micros}");
        }
    }

    #[test]
    fn manual_clock_moves_only_when_advanced() {
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_secs(10));
        let other = clock.clone();
        assert_eq!(clock.unix(), 10);
        other.advance(Duration::from_millis(1_500));
        assert_eq!(clock.unix_micros(), 11_500_000);
        clock.set(UNIX_EPOCH - Duration::from_micros(1));
        assert_eq!(other.unix_micros(), -1);
        assert_eq!(other.unix(), -1);
    }
}

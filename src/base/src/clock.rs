//! Wall-clock time as an argument.
//!
//! No other file of the workspace asks the system for the time of day (clippy refuses it), so a
//! test can hold time still, step it, or set it back. Durations and deadlines are not this file's
//! business: those use `tokio::time`, which a paused runtime controls.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use parking_lot::Mutex;

/// A source of wall-clock time; cheap to clone.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Manual(Arc<Mutex<SystemTime>>),
    #[cfg(feature = "fault-injection")]
    Simulated(Arc<Simulated>),
}

/// Goes with the clock of a paused runtime, but for its jumps.
#[cfg(feature = "fault-injection")]
struct Simulated {
    start: Mutex<SystemTime>,
    began: tokio::time::Instant,
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

    /// A clock that goes as the paused clock of the runtime that this is called in. It stands at
    /// `start` now.
    #[cfg(feature = "fault-injection")]
    pub fn simulated(start: SystemTime) -> Self {
        let began = tokio::time::Instant::now();
        let start = Mutex::new(start);
        Self(Source::Simulated(Arc::new(Simulated { start, began })))
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
            #[cfg(feature = "fault-injection")]
            Source::Simulated(clock) => *clock.start.lock() + clock.began.elapsed(),
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

    /// Has a simulated clock jump to another time of day, from which it goes on as before.
    #[cfg(feature = "fault-injection")]
    pub fn jump(&self, to: SystemTime) {
        if let Source::Simulated(clock) = &self.0 {
            *clock.start.lock() = to - clock.began.elapsed();
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

/// The date and time of day in UTC of microseconds since 1970-01-01. Moments beyond the years -9999
/// and 9999 are held at these.
pub fn civil(unix_micros: i64) -> DateTime {
    let bound = match unix_micros {
        ..0 => Timestamp::MIN,
        _ => Timestamp::MAX,
    };
    let moment = Timestamp::from_microsecond(unix_micros).unwrap_or(bound);
    Offset::UTC.to_datetime(moment)
}

/// Microseconds since 1970-01-01 UTC of the twenty digits of a jid, which are a time in UTC; `None` where
/// they are no time.
pub fn of_digits(digits: &str) -> Option<i64> {
    let date = DateTime::strptime("%Y%m%d%H%M%S%6f", digits).ok()?;
    let moment = Offset::UTC.to_timestamp(date).ok()?;
    Some(moment.as_microsecond())
}

/// Offset and name of a time zone, as `%z` and `%Z` of a time format write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneName {
    /// `+0000` and `UTC`.
    Utc,
    /// Nothing, as Python has it for a time without a zone.
    Nothing,
}

/// The date and time of day in UTC in a format of C's `strftime`. Conversions that depend on a locale,
/// and letters that are none, stand for themselves.
pub fn strftime(format: &str, unix_micros: i64, zone: ZoneName) -> String {
    let mut own = String::with_capacity(format.len() + 8);
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            own.push(letter);
            continue;
        }
        match (letters.next(), zone) {
            (Some('f'), _) => own.push_str("%6f"),
            (Some('s'), _) => own.push_str(&unix_micros.div_euclid(1_000_000).to_string()),
            (Some('z'), ZoneName::Utc) => own.push_str("+0000"),
            (Some('Z'), ZoneName::Utc) => own.push_str("UTC"),
            (Some('z' | 'Z'), ZoneName::Nothing) => {}
            (Some(letter), _) if "AaBbDdeFHhIjMmnpRSTtuwYy%".contains(letter) => {
                own.extend(['%', letter]);
            }
            (Some(letter), _) => own.extend(['%', '%', letter]),
            (None, _) => own.push_str("%%"),
        }
    }
    civil(unix_micros).strftime(&own).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_in_utc() {
        let table = [
            (0, "1970-01-01 00:00:00.000000"),
            (-1, "1969-12-31 23:59:59.999999"),
            (951_782_400_000_000, "2000-02-29 00:00:00.000000"),
            (1_795_244_782_637_714, "2026-11-21 07:06:22.637714"),
            (4_107_542_399_000_000, "2100-02-28 23:59:59.000000"),
            (4_107_542_400_000_000, "2100-03-01 00:00:00.000000"),
            (i64::MAX, "9999-12-30 22:00:00.999999"),
        ];
        for (micros, expected) in table {
            let written = strftime("%F %T.%f", micros, ZoneName::Nothing);
            assert_eq!(written, expected, "{micros}");
        }
        assert!(civil(i64::MIN).year() < -9_990);
    }

    #[test]
    fn formats_are_those_of_c_and_other_letters_stand_for_themselves() {
        let micros = 1_795_244_782_637_714;
        for (format, expected) in [
            ("%Y-%m-%d %H:%M:%S", "2026-11-21 07:06:22"),
            ("%T %q% ", "07:06:22 %q% "),
            ("%T%", "07:06:22%"),
            ("%a %b %e %I %p %j %u %w %y", "Sat Nov 21 07 AM 325 6 6 26"),
            (
                "%A %B %D %R %h%%%n%t",
                "Saturday November 11/21/26 07:06 Nov%\n\t",
            ),
            ("%s %E %Q", "1795244782 %E %Q"),
        ] {
            assert_eq!(
                strftime(format, micros, ZoneName::Utc),
                expected,
                "{format}"
            );
        }
        assert_eq!(strftime("%z %Z", 0, ZoneName::Utc), "+0000 UTC");
        assert_eq!(strftime("%z%Z", 0, ZoneName::Nothing), "");
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

    #[cfg(feature = "fault-injection")]
    #[tokio::test(start_paused = true)]
    async fn simulated_clock_goes_on_from_where_it_jumped() {
        let clock = Clock::simulated(UNIX_EPOCH + Duration::from_secs(100));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.unix(), 105);
        clock.jump(UNIX_EPOCH + Duration::from_secs(50));
        assert_eq!(clock.unix(), 50);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.unix(), 55);
    }
}

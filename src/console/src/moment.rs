//! Times as pages show them: how long ago, with the moment itself beside it.

use saltern_base::clock::{ZoneName, strftime};
use serde::Serialize;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Moment {
    /// As machines read it.
    pub(crate) iso: String,
    /// As people read it, in UTC.
    pub(crate) text: String,
    /// How long ago it was.
    pub(crate) age: String,
}

impl Moment {
    /// The moment at `micros` since 1970, seen at `now`.
    pub(crate) fn new(micros: i64, now: i64) -> Self {
        Self {
            iso: strftime("%Y-%m-%dT%H:%M:%SZ", micros, ZoneName::Utc),
            text: strftime("%Y-%m-%d %H:%M:%S UTC", micros, ZoneName::Utc),
            age: age(now.saturating_sub(micros).div_euclid(1_000_000)),
        }
    }
}

/// How long ago something was, in seconds.
fn age(seconds: i64) -> String {
    match seconds {
        ..1 => "now".to_owned(),
        _ => format!("{} ago", span(seconds)),
    }
}

/// A time in its two largest units.
pub(crate) fn span(seconds: i64) -> String {
    let two = |large: i64, name: &str, small: i64, unit: &str| {
        let (whole, rest) = (seconds / large, seconds % large / small);
        match rest == 0 || whole >= 10 {
            true => format!("{whole} {name}"),
            false => format!("{whole} {name} {rest} {unit}"),
        }
    };
    match seconds {
        ..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => two(MINUTE, "min", 1, "s"),
        HOUR..DAY => two(HOUR, "h", MINUTE, "min"),
        _ => two(DAY, "d", HOUR, "h"),
    }
}

/// A duration in microseconds.
pub(crate) fn duration(micros: i64) -> String {
    match micros {
        ..0 => "0 ms".to_owned(),
        0..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..60_000_000 => format!("{:.1} s", micros as f64 / 1e6),
        _ => span(micros / 1_000_000),
    }
}

/// A moment as people type it: `15m`, `1h` or `7d` before `now`, a date, or a date with a time, in UTC.
/// In microseconds since 1970.
pub(crate) fn typed(text: &str, now: i64) -> Option<i64> {
    let units = [('s', 1), ('m', MINUTE), ('h', HOUR), ('d', DAY)];
    let span = units.iter().find_map(|(unit, seconds)| {
        let count: i64 = text.strip_suffix(*unit)?.trim().parse().ok()?;
        count.checked_mul(*seconds)?.checked_mul(1_000_000)
    });
    if let Some(span) = span {
        return now.checked_sub(span);
    }
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Some(moment.as_microsecond());
    }
    let civil: jiff::civil::DateTime = text.parse().ok()?;
    let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(zoned.timestamp().as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_is_read_as_people_type_it() {
        let now = 1_000_000_000_000_000;
        assert_eq!(typed("15m", now), Some(now - 900_000_000));
        assert_eq!(typed("1970-01-02", now), Some(86_400_000_000));
        assert_eq!(typed("1970-01-01T00:00:01Z", now), Some(1_000_000));
        assert_eq!(typed("1970-01-01 00:01", now), Some(60_000_000));
        for text in ["", "m", "soon", "99999999999999999d"] {
            assert_eq!(typed(text, now), None, "{text}");
        }
    }

    #[test]
    fn time_is_shown_in_its_two_largest_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (601, "10 min"),
            (3_660, "1 h 1 min"),
            (86_400, "1 d"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(span(seconds), text);
        }
        assert_eq!(duration(1_500), "1 ms");
        assert_eq!(duration(1_500_000), "1.5 s");
        assert_eq!(Moment::new(0, 5_000_000).age, "5 s ago");
        assert_eq!(Moment::new(0, 0).iso, "1970-01-01T00:00:00Z");
    }
}

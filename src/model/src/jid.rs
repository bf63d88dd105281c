//! Job ids: the UTC time of their making, as twenty digits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use saltern_base::clock::{Clock, civil, of_digits};

/// A validated job id: twenty digits, or twenty digits, an underscore and a process number.
///
/// Stock takes any string that a client supplies as a jid; this type takes what stock itself makes
/// (`salt/utils/jid.py`) and nothing that could be a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Jid(Arc<str>);

/// Why a text is not a jid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a jid: twenty digits are expected")]
pub struct JidError(String);

impl Jid {
    const DIGITS: usize = 20;
    /// The longest suffix that `unique_jid` can append: `_` and a 32-bit number.
    const MAX_BYTES: usize = Self::DIGITS + 11;

    /// Checks `text` and makes it a jid.
    pub fn parse(text: &str) -> Result<Self, JidError> {
        let wrong = || JidError(text.chars().take(64).collect());
        if text.len() > Self::MAX_BYTES {
            return Err(wrong());
        }
        let (stamp, suffix) = match text.split_once('_') {
            Some((stamp, suffix)) => (stamp, Some(suffix)),
            None => (text, None),
        };
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if stamp.len() == Self::DIGITS && digits(stamp) && suffix.is_none_or(digits) {
            Ok(Self(Arc::from(text)))
        } else {
            Err(wrong())
        }
    }

    /// The jid as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn from_micros(micros: i64, suffix: Option<u32>) -> Self {
        let mut text = civil(micros).strftime("%Y%m%d%H%M%S%6f").to_string();
        if let Some(number) = suffix {
            text.push('_');
            text.push_str(&number.to_string());
        }
        Self(Arc::from(text.as_str()))
    }

    /// When the job was made, in microseconds since 1970-01-01 UTC, as its digits say; 0 when they are no
    /// time.
    pub fn unix_micros(&self) -> i64 {
        let digits = self.0.get(..Self::DIGITS).unwrap_or_default();
        of_digits(digits).unwrap_or(0)
    }

    /// When the job was made, as `2026, Nov 21 07:06:22.637714`: the form that stock's
    /// `jid_to_time` prints as `StartTime`.
    pub fn start_time(&self) -> String {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let part = |range: std::ops::Range<usize>| self.0.get(range).unwrap_or_default();
        let month = part(4..6)
            .parse::<usize>()
            .ok()
            .and_then(|m| MONTHS.get(m.wrapping_sub(1)));
        format!(
            "{}, {} {} {}:{}:{}.{}",
            part(0..4),
            month.copied().unwrap_or("?"),
            part(6..8),
            part(8..10),
            part(10..12),
            part(12..14),
            part(14..20)
        )
    }
}

impl std::borrow::Borrow<str> for Jid {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Jid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Jid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Makes job ids that only ever go up, also when the clock is set back or asked twice in one
/// microsecond. One for the whole process.
pub struct JidMinter {
    clock: Clock,
    suffix: Option<u32>,
    last: AtomicI64,
}

impl JidMinter {
    /// `unique_suffix` is the process number that `unique_jid: True` asks for.
    pub fn new(clock: Clock, unique_suffix: Option<u32>) -> Self {
        Self {
            clock,
            suffix: unique_suffix,
            last: AtomicI64::new(i64::MIN),
        }
    }

    /// The next job id.
    pub fn mint(&self) -> Jid {
        let now = self.clock.unix_micros();
        let next = |last: i64| now.max(last.saturating_add(1));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                Some(next(last))
            })
            .unwrap_or_else(|last| last);
        Jid::from_micros(next(last), self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn malformed_jids_are_refused() {
        for good in ["20261121070622637714", "20261121070622637714_4711"] {
            assert_eq!(Jid::parse(good).map(|j| j.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "req",
            "2026112107062263771",
            "2026112107062263771x",
            "../../etc/passwd",
        ] {
            assert!(Jid::parse(bad).is_err(), "{bad}");
        }
        assert!(Jid::parse("20261121070622637714_").is_err());
        assert!(Jid::parse("20261121070622637714_12345678901").is_err());
    }

    #[test]
    fn jids_increase_when_the_clock_steps_back() {
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_micros(1_795_244_782_637_714));
        let minter = JidMinter::new(clock.clone(), None);
        let first = minter.mint();
        assert_eq!(first.as_str(), "20261121070622637714");
        assert_eq!(first.start_time(), "2026, Nov 21 07:06:22.637714");
        assert_eq!(first.unix_micros(), 1_795_244_782_637_714);
        let second = minter.mint();
        clock.set(UNIX_EPOCH + Duration::from_secs(5));
        let third = minter.mint();
        assert!(first < second && second < third);
        assert_eq!(
            JidMinter::new(clock, Some(7)).mint().as_str(),
            "19700101000005000000_7"
        );
    }

    #[test]
    fn digits_that_are_no_time_are_the_epoch() {
        for (text, micros) in [
            ("19700101000005000001_7", 5_000_001),
            ("20261321070622637714", 0),
            ("00000000000000000000", 0),
        ] {
            assert_eq!(Jid::parse(text).unwrap().unix_micros(), micros, "{text}");
        }
    }
}

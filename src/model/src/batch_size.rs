//! How many minions of a batch may run at a time: a number, or a part of all of them.

use std::fmt;

/// Value of `--batch-size`. The rules are those of stock 3008 (`get_batch_size` in
/// `salt/utils/batch_state.py`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatchSize {
    /// So many; fewer than one counts as one.
    Count(i64),
    /// So many of a hundred; finite.
    Percent(f64),
}

/// Why a text is no batch size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a batch size: a number or a percentage such as \"10\" or \"25%\"")]
pub struct BatchSizeError(String);

impl BatchSize {
    /// Reads `10`, `25%` or, as stock takes it too, `%25`.
    ///
    /// # Errors
    /// For anything else.
    pub fn parse(text: &str) -> Result<Self, BatchSizeError> {
        let wrong = || BatchSizeError(text.chars().take(64).collect());
        if text.contains('%') {
            let number = text.trim_matches('%').trim().parse::<f64>();
            let percent = number.ok().filter(|percent| percent.is_finite());
            percent.map(Self::Percent).ok_or_else(wrong)
        } else {
            let number = text.trim().parse::<i64>();
            number.map(Self::Count).map_err(|_| wrong())
        }
    }

    /// How many of so many minions run at a time: at least one. A part of them is rounded down,
    /// but never to none.
    pub fn of(self, minions: usize) -> usize {
        match self {
            Self::Count(count) => usize::try_from(count.max(1)).unwrap_or(usize::MAX),
            Self::Percent(percent) => {
                let part = percent / 100.0 * minions as f64;
                // Saturates, which is what a bound should do.
                (part as usize).max(1)
            }
        }
    }
}

impl fmt::Display for BatchSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compared with `get_batch_size` of stock 3008.3.
    #[test]
    fn batch_sizes_are_those_of_stock() {
        let cases = [
            ("1", 10, 1),
            ("3", 10, 3),
            ("30", 10, 30),
            ("0", 10, 1),
            ("-4", 10, 1),
            ("10%", 10, 1),
            ("25%", 10, 2),
            ("%25", 10, 2),
            ("33.4%", 10, 3),
            ("99%", 10, 9),
            ("100%", 10, 10),
            ("150%", 10, 15),
            ("1%", 10, 1),
            ("0%", 10, 1),
            ("-5%", 10, 1),
            ("50%", 0, 1),
            ("50%", 3, 1),
            (" 2 ", 3, 2),
        ];
        for (text, minions, size) in cases {
            let parsed = BatchSize::parse(text).unwrap();
            assert_eq!(parsed.of(minions), size, "{text} of {minions}");
        }
    }

    #[test]
    fn malformed_batch_size_is_refused() {
        for text in [
            "",
            "%",
            "two",
            "2.5",
            "nan%",
            "inf%",
            "1e400%",
            "10 minions",
        ] {
            let error = BatchSize::parse(text).unwrap_err().to_string();
            assert!(error.contains("batch size"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn batch_size_is_at_least_one_and_at_most_all(
            percent in 0.0..=100.0_f64, minions in 1..100_000_usize,
        ) {
            let size = BatchSize::Percent(percent).of(minions);
            prop_assert!((1..=minions).contains(&size));
        }

        #[test]
        fn batch_size_round_trips(count in any::<i64>(), percent in -1e6..1e6_f64) {
            for size in [BatchSize::Count(count), BatchSize::Percent(percent)] {
                prop_assert_eq!(BatchSize::parse(&size.to_string()), Ok(size));
            }
        }
    }
}

//! Byte counts for people: "128 MiB" in messages and options.

use std::fmt;
use std::str::FromStr;

/// A number of bytes that prints with a binary unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Why a text is not a byte size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a size: a whole number, optionally followed by KiB, MiB or GiB")]
pub struct ParseByteSizeError(String);

const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in UNITS {
            if self.0 >= factor {
                let whole = self.0 / factor;
                let tenth = self.0 % factor * 10 / factor;
                return if tenth == 0 {
                    write!(f, "{whole} {unit}")
                } else {
                    write!(f, "{whole}.{tenth} {unit}")
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseByteSizeError(text.to_owned());
        let trimmed = text.trim();
        let (digits, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| trimmed.strip_suffix(unit).map(|rest| (rest, *factor)))
            .unwrap_or((trimmed.strip_suffix('B').unwrap_or(trimmed), 1));
        let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
        number.checked_mul(factor).map(ByteSize).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_size_round_trips() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (128 << 20, "128 MiB"),
            (3 << 30, "3 GiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
        assert_eq!("128 MiB".parse(), Ok(ByteSize(128 << 20)));
        assert_eq!("17".parse(), Ok(ByteSize(17)));
        assert!("1.5 KiB".parse::<ByteSize>().is_err());
        assert!("99999999999999999999 GiB".parse::<ByteSize>().is_err());
    }
}

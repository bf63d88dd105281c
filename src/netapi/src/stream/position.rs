//! Place of an event in the history of a master, as clients keep it.

use std::fmt;
use std::str::FromStr;

/// Durable position of an event: the `id` of a server-sent event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Which history: positions of another job database mean nothing in this one.
    pub history: u32,
    /// The number of the event in it, from 1.
    pub number: i64,
}

/// Why a text is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the last event id is not one of this resource")]
pub struct PositionError;

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:08x}-{}", self.history, self.number)
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (history, number) = text.split_once('-').ok_or(PositionError)?;
        if history.len() != 8 || !is_digits(history) || !is_digits(number) {
            return Err(PositionError);
        }
        Ok(Self {
            history: u32::from_str_radix(history, 16).map_err(|_| PositionError)?,
            number: number.parse().map_err(|_| PositionError)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_read_as_it_is_written() {
        let position = Position {
            history: 0xab,
            number: 17,
        };
        assert_eq!(position.to_string(), "000000ab-17");
        assert_eq!("000000ab-17".parse(), Ok(position));
        for text in [
            "",
            "-",
            "17",
            "000000ab-",
            "000000ab--1",
            "ab-17",
            "+00000ab-1",
            "000000ab-+1",
            "000000ab-1f",
            "000000ab-99999999999999999999",
            "000000ab-1\r\n",
        ] {
            assert_eq!(text.parse::<Position>(), Err(PositionError), "{text:?}");
        }
    }
}

//! The line of Salt whose file and socket layouts local tools expect.

use std::fmt;

use saltern_base::clock::civil;

/// The line of Salt whose tools share this master's files and sockets (option `salt_compat`).
///
/// Minions of all lines may be connected whatever this says; it decides event-socket framing, cache
/// banks, token files, key events and time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compat {
    /// 3006 LTS, as of 3006.28.
    V3006,
    /// 3007, as of 3007.15.
    V3007,
    /// 3008 LTS, as of 3008.3.
    V3008,
}

impl Compat {
    /// Every line, oldest first.
    pub const ALL: [Self; 3] = [Self::V3006, Self::V3007, Self::V3008];

    /// Reads `3008`, `3008.3` and the like.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().split('.').next() {
            Some("3006") => Some(Self::V3006),
            Some("3007") => Some(Self::V3007),
            Some("3008") => Some(Self::V3008),
            _ => None,
        }
    }

    /// The release that is imitated.
    pub fn release(self) -> &'static str {
        match self {
            Self::V3006 => "3006.28",
            Self::V3007 => "3007.15",
            Self::V3008 => "3008.3",
        }
    }
}

impl fmt::Display for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V3006 => "3006",
            Self::V3007 => "3007",
            Self::V3008 => "3008",
        })
    }
}

/// The `_stamp` of an event: UTC with microseconds, with `+00:00` only in 3008.
///
/// Like Python's `isoformat`, which leaves the fraction out when it is zero.
pub fn stamp(compat: Compat, unix_micros: i64) -> String {
    let t = civil(unix_micros);
    let mut text = match t.subsec_nanosecond() {
        0 => t.strftime("%FT%T"),
        _ => t.strftime("%FT%T.%6f"),
    }
    .to_string();
    if compat == Compat::V3008 {
        text.push_str("+00:00");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_stamps_as_each_version_writes_them() {
        let at = 1_795_244_782_637_714;
        assert_eq!(stamp(Compat::V3006, at), "2026-11-21T07:06:22.637714");
        assert_eq!(stamp(Compat::V3008, at), "2026-11-21T07:06:22.637714+00:00");
        assert_eq!(
            stamp(Compat::V3007, 1_795_244_782_000_000),
            "2026-11-21T07:06:22"
        );
    }

    #[test]
    fn versions_are_read_with_and_without_a_patch_release() {
        assert_eq!(Compat::parse("3007.15"), Some(Compat::V3007));
        assert_eq!(Compat::parse("3008"), Some(Compat::V3008));
        assert_eq!(Compat::parse("3005"), None);
        for compat in Compat::ALL {
            assert_eq!(Compat::parse(&compat.to_string()), Some(compat));
        }
    }
}

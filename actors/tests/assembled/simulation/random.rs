//! Random numbers that follow from a seed.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::Duration;

/// SplitMix64.
pub(super) struct Random(u64);

impl Random {
    /// Numbers of one part of a run: other parts do not change them.
    pub(super) fn new(seed: u64, part: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (part << 32));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// True once in this many times.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.within(0..times) == 0
    }

    pub(super) fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }
}

/// Address of a minion; that of the client is behind the last.
pub(super) fn address(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(number + 1).unwrap()))
}

//! Rate of requests to hooks by source, in fixed windows.

use std::collections::HashMap;
use std::net::IpAddr;

/// Seconds of one window.
const WINDOW: i64 = 10;

/// Requests of one source in a window: a forge that sends an event for each push of a large site
/// stays well below.
const MAX_REQUESTS: u32 = 300;

/// Sources that are counted by themselves; all others share one count.
const MAX_SOURCES: usize = 4096;

/// Counts requests by network: an IPv4 address, or 64 bits of an IPv6 address.
#[derive(Default)]
pub(super) struct SourceRates {
    window: i64,
    counts: HashMap<u64, u32>,
    others: u32,
}

impl SourceRates {
    /// Whether one more request of this source is within its rate.
    pub(super) fn admit(&mut self, source: IpAddr, now: i64) -> bool {
        let window = now.div_euclid(WINDOW);
        if window != self.window {
            (self.window, self.others) = (window, 0);
            self.counts.clear();
        }
        let network = network(source);
        let has_place = self.counts.len() < MAX_SOURCES || self.counts.contains_key(&network);
        let count = match has_place {
            true => self.counts.entry(network).or_default(),
            false => &mut self.others,
        };
        *count = count.saturating_add(1);
        *count <= MAX_REQUESTS
    }
}

fn network(source: IpAddr) -> u64 {
    match source.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        // No IPv4 address has these bits.
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64 | 1 << 63,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_rate_and_the_number_of_sources_is_bounded() {
        let mut rates = SourceRates::default();
        let one = IpAddr::from([10, 0, 0, 1]);
        let admitted = (0..400).filter(|_| rates.admit(one, 5)).count();
        assert_eq!(admitted, 300);
        assert!(rates.admit(IpAddr::from([10, 0, 0, 2]), 9));
        assert!(rates.admit(one, 10), "a new window");
        let source = |number: u32| IpAddr::from((number + 0x0b00_0000).to_be_bytes());
        let admitted = (0..10_000).filter(|number| rates.admit(source(*number), 11));
        assert_eq!(admitted.count(), MAX_SOURCES - 1 + MAX_REQUESTS as usize);
        assert_eq!(rates.counts.len(), MAX_SOURCES);
    }
}

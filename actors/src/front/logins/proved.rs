//! Names with a successful log-in, by address: bounded, the oldest forgotten first.

use std::collections::HashSet;

use super::Who;

/// Most names of one generation.
const MOST_NAMES: usize = 4_096;

/// Two sets, of which the older one is forgotten as a whole.
#[derive(Default)]
pub(super) struct Proved {
    current: HashSet<Who>,
    previous: HashSet<Who>,
}

impl Proved {
    pub(super) fn contains(&self, who: &Who) -> bool {
        self.current.contains(who) || self.previous.contains(who)
    }

    pub(super) fn remember(&mut self, who: Who) {
        if self.current.contains(&who) {
            return;
        }
        if self.current.len() >= MOST_NAMES {
            self.previous = std::mem::take(&mut self.current);
        }
        self.current.insert(who);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn proved_names_are_bounded_and_the_latest_are_kept() {
        let who = |name| Who {
            address: IpAddr::from([10, 0, 0, 1]),
            name,
        };
        let mut proved = Proved::default();
        for name in 0..3 * MOST_NAMES as u64 {
            proved.remember(who(name));
            assert!(proved.current.len() + proved.previous.len() <= 2 * MOST_NAMES);
        }
        assert!(!proved.contains(&who(0)));
        assert!(proved.contains(&who(2 * MOST_NAMES as u64)));
    }
}

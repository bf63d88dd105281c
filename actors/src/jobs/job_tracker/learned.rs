//! Expected durations of functions, learned from the jobs of this process: a probe before that
//! time asks for nothing.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

/// Functions that are remembered; beyond it the first one is evicted.
const MAX_FUNCTIONS: usize = 1_000;

/// Durations by function. Longer ones count at once and decay slowly.
#[derive(Default)]
pub(super) struct Learned {
    times: IndexMap<Arc<str>, Duration>,
}

impl Learned {
    /// Records the time from a job's beginning to its last return.
    pub(super) fn learn(&mut self, fun: &Arc<str>, took: Duration) {
        if let Some(known) = self.times.get_mut(fun) {
            *known = took.max((*known * 7 + took) / 8);
            return;
        }
        if self.times.len() >= MAX_FUNCTIONS {
            self.times.shift_remove_index(0);
        }
        self.times.insert(fun.clone(), took);
    }

    pub(super) fn time_of(&self, fun: &str) -> Option<Duration> {
        self.times.get(fun).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_duration_counts_at_once_decays_slowly_and_is_bounded() {
        let mut learned = Learned::default();
        let seconds = Duration::from_secs;
        let fun: Arc<str> = "state.apply".into();
        assert_eq!(learned.time_of(&fun), None);
        learned.learn(&fun, seconds(8));
        learned.learn(&fun, seconds(16));
        assert_eq!(learned.time_of(&fun), Some(seconds(16)));
        learned.learn(&fun, seconds(8));
        assert_eq!(learned.time_of(&fun), Some(seconds(15)));
        for number in 0..MAX_FUNCTIONS {
            learned.learn(&format!("f.{number}").into(), seconds(1));
        }
        assert_eq!(learned.times.len(), MAX_FUNCTIONS);
        assert_eq!(learned.time_of(&fun), None);
    }
}

//! How long a function takes, as far as the jobs of this process tell: who asks after a job
//! earlier than that asks for nothing.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

/// Functions that are remembered; beyond it the one that was learned first is forgotten.
const MOST_FUNCTIONS: usize = 1_000;

/// What was learned. Long times count at once and are forgotten slowly.
#[derive(Default)]
pub(super) struct Learned {
    times: IndexMap<Arc<str>, Duration>,
}

impl Learned {
    /// A job of this function had its last return so long after its beginning.
    pub(super) fn learn(&mut self, fun: &Arc<str>, took: Duration) {
        if let Some(known) = self.times.get_mut(fun) {
            *known = took.max((*known * 7 + took) / 8);
            return;
        }
        if self.times.len() >= MOST_FUNCTIONS {
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
    fn a_long_time_counts_at_once_and_is_forgotten_slowly_and_there_are_not_too_many() {
        let mut learned = Learned::default();
        let seconds = Duration::from_secs;
        let fun: Arc<str> = "state.apply".into();
        assert_eq!(learned.time_of(&fun), None);
        learned.learn(&fun, seconds(8));
        learned.learn(&fun, seconds(16));
        assert_eq!(learned.time_of(&fun), Some(seconds(16)));
        learned.learn(&fun, seconds(8));
        assert_eq!(learned.time_of(&fun), Some(seconds(15)));
        for number in 0..MOST_FUNCTIONS {
            learned.learn(&format!("f.{number}").into(), seconds(1));
        }
        assert_eq!(learned.times.len(), MOST_FUNCTIONS);
        assert_eq!(learned.time_of(&fun), None);
    }
}

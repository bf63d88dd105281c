//! Work of an actor on other threads, for which it waits: a commit to a disk, for one.
//!
//! While an actor waits, its own thread is free and would answer every heartbeat. Its heartbeats are
//! those of the work instead: none while one and the same piece of work takes longer than the time
//! between two of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pieces of work that were begun and ended, one at a time.
#[derive(Debug, Default)]
pub struct Work {
    /// Odd while a piece is under way.
    turns: AtomicU64,
    /// The turns at the last heartbeat that was answered.
    answered: AtomicU64,
}

impl Work {
    /// Begins a piece of work, which ends when what is given is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> impl Send + use<> {
        self.turns.fetch_add(1, Ordering::AcqRel);
        PieceOfWork(Arc::clone(self))
    }

    /// Whether a heartbeat may be answered: nothing is under way that was so at the last one.
    pub(crate) fn answers(&self) -> bool {
        let turns = self.turns.load(Ordering::Acquire);
        let before = self.answered.swap(turns, Ordering::AcqRel);
        turns.is_multiple_of(2) || turns != before
    }
}

/// A piece of work under way.
struct PieceOfWork(Arc<Work>);

impl Drop for PieceOfWork {
    fn drop(&mut self) {
        self.0.turns.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_lasts_from_one_heartbeat_to_the_next_answers_none() {
        let work = Arc::new(Work::default());
        assert!(work.answers());
        let piece = work.begin();
        assert!(work.answers(), "it has only begun");
        assert!(!work.answers());
        assert!(!work.answers());
        drop(piece);
        assert!(work.answers());
        for _ in 0..3 {
            let _piece = work.begin();
            assert!(work.answers(), "each is another one");
        }
    }
}

//! Budget of one target, or of one answer from mines: steps of all words over all minions together,
//! and processor time.
//!
//! The client chooses the expression, and minions choose the values that it is matched against;
//! stock has no limit. One value has a limit of its own, so that one minion's data cannot use up
//! what the others' need: beyond it the value does not match, and the result is marked as
//! incomplete. Beyond the limit of the whole search nothing matches, because half an answer would
//! be a wrong one.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use saltern_python::expression::Pattern;

/// How many steps one search may cost. A step is a short comparison, or a thousand places that a
/// regular expression came back to.
const MAX_STEPS: u64 = 20_000_000;

/// How much less a search may cost of which one answer needs many.
const BRIEF: u32 = 10;

/// How many entries of mines one answer may look at.
const MAX_ENTRIES: u64 = 100_000_000;

/// How long one answer from mines may keep the processor, with all its searches.
const MAX_TIME_OF_ANSWER: Duration = Duration::from_secs(10);

/// How many steps one value may cost.
const MAX_STEPS_OF_VALUE: u32 = 20_000;

/// How long one search may keep the processor: steps are not equally long.
const MAX_TIME: Duration = Duration::from_secs(3);

/// After how many steps the time is looked at.
const LOOK: u64 = 512;

/// Remaining budget of one search.
pub(super) struct Allowance {
    left: Cell<u64>,
    /// How many steps were left when the time was looked at.
    looked: Cell<u64>,
    /// Time of this thread at which the search ends.
    end: Cell<Duration>,
    is_cut: Cell<bool>,
}

impl Allowance {
    /// For a search that begins now, on this thread.
    pub(super) fn of_search(is_brief: bool) -> Self {
        match is_brief {
            true => Self::new(MAX_STEPS / u64::from(BRIEF), MAX_TIME / BRIEF),
            false => Self::new(MAX_STEPS, MAX_TIME),
        }
    }

    /// For an answer from mines that begins now, on this thread.
    pub(super) fn of_answer() -> Self {
        Self::new(MAX_ENTRIES, MAX_TIME_OF_ANSWER)
    }

    #[cfg(test)]
    pub(super) fn of_steps(steps: u64) -> Self {
        Self::new(steps, MAX_TIME)
    }

    fn new(steps: u64, time: Duration) -> Self {
        Self {
            left: Cell::new(steps),
            looked: Cell::new(steps),
            end: Cell::new(processor_time().saturating_add(time)),
            is_cut: Cell::new(false),
        }
    }

    /// Whether these steps may be taken.
    pub(super) fn spend(&self, steps: usize) -> bool {
        let left = self.left.get().saturating_sub(steps as u64);
        self.left.set(left);
        if self.looked.get() - left >= LOOK {
            self.look();
        }
        self.left.get() > 0
    }

    /// Looks at the time, after something that was not counted in steps.
    pub(super) fn look(&self) {
        if processor_time() > self.end.get() {
            self.left.set(0);
        }
        self.looked.set(self.left.get());
    }

    /// Runs work that is not charged to this search: the first search after a start has to read the
    /// data of all minions.
    pub(super) fn excuse<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = processor_time();
        let done = work();
        let took = processor_time().saturating_sub(began);
        self.end.set(self.end.get().saturating_add(took));
        done
    }

    /// Records that something counts as no match without having been matched to its end.
    pub(super) fn cut(&self) {
        self.is_cut.set(true);
    }

    /// Whether there was such a thing.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Charges a match with its steps; one of unknown cost counts as no match.
    pub(super) fn settle(&self, (is_match, steps): (Option<bool>, usize)) -> bool {
        if is_match.is_none() {
            self.cut();
        }
        self.spend(steps) && is_match == Some(true)
    }

    /// Whether something was left undone.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }
}

/// Remaining budget of one value in one search.
pub(super) struct Budget<'a> {
    left: Cell<u32>,
    search: &'a Allowance,
}

impl<'a> Budget<'a> {
    pub(super) fn of(search: &'a Allowance) -> Self {
        Self {
            left: Cell::new(MAX_STEPS_OF_VALUE),
            search,
        }
    }

    /// Whether one more step may be taken.
    pub(super) fn spend(&self) -> bool {
        self.spend_many(1)
    }

    fn spend_many(&self, steps: usize) -> bool {
        let left = self.left.get();
        let steps_of_value = u32::try_from(steps).unwrap_or(u32::MAX);
        self.left.set(left.saturating_sub(steps_of_value));
        if left == 0 {
            self.search.cut();
            return false;
        }
        self.search.spend(steps)
    }

    /// Whether the pattern matches, which takes as many steps as it says.
    pub(super) fn matches(&self, pattern: &Pattern, text: &str) -> bool {
        let (is_match, steps) = pattern.matches_counting(text);
        if is_match.is_none() {
            self.search.cut();
        }
        self.spend_many(steps) && is_match == Some(true)
    }

    /// A pattern that cannot be held against anything, where one should be.
    pub(super) fn give_up(&self) -> bool {
        self.search.cut();
        false
    }

    /// For what is done with a text as a whole.
    pub(super) fn spend_on(&self, text: &str) -> bool {
        self.spend_many(text.len() / 64)
    }
}

/// How long this thread has had the processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_for_the_value_and_for_the_search() {
        let search = Allowance::of_steps(50_000);
        let spent = |budget: Budget<'_>| (0..40_000).filter(|_| budget.spend()).count();
        assert!(!search.is_cut());
        assert_eq!(spent(Budget::of(&search)), 20_000);
        assert!(search.is_cut() && !search.is_exhausted());
        assert_eq!(spent(Budget::of(&search)), 20_000);
        assert!(spent(Budget::of(&search)) < 10_000);
        assert!(search.is_exhausted());
        assert!(!search.spend(1));
    }

    #[test]
    fn brief_search_may_cost_a_tenth() {
        for (is_brief, steps, millis) in [(false, 20_000_000, 3_000), (true, 2_000_000, 300)] {
            let before = processor_time();
            let search = Allowance::of_search(is_brief);
            let time = Duration::from_millis(millis);
            assert_eq!(search.left.get(), steps);
            assert!(before + time <= search.end.get());
            assert!(search.end.get() <= processor_time() + time);
        }
    }

    #[test]
    fn text_costs_a_step_for_64_bytes() {
        let search = Allowance::of_steps(50_000);
        let budget = Budget::of(&search);
        assert!(budget.spend_on(&"x".repeat(64 * 20_000 - 1)));
        assert!(budget.spend() && !search.is_cut());
        assert!(!budget.spend() && search.is_cut());
        assert!(!budget.spend_on(""));
    }

    #[test]
    fn time_is_looked_at_after_512_steps() {
        let search = Allowance::new(MAX_STEPS, Duration::ZERO);
        assert!(search.spend(511));
        assert!(!search.spend(1) && search.is_exhausted());
    }

    #[test]
    fn excused_work_is_not_charged() {
        let allowance = Allowance::new(MAX_STEPS, Duration::ZERO);
        let spin = || {
            let began = processor_time();
            while processor_time() <= began + Duration::from_millis(1) {}
        };
        let patient = Allowance::new(MAX_STEPS, Duration::from_secs(3600));
        let end = patient.end.get();
        patient.excuse(spin);
        assert!(patient.end.get() > end);
        spin();
        allowance.look();
        assert!(allowance.is_exhausted());
    }
}

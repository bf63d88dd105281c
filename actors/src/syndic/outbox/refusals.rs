//! Refusals of single returns by masters above to which returns go as `_syndic_return`. The answer of stock does not
//! say why: it is the same to a return that cannot be read as to any while the disk is full. So others behind it are
//! tried (probes): when a master takes one of them, and refuses the first one again, the first one is at fault. While
//! all are refused, none is, and all wait.

use std::collections::BTreeSet;

/// How often masters above may refuse a single return before others are tried.
const MAX_REFUSALS: u32 = 5;

/// A probe is at most so many returns behind the refused one.
const MAX_DISTANCE: usize = 512;

/// Returns behind the cursor that were taken as probes; the lowest beyond it are forgotten, and go up once more.
const MAX_TAKEN: usize = 1000;

/// Refusals of single returns of one outbox.
pub(super) struct Refusals {
    refused: Option<RefusedReturn>,
    /// The next probe is so many returns behind the refused one: 1, 2, 4, …, then 3, 6, 12, …, so any is tried in the
    /// end, and one behind many with the same fault soon.
    distance: usize,
    /// The first distance of the present series.
    base: usize,
    /// The one before was at fault, and the next may have the same one: one refusal is enough for a probe.
    had_fault: bool,
    /// Numbers of returns behind the cursor that were taken as probes.
    taken: BTreeSet<i64>,
}

/// The first return that waits, which was refused.
struct RefusedReturn {
    number: i64,
    refusals: u32,
    /// Masters above that have taken a probe since.
    takers: BTreeSet<String>,
    /// A probe is next.
    probes: bool,
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            refused: None,
            distance: 1,
            base: 1,
            had_fault: false,
            taken: BTreeSet::new(),
        }
    }
}

impl Refusals {
    /// The master above of this name has refused this return alone. Whether the return is at fault.
    pub(super) fn refused(&mut self, number: i64, by: &str) -> bool {
        let before = self.refused.take();
        let mut refused =
            before
                .filter(|refused| refused.number == number)
                .unwrap_or(RefusedReturn {
                    number,
                    refusals: 0,
                    takers: BTreeSet::new(),
                    probes: false,
                });
        if refused.takers.contains(by) {
            self.had_fault = true;
            return true;
        }
        refused.refusals = refused.refusals.saturating_add(1);
        refused.probes = self.had_fault || refused.refusals >= MAX_REFUSALS;
        self.refused = Some(refused);
        false
    }

    /// If a probe is next: the number of the refused return, and how many returns behind it the probe is. The refused
    /// one follows, whatever becomes of the probe.
    pub(super) fn take_probe(&mut self) -> Option<(i64, usize)> {
        let refused = self.refused.as_mut()?;
        let probes = std::mem::take(&mut refused.probes);
        probes.then_some((refused.number, self.distance))
    }

    /// The probe was refused, too, by this master above.
    pub(super) fn probe_refused(&mut self, by: &str) {
        if let Some(refused) = &mut self.refused {
            refused.takers.remove(by);
        }
        self.distance *= 2;
        if self.distance > MAX_DISTANCE {
            self.base = match self.base + 2 {
                base @ ..MAX_DISTANCE => base,
                _ => 1,
            };
            self.distance = self.base;
        }
    }

    /// The probe, of this number, was taken by this master above.
    pub(super) fn probe_taken(&mut self, number: i64, by: &str) {
        self.taken.insert(number);
        if self.taken.len() > MAX_TAKEN {
            self.taken.pop_first();
        }
        if let Some(refused) = &mut self.refused {
            refused.takers.insert(by.to_owned());
        }
    }

    /// A request had no answer: time has passed, and what a master took before it says nothing of what it refuses
    /// afterwards.
    pub(super) fn lost(&mut self) {
        if let Some(refused) = &mut self.refused {
            refused.takers.clear();
        }
    }

    /// Whether a master above has taken this return as a probe.
    pub(super) fn has_taken(&self, number: i64) -> bool {
        self.taken.contains(&number)
    }

    /// The cursor has passed this return, and all before it.
    pub(super) fn passed(&mut self, number: i64) {
        self.taken = self.taken.split_off(&number.saturating_add(1));
        let is_passed = |refused: &mut RefusedReturn| refused.number <= number;
        self.refused.take_if(is_passed);
    }

    /// Begins anew: the first return that waits was taken, so masters above store what is sent.
    pub(super) fn end(&mut self) {
        self.refused = None;
        (self.distance, self.base, self.had_fault) = (1, 1, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return 7 was refused until a probe is next.
    fn refused_often() -> Refusals {
        let mut refusals = Refusals::default();
        for _ in 0..MAX_REFUSALS {
            assert_eq!(refusals.take_probe(), None);
            assert!(!refusals.refused(7, "one"));
        }
        refusals
    }

    #[test]
    fn refused_return_is_at_fault_when_its_master_takes_another_and_refuses_it_again() {
        let mut refusals = refused_often();
        assert_eq!(refusals.take_probe(), Some((7, 1)));
        assert_eq!(refusals.take_probe(), None, "the refused one is next");
        refusals.probe_taken(9, "one");
        assert!(refusals.has_taken(9) && !refusals.has_taken(7));
        assert!(refusals.refused(7, "one"));
        refusals.passed(9);
        assert!(!refusals.has_taken(9));
    }

    #[test]
    fn refused_return_is_not_at_fault_while_its_master_takes_none() {
        let mut refusals = refused_often();
        let distances = (0..12).map(|_| {
            let (_, distance) = refusals.take_probe().unwrap();
            refusals.probe_refused("one");
            assert!(!refusals.refused(7, "one"));
            distance
        });
        let distances: Vec<usize> = distances.collect();
        assert_eq!(distances, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 3, 6]);
        refusals.take_probe().unwrap();
        refusals.probe_taken(9, "two");
        assert!(!refusals.refused(7, "one"), "another master has taken it");
        assert!(refusals.refused(7, "two"));
    }

    #[test]
    fn return_that_is_taken_in_the_end_is_refused_anew_afterwards() {
        let mut refusals = refused_often();
        refusals.end();
        assert_eq!(refusals.take_probe(), None);
        assert!(!refusals.refused(7, "one"));
        assert_eq!(refusals.take_probe(), None, "it is counted anew");
    }

    #[test]
    fn what_a_master_took_before_a_lost_request_or_a_refused_probe_is_no_evidence() {
        let mut refusals = refused_often();
        refusals.probe_taken(9, "one");
        refusals.lost();
        assert!(!refusals.refused(7, "one"));
        refusals.probe_taken(10, "one");
        refusals.probe_refused("two");
        assert!(refusals.refused(7, "one"));
        let mut refusals = refused_often();
        refusals.probe_taken(9, "one");
        refusals.probe_refused("one");
        assert!(!refusals.refused(7, "one"));
    }

    #[test]
    fn probes_that_were_taken_are_remembered_within_their_bound() {
        let mut refusals = refused_often();
        for number in 8..=8 + MAX_TAKEN as i64 {
            refusals.probe_taken(number, "one");
        }
        assert_eq!(refusals.taken.len(), MAX_TAKEN);
        assert!(!refusals.has_taken(8) && refusals.has_taken(9));
    }
}

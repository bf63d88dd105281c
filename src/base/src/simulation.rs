//! Ambient seams of a thread that simulates a whole master: where actors are placed, whence jitter
//! comes, what a fail point does, and which bug of ours is planted.
//!
//! It is ambient, so that no constructor of the product has a parameter for it. Only builds with the
//! feature `fault-injection` know of it: elsewhere [`is_running`] is `false` and [`fill`] fills nothing.
//! Decision 18 says why a simulation has this shape.

use crate::planted_bug::PlantedBug;

/// Whether this thread simulates a master.
#[inline]
#[must_use]
pub fn is_running() -> bool {
    #[cfg(feature = "fault-injection")]
    return running::is_running();
    #[cfg(not(feature = "fault-injection"))]
    false
}

/// Fills `buffer` from the seed of the simulation on this thread; `false` where there is none.
#[inline]
pub fn fill(buffer: &mut [u8]) -> bool {
    #[cfg(feature = "fault-injection")]
    return running::fill(buffer);
    #[cfg(not(feature = "fault-injection"))]
    {
        let _ = buffer;
        false
    }
}

/// Whether this bug is planted on this thread.
#[inline]
pub(crate) fn has_planted(bug: PlantedBug) -> bool {
    #[cfg(feature = "fault-injection")]
    return running::has_planted(bug);
    #[cfg(not(feature = "fault-injection"))]
    {
        let _ = bug;
        false
    }
}

#[cfg(feature = "fault-injection")]
pub(crate) use running::pass;
#[cfg(feature = "fault-injection")]
pub use running::{Entered, enter};

#[cfg(feature = "fault-injection")]
mod running {
    use std::cell::RefCell;
    use std::marker::PhantomData;

    use crate::fail_point::FailPoint;
    use crate::planted_bug::PlantedBug;

    type AtFailPoint = Box<dyn FnMut(FailPoint)>;

    struct Running {
        random: u64,
        planted: Option<PlantedBug>,
        at_fail_point: Option<AtFailPoint>,
    }

    thread_local! {
        static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
    }

    /// The simulation of this thread; it ends when this is dropped.
    #[must_use]
    pub struct Entered(PhantomData<*const ()>);

    impl Drop for Entered {
        fn drop(&mut self) {
            RUNNING.with_borrow_mut(Option::take);
        }
    }

    /// Simulates on this thread, with random bytes that follow from `seed`. `at_fail_point` is called
    /// at each fail point that is passed on this thread.
    pub fn enter(
        seed: u64,
        planted: Option<PlantedBug>,
        at_fail_point: impl FnMut(FailPoint) + 'static,
    ) -> Entered {
        let running = Running {
            random: seed,
            planted,
            at_fail_point: Some(Box::new(at_fail_point)),
        };
        RUNNING.with_borrow_mut(|here| *here = Some(running));
        Entered(PhantomData)
    }

    pub(super) fn is_running() -> bool {
        RUNNING.with_borrow(Option::is_some)
    }

    pub(super) fn has_planted(bug: PlantedBug) -> bool {
        RUNNING.with_borrow(|running| running.as_ref().is_some_and(|it| it.planted == Some(bug)))
    }

    pub(super) fn fill(buffer: &mut [u8]) -> bool {
        RUNNING.with_borrow_mut(|running| {
            let Some(running) = running else {
                return false;
            };
            for part in buffer.chunks_mut(8) {
                let bytes = split_mix(&mut running.random).to_le_bytes();
                part.copy_from_slice(&bytes[..part.len()]);
            }
            true
        })
    }

    /// SplitMix64.
    fn split_mix(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = *state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn pass(point: FailPoint) {
        // Taken out: what it does may pass another one.
        let taken = RUNNING.with_borrow_mut(|running| running.as_mut()?.at_fail_point.take());
        let Some(mut at_fail_point) = taken else {
            return;
        };
        at_fail_point(point);
        RUNNING.with_borrow_mut(|running| {
            if let Some(running) = running {
                running.at_fail_point = Some(at_fail_point);
            }
        });
    }
}

#[cfg(all(test, feature = "fault-injection"))]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::fail_point::FailPoint;

    #[test]
    fn simulation_is_of_its_thread_and_follows_from_its_seed() {
        let mut nothing = [0; 4];
        assert!(!is_running() && !fill(&mut nothing) && nothing == [0; 4]);
        let bytes = |seed| {
            let _entered = enter(seed, None, |_| {});
            let mut bytes = [0; 21];
            assert!(is_running() && fill(&mut bytes));
            assert!(!std::thread::spawn(is_running).join().expect("no panic"));
            bytes
        };
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
        assert!(!is_running());
    }

    #[test]
    fn simulation_observes_fail_points_and_has_its_bug() {
        let bug = PlantedBug::ALL[0];
        let seen = Rc::new(RefCell::new(Vec::new()));
        let sees = seen.clone();
        let entered = enter(1, Some(bug), move |point| {
            FailPoint::AnswerBefore.pass();
            sees.borrow_mut().push(point);
        });
        FailPoint::CommitAfter.pass();
        assert!(bug.is_planted() && !PlantedBug::ALL[1].is_planted());
        drop(entered);
        FailPoint::CommitAfter.pass();
        assert_eq!(*seen.borrow(), [FailPoint::CommitAfter]);
        assert!(!bug.is_planted());
    }
}

//! Limits of a rendering: time, steps and output.
//!
//! Time is that of the processor on the rendering's own thread, so that a busy machine, on which
//! every rendering takes longer by the clock, breaks none; a longer limit by the clock holds all
//! the same.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Bounds on one rendering.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest time of the processor; by the clock it may be more.
    pub time: Duration,
    /// When the whole ends that this rendering is a part of; nothing goes on after it.
    pub deadline: Option<Instant>,
    /// The time of the thread's processor at which a rendering that is under way ends; set by
    /// the first part of it.
    pub processor: Option<Duration>,
    /// The most bytes printed, those that `set` and macros capture included.
    pub output: u64,
    /// The most instructions of the engine.
    pub steps: u64,
    /// Maximum number of loop rounds and of iterated items, over the whole rendering.
    pub rounds: u64,
    /// How deep macros and includes may nest, in units of the engine (a macro costs four).
    pub depth: usize,
}

impl Limits {
    /// More than any sane pillar needs: half a minute of the processor, 64 MiB, ten million rounds.
    pub const DEFAULT: Limits = Limits {
        time: Duration::from_secs(30),
        deadline: None,
        processor: None,
        output: 64 << 20,
        steps: 200_000_000,
        rounds: 10_000_000,
        depth: 800,
    };

    /// A part's own time, cut at [`Limits::deadline`].
    pub fn left_of(&self, own: Duration) -> Duration {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.deadline
            .map_or(own, |deadline| own.min(left(deadline)))
    }

    /// When a rendering that begins now ends at the latest, by the clock.
    pub(crate) fn end(&self) -> Instant {
        Instant::now() + self.left_of(self.time.saturating_mul(CLOCK_PER_PROCESSOR))
    }

    /// The same for a rendering that begins now on this thread and goes on in several parts.
    pub(crate) fn begun(self) -> Limits {
        let end = self.end();
        let processor = processor_time().map(|now| now.saturating_add(self.time));
        Limits {
            deadline: self.deadline.min(Some(end)).or(Some(end)),
            processor: self.processor.or(processor),
            ..self
        }
    }
}

/// Factor by which a rendering may exceed its time by the clock: the machine may be busy, and it
/// may wait for others.
const CLOCK_PER_PROCESSOR: u32 = 4;

/// The processor time of this thread; `None` where the system does not report it.
pub(super) fn processor_time() -> Option<Duration> {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).ok()
}

/// Whether a rendering that has an end by the clock and one by the processor has reached one of
/// them.
pub(super) fn is_over(
    (end, now): (Instant, Instant),
    (processor_end, processor): (Option<Duration>, Option<Duration>),
) -> bool {
    let is_spent = |end: Duration| processor.is_some_and(|spent| spent > end);
    now > end || processor_end.is_some_and(is_spent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendering_is_limited_by_processor_time_before_the_clock() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let spent = |processor| (Some(second * 10), processor);
        let ahead = (now + second, now);
        assert!(!is_over(ahead, spent(Some(second * 10))));
        assert!(is_over(ahead, spent(Some(second * 11))));
        assert!(!is_over(ahead, spent(None)), "no processor time");
        assert!(!is_over(ahead, (None, Some(second))));
        assert!(is_over((now, now + second), spent(Some(second))));
    }

    #[test]
    fn parts_of_a_rendering_share_its_time() {
        let limits = Limits {
            time: Duration::from_secs(7),
            ..Limits::DEFAULT
        };
        let first = limits.begun();
        let left = first.left_of(Duration::MAX);
        assert!(left > limits.time && left <= limits.time * CLOCK_PER_PROCESSOR);
        let second = first.begun();
        assert_eq!(second.processor, first.processor);
        assert_eq!(second.deadline, first.deadline.min(second.deadline));
        assert!(first.processor >= Some(limits.time));
    }
}

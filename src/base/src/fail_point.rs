//! Fault injection: named points at which a test build can be made to die, as by a power cut.
//!
//! They lie on the path of a return, of a publish and of every other write that is later relied on,
//! so that tests can examine what an interrupted operation leaves. Only builds with
//! the feature `fault-injection` know of them: elsewhere [`FailPoint::pass`] is empty. Nothing here
//! fails in a softer way: what follows an error is tested where the error arises.

/// Whether this build has fail points, and with them all that the feature brings.
pub const ARE_BUILT_IN: bool = cfg!(feature = "fault-injection");

/// A place at which the process can be made to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailPoint {
    /// Returns and jobs wait for their commit; nothing of them is written.
    CommitBefore,
    /// They are in a transaction that has not been committed.
    CommitWithin,
    /// They are committed; no event is fired and no peer answered yet.
    CommitAfter,
    /// Their events are on the bus; no peer is answered yet.
    AnswerBefore,
    /// One of several peers that wait for the same commit is answered, the next one is not.
    AnswerBetween,
    /// The write-ahead log is being folded into the database.
    CheckpointWithin,
    /// A job is committed; stock's files about it are not written, its load has not left.
    PublishBefore,
    /// Stock's files are written; the load has not left.
    PublishAnnounced,
    /// The load has its number and its signature, and has not left.
    PublishSealed,
    /// The load is queued for its subscribers.
    PublishSent,
    /// A return is in stock's job cache; the mirror's place is still before it.
    MirrorBetween,
    /// A file is complete under another name.
    FileBefore,
    /// A minion's new session key is in its file, but neither sent to the minion nor noted in
    /// memory.
    SessionBetween,
    /// A new shared key is in its file; publications are still made with the old one.
    RotationBetween,
}

impl FailPoint {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::CommitBefore,
        Self::CommitWithin,
        Self::CommitAfter,
        Self::AnswerBefore,
        Self::AnswerBetween,
        Self::CheckpointWithin,
        Self::PublishBefore,
        Self::PublishAnnounced,
        Self::PublishSealed,
        Self::PublishSent,
        Self::MirrorBetween,
        Self::FileBefore,
        Self::SessionBetween,
        Self::RotationBetween,
    ];

    /// The name by which a test asks for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CommitBefore => "commit-before",
            Self::CommitWithin => "commit-within",
            Self::CommitAfter => "commit-after",
            Self::AnswerBefore => "answer-before",
            Self::AnswerBetween => "answer-between",
            Self::CheckpointWithin => "checkpoint-within",
            Self::PublishBefore => "publish-before",
            Self::PublishAnnounced => "publish-announced",
            Self::PublishSealed => "publish-sealed",
            Self::PublishSent => "publish-sent",
            Self::MirrorBetween => "mirror-between",
            Self::FileBefore => "file-before",
            Self::SessionBetween => "session-between",
            Self::RotationBetween => "rotation-between",
        }
    }

    /// The point of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.name() == name)
    }

    /// Stands at the place. The process ends here if it was asked to.
    #[inline]
    pub fn pass(self) {
        #[cfg(feature = "fault-injection")]
        armed::pass(self);
    }

    /// Runs `work`. If the process was asked to end at this place, it ends in the midst of the work,
    /// at no particular moment, or right after it.
    #[inline]
    pub fn within<T>(self, work: impl FnOnce() -> T) -> T {
        #[cfg(feature = "fault-injection")]
        let _end = armed::within(self);
        work()
    }

    /// From now on, the process dies when the place is passed for the `count`-th time; 0 takes that
    /// back.
    #[cfg(feature = "fault-injection")]
    pub fn arm(self, count: u32) {
        armed::arm(self, count);
    }
}

/// A place at which a test can have the thread or the task panic that passes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicPoint {
    /// The writer of a cluster's jobs begins with a task.
    ClusterWriter,
}

impl PanicPoint {
    /// Stands at the place.
    #[inline]
    pub fn pass(self) {
        #[cfg(feature = "fault-injection")]
        armed::panic_at(self);
    }

    /// From now on, whoever passes the place panics.
    #[cfg(feature = "fault-injection")]
    pub fn arm(self) {
        armed::arm_panic(self);
    }
}

#[cfg(feature = "fault-injection")]
mod armed {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    use super::{FailPoint, PanicPoint};

    /// How many times each place may still be passed, the fatal time included; 0 for ever.
    static LEFT: [AtomicU32; FailPoint::ALL.len()] =
        [const { AtomicU32::new(0) }; FailPoint::ALL.len()];

    static PANICS_IN_WRITER: AtomicBool = AtomicBool::new(false);

    fn panics(point: PanicPoint) -> &'static AtomicBool {
        match point {
            PanicPoint::ClusterWriter => &PANICS_IN_WRITER,
        }
    }

    pub(super) fn arm_panic(point: PanicPoint) {
        panics(point).store(true, SeqCst);
    }

    pub(super) fn panic_at(point: PanicPoint) {
        assert!(!panics(point).load(SeqCst), "a test asked for a panic");
    }

    pub(super) fn arm(point: FailPoint, count: u32) {
        left(point).store(count, SeqCst);
    }

    pub(super) fn pass(point: FailPoint) {
        crate::simulation::pass(point);
        if is_fatal(point) {
            die();
        }
    }

    /// Dies while the caller goes on, or else when the caller drops what it gets.
    pub(super) fn within(point: FailPoint) -> Option<DiesAtEnd> {
        is_fatal(point).then(|| {
            std::thread::spawn(|| {
                // About as long as a few pages take to reach a disk.
                std::thread::sleep(Duration::from_micros(300));
                die();
            });
            DiesAtEnd
        })
    }

    pub(super) struct DiesAtEnd;

    impl Drop for DiesAtEnd {
        fn drop(&mut self) {
            die();
        }
    }

    fn left(point: FailPoint) -> &'static AtomicU32 {
        // The discriminants are 0, 1, … as `ALL` counts them; the test of `ALL` says so.
        &LEFT[point as usize]
    }

    fn is_fatal(point: FailPoint) -> bool {
        let down = |left: u32| left.checked_sub(1);
        left(point).fetch_update(SeqCst, SeqCst, down) == Ok(1)
    }

    /// As `kill -9` does: no destructor runs, nothing is flushed, no other thread gets further.
    fn die() {
        if kill_process(getpid(), Signal::KILL).is_err() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fail_point_names_round_trip() {
        for (number, point) in FailPoint::ALL.into_iter().enumerate() {
            assert_eq!(point as usize, number);
            assert_eq!(FailPoint::from_name(point.name()), Some(point));
        }
        assert_eq!(FailPoint::from_name("nowhere"), None);
    }
}

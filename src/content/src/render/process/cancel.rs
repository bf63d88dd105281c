//! Ends programs from another thread.

use std::io::{self, PipeReader, PipeWriter};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};

/// Cancellation handle: every holder can end the program that runs under it, at once and for good.
#[derive(Debug)]
pub struct Cancel {
    /// Its end of file is the signal: it wakes all present and later waiters.
    wake: PipeReader,
    open: Mutex<Option<PipeWriter>>,
}

impl Cancel {
    /// A handle that is not cancelled.
    ///
    /// # Errors
    /// The system has no pipe left.
    pub fn new() -> io::Result<Self> {
        let (wake, open) = io::pipe()?;
        Ok(Self {
            wake,
            open: Mutex::new(Some(open)),
        })
    }

    /// Ends what runs.
    pub fn cancel(&self) {
        *self.open.lock() = None;
    }

    /// Whether that has happened.
    pub fn is_cancelled(&self) -> bool {
        self.open.lock().is_none()
    }

    /// Descriptor that becomes readable with the cancellation, for `poll`.
    pub(super) fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.wake, PollFlags::IN)
    }
}

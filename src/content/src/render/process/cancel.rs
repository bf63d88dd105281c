//! Ends programs from another thread.

use std::io::{self, PipeReader, PipeWriter};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};

/// Whoever shares it can end what runs under it, and keep it from running: at once, and for good.
#[derive(Debug)]
pub struct Cancel {
    /// Its end is the signal: it wakes everybody who waits for it, also those who come later.
    wake: PipeReader,
    open: Mutex<Option<PipeWriter>>,
}

impl Cancel {
    /// One that nobody has used yet.
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

    /// What to wait for.
    pub(super) fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.wake, PollFlags::IN)
    }
}

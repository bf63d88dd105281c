//! The writer of the job database.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::{AuditHead, Committed, Imported, NewEvent, Write};
use crate::error::Result;
use crate::mirror::CachedJob;

/// An engine's reply that is still to come. The engine works on it whether it is polled or not, and
/// also when it is dropped.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Changes that are committed together, wholly or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The changes. Each sees the ones before it.
    pub writes: Vec<Write>,
    /// The events that each change causes, in the order of the changes; may be shorter. They are kept
    /// in the same transaction, unless the change is [`Written::Repeated`](super::Written): then they
    /// were kept with the first.
    pub caused: Vec<Vec<NewEvent>>,
}

impl Batch {
    /// A batch whose changes cause no events.
    pub fn of(writes: Vec<Write>) -> Self {
        Self {
            writes,
            caused: Vec::new(),
        }
    }
}

/// The only writer of the job database.
///
/// It is asynchronous: a caller never waits within a call. Batches are committed in the order of the
/// calls. A caller has one commit in flight and gathers the next one meanwhile, so it waits for a
/// reply before it appends again.
///
/// # Errors
/// [`StoreError::Full`](crate::StoreError::Full) when there is no space: nothing of the batch is
/// kept, reads go on, and a later batch is committed as soon as there is space again.
/// [`StoreError::Interrupted`](crate::StoreError::Interrupted) when the engine failed on the way:
/// the batch is stored wholly or not at all, and nobody knows which; it may be appended again.
pub trait JobLog: Send + Sync {
    /// Commits a batch. The reply says what became of each change, and comes when all are durable.
    fn append(&self, batch: Arc<Batch>) -> Pending<Committed>;

    /// Adds jobs and returns of stock's job cache that are not there yet; what is there stays as it
    /// is, but for a job that is only known by the report of a peer: that one is replaced by a
    /// published one, and keeps its number. Followers never meet imported rows.
    fn import(&self, slice: Vec<CachedJob>) -> Pending<Imported>;

    /// Remembers that stock's job cache has been read.
    fn finish_import(&self) -> Pending<()>;

    /// The position that the next kept event gets.
    fn next_event_position(&self) -> Pending<i64>;

    /// The end of the audit trail.
    fn audit_head(&self) -> Pending<AuditHead>;
}

/// Blocks the thread until the reply is there: for a start, for tools and for tests.
pub fn wait<T>(pending: Pending<T>) -> Result<T> {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut pending = pin!(pending);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match pending.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(reply) => return reply,
            Poll::Pending => thread::park(),
        }
    }
}

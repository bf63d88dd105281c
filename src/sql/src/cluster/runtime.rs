//! The thread that runs the connections of an engine, for callers that block.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A runtime on a thread of its own, until all who hold it are gone.
pub(super) struct RuntimeThread {
    handle: Handle,
    /// Its end ends the thread.
    _end: oneshot::Sender<()>,
}

impl RuntimeThread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("cluster-sql".to_owned());
        thread.spawn(move || {
            // The sender says nothing, it goes.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { handle, _end: end })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for a task that the thread's connections answer; none after so long. The caller's thread may
    /// be one of another runtime, as an actor's is.
    pub(super) fn wait<T>(&self, limit: Duration, task: impl Future<Output = T>) -> Option<T> {
        let limited = {
            let _inside = self.handle.enter();
            tokio::time::timeout(limit, task)
        };
        park_until(limited).ok()
    }
}

fn park_until<T>(task: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut task = pin!(task);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

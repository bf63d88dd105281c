//! Work that blocks, on the pool of the runtime, where the system may start no thread.
//!
//! `tokio::task::spawn_blocking` panics in its caller when a pool has no thread and the system gives it none
//! (`TasksMax` of systemd, pids of a container), and leaves the task in a queue without a bound. Pools here end their
//! idle threads soon, so that would be any call of a busy hour. Here the caller gets an error, and the work is
//! dropped without having begun. While some thread of the pool works, its queue is the back-pressure, as in tokio.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::thread;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::panic_hook::catch_expected;

/// The last call in this process was refused a thread. Until one can be had, tokio is not asked: each call that it
/// refuses leaves a task in its queue.
static IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Why work that blocks gave no result.
#[derive(Debug, thiserror::Error)]
pub enum BlockingError {
    /// It was not begun.
    #[error("the system starts no thread")]
    NoThread(#[source] io::Error),
    /// It panicked, which is in the log, or the runtime ends.
    #[error("the work on a thread ended without a result")]
    Ended,
}

impl From<BlockingError> for io::Error {
    fn from(error: BlockingError) -> Self {
        match error {
            BlockingError::NoThread(source) => source,
            BlockingError::Ended => Self::other(error),
        }
    }
}

/// Work that was begun; gives its result. Goes on when this is dropped.
pub struct Begun<T>(JoinHandle<Option<T>>);

impl<T> Future for Begun<T> {
    type Output = Result<T, BlockingError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(ended.ok().flatten().ok_or(BlockingError::Ended))
    }
}

/// Begins work on the pool of the caller's runtime.
///
/// # Errors
/// [`BlockingError::NoThread`], and the work is dropped.
///
/// # Panics
/// Outside a runtime.
pub fn begin<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Begun<T>, BlockingError> {
    begin_on(&Handle::current(), work)
}

/// Runs work on the pool of the caller's runtime.
///
/// # Errors
/// As [`BlockingError`] says.
pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingError> {
    begin(work)?.await
}

fn begin_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Begun<T>, BlockingError> {
    if IS_SHORT.load(Ordering::Relaxed) {
        try_thread().map_err(BlockingError::NoThread)?;
        IS_SHORT.store(false, Ordering::Relaxed);
    }
    let work = Arc::new(Mutex::new(Some(work)));
    let held = Arc::clone(&work);
    let task = move || {
        let work = held.lock().take();
        work.map(|work| work())
    };
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place whose refusal is caught"
    )]
    let begun = catch_expected(|| runtime.spawn_blocking(task));
    begun.map(Begun).ok_or_else(|| {
        IS_SHORT.store(true, Ordering::Relaxed);
        // The task is in tokio's queue, and finds nothing to do.
        drop(work.lock().take());
        let error = try_thread().err();
        BlockingError::NoThread(error.unwrap_or_else(|| io::ErrorKind::WouldBlock.into()))
    })
}

/// Whether the system starts a thread just now.
fn try_thread() -> io::Result<()> {
    thread::Builder::new().spawn(|| ()).map(drop)
}

/// The addresses of a host, as `tokio::net::lookup_host` gives them, which blocks in the same way.
///
/// # Errors
/// The resolver's, or no thread for asking it.
pub async fn lookup_host(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host.parse::<IpAddr>() {
        Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
        Err(_) => resolve((host.to_owned(), port)).await,
    }
}

/// The same of `HOST:PORT`.
///
/// # Errors
/// Likewise.
pub async fn lookup_address(address: &str) -> io::Result<Vec<SocketAddr>> {
    match address.parse::<SocketAddr>() {
        Ok(address) => Ok(vec![address]),
        Err(_) => resolve(address.to_owned()).await,
    }
}

async fn resolve(name: impl ToSocketAddrs + Send + 'static) -> io::Result<Vec<SocketAddr>> {
    run(move || name.to_socket_addrs().map(Iterator::collect)).await?
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// A runtime for whose pool the system starts no thread: there is no room for such a stack.
    fn without_threads() -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().thread_stack_size(1 << 60);
        builder.build().expect("a runtime")
    }

    #[test]
    fn work_is_run_and_its_panic_is_an_error() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            assert_eq!(run(|| 5).await.expect("it ends"), 5);
            let panicked = run(|| -> u8 { panic!("a test of a panic") }).await;
            assert!(matches!(panicked, Err(BlockingError::Ended)));
        });
    }

    /// Tokio's own call panics there, and keeps what it was given.
    #[test]
    fn work_is_dropped_with_an_error_where_no_thread_starts() {
        let runtime = without_threads();
        let (kept, dropped) = mpsc::channel::<()>();
        runtime.block_on(async {
            let work = move || drop(kept);
            let refused = begin(work).map(drop).expect_err("there is no thread");
            let BlockingError::NoThread(error) = refused else {
                panic!("another error: {refused}");
            };
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            let is_dropped = dropped.recv_timeout(Duration::ZERO);
            assert_eq!(is_dropped, Err(mpsc::RecvTimeoutError::Disconnected));
            // And again, after a look at whether there is one by now.
            assert!(IS_SHORT.load(Ordering::Relaxed));
            assert!(run(|| ()).await.is_err());
            let found = lookup_host("localhost", 1).await;
            assert_eq!(
                found.map_err(|error| error.kind()),
                Err(io::ErrorKind::WouldBlock)
            );
        });
    }

    #[test]
    fn work_begins_again_once_there_are_threads() {
        let refused = without_threads().block_on(async { begin(|| ()).map(drop) });
        assert!(refused.is_err());
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(run(|| 5)).expect("it ends"), 5);
        assert!(!IS_SHORT.load(Ordering::Relaxed));
    }

    #[test]
    fn addresses_are_no_work_for_a_thread_and_names_are() {
        without_threads().block_on(async {
            let one = [SocketAddr::from(([127, 0, 0, 1], 5))];
            assert_eq!(lookup_host("127.0.0.1", 5).await.expect("an address"), one);
            assert_eq!(
                lookup_address("127.0.0.1:5").await.expect("an address"),
                one
            );
            assert!(lookup_address("localhost:5").await.is_err());
        });
    }
}

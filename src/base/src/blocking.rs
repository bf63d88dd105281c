//! Work that blocks, on the pool of the runtime, where the system may start no thread.
//!
//! `tokio::task::spawn_blocking` panics in its caller when a pool has no thread and the system gives it none
//! (`TasksMax` of systemd, pids of a container), and leaves the task in a queue without a bound. Pools here end their
//! idle threads soon, so that would be any call of a busy hour. Here the caller gets an error, and the work is
//! dropped without having begun. While some thread of the pool works, its queue is the back-pressure, as in tokio.
//!
//! After a refusal of the pool, work has a thread of its own for a second: that leaves nothing in a queue, and a look
//! beforehand would take the thread that it looks for. Then one call asks the pool again, whatever became of the others
//! meanwhile; so no more than one task a second is left in its queue. Threads of their own are bounded, as those of the
//! pool are; but they have no queue, and work that finds no room is refused.
//!
//! The end of a runtime does not wait for such threads, as it does for those of its pool: whatever must be over by
//! then is awaited by who began it.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::panic_hook::catch_expected;

/// Time after the last refusal of a pool in which it is not asked: each call that it refuses leaves a task in its queue.
const SHORTAGE: Duration = Duration::from_secs(1);

/// Threads beside the pool of a runtime, as many as tokio's pool has at most.
const MAX_THREADS: usize = 512;

/// The runtimes whose pool was refused a thread, and when that was last; others are forgotten.
static SHORT: Mutex<Vec<(Id, Instant)>> = Mutex::new(Vec::new());

/// The runtimes with threads beside their pool, and how many these are.
static BESIDE: Mutex<Vec<(Id, usize)>> = Mutex::new(Vec::new());

/// A thread beside the pool of a runtime, from before its start to its end.
struct Beside(Id);

impl Beside {
    /// Nothing where there are too many.
    fn of(runtime: Id) -> Option<Self> {
        let mut all = BESIDE.lock();
        match all.iter_mut().find(|(id, _)| *id == runtime) {
            Some((_, count)) if *count >= MAX_THREADS => return None,
            Some((_, count)) => *count += 1,
            None => all.push((runtime, 1)),
        }
        Some(Self(runtime))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let mut all = BESIDE.lock();
        if let Some((_, count)) = all.iter_mut().find(|(id, _)| *id == self.0) {
            *count -= 1;
        }
        all.retain(|(_, count)| *count > 0);
    }
}

/// Notes that the pool of a runtime is refused a thread, and forgets those that were not for a while, or have ended.
fn refused(runtime: Id) {
    let mut short = SHORT.lock();
    let now = Instant::now();
    short.retain(|(id, last)| *id != runtime && now.duration_since(*last) < SHORTAGE);
    short.push((runtime, now));
}

/// Whether the pool of a runtime is not to be asked. The first one who may ask it again is the only one for a while.
fn is_short(runtime: Id) -> bool {
    let mut short = SHORT.lock();
    let Some((_, last)) = short.iter_mut().find(|(id, _)| *id == runtime) else {
        return false;
    };
    let now = Instant::now();
    let is_short = now.duration_since(*last) < SHORTAGE;
    if !is_short {
        *last = now;
    }
    is_short
}

/// Notes that the pool of a runtime took work.
fn served(runtime: Id) {
    SHORT.lock().retain(|(id, _)| *id != runtime);
}

/// Work, with the way of its result.
type Task = Box<dyn FnOnce() + Send>;

/// Why work that blocks gave no result.
#[derive(Debug, thiserror::Error)]
pub enum BlockingError {
    /// It was not begun.
    #[error("the system starts no thread")]
    NoThread(#[source] io::Error),
    /// It was not begun: its pool is short of threads, and too many work beside it.
    #[error("{MAX_THREADS} threads work already, and their pool is short of them")]
    Full,
    /// It panicked, which is in the log, or the runtime ends.
    #[error("the work on a thread ended without a result")]
    Ended,
}

impl From<BlockingError> for io::Error {
    fn from(error: BlockingError) -> Self {
        match error {
            BlockingError::NoThread(source) => source,
            BlockingError::Full => Self::new(io::ErrorKind::WouldBlock, error),
            BlockingError::Ended => Self::other(error),
        }
    }
}

/// Work that was begun; gives its result. Goes on when this is dropped.
pub struct Begun<T>(oneshot::Receiver<T>);

impl<T> Future for Begun<T> {
    type Output = Result<T, BlockingError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(ended.map_err(|_| BlockingError::Ended))
    }
}

/// Begins work on the pool of the caller's runtime.
///
/// # Errors
/// [`BlockingError::NoThread`] and [`BlockingError::Full`], and the work is dropped.
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

/// Runs work that must be done whatever happens, as at a stop: on this thread where the system starts none.
///
/// # Errors
/// [`BlockingError::Ended`].
pub async fn run_anyway<T: Send + 'static>(
    work: impl Fn() -> T + Send + Sync + 'static,
) -> Result<T, BlockingError> {
    let work = Arc::new(work);
    let held = Arc::clone(&work);
    match run(move || held()).await {
        Err(BlockingError::NoThread(_) | BlockingError::Full) => Ok(work()),
        done => done,
    }
}

fn begin_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Begun<T>, BlockingError> {
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place whose refusal is caught"
    )]
    let on_pool = |task: Task| catch_expected(|| runtime.spawn_blocking(task)).is_some();
    begin_by(runtime.id(), work, on_pool, |task| alone(runtime, task))
}

/// Runs a task on a thread of its own.
fn alone(runtime: &Handle, task: Task) -> Result<(), BlockingError> {
    let beside = Beside::of(runtime.id()).ok_or(BlockingError::Full)?;
    let runtime = runtime.clone();
    let thread = thread::Builder::new().name("blocking".to_owned());
    let started = thread.spawn(move || {
        // Also after a panic.
        let _beside = beside;
        let _inside = runtime.enter();
        task();
    });
    started.map(drop).map_err(BlockingError::NoThread)
}

/// The same by what hands a task to the pool, and says whether it will be run, and by what starts a thread.
fn begin_by<T: Send + 'static>(
    runtime: Id,
    work: impl FnOnce() -> T + Send + 'static,
    on_pool: impl FnOnce(Task) -> bool,
    alone: impl FnOnce(Task) -> Result<(), BlockingError>,
) -> Result<Begun<T>, BlockingError> {
    let (done, result) = oneshot::channel();
    if is_short(runtime) {
        // Its caller may be gone. A refusal is none of the pool, which may have threads again.
        alone(Box::new(move || drop(done.send(work()))))?;
        return Ok(Begun(result));
    }
    let work = Arc::new(Mutex::new(Some((work, done))));
    let held = Arc::clone(&work);
    let task = move || {
        let work = held.lock().take();
        if let Some((work, done)) = work {
            let _ = done.send(work());
        }
    };
    if on_pool(Box::new(task)) {
        served(runtime);
        return Ok(Begun(result));
    }
    // The task is in tokio's queue, and finds nothing to do, unless another thread of the pool has begun it.
    let left = work.lock().take();
    if left.is_none() {
        return Ok(Begun(result));
    }
    refused(runtime);
    Err(BlockingError::NoThread(rustix::io::Errno::AGAIN.into()))
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

/// Builder of a test's runtime for whose pool the system starts no thread: there is no room for such a stack.
#[cfg(any(test, feature = "fault-injection"))]
#[must_use]
pub fn without_threads() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().thread_stack_size(1 << 60);
    builder
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::runtime::{Builder, Runtime};
    use tokio::time::advance;

    use super::*;

    /// The same, whose clock stands still.
    fn without_threads() -> Runtime {
        let mut builder = super::without_threads();
        builder.start_paused(true).build().expect("a runtime")
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
        });
    }

    #[test]
    fn work_that_must_be_done_is_done_where_no_thread_starts() {
        let done = without_threads().block_on(run_anyway(|| thread::current().id()));
        assert_eq!(done.expect("it ends"), thread::current().id());
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let done = runtime.block_on(run_anyway(|| thread::current().id()));
        assert_ne!(done.expect("it ends"), thread::current().id());
    }

    #[test]
    fn name_is_an_error_where_no_thread_starts() {
        without_threads().block_on(async {
            let found = lookup_host("localhost", 1).await;
            assert_eq!(
                found.map_err(|error| error.kind()),
                Err(io::ErrorKind::WouldBlock)
            );
        });
    }

    fn not_asked(_: Task) -> bool {
        panic!("the pool of this runtime is not asked")
    }

    fn no_thread(_: Task) -> Result<(), BlockingError> {
        Err(BlockingError::NoThread(io::ErrorKind::WouldBlock.into()))
    }

    /// The only thread that can be had is not taken by a look whether there is one, and no call of a shortage leaves
    /// anything behind, whether it fails or not, or makes it longer.
    #[test]
    fn work_begins_again_with_the_first_thread_that_can_be_had() {
        let runtime = without_threads();
        let id = runtime.handle().id();
        runtime.block_on(async {
            assert!(begin(|| ()).is_err());
            let refused = begin_by(id, || (), not_asked, no_thread).map(drop);
            assert!(matches!(refused, Err(BlockingError::NoThread(_))));
            let only = |task: Task| {
                task();
                Ok(())
            };
            for _ in 0..3 {
                advance(SHORTAGE / 4).await;
                let refused = begin_by(id, || (), not_asked, no_thread).map(drop);
                assert!(matches!(refused, Err(BlockingError::NoThread(_))));
                let begun = begin_by(id, || 5, not_asked, only).expect("a thread");
                assert_eq!(begun.await.expect("it ends"), 5);
            }
            advance(SHORTAGE / 4).await;
            // By one only, and by all after it.
            let on_pool = |task: Task| {
                let begun = begin_by(id, || 5, not_asked, only);
                assert!(begun.is_ok());
                task();
                true
            };
            let begun = begin_by(id, || 6, on_pool, no_thread).expect("the pool");
            assert_eq!(begun.await.expect("it ends"), 6);
            let on_pool = |task: Task| {
                task();
                true
            };
            let begun = begin_by(id, || 7, on_pool, no_thread).expect("the pool");
            assert_eq!(begun.await.expect("it ends"), 7);
        });
    }

    #[test]
    fn threads_beside_the_pool_are_bounded() {
        let runtime = without_threads();
        let id = runtime.handle().id();
        runtime.block_on(async {
            assert!(begin(|| ()).is_err());
            let mut others: Vec<_> = (1..MAX_THREADS).filter_map(|_| Beside::of(id)).collect();
            let (end, ended) = mpsc::channel::<()>();
            let last = begin(move || ended.recv().is_err()).expect("a thread");
            let refused = begin(|| ()).map(drop).expect_err("too many threads");
            assert!(matches!(refused, BlockingError::Full), "{refused}");
            others.pop();
            let panicked = run(|| -> u8 { panic!("a test of a panic") }).await;
            assert!(matches!(panicked, Err(BlockingError::Ended)));
            drop((others, end));
            assert!(last.await.expect("it ends"));
        });
        // A thread gives its place back a little after its result.
        while BESIDE.lock().iter().any(|(of, _)| *of == id) {
            thread::yield_now();
        }
    }

    #[test]
    fn runtimes_that_were_short_are_forgotten() {
        let kept = without_threads();
        let mut ended = Builder::new_current_thread();
        let ended = [(); 3].map(|()| ended.build().expect("a runtime"));
        let ids = ended.each_ref().map(|ended| ended.handle().id());
        kept.block_on(async {
            for id in ids {
                assert!(begin_by(id, || (), |_| false, no_thread).is_err());
            }
            let are_kept = |short: &[(Id, Instant)]| {
                let mut all = ids.iter();
                all.any(|id| short.iter().any(|(short, _)| short == id))
            };
            assert!(are_kept(&SHORT.lock()));
            advance(SHORTAGE).await;
            assert!(begin(|| ()).is_err());
            assert!(!are_kept(&SHORT.lock()));
        });
    }

    #[test]
    fn work_on_a_thread_of_its_own_is_within_the_runtime_and_its_panic_is_an_error() {
        let runtime = without_threads();
        let id = runtime.handle().id();
        runtime.block_on(async {
            assert!(begin(|| ()).is_err());
            let begun = begin(|| Handle::current().id()).expect("a thread");
            assert_eq!(begun.await.expect("it ends"), id);
            advance(SHORTAGE).await;
            assert!(begin(|| ()).is_err(), "its pool is asked again");
            let panicked = run(|| -> u8 { panic!("a test of a panic") }).await;
            assert!(matches!(panicked, Err(BlockingError::Ended)));
        });
    }

    #[test]
    fn shortage_of_one_runtime_is_not_that_of_another() {
        let short = without_threads();
        assert!(short.block_on(async { begin(|| ()).map(drop) }).is_err());
        let other = Builder::new_current_thread().build().expect("a runtime");
        let on_pool = |task: Task| {
            task();
            true
        };
        let begun = begin_by(other.handle().id(), || 5, on_pool, no_thread);
        let begun = begun.expect("its pool has threads");
        assert_eq!(other.block_on(begun).expect("it ends"), 5);
    }

    /// As tokio may do when the system refuses a thread for good: the pool has others.
    #[test]
    fn work_that_was_begun_all_the_same_is_not_reported_as_refused() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let begun_elsewhere = |task: Task| {
            task();
            false
        };
        let begun = begin_by(runtime.handle().id(), || 5, begun_elsewhere, no_thread);
        let begun = begun.expect("it has begun");
        assert_eq!(runtime.block_on(begun).expect("it ends"), 5);
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

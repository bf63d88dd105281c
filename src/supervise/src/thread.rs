//! Named threads (arbiters) of actors.

use std::io;
use std::time::Duration;

use actix::Arbiter;
use tokio::runtime::{Builder, Runtime};

/// Time after which a thread of a pool that has nothing to do ends. Short, because a pool gives work
/// to the thread that has waited longest: if threads were kept for seconds, a few calls a second would
/// keep one for each call that ever blocked beside others. So nearly each call that blocks begins a thread: where
/// a limit of them (`TasksMax` of systemd, pids of a container) leaves no room, it fails (`base::blocking`).
const POOL_KEEP_ALIVE: Duration = Duration::from_millis(100);

/// The longest part of a name that stands before `-pool`, in bytes: Linux cuts the whole off after 15.
const MAX_BEFORE_POOL: usize = 10;

/// A runtime for one thread. The threads of its pool for work that blocks are called `<name>-pool`, with the beginning
/// of a long name.
///
/// # Errors
/// The system refuses a new event loop.
pub fn runtime(name: &str) -> io::Result<Runtime> {
    let (begin, _) = name.split_at(name.floor_char_boundary(MAX_BEFORE_POOL));
    Builder::new_current_thread()
        .thread_name(format!("{begin}-pool"))
        .thread_keep_alive(POOL_KEEP_ALIVE)
        .enable_all()
        .build()
}

/// A thread with its own runtime. Actix names threads by number; the name that `top -H` and
/// debuggers show is set from inside.
pub(crate) fn named_arbiter(name: &str) -> Arbiter {
    let name = name.to_owned();
    Arbiter::with_tokio_rt(move || {
        set_thread_name(&name);
        runtime(&name).expect("the system refuses a new event loop")
    })
}

#[cfg(target_os = "linux")]
fn set_thread_name(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        // Only cosmetic, so a refusal is no reason not to run.
        let _ = rustix::thread::set_name(&name);
    }
}

#[cfg(not(target_os = "linux"))]
fn set_thread_name(_name: &str) {}

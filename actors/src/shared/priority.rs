//! Lower priority of background threads.

/// Lowers the priority of the calling thread below those that answer requests: `niceness` as
/// `nice(1)` takes it, from 1 to 19. Unchanged when the system does not allow that.
pub(crate) fn give_way(niceness: i32) {
    let thread = Some(rustix::thread::gettid());
    if let Err(error) = rustix::process::setpriority_process(thread, niceness) {
        let current = std::thread::current();
        let name = current.name().unwrap_or("?");
        tracing::debug!(%error, thread = name, "the priority of the thread cannot be changed");
    }
}

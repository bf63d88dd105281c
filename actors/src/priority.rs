//! The priority of threads whose work can wait.

/// Makes the calling thread run less than those who answer: `niceness` as `nice(1)` takes it, from
/// 1 to 19. It stays where it is when the system does not allow that.
pub(crate) fn give_way(niceness: i32) {
    let thread = Some(rustix::thread::gettid());
    if let Err(error) = rustix::process::setpriority_process(thread, niceness) {
        let current = std::thread::current();
        let name = current.name().unwrap_or("?");
        tracing::debug!(%error, thread = name, "the thread keeps its priority");
    }
}

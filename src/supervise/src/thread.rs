//! Named threads (arbiters) of actors.

use actix::Arbiter;

/// A thread with its own runtime. Actix names threads by number; the name that `top -H` and
/// debuggers show is set from inside. Threads of its pool for work that blocks are called
/// `<name>-pool`: of these there may be as many as calls ever blocked at once.
pub(crate) fn named_arbiter(name: &str) -> Arbiter {
    let name = name.to_owned();
    Arbiter::with_tokio_rt(move || {
        set_thread_name(&name);
        tokio::runtime::Builder::new_current_thread()
            .thread_name(format!("{name}-pool"))
            .enable_all()
            .build()
            .expect("the system refuses a new event loop")
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

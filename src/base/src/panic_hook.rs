//! One line and the stack's frames for each panic, in the log and not only on the terminal.
//!
//! The hook does not end the process: what a panic means is decided by the supervisor of the actor
//! in which it happened. It only makes sure that no panic passes unseen. The frames are addresses:
//! their names would cost a master more memory, for good, than all its minions (see [`frames`]).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use crate::frames::{self, Frames};

thread_local! {
    /// The thread runs work whose panics are errors of its input.
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Installs the hook. `where_now` names the actor that runs on the panicking thread, if any.
pub fn install(where_now: fn() -> Option<String>) {
    std::panic::set_hook(Box::new(move |info| {
        if !IS_EXPECTED.get() {
            report(info, where_now());
        }
    }));
}

/// Runs a foreign library that is known to panic on some inputs: `None` then. Such a panic is an error
/// of the input, which strangers choose, and is not logged as one of this program.
pub fn catch_expected<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = IS_EXPECTED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_EXPECTED.set(before);
    done.ok()
}

fn report(info: &PanicHookInfo<'_>, actor: Option<String>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    tracing::error!(
        actor = actor.as_deref().unwrap_or("-"),
        thread = thread.name().unwrap_or("-"),
        place,
        frames = %Frames::of_this_thread(frames::MAX_FRAMES),
        "panic: {}",
        message(info),
    );
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn expected_panic_is_an_error_and_is_not_reported() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        std::panic::set_hook(Box::new(move |_| into.lock().push(IS_EXPECTED.get())));
        assert_eq!(catch_expected(|| 5), Some(5));
        assert_eq!(catch_expected(|| -> u8 { panic!("a foreign one") }), None);
        let ours = catch_unwind(|| panic!("one of ours"));
        let _ = std::panic::take_hook();
        assert!(ours.is_err());
        assert_eq!(*seen.lock(), [true, false]);
    }
}

//! One line and the stack's frames for each panic, in the log and not only on the terminal.
//!
//! The hook does not end the process: what a panic means is decided by the supervisor of the actor
//! in which it happened. It only makes sure that no panic passes unseen. The frames are addresses:
//! their names would cost a master more memory, for good, than all its minions (see [`frames`]).

use std::panic::PanicHookInfo;

use crate::frames::{self, Frames};

/// Installs the hook. `where_now` names the actor that runs on the panicking thread, if any.
pub fn install(where_now: fn() -> Option<String>) {
    std::panic::set_hook(Box::new(move |info| report(info, where_now())));
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

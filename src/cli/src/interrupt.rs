//! Ctrl-C while a command waits for a person and holds nothing that has to be put back.

use std::process;
use std::thread;

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::console::complain;

/// Exit code of stock's commands after Ctrl-C.
const INTERRUPTED: i32 = 1;

/// From now on Ctrl-C ends the process with stock's sentence and exit code, in place of a signal.
pub(crate) fn end_at_ctrl_c() {
    // Without a runtime the signal ends the process.
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    // Caught before this returns: the prompt that follows may be answered with Ctrl-C at once.
    let caught = {
        let _guard = runtime.enter();
        signal(SignalKind::interrupt())
    };
    let Ok(mut caught) = caught else { return };
    thread::spawn(move || {
        if runtime.block_on(caught.recv()).is_some() {
            complain("\nExiting gracefully on Ctrl-c");
            process::exit(INTERRUPTED);
        }
    });
}

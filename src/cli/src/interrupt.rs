//! Ctrl-C while a command waits for a person and holds nothing that has to be put back.

use std::process;
use std::thread;

use tokio::runtime;

use crate::console::complain;

/// Exit code of stock's commands after Ctrl-C.
const INTERRUPTED: i32 = 1;

/// From now on Ctrl-C ends the process with stock's sentence and exit code, in place of a signal.
pub(crate) fn end_at_ctrl_c() {
    thread::spawn(|| {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        // Without one the signal ends the process.
        let Ok(runtime) = runtime else { return };
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            complain("\nExiting gracefully on Ctrl-c");
            process::exit(INTERRUPTED);
        }
    });
}

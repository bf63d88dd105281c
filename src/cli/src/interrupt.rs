//! Ctrl-C while a command waits for a person and holds nothing that has to be put back.

use std::process;
use std::sync::mpsc;
use std::thread;

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::console::complain;

/// Exit code of stock's commands after Ctrl-C.
const INTERRUPTED: i32 = 1;

/// From now on Ctrl-C ends the process with stock's sentence and exit code, in place of a signal.
pub(crate) fn end_at_ctrl_c() {
    catch_on(thread::Builder::new());
}

/// The same on a thread of this kind; whether the signal is caught.
fn catch_on(thread: thread::Builder) -> bool {
    // Without a runtime, and without a thread, the signal ends the process.
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
        return false;
    };
    let (begun, begins) = mpsc::sync_channel(1);
    let started = thread.name("interrupt".to_owned()).spawn(move || {
        let caught = {
            let _guard = runtime.enter();
            signal(SignalKind::interrupt())
        };
        let _ = begun.send(caught.is_ok());
        let Ok(mut caught) = caught else { return };
        if runtime.block_on(caught.recv()).is_some() {
            complain("\nExiting gracefully on Ctrl-c");
            process::exit(INTERRUPTED);
        }
    });
    // Caught before this returns: the prompt that follows may be answered with Ctrl-C at once.
    started.is_ok() && begins.recv().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_is_not_caught_where_no_thread_waits_for_it() {
        // There is no room for such a stack.
        assert!(!catch_on(thread::Builder::new().stack_size(1 << 60)));
        assert!(!is_caught(), "the signal ends the process");
        assert!(catch_on(thread::Builder::new()));
        assert!(is_caught());
    }

    /// Whether SIGINT has a handler, as the kernel says.
    fn is_caught() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(line.expect("a mask").trim(), 16).expect("a number");
        mask & (1 << (nix::libc::SIGINT - 1)) != 0
    }
}

//! A thread that does one round after the other until it is stopped.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::{Result, StoreError};

/// Longest wait for the last round.
const END: Duration = Duration::from_secs(5);

/// The thread, from outside.
#[derive(Clone, Default)]
pub(super) struct RoundThread(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a round is due, or the last one.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_due: bool,
    is_ending: bool,
    /// Disconnected by the end of the thread.
    ended: Option<Receiver<()>>,
}

impl RoundThread {
    /// Starts it. `round` gives the time until the next one, and hears which one is the last.
    ///
    /// # Errors
    /// No thread.
    pub(super) fn start(
        &self,
        (name, path): (&str, &Path),
        first: Duration,
        mut round: impl FnMut(bool) -> Duration + Send + 'static,
    ) -> Result<()> {
        let (running, ended) = sync_channel(0);
        self.0.state.lock().ended = Some(ended);
        let waiting = self.clone();
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _running: SyncSender<()> = running;
            let mut pause = first;
            loop {
                let is_last = waiting.wait(pause);
                pause = round(is_last);
                if is_last {
                    return;
                }
            }
        });
        started.map_err(|error| StoreError::io("start a thread for", path, error))?;
        Ok(())
    }

    /// Waits until the next round; whether it is the last one.
    fn wait(&self, pause: Duration) -> bool {
        let mut state = self.0.state.lock();
        let is_idle = |state: &mut State| !state.is_due && !state.is_ending;
        self.0.changed.wait_while_for(&mut state, is_idle, pause);
        state.is_due = false;
        state.is_ending
    }

    /// Has the next round begin at once, when the present one is over.
    pub(super) fn wake(&self) {
        self.0.state.lock().is_due = true;
        self.0.changed.notify_all();
    }

    /// Whether the last round is awaited.
    pub(super) fn is_ending(&self) -> bool {
        self.0.state.lock().is_ending
    }

    /// Ends it after a last round; whether it ended within a bound.
    pub(super) fn stop(&self) -> bool {
        let ended = {
            let mut state = self.0.state.lock();
            state.is_ending = true;
            state.ended.take()
        };
        self.0.changed.notify_all();
        let ended = ended.map(|ended| ended.recv_timeout(END));
        ended != Some(Err(RecvTimeoutError::Timeout))
    }
}

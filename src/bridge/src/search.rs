//! The search for a Python that has Salt, which all calls share.
//!
//! A call waits for it no longer than its own deadline. The search goes on without the call, on a thread of its
//! own: were it a part of the call, a Python that answers late would be asked anew by each call, and never found.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use saltern_config::PythonBridge;
use tokio::time::Instant;

use crate::NoPython;
use crate::installation;

/// How long it counts that no installation was found.
const NOT_FOUND: Duration = Duration::from_secs(30);

/// Time to notice the end of a search.
const GRACE: Duration = Duration::from_secs(5);

/// Shared by all calls of a bridge.
pub(crate) struct Search {
    option: PythonBridge,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_searching: bool,
    /// The result of the last search, and when it ended.
    last: Option<(Result<PathBuf, NoPython>, Instant)>,
}

impl State {
    /// The result of the last search, while that counts.
    fn result(&self) -> Option<Result<PathBuf, NoPython>> {
        let (result, since) = self.last.as_ref()?;
        (result.is_ok() || since.elapsed() < NOT_FOUND).then(|| result.clone())
    }
}

impl Search {
    pub(crate) fn new(option: PythonBridge) -> Arc<Self> {
        Arc::new(Self {
            option,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Waits for the end of a search.
    ///
    /// # Errors
    /// [`NoPython`]: why there is none.
    pub(crate) fn result(self: &Arc<Self>) -> Result<PathBuf, NoPython> {
        // A search that another began ends before one of our own would.
        let end = Instant::now() + installation::MAX_SEARCH + GRACE;
        self.result_by(end).unwrap_or(Err(NoPython::NoAnswer))
    }

    /// Waits for the end of a search until the deadline; `None` when that passed.
    pub(crate) fn result_by(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Option<Result<PathBuf, NoPython>> {
        if self.option == PythonBridge::Off {
            return Some(Err(NoPython::Off));
        }
        let mut state = self.state.lock();
        loop {
            if let Some(result) = state.result() {
                return Some(result);
            }
            if !state.is_searching {
                self.begin(&mut state);
                continue;
            }
            let is_late = self
                .changed
                .wait_until(&mut state, deadline.into_std())
                .timed_out();
            if is_late {
                return state.result();
            }
        }
    }

    fn begin(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        state.is_searching = true;
        let search = Arc::clone(self);
        let thread = thread::Builder::new().name("look-for-python".to_owned());
        if thread.spawn(move || search.run()).is_err() {
            // Without a thread, here.
            MutexGuard::unlocked(state, || self.run());
        }
    }

    fn run(&self) {
        let _ended = Running(self);
        let path = std::env::var_os("PATH");
        let found = installation::find(&self.option, path.as_deref());
        self.state.lock().last = Some((found, Instant::now()));
    }
}

/// A search that goes on, until it is dropped.
struct Running<'a>(&'a Search);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_searching = false;
        self.0.changed.notify_all();
    }
}

//! The owner's end: takes changes, and has them written by a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use saltern_base::chain;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::IntCounter;
use saltern_crypto::StateCipher;
use zeroize::Zeroizing;

use super::kind::StateKind;
use super::pending::{Change, Pending, Taken};
use super::row::{StateName, seal};
use super::{StateBatch, StateTable};
use crate::error::{Result, StoreError};

/// Time between two attempts to write.
const RETRY: Duration = Duration::from_millis(500);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// State that is shared with the other masters of a cluster; without a cluster nothing happens and
/// nothing is paid for.
#[derive(Clone, Default)]
pub struct SharedState(Option<Arc<StateLog>>);

/// Numbers about it, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateFigures {
    /// Changes that wait for the table.
    pub pending: usize,
    /// Changes that the table has.
    pub written: u64,
    /// Changes for which there was no room.
    pub dropped: u64,
}

struct StateLog {
    cipher: Arc<StateCipher>,
    table: Arc<dyn StateTable>,
    /// The place of the table, for people.
    place: PathBuf,
    /// Longest wait for the table.
    patience: Duration,
    state: Mutex<LogState>,
    /// Notified when there is something to write, or nobody gives any more.
    changed: Condvar,
    /// Notified when something was written, or never will be.
    written: Condvar,
    failures: LogThrottle,
    drops: LogThrottle,
}

#[derive(Default)]
struct LogState {
    pending: Pending,
    written: u64,
    dropped: u64,
    /// The metrics of both.
    counters: Option<(IntCounter, IntCounter)>,
    /// Another process owns the table.
    has_lost: bool,
    is_closed: bool,
}

impl SharedState {
    /// Begins to write to a table at `place`; whoever waits for it waits no longer than `patience`.
    ///
    /// # Errors
    /// No thread.
    pub fn start(
        table: Arc<dyn StateTable>,
        cipher: Arc<StateCipher>,
        (place, patience): (&Path, Duration),
    ) -> Result<Self> {
        let log = Arc::new(StateLog {
            cipher,
            table,
            place: place.to_owned(),
            patience,
            state: Mutex::default(),
            changed: Condvar::new(),
            written: Condvar::new(),
            failures: LogThrottle::new(LOG_INTERVAL),
            drops: LogThrottle::new(LOG_INTERVAL),
        });
        let writer = log.clone();
        let thread = thread::Builder::new().name("shared-state".to_owned());
        let started = thread.spawn(move || writer.run());
        started.map_err(|error| StoreError::io("start a thread for", place, error))?;
        Ok(Self(Some(log)))
    }

    /// Shares the content of a file that was written at `modified`, in microseconds since 1970. Returns at
    /// once; a change for which there is no room is counted and dropped.
    pub fn put(&self, kind: StateKind, name: &str, (content, modified): (&[u8], i64)) {
        if let Some(log) = &self.0 {
            let _ = log.add(kind, name, put(content, modified));
        }
    }

    /// The same, and waits until the table has it.
    ///
    /// # Errors
    /// The table did not have it in time. It may have it later.
    pub(crate) fn put_durably(
        &self,
        kind: StateKind,
        name: &str,
        (content, modified): (&[u8], i64),
    ) -> Result<()> {
        match &self.0 {
            Some(log) => log.wait(log.add(kind, name, put(content, modified))),
            None => Ok(()),
        }
    }

    /// Shares that a file is gone. Returns at once.
    pub fn remove(&self, kind: StateKind, name: &str) {
        if let Some(log) = &self.0 {
            let _ = log.add(kind, name, Change::Remove);
        }
    }

    /// The same, and waits until the table has it not any more.
    ///
    /// # Errors
    /// The table had it still when the time was over. It is removed later unless this process ends.
    pub(crate) fn remove_durably(&self, kind: StateKind, name: &str) -> Result<()> {
        match &self.0 {
            Some(log) => log.wait(log.add(kind, name, Change::Remove)),
            None => Ok(()),
        }
    }

    /// Waits until the table has everything.
    ///
    /// # Errors
    /// It had not in time.
    pub fn flush(&self) -> Result<()> {
        match &self.0 {
            Some(log) => log.wait_until(|state| state.pending.is_empty()),
            None => Ok(()),
        }
    }

    /// Its numbers now.
    pub fn figures(&self) -> StateFigures {
        let Some(log) = &self.0 else {
            return StateFigures::default();
        };
        let state = log.state.lock();
        StateFigures {
            pending: state.pending.len(),
            written: state.written,
            dropped: state.dropped,
        }
    }

    /// Counts written and dropped changes in these from here on, and those before.
    pub fn count_in(&self, written: IntCounter, dropped: IntCounter) {
        if let Some(log) = &self.0 {
            let mut state = log.state.lock();
            written.inc_by(state.written);
            dropped.inc_by(state.dropped);
            state.counters = Some((written, dropped));
        }
    }

    /// Ends the thread once everything is written, or cannot be any more.
    pub fn close(&self) {
        if let Some(log) = &self.0 {
            log.state.lock().is_closed = true;
            log.changed.notify_all();
        }
    }
}

fn put(content: &[u8], modified: i64) -> Change {
    Change::Put {
        content: Arc::new(Zeroizing::new(content.to_vec())),
        modified,
    }
}

impl StateLog {
    fn add(&self, kind: StateKind, name: &str, change: Change) -> Option<u64> {
        let name = name.to_owned();
        let mut state = self.state.lock();
        let added = state.pending.add(StateName { kind, name }, change);
        match added {
            Some(_) => _ = self.changed.notify_one(),
            None => {
                state.dropped += 1;
                if let Some((_, dropped)) = &state.counters {
                    dropped.inc();
                }
                drop(state);
                if let Some(times) = self.drops.record() {
                    let place = self.place.display();
                    tracing::warn!(
                        %place, times,
                        "too much of the shared state waits for the database, so other masters will not have it"
                    );
                }
            }
        }
        added
    }

    fn wait(&self, number: Option<u64>) -> Result<()> {
        match number {
            Some(number) => self.wait_until(|state| !state.pending.has(number)),
            None => Err(self.late()),
        }
    }

    fn wait_until(&self, is_done: impl Fn(&LogState) -> bool) -> Result<()> {
        let mut state = self.state.lock();
        let goes_on = |state: &mut LogState| !is_done(state) && !state.has_lost;
        self.written
            .wait_while_for(&mut state, goes_on, self.patience);
        match is_done(&state) {
            true => Ok(()),
            false => Err(self.late()),
        }
    }

    fn late(&self) -> StoreError {
        let path = self.place.clone();
        StoreError::NotShared { path }
    }

    fn run(&self) {
        let mut version = self.table.first_version();
        while let Some(taken) = self.next() {
            let batch = self.sealed(&taken, &mut version);
            let failed = match batch.and_then(|batch| self.table.write(&batch)) {
                Ok(true) => {
                    let mut state = self.state.lock();
                    state.pending.done(&taken);
                    let count = u64::try_from(taken.len()).unwrap_or(u64::MAX);
                    state.written += count;
                    if let Some((written, _)) = &state.counters {
                        written.inc_by(count);
                    }
                    self.written.notify_all();
                    continue;
                }
                Ok(false) => {
                    tracing::warn!(place = %self.place.display(), "another process owns the shared state");
                    self.state.lock().has_lost = true;
                    self.written.notify_all();
                    return;
                }
                Err(error) => error,
            };
            if let Some(times) = self.failures.record() {
                let place = self.place.display();
                tracing::warn!(error = chain(&failed), times, %place, "shared state is not written");
            }
            let mut state = self.state.lock();
            if state.is_closed {
                return;
            }
            // More changes are no reason to try sooner.
            let is_open = |state: &mut LogState| !state.is_closed;
            self.changed.wait_while_for(&mut state, is_open, RETRY);
        }
    }

    /// The next changes to write, once there are any; `None` at the end.
    fn next(&self) -> Option<Vec<Taken>> {
        let mut state = self.state.lock();
        loop {
            if !state.pending.is_empty() {
                return Some(state.pending.take());
            }
            if state.is_closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn sealed(&self, taken: &[Taken], version: &mut i64) -> Result<StateBatch> {
        let mut batch = StateBatch::default();
        for Taken { name, change, .. } in taken {
            match change {
                Change::Remove => batch.removed.push(name.row_id(&self.cipher)),
                Change::Put { content, modified } => {
                    let row = seal(&self.cipher, (name, *modified, content), *version);
                    batch.written.push(row.map_err(StoreError::Sealed)?);
                    *version += 1;
                }
            }
        }
        Ok(batch)
    }
}

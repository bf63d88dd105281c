//! Grains and mines of a running member: a thread of its own that does a round after the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::IntCounter;
use saltern_crypto::StateCipher;

use super::content::Writer;
use super::rounds::{RoundParts, Rounds, Standing};
use super::{DataTable, KeyLookup};
use crate::MinionDataStore;
use crate::error::Result;
use crate::minion_data::DataKind;
use crate::shared_state::Report;
use crate::shared_state::progress::Progress;
use crate::shared_state::round_thread::RoundThread;

/// Time between two rounds of the active member.
const INTERVAL: Duration = Duration::from_millis(500);

/// The same of one that stands by: what is behind is read when it takes over.
const STANDBY_INTERVAL: Duration = Duration::from_secs(2);

/// Longest wait of a takeover for what other members wrote; the rest comes while it serves.
const TAKEOVER_WAIT: Duration = Duration::from_secs(1);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Grains and mines that are shared with the other masters of a cluster; nothing happens without a secret.
#[derive(Clone, Default)]
pub struct MinionDataSync(Option<Arc<Member>>);

/// Parts of a member that shares grains and mines.
pub struct DataSyncParts {
    /// Those of all.
    pub table: Arc<dyn DataTable>,
    /// Opens and seals them.
    pub cipher: Arc<StateCipher>,
    /// This installation, which no other member is.
    pub instance: String,
    /// Those of this machine, for as long as the process runs.
    pub store: Arc<MinionDataStore>,
    /// The kinds that this member keeps.
    pub kinds: Vec<DataKind>,
    /// Data of minions without a key is removed; `None` where it is to outlast the key.
    pub keys: Option<KeyLookup>,
    /// Says when the member has been admitted to its cluster.
    pub is_admitted: Box<dyn Fn() -> bool + Send + Sync>,
    /// Has the other members know.
    pub report: Report,
}

/// Numbers about it, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataFigures {
    /// Grains and mines here that may differ from what the table has.
    pub pending: usize,
    /// Seconds since this member and the table had the same.
    pub age: u64,
}

/// Counters of changes, by what became of them.
pub struct DataCounters {
    /// Changes of this machine that the table has.
    pub written: IntCounter,
    /// Changes of other members that are on this machine.
    pub applied: IntCounter,
    /// Rows that are not used.
    pub refused: IntCounter,
    /// Changes that are too large to be shared.
    pub too_large: IntCounter,
    /// Files that are no data.
    pub damaged: IntCounter,
}

struct Member {
    rounds: Mutex<Rounds>,
    table: Arc<dyn DataTable>,
    state: Mutex<State>,
    /// Notified when the active member has what the others wrote.
    taken_over: Condvar,
    thread: RoundThread,
    store: Arc<MinionDataStore>,
    /// For people.
    place: PathBuf,
    is_admitted: Box<dyn Fn() -> bool + Send + Sync>,
    report: Report,
    failures: LogThrottle,
}

struct State {
    is_active: bool,
    has_taken_over: bool,
    pending: usize,
    progress: Progress<5>,
}

impl MinionDataSync {
    /// Begins to share what is below `cachedir`, once the member is admitted.
    ///
    /// # Errors
    /// No thread.
    pub fn start(cachedir: &Path, parts: DataSyncParts) -> Result<Self> {
        let clock = Clock::system();
        let rounds = Rounds::new(RoundParts {
            table: parts.table.clone(),
            cipher: parts.cipher,
            writer: Writer::new(&parts.instance),
            store: parts.store.clone(),
            cachedir: cachedir.to_owned(),
            kinds: parts.kinds,
            keys: parts.keys,
            clock: clock.clone(),
        });
        let table = parts.table;
        let member = Arc::new(Member {
            rounds: Mutex::new(rounds),
            table,
            state: Mutex::new(State {
                is_active: false,
                has_taken_over: false,
                pending: 0,
                progress: Progress::new(clock),
            }),
            taken_over: Condvar::new(),
            thread: RoundThread::default(),
            store: parts.store,
            place: cachedir.to_owned(),
            is_admitted: parts.is_admitted,
            report: parts.report,
            failures: LogThrottle::new(LOG_INTERVAL),
        });
        let runner = member.clone();
        let round = move |is_last| runner.step(is_last);
        member
            .thread
            .start(("minion-data", cachedir), INTERVAL, round)?;
        Ok(Self(Some(member)))
    }

    /// Begins to write what is changed here, and to read the rest of what the others wrote: the lease is had, and no
    /// port is open.
    pub fn begin_takeover(&self) {
        if let Some(member) = &self.0 {
            // Without the lease it ends at once.
            let first = member.table.first_version().unwrap_or_default();
            member.store.note_changes(first);
            member.state.lock().is_active = true;
            member.thread.wake();
        }
    }

    /// Waits for that rest, within a bound: what is missing comes while the master serves.
    pub fn finish_takeover(&self) {
        let Some(member) = &self.0 else { return };
        let mut state = member.state.lock();
        let reads = |state: &mut State| !state.has_taken_over;
        let waited = member
            .taken_over
            .wait_while_for(&mut state, reads, TAKEOVER_WAIT);
        if waited.timed_out() {
            tracing::warn!(
                "grains and mines of the cluster are still being read: until then targets by grains mean what this \
                 machine had last"
            );
        }
    }

    /// Its numbers now.
    pub fn figures(&self) -> DataFigures {
        let Some(member) = &self.0 else {
            return DataFigures::default();
        };
        let state = member.state.lock();
        DataFigures {
            pending: state.pending + member.store.changed_len(),
            age: state.progress.age(),
        }
    }

    /// Counts in these from here on, and what was before.
    pub fn count_in(&self, counters: DataCounters) {
        if let Some(member) = &self.0 {
            member.state.lock().progress.count_in(counters.into());
        }
    }

    /// Ends it after a last round, within a bound.
    pub fn stop(&self) {
        if let Some(member) = &self.0
            && !member.thread.stop()
        {
            tracing::warn!("changes of grains and mines may not be in the database yet");
        }
    }
}

impl From<DataCounters> for [IntCounter; 5] {
    fn from(counters: DataCounters) -> Self {
        let DataCounters {
            written,
            applied,
            refused,
            too_large,
            damaged,
        } = counters;
        [written, applied, refused, too_large, damaged]
    }
}

impl Member {
    /// One round, and the time until the next one.
    fn step(&self, is_last: bool) -> Duration {
        let is_active = self.state.lock().is_active;
        // One that stands by has nothing to write at its end.
        if (self.is_admitted)() && (is_active || !is_last) {
            let standing = Standing { is_active, is_last };
            if let Err(error) = self.round(standing)
                && let Some(times) = self.failures.record()
            {
                let (error, path) = (chain(&error), self.place.display());
                tracing::warn!(error, times, %path, "grains and mines are not shared with the cluster");
            }
            let pending = self.state.lock().pending;
            if is_last && pending > 0 {
                tracing::warn!(
                    pending,
                    "grains and mines of the last minute are not in the database: they are when this machine is active again"
                );
            }
        }
        match is_active {
            true => INTERVAL,
            false => STANDBY_INTERVAL,
        }
    }

    fn round(&self, standing: Standing) -> Result<()> {
        let mut rounds = self.rounds.lock();
        let done = rounds.round(standing, &|| self.thread.is_ending());
        let failed = rounds.failed();
        let held_back = rounds.held_back();
        let are_keys_lost = rounds.are_keys_lost();
        let why = match held_back {
            _ if are_keys_lost => Some(
                "the directory of minions' keys is not that of this master, so grains and mines without a key are not \
                 removed"
                    .to_owned(),
            ),
            Some((minions, confirmation)) => Some(format!(
                "{minions} minions with grains or a mine have no key, which is too many to remove them; if that is \
                 right, make the file \"{}\"",
                confirmation.display()
            )),
            None if failed > 0 => Some(format!(
                "what the cluster has of {failed} grains and mines is not in the files here"
            )),
            None => None,
        };
        let is_held_back = held_back.is_some() || are_keys_lost;
        (self.report)(why);
        let counts = rounds.counts();
        let mut state = self.state.lock();
        if rounds.has_taken_over() && !state.has_taken_over {
            state.has_taken_over = true;
            self.taken_over.notify_all();
            let applied = counts.applied;
            tracing::info!(applied, "grains and mines are those of the cluster");
        }
        state.pending = rounds.pending();
        let is_complete = done.is_ok() && failed == 0 && !is_held_back;
        state.progress.note(counts.all(), is_complete);
        done
    }
}

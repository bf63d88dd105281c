//! The keys of a running member: a thread of its own that does a round after the other.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::IntCounter;
use saltern_config::MasterConfig;
use saltern_crypto::StateCipher;

use super::KeyTable;
use super::round::{Rounds, Standing};
use crate::error::Result;
use crate::shared_state::Report;
use crate::shared_state::progress::{Progress, since};
use crate::shared_state::round_thread::RoundThread;
use crate::{PkiTree, dropfile};

/// Time between two rounds; longer where a round takes long.
const INTERVAL: Duration = Duration::from_millis(500);

/// Time between two rounds for each time that one takes.
const REST: u32 = 4;

/// Longest time between two rounds.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// Time after which a file that is gone is looked for once more.
const SETTLE: Duration = Duration::from_millis(100);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Keys of minions that are shared with the other masters of a cluster; nothing happens unless its members share
/// them (`share_keys`).
#[derive(Clone, Default)]
pub struct MinionKeySync(Option<Arc<Member>>);

/// Parts of a member that shares its keys.
pub struct KeySyncParts {
    /// The keys of all.
    pub table: Arc<dyn KeyTable>,
    /// The master's public key, as its cluster has it.
    pub master_key: String,
    /// Opens and seals them.
    pub cipher: Arc<StateCipher>,
    /// Says when the member has been admitted to its cluster.
    pub is_admitted: Box<dyn Fn() -> bool + Send + Sync>,
    /// Has the other members know.
    pub report: Report,
}

/// Numbers about it, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyFigures {
    /// Minions whose keys here wait for the table.
    pub pending: usize,
    /// Minions whose key was accepted on this machine only, and waits for somebody to accept it.
    pub demoted: usize,
    /// Seconds since this member and the table had the same keys.
    pub age: u64,
}

/// Counters of changes, by what became of them.
pub struct KeyCounters {
    /// Changes of this machine that the table has.
    pub published: IntCounter,
    /// Changes of other members that are on this machine.
    pub applied: IntCounter,
    /// Changes of two members to the same key.
    pub conflicts: IntCounter,
    /// Rows that are not used.
    pub refused: IntCounter,
}

struct Member {
    rounds: Mutex<Rounds>,
    state: Mutex<State>,
    thread: RoundThread,
    config: Arc<MasterConfig>,
    clock: Clock,
    is_admitted: Box<dyn Fn() -> bool + Send + Sync>,
    report: Report,
    failures: LogThrottle,
}

struct State {
    is_active: bool,
    pending: usize,
    demoted: usize,
    progress: Progress<4>,
}

impl MinionKeySync {
    /// Begins to share the keys below `pki_dir`, once the member is admitted.
    ///
    /// # Errors
    /// The directory or the memory of this member cannot be read, or no thread.
    pub fn start(config: &Arc<MasterConfig>, parts: KeySyncParts) -> Result<Self> {
        let clock = Clock::system();
        let tree = Arc::new(PkiTree::open(config, clock.clone())?);
        let place = (tree, parts.master_key.as_str(), config.cachedir.as_path());
        let rounds = Rounds::new(parts.table, parts.cipher, place, (clock.clone(), SETTLE))?;
        let sync = Arc::new(Member {
            rounds: Mutex::new(rounds),
            state: Mutex::new(State {
                is_active: false,
                pending: 0,
                demoted: 0,
                progress: Progress::new(clock.clone()),
            }),
            thread: RoundThread::default(),
            config: config.clone(),
            clock: clock.clone(),
            is_admitted: parts.is_admitted,
            report: parts.report,
            failures: LogThrottle::new(LOG_INTERVAL),
        });
        let runner = sync.clone();
        let name = ("minion-keys", config.pki_dir.as_path());
        let round = move |is_last| runner.step(is_last);
        sync.thread.start(name, INTERVAL, round)?;
        Ok(Self(Some(sync)))
    }

    /// Makes the keys here those of the cluster, before the new active member opens its ports.
    ///
    /// # Errors
    /// The table does not answer, or the keys cannot be written.
    pub fn take_over(&self) -> Result<()> {
        let Some(sync) = &self.0 else { return Ok(()) };
        sync.state.lock().is_active = true;
        sync.round(Standing {
            is_active: true,
            takes_over: true,
        })
    }

    /// Its numbers now.
    pub fn figures(&self) -> KeyFigures {
        let Some(sync) = &self.0 else {
            return KeyFigures::default();
        };
        let state = sync.state.lock();
        KeyFigures {
            pending: state.pending,
            demoted: state.demoted,
            age: state.progress.age(),
        }
    }

    /// Counts in these from here on, and what was before.
    pub fn count_in(&self, counters: KeyCounters) {
        if let Some(sync) = &self.0 {
            sync.state.lock().progress.count_in(counters.into());
        }
    }

    /// Ends it after a last round, within a bound.
    pub fn stop(&self) {
        let Some(sync) = &self.0 else { return };
        if !sync.thread.stop() {
            tracing::warn!("changes of keys of this machine may not be in the database yet");
        }
    }
}

impl From<KeyCounters> for [IntCounter; 4] {
    fn from(counters: KeyCounters) -> Self {
        let KeyCounters {
            published,
            applied,
            conflicts,
            refused,
        } = counters;
        [published, applied, conflicts, refused]
    }
}

impl Member {
    /// One round, and the time until the next one.
    fn step(&self, is_last: bool) -> Duration {
        let is_active = self.state.lock().is_active;
        let began = self.clock.unix_micros();
        if (self.is_admitted)() {
            let standing = Standing {
                is_active,
                takes_over: false,
            };
            if let Err(error) = self.round(standing)
                && let Some(times) = self.failures.record()
            {
                let (error, path) = (chain(&error), self.config.pki_dir.display());
                tracing::warn!(error, times, %path, "keys of minions are not shared with the cluster");
            }
        }
        if is_last && let Err(error) = self.rounds.lock().finish() {
            let error = chain(&error);
            tracing::warn!(
                error,
                "the keys of the cluster as they were seen last are not saved"
            );
        }
        (since(&self.clock, began) * REST).clamp(INTERVAL, MAX_INTERVAL)
    }

    fn round(&self, standing: Standing) -> Result<()> {
        let mut rounds = self.rounds.lock();
        let done = rounds.round(standing);
        (self.report)(rounds.refusal().map(str::to_owned));
        // On a member that stands by it waits until it takes over.
        let is_active = self.state.lock().is_active;
        if is_active && rounds.has_revoked() && self.request_shared_key() {
            rounds.clear_revoked();
        }
        let counts = rounds.counts();
        let mut state = self.state.lock();
        state.pending = rounds.pending();
        state.demoted = rounds.demoted();
        let is_complete = done.is_ok() && rounds.is_complete();
        state.progress.note(counts.all(), is_complete);
        done
    }

    /// Asks for a new shared key: the minion whose key is gone has the present one. Whether it is asked for, or need
    /// not be.
    fn request_shared_key(&self) -> bool {
        if !self.config.rotate_aes_key {
            return true;
        }
        let requested = dropfile::request(&self.config);
        if let Err(error) = &requested
            && self.failures.record().is_some()
        {
            let error = chain(error);
            tracing::warn!(
                error,
                "a key was deleted on another member, and no new shared key can be asked for yet"
            );
        }
        requested.is_ok()
    }
}

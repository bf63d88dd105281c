//! The pools of helper processes, one for each lane.
//!
//! There is no thread here: a caller waits for its turn, starts a helper if none is idle, serves
//! its pipes, and returns it to the pool. Callers are served first in, first out: each is a thread
//! of the master with one call at a time, and the queues before those threads are fair by minion. A
//! call that kills its helper fails and is not retried, so it never costs a second one.
//!
//! Bounds: processes by the configuration; calls that wait, then the next is refused and counted;
//! helpers that die or fail to start within a window, then none is started until it is over.
//!
//! Longer than 500 lines because every step of a helper's life changes the same counts under the same lock.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::process::{Pid, Signal, kill_process_group};
use saltern_base::metrics::Registry;
use saltern_config::MasterConfig;
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use crate::exchange::HelperFailure;
use crate::helper::{Helper, Problem, Settings};
use crate::lane::Lane;
use crate::metrics::BridgeMetrics;
use crate::search::Search;
use crate::{BridgeError, NoPython, Work};

/// Calls of a lane that may wait.
const MAX_WAITING: usize = 1024;

/// Helpers of a lane that may die within [`WINDOW`].
const MAX_DEATHS: usize = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// Back-off after a failed start of a helper; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// How long [`Bridge::stop`] waits for those whose helpers it has killed.
const STOPPING: Duration = Duration::from_secs(2);

/// The way to Python. Shared by all threads.
pub struct Bridge {
    pub(crate) settings: Settings,
    search: Arc<Search>,
    pools: [Pool; Lane::ALL.len()],
    metrics: OnceLock<BridgeMetrics>,
}

struct Pool {
    lane: Lane,
    most: usize,
    time: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Tickets of waiting callers, in order.
    waiting: VecDeque<u64>,
    last_ticket: u64,
    busy: usize,
    idle: Vec<Helper>,
    /// Process ids of all helpers, to be killed at the end.
    pids: HashSet<u32>,
    deaths: VecDeque<Instant>,
    /// Consecutive failed starts, with the last one's time and reason.
    failures: Option<(u32, Instant, String)>,
    is_stopped: bool,
    /// Generation of the configuration; each helper notes it at its start.
    reading: u64,
}

impl Bridge {
    /// The bridge as it is configured. Nothing is started or looked for before it is needed.
    pub fn new(config: &MasterConfig) -> Self {
        let pools = Lane::ALL.map(|lane| Pool {
            lane,
            most: lane.processes(config),
            time: lane.time(config),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        Self {
            settings: Settings {
                conf_file: config.conf_file.clone(),
                memory: config.python_bridge.memory,
            },
            search: Search::new(config.python_bridge.python.clone()),
            pools,
            metrics: OnceLock::new(),
        }
    }

    /// Counts from now on; once.
    pub fn register(&self, registry: &Registry) {
        self.metrics.get_or_init(|| BridgeMetrics::new(registry));
    }

    /// The Python that runs everything.
    ///
    /// # Errors
    /// [`NoPython`]: why there is none.
    pub fn python(&self) -> Result<PathBuf, NoPython> {
        self.search.result()
    }

    /// Runs a piece of work, within the timeout of its lane and `within`. Blocks.
    ///
    /// # Errors
    /// [`BridgeError`], whose text says what was asked for.
    pub fn call(&self, work: &Work<'_>, within: Duration) -> Result<Value, BridgeError> {
        self.call_with_progress(work, within, &mut |_, _| {})
    }

    /// Like [`Bridge::call`]; events of the work go to `on_event`, each with the end of its tag.
    ///
    /// # Errors
    /// As [`Bridge::call`].
    pub fn call_with_progress(
        &self,
        work: &Work<'_>,
        within: Duration,
        on_event: &mut dyn FnMut(&str, Value),
    ) -> Result<Value, BridgeError> {
        let began = Instant::now();
        let pool = self.pool(work.lane());
        let time = pool.time.min(within);
        let call = Calling {
            bridge: self,
            pool,
            work,
            time,
            deadline: began + time,
        };
        let given = call.python().and_then(|python| call.run(&python, on_event));
        if let Some(metrics) = self.metrics.get() {
            let result = given.as_ref().map_or_else(BridgeError::label, |_| "ok");
            metrics.called(pool.lane, result, began.elapsed());
        }
        given
    }

    /// Why a piece of work cannot even be tried, if that is known without asking Python.
    pub fn refusal(&self, work: &Work<'_>) -> Option<BridgeError> {
        self.python_for(work).err()
    }

    /// Ends the runs of users' functions: their callers do not wait any more when the master stops.
    pub fn stop_runs(&self) {
        self.pool(Lane::Runner).stop();
    }

    /// Retires the helpers for log-ins, busy ones once they have answered: no later log-in is
    /// decided by a helper with an older configuration.
    pub fn retire_log_ins(&self) {
        let idle = self.pool(Lane::LogIn).retire();
        if let Some(metrics) = self.metrics.get() {
            idle.iter().for_each(|_| metrics.ended(Lane::LogIn));
        }
        tracing::debug!(
            helpers = idle.len(),
            "Python helpers for log-ins are replaced"
        );
    }

    /// Ends all helpers, and waits for those who used them. Calls from now on are refused.
    pub fn stop(&self) {
        for pool in &self.pools {
            pool.stop();
        }
    }

    fn pool(&self, lane: Lane) -> &Pool {
        let mut pools = self.pools.iter();
        let pool = pools.find(|pool| pool.lane == lane);
        pool.expect("invariant: every lane has a pool")
    }

    fn python_for(&self, work: &Work<'_>) -> Result<PathBuf, BridgeError> {
        self.python_that_runs(&|| work.what())
    }

    /// The Python for what is named so.
    pub(crate) fn python_that_runs(
        &self,
        what: &dyn Fn() -> String,
    ) -> Result<PathBuf, BridgeError> {
        self.python()
            .map_err(|reason| BridgeError::without_python(what(), reason))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Pool {
    /// Makes all helpers worn, and gives the idle ones, to be ended without the lock.
    fn retire(&self) -> Vec<Helper> {
        let mut state = self.state.lock();
        state.reading += 1;
        let idle = std::mem::take(&mut state.idle);
        for helper in &idle {
            state.pids.remove(&helper.pid());
        }
        idle
    }

    fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        for pid in &state.pids {
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                // It may be gone already, which is what is wanted.
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
        for helper in &std::mem::take(&mut state.idle) {
            state.pids.remove(&helper.pid());
        }
        self.changed.notify_all();
        let until = Instant::now() + STOPPING;
        while state.busy > 0 && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            self.changed.wait_for(&mut state, left);
        }
    }
}

/// One call under way.
struct Calling<'a> {
    bridge: &'a Bridge,
    pool: &'a Pool,
    work: &'a Work<'a>,
    time: Duration,
    deadline: Instant,
}

/// The right to use a helper; gives it back when it is dropped.
struct Turn<'a>(&'a Pool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().busy -= 1;
        self.0.changed.notify_all();
    }
}

impl Calling<'_> {
    /// The Python, if it is found in time.
    fn python(&self) -> Result<PathBuf, BridgeError> {
        let found = self.bridge.search.result_by(self.deadline);
        found
            .ok_or_else(|| self.timeout())?
            .map_err(|reason| BridgeError::without_python(self.work.what(), reason))
    }

    fn run(
        &self,
        python: &std::path::Path,
        on_event: &mut dyn FnMut(&str, Value),
    ) -> Result<Value, BridgeError> {
        let request = self.work.pack().map_err(|problem| BridgeError::Unfit {
            what: self.work.what(),
            problem,
        })?;
        let _turn = self.turn()?;
        let mut helper = match self.idle()? {
            Some(helper) => helper,
            None => self.start(python)?,
        };
        let given = helper.call(&request, self.deadline, on_event);
        if let Some(metrics) = self.bridge.metrics.get() {
            metrics.dropped(self.pool.lane, helper.dropped_lines());
        }
        match given {
            Ok(given) => {
                helper.token = self.work.token().or(helper.token);
                self.put_back(helper);
                let what = || self.work.what();
                given.map_err(|problem| match problem {
                    Problem::Refused(problem) => BridgeError::Refused {
                        what: what(),
                        problem,
                    },
                    Problem::Failed(problem) => BridgeError::Failed {
                        what: what(),
                        problem,
                    },
                })
            }
            Err(broken) => {
                let is_death = !matches!(broken, HelperFailure::Time);
                let (how, is_stopped) = self.end(helper, &broken, is_death);
                Err(match broken {
                    _ if is_stopped => self.stopped(),
                    HelperFailure::Time => self.timeout(),
                    _ => BridgeError::Died {
                        what: self.work.what(),
                        how,
                    },
                })
            }
        }
    }

    /// Waits for a turn.
    fn turn(&self) -> Result<Turn<'_>, BridgeError> {
        let pool = self.pool;
        let mut state = pool.state.lock();
        if state.waiting.len() >= MAX_WAITING {
            return Err(BridgeError::Busy {
                what: self.work.what(),
            });
        }
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.waiting.push_back(ticket);
        self.count_waiting(1);
        let result = self.wait(&mut state, ticket);
        state.waiting.retain(|waiting| *waiting != ticket);
        self.count_waiting(-1);
        if result.is_ok() {
            state.busy += 1;
        }
        // The next one may have a turn too, or has become the first.
        pool.changed.notify_all();
        result.map(|()| Turn(pool))
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>, ticket: u64) -> Result<(), BridgeError> {
        loop {
            if state.is_stopped {
                return Err(self.stopped());
            }
            if state.busy < self.pool.most && state.waiting.front() == Some(&ticket) {
                return Ok(());
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.timeout());
            }
            self.pool.changed.wait_for(state, left);
        }
    }

    fn count_waiting(&self, change: i64) {
        if let Some(metrics) = self.bridge.metrics.get() {
            metrics.waiting(self.pool.lane, change);
        }
    }

    /// An idle helper: one that holds the loaders of this compilation, else the last used.
    fn idle(&self) -> Result<Option<Helper>, BridgeError> {
        loop {
            let mut state = self.pool.state.lock();
            if state.is_stopped {
                return Err(self.stopped());
            }
            let token = self.work.token();
            let knows = |helper: &Helper| token.is_some() && helper.token == token;
            let place = state.idle.iter().position(knows);
            let Some(place) = place.or_else(|| state.idle.len().checked_sub(1)) else {
                return Ok(None);
            };
            let helper = state.idle.swap_remove(place);
            drop(state);
            if helper.is_alive() {
                return Ok(Some(helper));
            }
            let lane = self.pool.lane.name();
            let (how, _) = self.end(helper, &HelperFailure::Ended, true);
            tracing::warn!(lane, how, "an idle Python helper has ended");
        }
    }

    fn start(&self, python: &std::path::Path) -> Result<Helper, BridgeError> {
        self.may_start()?;
        let lane = self.pool.lane;
        // Before it reads the configuration, never after.
        let reading = self.pool.state.lock().reading;
        let mut helper = Helper::spawn(python, lane.name())
            .map_err(|error| self.not_up(format!("cannot be started: {error}")))?;
        helper.reading = reading;
        if let Some(metrics) = self.bridge.metrics.get() {
            metrics.started(lane);
        }
        {
            let mut state = self.pool.state.lock();
            state.pids.insert(helper.pid());
            if state.is_stopped {
                drop(state);
                self.end(helper, &HelperFailure::Time, false);
                return Err(self.stopped());
            }
        }
        match helper.come_up(lane.forks(), &self.bridge.settings, self.deadline) {
            Ok(()) => {
                self.pool.state.lock().failures = None;
                Ok(helper)
            }
            Err(broken) => {
                let (how, is_stopped) = self.end(helper, &broken, false);
                Err(match broken {
                    _ if is_stopped => self.stopped(),
                    HelperFailure::Time => self.timeout(),
                    _ => self.not_up(how),
                })
            }
        }
    }

    /// Whether another helper may be started now.
    fn may_start(&self) -> Result<(), BridgeError> {
        let mut state = self.pool.state.lock();
        let now = Instant::now();
        while state
            .deaths
            .front()
            .is_some_and(|death| now.duration_since(*death) >= WINDOW)
        {
            state.deaths.pop_front();
        }
        let no_helper = |reason: String| BridgeError::NoHelper {
            what: self.work.what(),
            reason,
        };
        if state.deaths.len() >= MAX_DEATHS {
            let reason = format!("died {MAX_DEATHS} times within a minute; see the master's log");
            return Err(no_helper(reason));
        }
        match &state.failures {
            Some((count, last, reason)) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << count.saturating_sub(1).min(16));
                if now.duration_since(*last) < pause.min(MAX_PAUSE) {
                    return Err(no_helper(reason.clone()));
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records a failed start of a helper.
    fn not_up(&self, reason: String) -> BridgeError {
        let mut state = self.pool.state.lock();
        let count = state.failures.as_ref().map_or(0, |(count, ..)| *count);
        state.failures = Some((count.saturating_add(1), Instant::now(), reason.clone()));
        BridgeError::NoHelper {
            what: self.work.what(),
            reason,
        }
    }

    fn put_back(&self, helper: Helper) {
        let is_worn = helper.is_worn(self.pool.lane, &self.bridge.settings);
        let mut state = self.pool.state.lock();
        if !is_worn && !state.is_stopped && helper.reading == state.reading {
            state.idle.push(helper);
            return;
        }
        drop(state);
        let pid = helper.pid();
        tracing::debug!(pid, "a Python helper has served long enough");
        self.end(helper, &HelperFailure::Time, false);
    }

    /// Ends a helper. Returns how it ended, and whether the bridge was stopped.
    fn end(&self, helper: Helper, broken: &HelperFailure, is_death: bool) -> (String, bool) {
        helper.wait_for_exit(broken, self.deadline);
        let is_stopped = {
            let mut state = self.pool.state.lock();
            state.pids.remove(&helper.pid());
            if is_death && !state.is_stopped {
                state.deaths.push_back(Instant::now());
            }
            state.is_stopped
        };
        if let Some(metrics) = self.bridge.metrics.get() {
            metrics.ended(self.pool.lane);
        }
        (helper.exit_report(broken), is_stopped)
    }

    fn timeout(&self) -> BridgeError {
        BridgeError::Timeout {
            what: self.work.what(),
            milliseconds: self.time.as_millis(),
        }
    }

    fn stopped(&self) -> BridgeError {
        BridgeError::Stopped {
            what: self.work.what(),
        }
    }
}

#[cfg(test)]
mod tests;

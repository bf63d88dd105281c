//! State of one batch: its plan, its machine, and how it is rebuilt from the store.

use std::collections::HashSet;
use std::time::Duration;

use actix::SpawnHandle;
use saltern_model::MinionId;
use saltern_requests::{BatchPlan, BatchSnapshot};
use saltern_store::StoredBatch;
use saltern_wire::msgpack::{Limits, RawValue, ReadError};

use super::machine::{Fate, Machine, Moment, Past, Rules, reason};

/// First retry delay; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// One instant by two clocks: the machine's, which is monotonic, and the time of day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) moment: Moment,
    /// Microseconds since 1970.
    pub(super) unix: i64,
}

impl Now {
    /// The time of day at another moment.
    fn unix_at(self, moment: Moment) -> i64 {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let ago = micros(self.moment.saturating_sub(moment));
        let ahead = micros(moment.saturating_sub(self.moment));
        self.unix.saturating_sub(ago).saturating_add(ahead)
    }
}

/// Phase of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its plan is on the way to the store: nothing yet.
    Storing,
    /// Everything.
    Running,
    /// It waits, and is read from the store again before anything else: a part could not be
    /// stored, or minions are still connecting after a start.
    Stalled,
    /// Its end is on the way to the store: nothing any more.
    Ending,
}

/// One batch as the actor holds it.
pub(super) struct Batch {
    pub(super) plan: BatchPlan,
    pub(super) machine: Machine,
    pub(super) phase: Phase,
    /// Since when it pauses, in microseconds since 1970.
    pub(super) paused_since: Option<i64>,
    /// The part sent last may never have left: it is sent once more.
    pub(super) is_unsure: bool,
    /// The tracker is being asked about minions that have had their time.
    pub(super) is_asking: bool,
    /// Wakes it when the machine asks for that.
    pub(super) timer: Option<SpawnHandle>,
    /// When something last happened, in microseconds since 1970.
    pub(super) last_progress: i64,
    /// When its state file was last written.
    pub(super) written: Option<Moment>,
    /// Its state file does not show what happened since.
    pub(super) is_behind: bool,
    /// Minions of it in the gauge.
    pub(super) counted: i64,
    failures: u32,
}

impl Batch {
    /// A batch whose plan is about to be stored.
    pub(super) fn new(plan: BatchPlan) -> Self {
        Self {
            machine: Machine::new(rules(&plan), &plan.minions),
            last_progress: plan.created,
            plan,
            phase: Phase::Storing,
            paused_since: None,
            is_unsure: false,
            is_asking: false,
            timer: None,
            written: None,
            is_behind: false,
            counted: 0,
            failures: 0,
        }
    }

    /// Rebuilds the batch from the store. Returns that are not stored (of a job with `nocache`)
    /// are taken over from `before`.
    ///
    /// # Errors
    /// When the stored plan cannot be read.
    pub(super) fn resumed(
        stored: &StoredBatch,
        before: Option<&Self>,
        now: Now,
    ) -> Result<Self, ReadError> {
        let state = RawValue::parse(stored.plan.bytes().clone(), &Limits::WIRE)?;
        let (plan, handed_over) = BatchPlan::from_state(&state)?;
        let mut batch = Self::new(plan);
        batch.phase = Phase::Running;
        batch.last_progress = handed_over.last_progress.max(stored.last_return());
        batch.recall(stored, &handed_over, before, now);
        // A pause that is not stored yet holds, too.
        let unstored = before.and_then(|before| before.paused_since);
        batch.set_paused(stored.paused_since.or(unstored));
        if let Some(before) = before {
            batch.counted = before.counted;
            batch.failures = before.failures;
            batch.timer = before.timer;
            batch.is_unsure = before.is_unsure;
        }
        Ok(batch)
    }

    /// Pauses the batch since then, or has it go on.
    pub(super) fn set_paused(&mut self, since: Option<i64>) {
        self.paused_since = since;
        self.machine.set_paused(since.is_some());
    }

    fn recall(
        &mut self,
        stored: &StoredBatch,
        handed_over: &BatchSnapshot,
        before: Option<&Self>,
        now: Now,
    ) {
        let mut sent: HashSet<MinionId> = stored.sent.iter().cloned().collect();
        sent.extend(handed_over.active.iter().map(|(id, _)| id.clone()));
        let mut failed: Vec<(MinionId, &'static str)> = Vec::new();
        for (minion, why) in stored.failed.iter().chain(&handed_over.failed) {
            failed.push((minion.clone(), reason(why)));
        }
        let mut returned: Vec<(MinionId, i64, Duration)> = Vec::new();
        for one in &stored.returned {
            let ago = now.unix.saturating_sub(one.received);
            let ago = Duration::from_micros(u64::try_from(ago).unwrap_or(0));
            returned.push((one.minion.clone(), one.retcode, ago));
        }
        let long_ago = |(id, code): &(MinionId, i64)| (id.clone(), *code, Duration::MAX);
        returned.extend(handed_over.done.iter().map(long_ago));
        for (minion, fate) in before.iter().flat_map(|before| before.machine.fates()) {
            match fate {
                Fate::Done(code) => returned.push((minion.clone(), code, Duration::MAX)),
                Fate::Failed(why) => failed.push((minion.clone(), why)),
                Fate::Active(_) => {}
            }
        }
        sent.extend(failed.iter().map(|(id, _)| id.clone()));
        let past = Past {
            sent: &sent.into_iter().collect::<Vec<_>>(),
            failed: &failed,
            returned: &returned,
        };
        self.machine.recall(&past, now.moment);
        let halted = before.and_then(|before| before.machine.halted());
        let halted = halted.or(stored.halted.as_deref());
        if let Some(reason) = halted.or(handed_over.halted.as_deref()) {
            self.machine.halt(reason);
        }
    }

    /// The state for stock's tools and for the store.
    pub(super) fn snapshot(&self, now: Now) -> BatchSnapshot {
        let mut snapshot = BatchSnapshot {
            pending: self.machine.pending().cloned().collect(),
            wait: self.machine.resting().map(|at| now.unix_at(at)).collect(),
            last_progress: self.last_progress,
            halted: self.machine.halted().map(str::to_owned),
            ..BatchSnapshot::default()
        };
        for (minion, fate) in self.machine.fates() {
            let minion = minion.clone();
            match fate {
                Fate::Active(since) => snapshot.active.push((minion, now.unix_at(since))),
                Fate::Done(code) => snapshot.done.push((minion, code)),
                Fate::Failed(why) => snapshot.failed.push((minion, why.to_owned())),
            }
        }
        snapshot.active.sort_unstable();
        snapshot.done.sort_unstable();
        snapshot.failed.sort_unstable();
        snapshot
    }

    /// Minions that were sent their part and have not returned, sorted.
    pub(super) fn active(&self) -> Vec<MinionId> {
        let fates = self.machine.fates();
        let active = fates.filter(|(_, fate)| matches!(fate, Fate::Active(_)));
        let mut active: Vec<MinionId> = active.map(|(id, _)| id.clone()).collect();
        active.sort_unstable();
        active
    }

    /// The next retry delay.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(self.failures.min(10));
        self.failures += 1;
        pause.min(MAX_PAUSE)
    }

    /// Resets the retry delay.
    pub(super) fn worked(&mut self) {
        self.failures = 0;
    }
}

fn rules(plan: &BatchPlan) -> Rules {
    Rules {
        size: plan.size,
        wait: plan.wait,
        patience: plan.patience(),
        failhard: plan.failhard,
    }
}

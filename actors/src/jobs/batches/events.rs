//! The events of a batch, `salt/batch/<jid>/…`, with the fields of stock 3008
//! (`salt/utils/batch_output.py`).

use saltern_base::clock::Clock;
use saltern_model::{Compat, Event, Jid, MinionId, Packed, Tag, stamp};
use saltern_requests::{BatchPlan, BatchSnapshot, time};
use saltern_wire::msgpack::{Dialect, Value, pack};
use serde::Serialize;

use super::machine::Machine;

/// Data of an event of a batch.
#[derive(Serialize)]
struct BatchEvent<'a> {
    jid: &'a Jid,
    fun: &'a Value,
    tgt: &'a Value,
    tgt_type: &'a str,
    user: &'a str,
    #[serde(flatten)]
    news: &'a BatchNews,
    _stamp: String,
}

/// Data of the events of a batch, beyond its jid; times and durations in seconds.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum BatchNews {
    /// The master drives the batch.
    New {
        total_minions: usize,
        batch_size: usize,
        driver: &'static str,
        created: Value,
    },
    /// Counts have changed.
    Progress {
        total: usize,
        completed: usize,
        active: usize,
        pending: usize,
        failed: usize,
        iter: (),
        last_progress: Value,
    },
    /// Every minion had its turn.
    Complete {
        completed: usize,
        failed: usize,
        total_minions: usize,
        duration: Value,
    },
    /// It ended early.
    Halted {
        reason: String,
        completed: usize,
        failed: usize,
        abandoned_active: Vec<MinionId>,
        abandoned_pending: Vec<MinionId>,
        duration: Value,
    },
    /// A user has it pause: our own, as is the next.
    Paused { active: usize, pending: usize },
    /// A user has it go on.
    Resumed { active: usize, pending: usize },
    /// The master has taken it up again.
    Recover {
        reason: &'static str,
        age_seconds: Value,
        driver: &'static str,
    },
}

/// The event with these news.
pub(super) fn event(plan: &BatchPlan, news: &BatchNews, compat: Compat, clock: &Clock) -> Event {
    let data = BatchEvent {
        jid: &plan.jid,
        fun: &plan.fun,
        tgt: &plan.tgt,
        tgt_type: &plan.tgt_type,
        user: &plan.user,
        news,
        _stamp: stamp(compat, clock.unix_micros()),
    };
    Event {
        tag: Tag::batch(&plan.jid, news.name()),
        data: Packed::new(pack(&data, Dialect::Bin)),
    }
}

impl BatchNews {
    /// The end of the tag.
    const fn name(&self) -> &'static str {
        match self {
            Self::New { .. } => "new",
            Self::Progress { .. } => "progress",
            Self::Complete { .. } => "complete",
            Self::Halted { .. } => "halted",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::Recover { .. } => "recover",
        }
    }

    pub(super) fn new(plan: &BatchPlan) -> Self {
        Self::New {
            total_minions: plan.minions.len(),
            batch_size: plan.size,
            driver: "master",
            created: time(plan.created),
        }
    }

    pub(super) fn progress(machine: &Machine, last_progress: i64) -> Self {
        let counts = machine.counts();
        Self::Progress {
            total: machine.total(),
            completed: counts.done,
            active: counts.active,
            pending: machine.pending_count(),
            failed: counts.failed,
            iter: (),
            last_progress: time(last_progress),
        }
    }

    pub(super) fn complete(plan: &BatchPlan, machine: &Machine, now: i64) -> Self {
        let counts = machine.counts();
        Self::Complete {
            completed: counts.done,
            failed: counts.failed,
            total_minions: machine.total(),
            duration: time(now.saturating_sub(plan.created)),
        }
    }

    pub(super) fn halted(plan: &BatchPlan, now: &BatchSnapshot, reason: &str, unix: i64) -> Self {
        let mut active: Vec<MinionId> = now.active.iter().map(|(id, _)| id.clone()).collect();
        active.sort_unstable();
        Self::Halted {
            reason: reason.to_owned(),
            completed: now.done.len(),
            failed: now.failed.len(),
            abandoned_active: active,
            abandoned_pending: now.pending.to_vec(),
            duration: time(unix.saturating_sub(plan.created)),
        }
    }

    pub(super) fn paused(machine: &Machine, is_paused: bool) -> Self {
        let (active, pending) = (machine.counts().active, machine.pending_count());
        match is_paused {
            true => Self::Paused { active, pending },
            false => Self::Resumed { active, pending },
        }
    }

    pub(super) fn recover(age_micros: i64) -> Self {
        Self::Recover {
            reason: "stale",
            age_seconds: time(age_micros),
            driver: "master",
        }
    }
}

//! The events of a batch, `salt/batch/<jid>/…`, with the fields of stock 3008
//! (`salt/utils/batch_output.py`).

use saltern_base::clock::Clock;
use saltern_model::{Compat, Event, MinionId, Packed, Tag, stamp};
use saltern_requests::{BatchPlan, BatchSnapshot, time};
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::machine::Machine;

type Fields = Vec<(&'static str, Value)>;

/// The event of this name, with what all of them have in front.
pub(super) fn event(
    plan: &BatchPlan,
    what: &'static str,
    fields: Fields,
    compat: Compat,
    clock: &Clock,
) -> Event {
    let base = [
        ("jid", Value::from(plan.jid.as_str())),
        ("fun", plan.fun.clone()),
        ("tgt", plan.tgt.clone()),
        ("tgt_type", plan.tgt_type.as_str().into()),
        ("user", plan.user.as_str().into()),
    ];
    let now = stamp(compat, clock.unix_micros());
    let end = [("_stamp", Value::from(now.as_str()))];
    let data = Value::map(base.into_iter().chain(fields).chain(end));
    Event {
        tag: Tag::batch(&plan.jid, what),
        data: Packed::new(encode(&data, Dialect::Bin)),
    }
}

/// The master drives the batch.
pub(super) fn new(plan: &BatchPlan) -> Fields {
    vec![
        ("total_minions", plan.minions.len().into()),
        ("batch_size", plan.size.into()),
        ("driver", "master".into()),
        ("created", time(plan.created)),
    ]
}

/// Counts have changed.
pub(super) fn progress(machine: &Machine, last_progress: i64) -> Fields {
    let counts = machine.counts();
    vec![
        ("total", machine.total().into()),
        ("completed", counts.done.into()),
        ("active", counts.active.into()),
        ("pending", machine.pending_count().into()),
        ("failed", counts.failed.into()),
        ("iter", Value::Nil),
        ("last_progress", time(last_progress)),
    ]
}

/// Every minion had its turn.
pub(super) fn complete(plan: &BatchPlan, machine: &Machine, now: i64) -> Fields {
    let counts = machine.counts();
    vec![
        ("completed", counts.done.into()),
        ("failed", counts.failed.into()),
        ("total_minions", machine.total().into()),
        ("duration", time(now.saturating_sub(plan.created))),
    ]
}

/// It ended early.
pub(super) fn halted(plan: &BatchPlan, now: &BatchSnapshot, reason: &str, unix: i64) -> Fields {
    let names =
        |ids: Vec<&MinionId>| Value::Array(ids.into_iter().map(|id| id.as_str().into()).collect());
    let mut active: Vec<&MinionId> = now.active.iter().map(|(id, _)| id).collect();
    active.sort_unstable();
    vec![
        ("reason", reason.into()),
        ("completed", now.done.len().into()),
        ("failed", now.failed.len().into()),
        ("abandoned_active", names(active)),
        ("abandoned_pending", names(now.pending.iter().collect())),
        ("duration", time(unix.saturating_sub(plan.created))),
    ]
}

/// The master has resumed it.
pub(super) fn recover(age_micros: i64) -> Fields {
    vec![
        ("reason", "stale".into()),
        ("age_seconds", time(age_micros)),
        ("driver", "master".into()),
    ]
}

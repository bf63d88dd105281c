//! State of a batch from the database: its plan, which is the state that it began with, and the
//! rows written since.
//!
//! In the form of stock's state, so that one function sums up both.

use std::collections::BTreeSet;

use saltern_store::StoredBatch;
use saltern_wire::msgpack::{Limits, Value, decode};

/// Entry of the time since when it pauses, in seconds since 1970. There is none while it goes on.
pub(super) const PAUSED_SINCE: &str = "paused_since";

/// The state of a stored batch.
pub(super) fn state(batch: &StoredBatch) -> Value {
    // The master wrote the plan; one that cannot be read has no entries.
    let plan = decode(batch.plan.as_ref(), &Limits::WIRE).unwrap_or(Value::Nil);
    let all = named(&plan, "all_minions");
    let returned = batch.returned.iter().map(|one| one.minion.as_str());
    let mut done = named(&plan, "done");
    done.extend(returned.filter(|id| all.contains(id)));
    let mut failed = named(&plan, "failed");
    failed.extend(batch.failed.iter().map(|(id, _)| id.as_str()));
    // A minion that returned after it was given up counts as done.
    failed.retain(|id| !done.contains(id));
    let mut sent = named(&plan, "active");
    sent.extend(batch.sent.iter().map(|id| id.as_str()));
    let is_under_way = |id: &&str| !done.contains(id) && !failed.contains(id);
    let (active, pending): (Vec<&str>, Vec<&str>) = all
        .iter()
        .copied()
        .filter(is_under_way)
        .partition(|id| sent.contains(id));
    let list = |ids: &mut dyn Iterator<Item = &str>| Value::Array(ids.map(Value::from).collect());
    let began = plan.get("last_progress").and_then(Value::as_f64);
    let last = began.unwrap_or(0.0).max(batch.last_return() as f64 / 1e6);
    let changed = [
        ("pending", list(&mut pending.into_iter())),
        ("active", list(&mut active.into_iter())),
        ("done", list(&mut done.iter().copied())),
        ("failed", list(&mut failed.iter().copied())),
        ("last_progress", Value::Float(last)),
        ("halted", batch.halted.is_some().into()),
        (
            "halted_reason",
            batch.halted.as_deref().map_or(Value::Nil, Value::from),
        ),
    ];
    let mut entries = match &plan {
        Value::Map(entries) => entries.clone(),
        _ => Vec::new(),
    };
    entries.retain(|(key, _)| !changed.iter().any(|(name, _)| key.as_str() == Some(name)));
    entries.extend(changed.map(|(name, value)| (name.into(), value)));
    if let Some(since) = batch.paused_since.filter(|_| batch.is_open) {
        entries.push((PAUSED_SINCE.into(), Value::Float(since as f64 / 1e6)));
    }
    Value::Map(entries)
}

/// The ids in a list, or those that a map has entries for.
fn named<'a>(state: &'a Value, name: &str) -> BTreeSet<&'a str> {
    match state.get(name) {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::Map(entries)) => entries.iter().filter_map(|(id, _)| id.as_str()).collect(),
        _ => BTreeSet::new(),
    }
}

//! A job in stock's words: `Function`, `Target`, `StartTime` and the rest
//! (`_format_job_instance` in `salt/runners/jobs.py`, `format_job_instance` in
//! `salt/utils/jid.py`).

use saltern_base::clock::civil;
use saltern_model::{Jid, JobRecord, MinionId, Packed};
use saltern_wire::json;
use saltern_wire::msgpack::{Limits, MapView, RawValue, Value};

use crate::call::RunnerError;
use crate::registry::RunnerContext;

/// A job, part by part.
pub(super) type Entries = Vec<(Value, Value)>;

/// A job that is not there.
pub(super) fn unknown(jid: &str) -> Entries {
    vec![
        (
            "Error".into(),
            "Cannot contact returner or no job with this jid".into(),
        ),
        ("StartTime".into(), start_time(jid).into()),
    ]
}

/// A job with the minions it expects.
pub(super) fn whole(job: &JobRecord) -> Entries {
    instance(job.jid.as_str(), &job.load, &job.minions)
}

/// A job without them.
pub(super) fn of_load(jid: &str, load: &Packed) -> Entries {
    instance(jid, load, &[])
}

fn instance(jid: &str, load: &Packed, minions: &[MinionId]) -> Entries {
    let Some(load) = shown_entries(load) else {
        return unknown(jid);
    };
    let part = |name: &str, default: &str| {
        let value = load.get(name).cloned();
        value.unwrap_or_else(|| default.into())
    };
    let arguments = arguments(load.get("arg"));
    let mut entries = vec![
        ("Function".into(), part("fun", "unknown-function")),
        ("Arguments".into(), Value::Array(arguments)),
        ("Target".into(), part("tgt", "unknown-target")),
        ("Target-type".into(), part("tgt_type", "list")),
        ("User".into(), part("user", "root")),
    ];
    if let Some(metadata) = metadata(&load) {
        entries.push(("Metadata".into(), metadata.clone()));
    }
    if !minions.is_empty() {
        let minions = minions.iter().map(|id| id.as_str().into());
        entries.push(("Minions".into(), Value::Array(minions.collect())));
    }
    entries.push(("StartTime".into(), start_time(jid).into()));
    entries
}

/// The arguments of a load. Stock's tables of `postgres_local_cache` have them as JSON in a text.
fn arguments(arg: Option<&Value>) -> Vec<Value> {
    match arg {
        Some(Value::Array(arguments)) => arguments.clone(),
        Some(Value::Str(text)) => match json::parse(text) {
            Ok(Value::Array(arguments)) => arguments,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// The entries of a load that a description is made of. The load of a call has what it returned, too,
/// which may be as large as all jobs together, and is not decoded.
fn shown_entries(load: &Packed) -> Option<Value> {
    const NAMES: [&str; 7] = [
        "arg", "fun", "kwargs", "metadata", "tgt", "tgt_type", "user",
    ];
    let view = MapView::parse(load.bytes().clone(), &Limits::WIRE).ok()?;
    if view.is_empty() {
        return None;
    }
    let entry = |name| Some((name, view.get(name).map(RawValue::decode_exact)?));
    Some(Value::map(NAMES.into_iter().filter_map(entry)))
}

/// The metadata of a load: its own, that among its settings, or that among its arguments.
fn metadata(load: &Value) -> Option<&Value> {
    let own = load.get("metadata");
    let setting = || load.get("kwargs")?.get("metadata");
    let argument = || {
        let arguments = load.get("arg")?.as_array()?.iter();
        arguments
            .filter(|argument| argument.get("__kwarg__").and_then(Value::as_bool) == Some(true))
            .find_map(|argument| argument.get("metadata"))
    };
    own.or_else(setting).or_else(argument)
}

fn start_time(jid: &str) -> String {
    Jid::parse(jid).map_or_else(|_| String::new(), |jid| jid.start_time())
}

/// When the last return of a job came, if `job_cache_store_endtime` is on.
pub(super) fn end_time(context: &RunnerContext, jid: &Jid) -> Result<Option<i64>, RunnerError> {
    if context.config.job_cache_store_endtime {
        Ok(context.jobs.last_return_at(jid)?)
    } else {
        Ok(None)
    }
}

/// A moment as `jid_to_time` writes it.
pub(super) fn time_text(unix_micros: i64) -> String {
    start_time(&civil(unix_micros).strftime("%Y%m%d%H%M%S%6f").to_string())
}

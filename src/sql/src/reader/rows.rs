//! Records of the master's vocabulary, made of rows.

use saltern_config::SqlSchema;
use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_wire::json;
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::ReturnCounts;
use super::link::TextRow;
use crate::row::JOB_COLUMNS;

/// Stands for arguments that are too long for a list.
const TOO_LONG: &str = "[saltern: too long for a list; jobs.list_job shows it]";

/// The job of a row; `None` where its jid is none.
pub(super) fn job(schema: SqlSchema, row: &[Option<String>]) -> Option<JobRecord> {
    let (jid, columns) = row.split_first()?;
    let jid = Jid::parse(jid.as_deref()?).ok()?;
    let load = match schema {
        SqlSchema::PostgresLocalCache => load_of_columns(&jid, columns),
        _ => document(columns.first()?.as_deref()?),
    };
    Some(record(jid, &load))
}

fn record(jid: Jid, load: &Value) -> JobRecord {
    let text = |name: &str| load.get(name).map(text_of).unwrap_or_default();
    JobRecord {
        created: jid.unix_micros(),
        user: text("user"),
        fun: text("fun"),
        tgt: text("tgt"),
        tgt_type: text("tgt_type"),
        load: Packed::new(encode(load, Dialect::Bin)),
        minions: Vec::new(),
        nocache: false,
        jid,
    }
}

/// The load that stock's `postgres_local_cache` makes of its columns.
fn load_of_columns(jid: &Jid, columns: &[Option<String>]) -> Value {
    let column = |name: &str| {
        let place = JOB_COLUMNS.iter().position(|column| *column == name)?;
        columns.get(place)?.clone()
    };
    let names = [
        "tgt_type", "cmd", "tgt", "kwargs", "ret", "user", "arg", "fun",
    ];
    let entries = names.into_iter().map(|name| {
        let stored = match name {
            "user" => column("username"),
            other => column(other),
        };
        (name.into(), stored.map_or(Value::Nil, Value::Str))
    });
    let entries = [("jid".into(), jid.as_str().into())]
        .into_iter()
        .chain(entries);
    Value::Map(entries.collect())
}

/// Whether a document was left out of the list.
pub(super) fn is_too_long(row: &[Option<String>]) -> bool {
    row.iter().any(Option::is_none)
}

/// The job without its arguments.
pub(super) fn shortened(job: JobRecord) -> JobRecord {
    let mut load = crate::document::unpack(job.load.as_ref());
    let marks = Value::Array(vec![TOO_LONG.into()]);
    crate::row::replace(&mut load, "arg", marks);
    let load = match load {
        Value::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(name, value)| match value {
                    Value::Str(text) if text.len() > TOO_LONG.len() * 16 => (name, TOO_LONG.into()),
                    Value::Map(_) | Value::Array(_) if name.as_str() != Some("arg") => {
                        (name, Value::Nil)
                    }
                    value => (name, value),
                })
                .collect(),
        ),
        other => other,
    };
    record(job.jid, &load)
}

/// The last minion whose return is within so many bytes, together with those before it, and whether
/// others follow. The first one always is.
pub(super) fn within(sizes: &[TextRow], most_bytes: usize) -> (Option<&str>, bool) {
    let (mut last, mut bytes) = (None, 0_usize);
    for row in sizes {
        let [Some(minion), size] = row.as_slice() else {
            continue;
        };
        let size = size.as_deref().and_then(|size| size.parse().ok());
        bytes = bytes.saturating_add(size.unwrap_or(0));
        if bytes > most_bytes && last.is_some_and(|last| last != minion) {
            return (last, true);
        }
        last = Some(minion.as_str());
    }
    (last, false)
}

/// The returns of rows, each minion once: the last one counts, as in stock.
pub(super) fn returns(schema: SqlSchema, jid: &Jid, rows: &[TextRow]) -> Vec<ReturnRecord> {
    let mut returns: Vec<ReturnRecord> = Vec::with_capacity(rows.len());
    for found in rows.iter().filter_map(|row| return_of(schema, jid, row)) {
        if returns
            .last()
            .is_some_and(|last| last.minion == found.minion)
        {
            returns.pop();
        }
        returns.push(found);
    }
    returns
}

/// The returns of rows with their jids in front.
pub(super) fn newest_returns(schema: SqlSchema, rows: &[TextRow]) -> Vec<ReturnRecord> {
    let of_row = |row: &TextRow| {
        let (jid, columns) = row.split_first()?;
        let jid = Jid::parse(jid.as_deref()?).ok()?;
        return_of(schema, &jid, columns)
    };
    rows.iter().filter_map(of_row).collect()
}

fn return_of(schema: SqlSchema, jid: &Jid, row: &[Option<String>]) -> Option<ReturnRecord> {
    let [minion, text, received, fun, success] = row else {
        return None;
    };
    let minion = MinionId::parse(minion.as_deref()?).ok()?;
    let value = document(text.as_deref()?);
    let load = match schema {
        SqlSchema::PostgresLocalCache => of_local_cache(jid, &minion, fun.as_deref(), value),
        _ => value,
    };
    let success = match load.get("success") {
        Some(success) => success.is_truthy(),
        None => matches!(success.as_deref(), Some("true" | "True" | "1" | "t")),
    };
    Some(ReturnRecord {
        received: received.as_deref().map_or(0, micros),
        fun: fun.clone().unwrap_or_default(),
        retcode: load.get("retcode").map_or(0, highest),
        success,
        load: Packed::new(encode(&load, Dialect::Bin)),
        jid: jid.clone(),
        minion,
    })
}

/// The load of a return of `postgres_local_cache`, which has only parts of it; before 2016 it had the
/// value alone.
fn of_local_cache(jid: &Jid, minion: &MinionId, fun: Option<&str>, value: Value) -> Value {
    let parts = match value.get("return") {
        Some(_) => value,
        None => Value::map([("return", value)]),
    };
    let Value::Map(mut entries) = parts else {
        return parts;
    };
    entries.push(("jid".into(), jid.as_str().into()));
    entries.push(("id".into(), minion.as_str().into()));
    entries.push(("fun".into(), fun.unwrap_or_default().into()));
    Value::Map(entries)
}

/// The counts of a jid.
pub(super) fn counts_of(rows: &[TextRow], jid: &Jid) -> ReturnCounts {
    let row = rows
        .iter()
        .find(|row| row.first().and_then(Option::as_deref) == Some(jid.as_str()));
    let Some([_, returned, failed, last]) = row.map(Vec::as_slice) else {
        return ReturnCounts::default();
    };
    let number = |text: &Option<String>| text.as_deref()?.parse().ok();
    ReturnCounts {
        returned: number(returned).unwrap_or_default(),
        failed: number(failed).unwrap_or_default(),
        last: last.as_deref().map(micros),
    }
}

/// A document; one that is none is shown as its text.
fn document(text: &str) -> Value {
    json::parse(text).unwrap_or_else(|_| text.into())
}

/// Seconds as microseconds.
fn micros(seconds: &str) -> i64 {
    seconds
        .parse::<f64>()
        .map_or(0, |seconds| (seconds * 1e6) as i64)
}

/// The return code, the highest one of several functions.
fn highest(retcode: &Value) -> i64 {
    match retcode {
        Value::Map(entries) => entries.iter().map(|(_, code)| highest(code)).max(),
        Value::Array(items) => items.iter().map(highest).max(),
        other => other.as_i64(),
    }
    .unwrap_or(0)
}

/// A value as one text: several functions, and a list of minions, are joined by commas.
fn text_of(value: &Value) -> String {
    match value {
        Value::Str(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        Value::Nil => String::new(),
        other => saltern_python::str(other).into_owned(),
    }
}

//! Plan of a batch, and its serialised form in stock 3008.
//!
//! The written form is stock's `BatchState` (`salt/utils/batch_state.py`), which lies in `.batch.p`
//! of the job's directory: stock's command line makes it for `--async`, and `salt-run batch.*`
//! reads it. The job database keeps the same form. The actors decide when the parts are sent.

use std::time::Duration;

use saltern_model::{Jid, MinionId, Packed};
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::job::jid_owner::BACKEND;

/// Stock's timeout where its state names none (`create_batch_state`).
const TIMEOUT: Duration = Duration::from_secs(60);
const GATHER_JOB_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest duration in a state, in seconds; more is a mistake, and would overflow a clock.
const MAX_SECONDS: f64 = 1e9;

/// The part of a batch that does not change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchPlan {
    /// The jid of all its parts.
    pub jid: Jid,
    /// The time of the request, in microseconds since 1970.
    pub created: i64,
    /// The minions, in the order in which they are served.
    pub minions: Vec<MinionId>,
    /// The number of concurrent minions; at least one.
    pub size: usize,
    /// The pause before a finished minion's slot is reused.
    pub wait: Duration,
    /// Whether the first bad return ends it.
    pub failhard: bool,
    /// The time without an answer after which a minion is given up; `gather_job_timeout` comes on
    /// top.
    pub timeout: Duration,
    /// Added to `timeout`.
    pub gather_job_timeout: Duration,
    /// The user who asked for it.
    pub user: String,
    /// The backend that knows that user; `None` for a local one.
    pub backend: Option<String>,
    /// The target as it was asked for.
    pub tgt: Value,
    /// The name of its type.
    pub tgt_type: String,
    /// The function, or several.
    pub fun: Value,
    /// Its arguments.
    pub arg: Vec<Value>,
    /// Named arguments that do not stand in `arg`.
    pub kwargs: Value,
    /// Returners.
    pub ret: Value,
    /// The `kwargs` of the publish, such as `metadata`: our own, stock's batches have none.
    pub options: Value,
}

/// Progress of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchSnapshot {
    /// Minions that are still to be served.
    pub pending: Vec<MinionId>,
    /// Minions that were sent their part, with the time (microseconds since 1970).
    pub active: Vec<(MinionId, i64)>,
    /// Minions that returned, with the return code.
    pub done: Vec<(MinionId, i64)>,
    /// Minions that were given up, with the reason.
    pub failed: Vec<(MinionId, String)>,
    /// When resting slots are free again (microseconds since 1970).
    pub wait: Vec<i64>,
    /// When a minion last started, returned or was given up (microseconds since 1970).
    pub last_progress: i64,
    /// Why it ended before its time.
    pub halted: Option<String>,
}

/// Error of a malformed state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is missing, or is not what it should be")]
pub struct StateError(&'static str);

/// The driver that sends the parts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchDriver {
    /// The master.
    Master,
    /// A command line that waits for the end.
    Cli,
}

impl BatchDriver {
    /// The driver that a state names; `None` when it names neither.
    pub fn of(state: &Value) -> Option<Self> {
        match state.get("driver")?.as_str()? {
            "master" => Some(Self::Master),
            "cli" => Some(Self::Cli),
            _ => None,
        }
    }
}

impl BatchPlan {
    /// How long a silent minion keeps its slot.
    pub fn patience(&self) -> Duration {
        self.timeout.saturating_add(self.gather_job_timeout)
    }

    /// The whole state, as stock writes it; of a return only the code, the rest is in the job's own
    /// files.
    pub fn state(&self, now: &BatchSnapshot) -> Value {
        let ids = |minions: &[MinionId]| {
            Value::Array(minions.iter().map(|id| id.as_str().into()).collect())
        };
        let active = now.active.iter().map(|(id, at)| (id.as_str(), time(*at)));
        let done = now.done.iter();
        let done = done.map(|(id, code)| (id.as_str(), Value::map([("retcode", *code)])));
        let failed = now.failed.iter();
        let failed = failed.map(|(id, reason)| (id.as_str(), reason.as_str()));
        let size = i64::try_from(self.size).unwrap_or(i64::MAX);
        let halted = now.halted.as_deref();
        let mut state = Value::map([
            ("jid", Value::from(self.jid.as_str())),
            ("all_minions", ids(&self.minions)),
            ("pending", ids(&now.pending)),
            ("active", Value::map(active)),
            ("done", Value::map(done)),
            ("failed", Value::map(failed)),
            (
                "wait",
                Value::Array(now.wait.iter().map(|at| time(*at)).collect()),
            ),
            ("batch_size", size.into()),
            ("fun", self.fun.clone()),
            ("arg", Value::Array(self.arg.clone())),
            ("kwargs", self.kwargs.clone()),
            ("tgt", self.tgt.clone()),
            ("tgt_type", self.tgt_type.as_str().into()),
            ("failhard", self.failhard.into()),
            ("batch_wait", seconds(self.wait)),
            ("timeout", seconds(self.timeout)),
            ("gather_job_timeout", seconds(self.gather_job_timeout)),
            ("last_progress", time(now.last_progress)),
            ("created", time(self.created)),
            ("halted", halted.is_some().into()),
            ("halted_reason", halted.map_or(Value::Nil, Value::from)),
            ("driver", "master".into()),
            ("ret", self.ret.clone()),
            ("user", self.user.as_str().into()),
            ("saltern_options", self.options.clone()),
        ]);
        if let (Value::Map(entries), Some(backend)) = (&mut state, &self.backend) {
            entries.push((BACKEND.into(), backend.as_str().into()));
        }
        state
    }

    /// The whole state, packed.
    pub fn pack(&self, now: &BatchSnapshot) -> Packed {
        Packed::new(encode(&self.state(now), Dialect::Bin))
    }

    /// Reads a state that stock or [`BatchPlan::state`] made.
    ///
    /// # Errors
    /// Names the first field without which nothing can be sent.
    pub fn from_state(state: &Value) -> Result<(Self, BatchSnapshot), StateError> {
        let text = |name: &'static str| {
            let text = state.get(name).and_then(Value::as_str);
            text.map(str::to_owned).ok_or(StateError(name))
        };
        let or = |name: &str, default: Value| state.get(name).cloned().unwrap_or(default);
        let empty = || Value::Map(Vec::new());
        let size = state.get("batch_size").and_then(Value::as_i64);
        let size = size.ok_or(StateError("batch_size"))?;
        let plan = Self {
            jid: Jid::parse(&text("jid")?).map_err(|_| StateError("jid"))?,
            created: moment(state.get("created")).ok_or(StateError("created"))?,
            minions: minions(state, "all_minions")?,
            size: usize::try_from(size.max(1)).unwrap_or(usize::MAX),
            wait: duration(state, "batch_wait", Duration::ZERO)?,
            failhard: state.get("failhard").and_then(Value::as_bool) == Some(true),
            timeout: duration(state, "timeout", TIMEOUT)?,
            gather_job_timeout: duration(state, "gather_job_timeout", GATHER_JOB_TIMEOUT)?,
            user: text("user").unwrap_or_else(|_| "root".to_owned()),
            backend: text(BACKEND).ok(),
            tgt: or("tgt", "".into()),
            tgt_type: text("tgt_type").unwrap_or_else(|_| "glob".to_owned()),
            fun: state.get("fun").cloned().ok_or(StateError("fun"))?,
            arg: or("arg", Value::Array(Vec::new()))
                .as_array()
                .ok_or(StateError("arg"))?
                .to_vec(),
            kwargs: or("kwargs", empty()),
            ret: or("ret", "".into()),
            options: or("saltern_options", empty()),
        };
        Ok((plan, progress(state)?))
    }
}

/// Reads the part of a state that changes.
fn progress(state: &Value) -> Result<BatchSnapshot, StateError> {
    let active = named(state, "active")?;
    let created = moment(state.get("created")).unwrap_or_default();
    let halted = state.get("halted").and_then(Value::as_bool) == Some(true);
    let reason = state.get("halted_reason").and_then(Value::as_str);
    Ok(BatchSnapshot {
        pending: minions(state, "pending")?,
        active: active
            .into_iter()
            .map(|(id, at)| (id, moment(Some(at)).unwrap_or(created)))
            .collect(),
        done: named(state, "done")?
            .into_iter()
            .map(|(id, data)| (id, retcode(data.get("retcode"))))
            .collect(),
        failed: named(state, "failed")?
            .into_iter()
            .map(|(id, reason)| (id, reason.as_str().unwrap_or_default().to_owned()))
            .collect(),
        wait: Vec::new(),
        last_progress: moment(state.get("last_progress")).unwrap_or(created),
        halted: halted.then(|| reason.unwrap_or("stop").to_owned()),
    })
}

/// The return code as one number; of several functions the highest code counts (`_collapse_retcode`
/// in `salt/utils/batch_state.py`).
pub(crate) fn retcode(code: Option<&Value>) -> i64 {
    match code {
        Some(Value::Map(codes)) => {
            let codes = codes.iter().filter_map(|(_, code)| code.as_i64());
            codes.max().unwrap_or(0)
        }
        Some(code) => code.as_i64().unwrap_or(0),
        None => 0,
    }
}

fn minions(state: &Value, name: &'static str) -> Result<Vec<MinionId>, StateError> {
    let list = state.get(name).and_then(Value::as_array);
    let list = list.ok_or(StateError(name))?.iter();
    let parsed = list.map(|id| id.as_str().and_then(|id| MinionId::parse(id).ok()));
    parsed.collect::<Option<_>>().ok_or(StateError(name))
}

fn named<'a>(
    state: &'a Value,
    name: &'static str,
) -> Result<Vec<(MinionId, &'a Value)>, StateError> {
    let map = state.get(name).and_then(Value::as_map);
    let entries = map.ok_or(StateError(name))?.iter();
    let parsed = entries.map(|(id, value)| Some((MinionId::parse(id.as_str()?).ok()?, value)));
    parsed.collect::<Option<_>>().ok_or(StateError(name))
}

fn duration(state: &Value, name: &'static str, default: Duration) -> Result<Duration, StateError> {
    match state.get(name) {
        None | Some(Value::Nil) => Ok(default),
        Some(value) => seconds_of(value).ok_or(StateError(name)),
    }
}

/// A number of seconds that is usable as a duration.
pub(crate) fn seconds_of(value: &Value) -> Option<Duration> {
    let seconds = value.as_f64()?;
    (0.0..=MAX_SECONDS)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

/// Whole seconds stay whole, as in stock's files.
fn seconds(duration: Duration) -> Value {
    match duration.subsec_nanos() {
        0 => Value::from(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)),
        _ => Value::Float(duration.as_secs_f64()),
    }
}

/// Python's `time.time()`.
pub fn time(unix_micros: i64) -> Value {
    Value::Float(unix_micros as f64 / 1e6)
}

fn moment(time: Option<&Value>) -> Option<i64> {
    let seconds = time?.as_f64()?;
    (0.0..=1e12)
        .contains(&seconds)
        .then_some((seconds * 1e6).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> MinionId {
        MinionId::parse(name).unwrap()
    }

    fn plan() -> BatchPlan {
        BatchPlan {
            jid: Jid::parse("20260102030405060708").unwrap(),
            created: 1_700_000_000_250_000,
            minions: vec![id("b"), id("a")],
            size: 1,
            wait: Duration::from_millis(1500),
            failhard: true,
            timeout: Duration::from_secs(5),
            gather_job_timeout: Duration::from_secs(10),
            user: "ana".to_owned(),
            backend: Some("pam".to_owned()),
            tgt: "*".into(),
            tgt_type: "glob".to_owned(),
            fun: "test.ping".into(),
            arg: vec![1.into()],
            kwargs: Value::Map(Vec::new()),
            ret: "".into(),
            options: Value::map([("metadata", "x")]),
        }
    }

    #[test]
    fn state_is_parsed_as_written() {
        let snapshot = BatchSnapshot {
            pending: Vec::new(),
            active: vec![(id("b"), 1_700_000_001_000_000)],
            done: vec![(id("a"), 3)],
            failed: vec![(id("c"), "timeout".to_owned())],
            wait: Vec::new(),
            last_progress: 1_700_000_002_000_000,
            halted: Some("failhard".to_owned()),
        };
        let state = plan().state(&snapshot);
        assert_eq!(BatchPlan::from_state(&state), Ok((plan(), snapshot)));
        assert_eq!(BatchDriver::of(&state), Some(BatchDriver::Master));
        let numbers = ["batch_wait", "timeout", "created"].map(|name| state.get(name).unwrap());
        assert_eq!(
            numbers,
            [
                &Value::Float(1.5),
                &Value::Int(5),
                &Value::Float(1_700_000_000.25)
            ]
        );
    }

    #[test]
    fn state_without_required_field_is_refused_by_name() {
        let Value::Map(entries) = plan().state(&BatchSnapshot::default()) else {
            panic!("a state is a map");
        };
        for name in [
            "jid",
            "all_minions",
            "batch_size",
            "fun",
            "active",
            "done",
            "created",
        ] {
            let others = entries.iter().filter(|(key, _)| key.as_str() != Some(name));
            let state = Value::Map(others.cloned().collect());
            assert_eq!(BatchPlan::from_state(&state), Err(StateError(name)));
        }
        for (name, wrong) in [
            ("all_minions", Value::Array(vec!["../m".into()])),
            ("jid", "../../x".into()),
            ("timeout", Value::Float(f64::INFINITY)),
            ("batch_wait", Value::Int(-1)),
        ] {
            let mut entries = entries.clone();
            entries.push((name.into(), wrong));
            assert_eq!(
                BatchPlan::from_state(&Value::Map(entries)),
                Err(StateError(name))
            );
        }
    }

    #[test]
    fn retcode_is_highest_of_several() {
        let codes = Value::map([("a", 0_i64), ("b", 4), ("c", 1)]);
        for (code, expected) in [
            (Some(&codes), 4),
            (Some(&Value::map::<&str, i64>([])), 0),
            (Some(&Value::Int(7)), 7),
            (Some(&Value::Nil), 0),
            (None, 0),
        ] {
            assert_eq!(retcode(code), expected);
        }
    }
}

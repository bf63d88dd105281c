//! Plan of a batch, and its serialised form in stock 3008.
//!
//! The written form is stock's `BatchState` (`salt/utils/batch_state.py`), which lies in `.batch.p`
//! of the job's directory: stock's command line makes it for `--async`, and `salt-run batch.*`
//! reads it. The job database keeps the same form. The actors decide when the parts are sent.

use std::time::Duration;

use saltern_model::{AuditRecord, Jid, MinionId, Packed};
use saltern_wire::msgpack::{self, Dialect, RawValue, ReadError, Value, lenient};
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    /// Its row in the audit trail, until it is stored with that.
    pub audit: Option<Box<AuditRecord>>,
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

/// Stock's `BatchState`, and what is ours in it: `saltern_options` and the backend. Other fields of
/// stock's are passed over.
#[derive(Serialize, Deserialize)]
struct State {
    jid: Jid,
    all_minions: Vec<MinionId>,
    pending: Vec<MinionId>,
    #[serde(with = "msgpack::as_map")]
    active: Vec<(MinionId, Value)>,
    #[serde(with = "msgpack::as_map")]
    done: Vec<(MinionId, Done)>,
    #[serde(with = "msgpack::as_map")]
    failed: Vec<(MinionId, Value)>,
    #[serde(default, deserialize_with = "none_rests")]
    wait: Vec<UnixTime>,
    batch_size: i64,
    fun: Value,
    #[serde(default)]
    arg: Vec<Value>,
    #[serde(default = "empty_map")]
    kwargs: Value,
    #[serde(default = "empty_text")]
    tgt: Value,
    #[serde(default, deserialize_with = "lenient")]
    tgt_type: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    failhard: Option<bool>,
    #[serde(default)]
    batch_wait: Option<Seconds>,
    #[serde(default)]
    timeout: Option<Seconds>,
    #[serde(default)]
    gather_job_timeout: Option<Seconds>,
    #[serde(default, deserialize_with = "lenient")]
    last_progress: Option<UnixTime>,
    created: UnixTime,
    #[serde(default, deserialize_with = "lenient")]
    halted: Option<bool>,
    #[serde(default, deserialize_with = "lenient")]
    halted_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    driver: Option<BatchDriver>,
    #[serde(default = "empty_text")]
    ret: Value,
    #[serde(default, deserialize_with = "lenient")]
    user: Option<String>,
    #[serde(default = "empty_map")]
    saltern_options: Value,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    #[serde(rename = "saltern_backend")]
    backend: Option<String>,
}

/// Return as stock keeps it; only the code counts here.
#[derive(Serialize, Deserialize)]
struct Done {
    #[serde(default, deserialize_with = "collapsed")]
    retcode: i64,
}

fn collapsed<'de, D: Deserializer<'de>>(input: D) -> Result<i64, D::Error> {
    Value::deserialize(input).map(|code| retcode(Some(&code)))
}

/// A state that is read was written by somebody else, whose slots rest no longer.
fn none_rests<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<UnixTime>, D::Error> {
    IgnoredAny::deserialize(input).map(|_| Vec::new())
}

fn empty_map() -> Value {
    Value::Map(Vec::new())
}

fn empty_text() -> Value {
    "".into()
}

/// The driver that sends the parts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

    /// The whole state, packed as stock writes it; of a return only the code, the rest is in the
    /// job's own files.
    pub fn pack(&self, now: &BatchSnapshot) -> Packed {
        let active = now.active.iter();
        let done = now.done.iter();
        let failed = now.failed.iter();
        let state = State {
            jid: self.jid.clone(),
            all_minions: self.minions.clone(),
            pending: now.pending.clone(),
            active: active.map(|(id, at)| (id.clone(), time(*at))).collect(),
            done: done
                .map(|(id, retcode)| (id.clone(), Done { retcode: *retcode }))
                .collect(),
            failed: failed
                .map(|(id, reason)| (id.clone(), reason.into()))
                .collect(),
            wait: now.wait.iter().copied().map(UnixTime).collect(),
            batch_size: i64::try_from(self.size).unwrap_or(i64::MAX),
            fun: self.fun.clone(),
            arg: self.arg.clone(),
            kwargs: self.kwargs.clone(),
            tgt: self.tgt.clone(),
            tgt_type: Some(self.tgt_type.clone()),
            failhard: Some(self.failhard),
            batch_wait: Some(Seconds(self.wait)),
            timeout: Some(Seconds(self.timeout)),
            gather_job_timeout: Some(Seconds(self.gather_job_timeout)),
            last_progress: Some(UnixTime(now.last_progress)),
            created: UnixTime(self.created),
            halted: Some(now.halted.is_some()),
            halted_reason: now.halted.clone(),
            driver: Some(BatchDriver::Master),
            ret: self.ret.clone(),
            user: Some(self.user.clone()),
            saltern_options: self.options.clone(),
            backend: self.backend.clone(),
        };
        Packed::new(msgpack::pack(&state, Dialect::Bin))
    }

    /// Reads a state that stock or [`BatchPlan::pack`] made.
    ///
    /// # Errors
    /// Names the first field without which nothing can be sent.
    pub fn from_state(state: &RawValue) -> Result<(Self, BatchSnapshot), ReadError> {
        let state: State = state.read()?;
        let created = state.created;
        let seconds = |read: Option<Seconds>| read.map(|Seconds(duration)| duration);
        let active = state.active.into_iter();
        let done = state.done.into_iter();
        let failed = state.failed.into_iter();
        let snapshot = BatchSnapshot {
            pending: state.pending,
            active: active
                .map(|(id, at)| (id, moment(&at).unwrap_or(created.0)))
                .collect(),
            done: done.map(|(id, done)| (id, done.retcode)).collect(),
            failed: failed
                .map(|(id, reason)| (id, reason.as_str().unwrap_or_default().to_owned()))
                .collect(),
            wait: Vec::new(),
            last_progress: state.last_progress.unwrap_or(created).0,
            halted: (state.halted == Some(true))
                .then(|| state.halted_reason.unwrap_or_else(|| "stop".to_owned())),
        };
        let plan = Self {
            jid: state.jid,
            created: created.0,
            minions: state.all_minions,
            size: usize::try_from(state.batch_size.max(1)).unwrap_or(usize::MAX),
            wait: seconds(state.batch_wait).unwrap_or_default(),
            failhard: state.failhard == Some(true),
            timeout: seconds(state.timeout).unwrap_or(TIMEOUT),
            gather_job_timeout: seconds(state.gather_job_timeout).unwrap_or(GATHER_JOB_TIMEOUT),
            user: state.user.unwrap_or_else(|| "root".to_owned()),
            backend: state.backend,
            tgt: state.tgt,
            tgt_type: state.tgt_type.unwrap_or_else(|| "glob".to_owned()),
            fun: state.fun,
            arg: state.arg,
            kwargs: state.kwargs,
            ret: state.ret,
            options: state.saltern_options,
            audit: None,
        };
        Ok((plan, snapshot))
    }
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

/// A number of seconds that is usable as a duration.
pub(crate) fn seconds_of(value: &Value) -> Option<Duration> {
    let seconds = value.as_f64()?;
    (0.0..=MAX_SECONDS)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

/// A duration as a number of seconds; whole seconds stay whole, as in stock's files.
struct Seconds(Duration);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self.0.subsec_nanos() {
            0 => out.serialize_u64(self.0.as_secs()),
            _ => out.serialize_f64(self.0.as_secs_f64()),
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let seconds = Value::deserialize(input)?;
        let duration = seconds_of(&seconds).map(Self);
        duration.ok_or_else(|| D::Error::custom("no number of seconds that can be waited"))
    }
}

/// A time in microseconds since 1970; written as seconds.
#[derive(Clone, Copy)]
struct UnixTime(i64);

impl Serialize for UnixTime {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        time(self.0).serialize(out)
    }
}

impl<'de> Deserialize<'de> for UnixTime {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let time = moment(&Value::deserialize(input)?).map(Self);
        time.ok_or_else(|| D::Error::custom("no time"))
    }
}

fn moment(time: &Value) -> Option<i64> {
    let seconds = time.as_f64()?;
    let is_time = (0.0..=1e12).contains(&seconds);
    is_time.then_some((seconds * 1e6).round() as i64)
}

/// Python's `time.time()`.
pub fn time(unix_micros: i64) -> Value {
    Value::Float(unix_micros as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use saltern_wire::msgpack::{Limits, decode};

    use super::*;

    fn id(name: &str) -> MinionId {
        MinionId::parse(name).unwrap()
    }

    fn from_state(state: &Value) -> Result<(BatchPlan, BatchSnapshot), ReadError> {
        BatchPlan::from_state(&RawValue::pack(state, Dialect::Bin))
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
            audit: None,
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
        let packed = plan().pack(&snapshot);
        let state = decode(packed.as_ref(), &Limits::WIRE).unwrap();
        assert_eq!(from_state(&state), Ok((plan(), snapshot)));
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
        let packed = plan().pack(&BatchSnapshot::default());
        let state = decode(packed.as_ref(), &Limits::WIRE).unwrap();
        let entries = state.as_map().unwrap();
        let named = |entries: Vec<(Value, Value)>, name: &str| {
            let error = from_state(&Value::Map(entries)).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
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
            named(others.cloned().collect(), name);
        }
        for (name, wrong) in [
            ("all_minions", Value::Array(vec!["../m".into()])),
            ("jid", "../../x".into()),
            ("timeout", Value::Float(f64::INFINITY)),
            ("batch_wait", Value::Int(-1)),
        ] {
            let wrong = (name.into(), wrong);
            named(entries.iter().cloned().chain([wrong]).collect(), name);
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

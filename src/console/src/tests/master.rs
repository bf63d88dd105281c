//! A master that answers by a table, and keeps what it was asked.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use saltern_base::blocking::BlockingError;
use saltern_client::EventSource as JobEvents;
use saltern_netapi::stream::{
    BusEvent, CloseReason, EarlierEvents, EventBatch, EventSource, EventStream, Position,
    StreamItem, TagRules,
};
use saltern_netapi::{LogInError, UncheckedToken, v1};
use saltern_store::StoreError;
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_wire, encode, pack};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::{Backend, LogIn, NewToken};

pub(super) const JID: &str = "20260102030405060708";

/// The group of all failed minions.
pub(super) const GROUP: &str = "failed-00ff";

const MICROS: i64 = 1_795_244_782_637_714;

pub(super) fn list(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| (*text).into()).collect())
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::map(entries)
}

/// An id with this text in it, as far as an id can have it.
fn id(text: &str) -> Value {
    let is_of_id = |letter: &char| !letter.is_whitespace() && !"/\\\0".contains(*letter);
    let text: String = text.chars().filter(is_of_id).collect();
    match saltern_model::MinionId::parse(&text) {
        Ok(id) if text != "x" && text != "secret-value" => id.as_str().into(),
        _ => "m1".into(),
    }
}

#[derive(Default)]
struct State {
    answers: HashMap<String, Value>,
    /// Answers that are given once each, before the one above.
    in_turn: HashMap<String, VecDeque<Value>>,
    asked: Vec<Value>,
    allowed: Option<Vec<String>>,
}

pub(super) struct Table {
    state: Mutex<State>,
    is_empty: bool,
    events: Arc<Kept>,
    pub(super) revoked: Mutex<Vec<String>>,
    /// The system starts no thread, so no token can be looked at.
    pub(super) no_threads: AtomicBool,
    /// Its disk takes nothing.
    pub(super) is_full: AtomicBool,
    /// The database of its cluster is away.
    pub(super) is_unshared: AtomicBool,
    /// Looks at tokens hang.
    pub(super) hangs: AtomicBool,
    /// Ends the streams of a token.
    pub(super) ended: CancellationToken,
}

impl Table {
    fn new(answers: Vec<(&str, Value)>, is_empty: bool, events: Vec<BusEvent>) -> Arc<Self> {
        let answers = answers
            .into_iter()
            .map(|(fun, answer)| (fun.to_owned(), answer));
        let state = State {
            answers: answers.collect(),
            ..State::default()
        };
        Arc::new(Self {
            state: Mutex::new(state),
            is_empty,
            events: Arc::new(Kept::new(events)),
            revoked: Mutex::default(),
            no_threads: AtomicBool::default(),
            is_full: AtomicBool::default(),
            is_unshared: AtomicBool::default(),
            hangs: AtomicBool::default(),
            ended: CancellationToken::new(),
        })
    }

    /// A master without minions, jobs and keys.
    pub(super) fn empty() -> Arc<Self> {
        let page = |name: &str| map([(name, Value::Array(Vec::new())), ("next", Value::Nil)]);
        let minions = map([
            ("minions", Value::Array(Vec::new())),
            ("total", 0_i64.into()),
            ("next", Value::Nil),
        ]);
        let answers = vec![
            ("jobs.page", page("jobs")),
            ("jobs.returns", page("returns")),
            ("minions.page", minions),
            ("minions.grains", Value::Nil),
            ("minions.pillar", Value::Nil),
            ("minions.mine", Value::Nil),
            (
                "minions.history",
                map([("events", Value::Array(Vec::new())), ("since", Value::Nil)]),
            ),
            ("minions.last_jobs", Value::Array(Vec::new())),
            ("keys.page", page("keys")),
            ("batches.page", Value::Array(Vec::new())),
            ("audit.page", page("rows")),
            ("audit.state", audit_state(None)),
            ("highstates.groups", highstate_groups(Vec::new(), 0)),
            ("highstates.page", highstates(Vec::new())),
            ("calls.running", Value::Array(Vec::new())),
            ("functions.doc", Value::Nil),
            ("functions.names", Value::Array(Vec::new())),
            (
                "reactor.letters",
                map([
                    ("letters", Value::Array(Vec::new())),
                    ("total", 0_i64.into()),
                    ("next", Value::Nil),
                ]),
            ),
            ("reactor.report", Value::Nil),
            (
                "schedule.report",
                map([("jobs", Value::Array(Vec::new())), ("zone", "UTC".into())]),
            ),
            ("saltern.health", health("")),
            ("saltern.version", version("")),
        ];
        Self::new(answers, true, Vec::new())
    }

    /// A master with one of everything, and this text wherever others choose it.
    pub(super) fn full(text: &str) -> Arc<Self> {
        let any = || Value::from(text);
        let seen = map([
            ("id", id(text)),
            ("is_present", true.into()),
            ("last_heard", MICROS.into()),
            ("address", "192.0.2.1".into()),
            ("standing", any()),
        ]);
        let row = map([("minion", seen), ("grains", Value::Array(vec![any()]))]);
        let minions = map([
            ("minions", Value::Array(vec![row])),
            ("total", 1_i64.into()),
            ("next", any()),
        ]);
        let key = map([
            ("minion", id(text)),
            ("state", "pending".into()),
            ("fingerprint", "aa:bb".into()),
            ("written", MICROS.into()),
            ("last_heard", Value::Nil),
            ("is_present", Value::Nil),
            ("address", any()),
        ]);
        let data = map([("secret-key", any()), (text, any())]);
        let batch = map([
            ("jid", JID.into()),
            ("total", 2_i64.into()),
            ("completed", 1_i64.into()),
            ("active", 1_i64.into()),
            ("pending", 0_i64.into()),
            ("failed", 1_i64.into()),
            ("halted", true.into()),
            ("halted_reason", any()),
            ("user", any()),
            ("fun", any()),
            ("tgt", any()),
            ("tgt_type", any()),
        ]);
        let changed = map([(
            "data",
            map([("success", true.into()), ("return", Value::Map(Vec::new()))]),
        )]);
        let answers = vec![
            (
                "jobs.page",
                map([("jobs", Value::Array(vec![job(text)])), ("next", any())]),
            ),
            ("jobs.explain", report(text)),
            ("jobs.request", request(text)),
            ("jobs.returns", returns(text)),
            ("minions.page", minions),
            ("minions.grains", data.clone()),
            ("minions.pillar", data),
            (
                "keys.page",
                map([("keys", Value::Array(vec![key])), ("next", any())]),
            ),
            ("batches.page", Value::Array(vec![batch])),
            ("batches.pause", true.into()),
            ("batches.resume", true.into()),
            (
                "audit.page",
                map([
                    ("rows", Value::Array(vec![audit_row(text)])),
                    ("next", "7".into()),
                ]),
            ),
            ("audit.state", audit_state(Some(text))),
            ("audit.verify", audit_check(text)),
            (
                "highstates.groups",
                highstate_groups(vec![highstate_group(text)], 3),
            ),
            ("highstates.page", highstates(vec![highstate(text)])),
            ("minions.mine", map([("secret-mine", any()), (text, any())])),
            ("minions.history", history(text)),
            ("minions.last_jobs", Value::Array(vec![last_job(text)])),
            ("batches.stop", true.into()),
            ("calls.running", Value::Array(vec![call(text)])),
            ("functions.doc", any()),
            ("functions.names", list(&["test.echo", text])),
            ("reactor.letters", letters(text)),
            ("reactor.replay", true.into()),
            ("reactor.report", reactor(text)),
            ("schedule.report", schedule(text)),
            ("saltern.health", health(text)),
            ("saltern.version", version(text)),
            ("key.accept", changed.clone()),
            ("key.delete", changed),
        ];
        let event = |number: i64, tag: String| BusEvent {
            number,
            tag,
            data: encode(
                &map([("_stamp", "2026-01-02T03:04:05.06".into()), ("x", any())]),
                Dialect::Bin,
            )
            .into(),
        };
        let events = vec![
            event(1, "salt/auth".to_owned()),
            event(2, text.to_owned()),
            event(3, format!("salt/job/{JID}/ret/m1")),
        ];
        Self::new(answers, false, events)
    }

    /// Keeps so many events, of which every tenth has a tag `rare/…`, or none of all that there were.
    pub(super) fn keep_events(&self, kept: i64, newest: i64) {
        let event = |number: i64| BusEvent {
            number,
            tag: match number % 10 {
                0 => format!("rare/{number}"),
                _ => format!("often/{number}"),
            },
            data: Bytes::from_static(b"\x80"),
        };
        *self.events.events.lock() = (newest - kept + 1..=newest).map(event).collect();
        self.events.newest.store(newest, Ordering::SeqCst);
        self.events.read.store(0, Ordering::SeqCst);
    }

    /// How many events were read backwards.
    pub(super) fn events_read(&self) -> usize {
        self.events.read.load(Ordering::SeqCst)
    }

    /// The id of its minion.
    pub(super) fn minion(&self) -> String {
        let state = self.state.lock();
        let page = state.answers.get("minions.page");
        let rows = page
            .and_then(|page| page.get("minions"))
            .and_then(Value::as_array);
        let id = rows.and_then(|rows| rows.first()?.get("minion")?.get("id"));
        id.and_then(Value::as_str).unwrap().to_owned()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Only these functions may be called, as far as the master says.
    pub(super) fn allow(&self, functions: &[&str]) {
        let functions = functions.iter().map(|function| (*function).to_owned());
        self.state.lock().allowed = Some(functions.collect());
    }

    /// Of each job so many minions have returned with a failure, and as many are missing.
    pub(super) fn grow(&self, count: usize) {
        let mut report = report("x");
        let named = |text: &str, row: &Value, number: usize| {
            let mut row = row.as_map().unwrap().to_vec();
            row.retain(|(name, _)| name.as_str() != Some("minion"));
            row.push(("minion".into(), format!("{text}-{number:05}").into()));
            Value::Map(row)
        };
        let Value::Map(entries) = &mut report else {
            unreachable!("a report is a map")
        };
        for (name, value) in entries {
            let Some(row) = value.as_array().and_then(|rows| rows.first()).cloned() else {
                continue;
            };
            let text = name.as_str().unwrap();
            *value = Value::Array((0..count).map(|number| named(text, &row, number)).collect());
        }
        let mut state = self.state.lock();
        state.answers.insert("jobs.explain".to_owned(), report);
    }

    /// Further answers of a function get these texts, or nothing, at a name beside the list of the first.
    pub(super) fn answer_in_turn(&self, fun: &str, pages: &[(&str, &str, Option<&str>)]) {
        let mut state = self.state.lock();
        let list = state.answers.get(fun).cloned().unwrap();
        let pages = pages.iter().map(|(rows, name, text)| {
            let cursor = text.map_or(Value::Nil, Value::from);
            Value::map([(*rows, list.get(rows).cloned().unwrap()), (*name, cursor)])
        });
        let pages = pages.collect();
        state.in_turn.insert(fun.to_owned(), pages);
    }

    pub(super) fn refuse(&self, fun: &str) {
        let error = map([
            ("name", "AuthorizationError".into()),
            ("message", "no".into()),
        ]);
        self.state
            .lock()
            .answers
            .insert(fun.to_owned(), map([("error", error)]));
    }

    pub(super) fn refuse_argument(&self, fun: &str, argument: &str, message: &str) {
        let error = map([
            ("name", "SaltInvocationError".into()),
            ("message", message.into()),
            ("argument", argument.into()),
        ]);
        self.state
            .lock()
            .answers
            .insert(fun.to_owned(), map([("error", error)]));
    }

    /// The loads of a function.
    pub(super) fn asked_of(&self, fun: &str) -> Vec<Value> {
        let state = self.state.lock();
        let asked = state.asked.iter();
        let of_fun = |load: &&Value| load.get("fun").and_then(Value::as_str) == Some(fun);
        asked.filter(of_fun).cloned().collect()
    }

    /// Loads that are no queries.
    pub(super) fn changes(&self) -> usize {
        let state = self.state.lock();
        let is_change =
            |load: &&Value| load.get("cmd").and_then(Value::as_str) != Some("saltern_query");
        state.asked.iter().filter(is_change).count()
    }

    fn answer(&self, load: &Value) -> Value {
        let text = |name: &str| load.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut state = self.state.lock();
        state.asked.push(load.clone());
        let answer = match (text("cmd"), text("fun")) {
            ("runner", _) => {
                return map([
                    ("jid", JID.into()),
                    ("tag", format!("salt/run/{JID}").into()),
                ]);
            }
            ("publish" | "saltern_batch", _) => {
                return map([(
                    "load",
                    map([("jid", JID.into()), ("minions", list(&["m1"]))]),
                )]);
            }
            (_, "access.check") => {
                let functions = load.get("kwarg").and_then(|kwarg| kwarg.get("functions"));
                let functions = functions.and_then(Value::as_array).unwrap().iter();
                let is_allowed = |function: &Value| {
                    let allowed = state.allowed.as_ref();
                    // A job is named by its function.
                    let of_job = || function.get("fun").and_then(Value::as_str);
                    let function = function.as_str().or_else(of_job).unwrap();
                    allowed
                        .is_none_or(|allowed| allowed.iter().any(|one| one == function))
                        .into()
                };
                Value::Array(functions.map(is_allowed).collect())
            }
            (_, fun) if state.in_turn.get(fun).is_some_and(|turn| !turn.is_empty()) => {
                let turn = state.in_turn.get_mut(fun).unwrap();
                turn.pop_front().unwrap()
            }
            (_, fun) => match state.answers.get(fun) {
                Some(answer) if answer.get("error").is_some() || answer.get("data").is_some() => {
                    return answer.clone();
                }
                Some(answer) => answer.clone(),
                None => {
                    let error = map([
                        ("name", "NotFoundError".into()),
                        ("message", "nothing".into()),
                    ]);
                    return map([("error", error)]);
                }
            },
        };
        map([("return", answer)])
    }
}

fn job(text: &str) -> Value {
    map([
        ("jid", JID.into()),
        ("created", MICROS.into()),
        ("finished", Value::Nil),
        ("user", text.into()),
        ("function", text.into()),
        ("target", text.into()),
        ("target_type", text.into()),
        ("state", "complete".into()),
        ("expected", 2_i64.into()),
        ("returned", 1_i64.into()),
        ("failed", 1_i64.into()),
    ])
}

fn report(text: &str) -> Value {
    let missing = map([
        ("minion", "m2".into()),
        ("state", text.into()),
        ("why", format!("no connection {text}").into()),
    ]);
    let returned = map([
        ("minion", id(text)),
        ("received", MICROS.into()),
        ("retcode", 1_i64.into()),
    ]);
    map([
        ("created", MICROS.into()),
        ("expected", 2_i64.into()),
        ("finished", Value::Nil),
        ("function", text.into()),
        ("is_master_running", true.into()),
        ("jid", JID.into()),
        ("missing", Value::Array(vec![missing])),
        ("published", Value::Nil),
        ("publisher", Value::Nil),
        ("returned", Value::Array(vec![returned])),
        ("state", "open".into()),
        ("target", text.into()),
        ("target_type", "glob".into()),
        ("user", text.into()),
    ])
}

fn request(text: &str) -> Value {
    let named = map([("__kwarg__", true.into()), ("a", text.into())]);
    map([
        ("jid", JID.into()),
        ("function", text.into()),
        ("arguments", Value::Array(vec![text.into(), named])),
        ("target", text.into()),
        ("target_type", "glob".into()),
        ("user", text.into()),
        ("reporter", Value::Nil),
        (
            "asked",
            map([
                ("door", "console".into()),
                ("origin", text.into()),
                ("backend", text.into()),
            ]),
        ),
    ])
}

/// The jid of an orchestration that runs.
pub(super) const RUNNING: &str = "20260102030405060709";

/// An orchestration that runs, with this text in every field.
fn call(text: &str) -> Value {
    let step = |kind: &str, result: Value| {
        map([
            ("at", MICROS.into()),
            ("kind", kind.into()),
            ("name", text.into()),
            ("id", text.into()),
            ("target", text.into()),
            ("result", result),
            ("comment", text.into()),
        ])
    };
    let steps = vec![
        step("state", Value::Nil),
        step("result", false.into()),
        step(text, Value::Nil),
    ];
    map([
        ("jid", RUNNING.into()),
        ("function", format!("runner.state.{text}").into()),
        ("user", text.into()),
        ("arguments", list(&[text])),
        ("began", MICROS.into()),
        ("steps", Value::Array(steps)),
        ("left_out", 1_i64.into()),
    ])
}

fn reaction(text: &str) -> Value {
    map([
        ("at", MICROS.into()),
        ("tag", text.into()),
        ("sls", text.into()),
        ("id", text.into()),
        ("kind", text.into()),
        ("function", text.into()),
        ("outcome", text.into()),
        ("reason", text.into()),
        ("jid", JID.into()),
    ])
}

fn reactor(text: &str) -> Value {
    let rule = map([
        ("tags", text.into()),
        ("references", list(&[text, "/srv/reactor/other.sls"])),
        ("events", 3_i64.into()),
        ("last", MICROS.into()),
    ]);
    let file = map([
        ("sls", text.into()),
        ("done", 2_i64.into()),
        ("failed", 1_i64.into()),
        ("last", MICROS.into()),
    ]);
    map([
        ("is_leader", false.into()),
        ("rules", Value::Array(vec![rule])),
        ("files", Value::Array(vec![file])),
        ("latest", Value::Array(vec![reaction(text)])),
        ("waiting", 4_i64.into()),
        ("dropped", 5_i64.into()),
    ])
}

/// The name of the dead letter.
pub(super) const LETTER: &str = "00000000000000000042";

fn letters(text: &str) -> Value {
    let letter = map([("name", LETTER.into()), ("reaction", reaction(text))]);
    map([
        ("letters", Value::Array(vec![letter])),
        ("total", 1_i64.into()),
        ("next", text.into()),
    ])
}

fn schedule(text: &str) -> Value {
    let run = |outcome: &str| {
        map([
            ("jid", JID.into()),
            ("function", text.into()),
            ("began", MICROS.into()),
            ("ended", (MICROS + 1_000).into()),
            ("outcome", outcome.into()),
            ("reason", text.into()),
            ("is_kept", true.into()),
        ])
    };
    let job = map([
        ("name", text.into()),
        ("function", text.into()),
        ("timing", text.into()),
        ("at_start", true.into()),
        ("next", (MICROS + 90_000_000).into()),
        ("skip", text.into()),
        ("begun", 2_i64.into()),
        ("failed", 1_i64.into()),
        ("skipped", 1_i64.into()),
        ("last_skip", text.into()),
        ("runs", Value::Array(vec![run("failed"), run("done")])),
    ]);
    map([("jobs", Value::Array(vec![job])), ("zone", text.into())])
}

/// A state run with this text in every field.
fn returns(text: &str) -> Value {
    let run = map([
        ("result", false.into()),
        ("comment", text.into()),
        ("changes", map([("diff", format!("+{text}").into())])),
        ("duration", 1.5.into()),
        ("__run_num__", 0_i64.into()),
        ("__sls__", text.into()),
        ("__id__", text.into()),
        ("name", format!("{text} ").into()),
    ]);
    let key = format!("file_|-{text}_|-{text}_|-managed");
    let row = map([
        ("minion", id(text)),
        ("received", MICROS.into()),
        ("function", text.into()),
        ("retcode", 1_i64.into()),
        ("success", false.into()),
        ("value", Value::map([(key.as_str(), run)])),
    ]);
    map([("returns", Value::Array(vec![row])), ("next", Value::Nil)])
}

fn audit_row(text: &str) -> Value {
    map([
        ("number", 7_i64.into()),
        ("at", MICROS.into()),
        ("door", text.into()),
        ("user", text.into()),
        ("backend", text.into()),
        ("proof", "none".into()),
        ("origin", text.into()),
        ("command", text.into()),
        ("function", text.into()),
        ("target", text.into()),
        ("target_type", text.into()),
        ("arguments", text.into()),
        ("verdict", "refused".into()),
        ("reason", text.into()),
        ("jid", text.into()),
        ("suppressed", 3_i64.into()),
        ("head", "7:00ff".into()),
    ])
}

fn audit_check(text: &str) -> Value {
    map([
        ("at", MICROS.into()),
        ("by", text.into()),
        ("rows", 7_i64.into()),
        ("head", "7:00ff00ff00ff00ff".into()),
        ("fault", text.into()),
    ])
}

/// The chain after a check that found a fault.
fn audit_state(text: Option<&str>) -> Value {
    map([
        ("head", text.map_or(Value::Nil, |_| "9:00ff".into())),
        ("removed", 2_i64.into()),
        ("check", text.map_or(Value::Nil, audit_check)),
    ])
}

fn highstate_groups(groups: Vec<Value>, failed: i64) -> Value {
    let counts = map([
        ("in_line", 0_i64.into()),
        ("corrected", 0_i64.into()),
        ("drifted", 0_i64.into()),
        ("failed", failed.into()),
        ("unknown", 1_i64.into()),
    ]);
    map([
        ("counts", counts),
        ("groups", Value::Array(groups)),
        ("more", 0_i64.into()),
        ("behind", failed.into()),
    ])
}

fn highstate_group(text: &str) -> Value {
    map([
        ("group", GROUP.into()),
        ("verdict", "failed".into()),
        ("states", Value::Array(vec![text.into(); 5])),
        ("more", 2_i64.into()),
        ("total", 3_i64.into()),
        ("minions", Value::Array(vec![id(text)])),
        ("oldest", MICROS.into()),
        ("newest", MICROS.into()),
    ])
}

fn highstates(rows: Vec<Value>) -> Value {
    map([
        ("total", (rows.len() as i64).into()),
        ("rows", Value::Array(rows)),
        ("next", Value::Nil),
    ])
}

fn highstate(text: &str) -> Value {
    let run = map([
        ("jid", JID.into()),
        ("received", MICROS.into()),
        ("is_test", true.into()),
        ("group", GROUP.into()),
        ("succeeded", 1_i64.into()),
        ("changed", 1_i64.into()),
        ("would_change", 1_i64.into()),
        ("failed", 1_i64.into()),
        ("states", list(&[text, "b"])),
        ("more", 1_i64.into()),
        ("files", list(&[text])),
    ]);
    map([
        ("minion", id(text)),
        ("verdict", "failed".into()),
        ("run", run),
    ])
}

fn history(text: &str) -> Value {
    let event = |kind: &str| {
        map([
            ("at", MICROS.into()),
            ("kind", kind.into()),
            ("detail", text.into()),
            ("position", 1_i64.into()),
        ])
    };
    let kinds = [
        "connected",
        "lost",
        "started",
        "authenticated",
        "refused",
        "key",
    ];
    map([
        ("events", Value::Array(kinds.map(event).to_vec())),
        ("since", MICROS.into()),
    ])
}

fn last_job(text: &str) -> Value {
    map([
        ("minion", id(text)),
        ("jid", JID.into()),
        ("function", text.into()),
        ("received", MICROS.into()),
        ("retcode", 1_i64.into()),
    ])
}

fn health(text: &str) -> Value {
    let check = map([
        ("name", text.into()),
        ("passed", false.into()),
        ("reason", text.into()),
    ]);
    let finding = |severity: &str| {
        map([
            ("subject", text.into()),
            ("severity", severity.into()),
            ("finding", format!("{severity} {text}").into()),
            ("advice", text.into()),
        ])
    };
    let lag = map([
        ("name", text.into()),
        ("rows", 1_234_i64.into()),
        ("seconds", 90_i64.into()),
    ]);
    let (findings, lags) = match text {
        "" => (Vec::new(), Vec::new()),
        _ => (vec![finding("note"), finding("error")], vec![lag]),
    };
    map([
        ("is_ready", true.into()),
        ("checks", Value::Array(vec![check])),
        ("findings", Value::Array(findings)),
        ("diagnosed", 1_i64.into()),
        ("lags", Value::Array(lags)),
    ])
}

fn version(text: &str) -> Value {
    map([("saltern", text.into()), ("salt", text.into())])
}

impl v1::Backend for Table {
    fn ask(&self, request: Bytes, _: &str, _: SocketAddr) -> BoxFuture<'static, Option<Bytes>> {
        let envelope = decode_wire(&request, &Limits::WIRE).unwrap();
        let answer = self.answer(envelope.get("load").unwrap());
        let answer = Bytes::from(pack(&answer, Dialect::Raw));
        Box::pin(std::future::ready(Some(answer)))
    }

    fn session_token(&self, _: &str) -> Option<Zeroizing<String>> {
        None
    }

    fn listen(&self) -> Box<dyn JobEvents> {
        unreachable!("the console listens to the feed")
    }

    fn ended(&self, _: Zeroizing<String>) -> BoxFuture<'static, ()> {
        Box::pin(self.ended.clone().cancelled_owned())
    }
}

/// A server before the table.
pub(super) struct Before(pub(super) Arc<Table>);

impl Backend for Before {
    fn gate(&self) -> Arc<dyn v1::Backend> {
        self.0.clone()
    }

    fn admits(&self, _: SocketAddr) -> bool {
        true
    }

    fn eauths(&self) -> Vec<String> {
        vec!["file".to_owned(), "pam".to_owned()]
    }

    fn log_in(
        &self,
        log_in: LogIn,
        _: SocketAddr,
    ) -> BoxFuture<'_, Result<Option<NewToken>, LogInError>> {
        let is_known = log_in.user == "ann" && *log_in.password == "pw" && log_in.eauth == "file";
        let token = is_known.then(|| NewToken {
            token: "t0ken".to_owned().into(),
            expire: 2e9,
        });
        Box::pin(std::future::ready(Ok(token)))
    }

    fn user_of<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, UncheckedToken>> {
        if self.0.hangs.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        let user = (token == "t0ken").then(|| "ann".to_owned());
        let is_known = !self.0.no_threads.load(Ordering::SeqCst);
        let user = is_known.then_some(user).ok_or(BlockingError::Ended.into());
        Box::pin(std::future::ready(user))
    }

    fn revoke(&self, token: &str) -> Result<(), StoreError> {
        if self.0.is_unshared.load(Ordering::SeqCst) {
            let path = "postgresql://db/salt".into();
            return Err(StoreError::NotShared { path });
        }
        if self.0.is_full.load(Ordering::SeqCst) {
            return Err(StoreError::io("remove", "token", io::ErrorKind::Other));
        }
        self.0.revoked.lock().push(token.to_owned());
        Ok(())
    }

    fn events(&self) -> Option<Arc<dyn EventSource>> {
        Some(self.0.events.clone())
    }

    fn event_rules(&self, _: &str) -> Option<Arc<TagRules>> {
        None
    }
}

/// Events that are all there; a stream of them ends behind the last one, and gives nothing where it is
/// asked for a position of an event that is not kept.
struct Kept {
    events: Mutex<Vec<BusEvent>>,
    /// The newest position that was given, of an event that may not be kept any more.
    newest: AtomicI64,
    /// Events that were read backwards.
    read: AtomicUsize,
}

impl Kept {
    fn new(events: Vec<BusEvent>) -> Self {
        Self {
            newest: AtomicI64::new(events.last().map_or(0, |last| last.number)),
            events: Mutex::new(events),
            read: AtomicUsize::default(),
        }
    }
}

struct Stream(VecDeque<StreamItem>);

impl EventSource for Kept {
    fn subscribe(self: Arc<Self>, after: Option<Position>) -> Box<dyn EventStream> {
        let events = self.events.lock().clone();
        let start = after.map_or(events.len(), |after| usize::try_from(after.number).unwrap());
        let range = start.min(events.len())..events.len();
        let batch = Arc::new(EventBatch::new(7, events));
        let mut items = VecDeque::new();
        if !range.is_empty() {
            items.push_back(StreamItem::Events { batch, range });
        }
        items.push_back(StreamItem::Closed(CloseReason::Stopping));
        Box::new(Stream(items))
    }

    fn newest(&self) -> Option<Position> {
        let number = self.newest.load(Ordering::SeqCst);
        (number > 0).then_some(Position { history: 7, number })
    }

    fn backwards(
        &self,
        through: i64,
        count: usize,
    ) -> BoxFuture<'_, Result<EarlierEvents, CloseReason>> {
        let events = self.events.lock();
        let older = events.iter().rev().filter(|event| event.number <= through);
        let events: Vec<BusEvent> = older.take(count).cloned().collect();
        self.read.fetch_add(events.len(), Ordering::SeqCst);
        let rest = match events.last() {
            Some(last) if events.len() == count => last.number - 1,
            _ => 0,
        };
        Box::pin(std::future::ready(Ok(EarlierEvents { events, rest })))
    }
}

impl EventStream for Stream {
    fn next(&mut self) -> BoxFuture<'_, StreamItem> {
        let next = self.0.pop_front();
        let next = next.unwrap_or(StreamItem::Closed(CloseReason::Stopping));
        Box::pin(std::future::ready(next))
    }
}

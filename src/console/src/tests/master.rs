//! A master that answers by a table, and keeps what it was asked.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use saltern_client::EventSource as JobEvents;
use saltern_netapi::stream::{
    BusEvent, CloseReason, EventBatch, EventSource, EventStream, Position, StreamItem, TagRules,
};
use saltern_netapi::{LogInError, v1};
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_wire, encode, pack};
use zeroize::Zeroizing;

use crate::{Backend, LogIn, NewToken};

pub(super) const JID: &str = "20260102030405060708";

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
    asked: Vec<Value>,
    allowed: Option<Vec<String>>,
}

pub(super) struct Table {
    state: Mutex<State>,
    is_empty: bool,
    events: Arc<Kept>,
    pub(super) revoked: Mutex<Vec<String>>,
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
            events: Arc::new(Kept(events)),
            revoked: Mutex::default(),
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
            ("keys.page", page("keys")),
            ("batches.page", Value::Array(Vec::new())),
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
            ("batches.stop", true.into()),
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
            ("publish", _) => {
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
                    let function = function.as_str().unwrap();
                    allowed
                        .is_none_or(|allowed| allowed.iter().any(|one| one == function))
                        .into()
                };
                Value::Array(functions.map(is_allowed).collect())
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
    ])
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

fn health(text: &str) -> Value {
    let check = map([
        ("name", text.into()),
        ("passed", false.into()),
        ("reason", text.into()),
    ]);
    map([
        ("is_ready", true.into()),
        ("checks", Value::Array(vec![check])),
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
        Box::pin(std::future::pending())
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

    fn user_of<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Option<String>> {
        let user = (token == "t0ken").then(|| "ann".to_owned());
        Box::pin(std::future::ready(user))
    }

    fn revoke(&self, token: &str) {
        self.0.revoked.lock().push(token.to_owned());
    }

    fn events(&self) -> Option<Arc<dyn EventSource>> {
        Some(self.0.events.clone())
    }

    fn event_rules(&self, _: &str) -> Option<Arc<TagRules>> {
        None
    }
}

/// Events that are all there; a stream of them ends behind the last one.
struct Kept(Vec<BusEvent>);

struct Stream(VecDeque<StreamItem>);

impl EventSource for Kept {
    fn subscribe(self: Arc<Self>, after: Option<Position>) -> Box<dyn EventStream> {
        let start = after.map_or(self.0.len(), |after| usize::try_from(after.number).unwrap());
        let range = start.min(self.0.len())..self.0.len();
        let batch = Arc::new(EventBatch::new(7, self.0.clone()));
        let mut items = VecDeque::new();
        if !range.is_empty() {
            items.push_back(StreamItem::Events { batch, range });
        }
        items.push_back(StreamItem::Closed(CloseReason::Stopping));
        Box::new(Stream(items))
    }

    fn newest(&self) -> Option<Position> {
        let last = self.0.last()?;
        Some(Position {
            history: 7,
            number: last.number,
        })
    }
}

impl EventStream for Stream {
    fn next(&mut self) -> BoxFuture<'_, StreamItem> {
        let next = self.0.pop_front();
        let next = next.unwrap_or(StreamItem::Closed(CloseReason::Stopping));
        Box::pin(std::future::ready(next))
    }
}

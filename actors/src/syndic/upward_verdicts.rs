//! Verdicts on silent minions for one master above of ours: why a minion below has not returned a job of that
//! master (`saltern explain` above). They are read from the events of the job tracker; a publication from above
//! that was not published here is one on all minions.
//!
//! Evidence for people, so in memory and bounded: what finds no room is dropped and counted. When a job ends
//! without returns, all that are missing go up once more, so little is lost with a master that was killed
//! before. Never for a master of stock, or one that does not agree.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::metrics::IntCounter;
use saltern_model::{Event, Jid};
use saltern_requests::{COST_OF_ALL, MAX_VERDICT_TEXT};
use saltern_wire::msgpack::{Limits, MapView, Value, decode};
use tokio::sync::Notify;

use crate::events::bus::Tap;

/// Events that wait, and about how many bytes they have.
const MAX_WAITING: usize = 1_000;
const MAX_WAITING_BYTES: usize = 8 << 20;

/// Events that are read at a time.
const MAX_TOGETHER: usize = 50;

/// Most verdicts of one request, and most minions over all of them.
const MAX_VERDICTS: usize = 500;
const MAX_MINIONS: usize = 5_000;

/// Verdicts that wait for one master above.
pub(crate) struct UpwardVerdicts {
    /// The master above takes them, as far as is known.
    is_wanted: AtomicBool,
    queue: Mutex<Queue>,
    /// Notified when one comes, and by connections.
    pub(crate) ready: Notify,
    dropped: IntCounter,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

/// Source of verdicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Minions of a job were given up, or are back.
    Judged(Jid, Bytes),
    /// A syndic below has said why some are silent.
    Relayed(Jid, Bytes),
    /// The job ended with these minions missing.
    Ended(Jid, Bytes),
    /// A job from above was not published here, for this reason.
    NotPublished(Jid, String),
}

impl Waiting {
    /// The job.
    pub(crate) fn jid(&self) -> &Jid {
        match self {
            Self::Judged(jid, _) | Self::Relayed(jid, _) | Self::Ended(jid, _) => jid,
            Self::NotPublished(jid, _) => jid,
        }
    }

    /// Verdicts in an event of the job tracker. Where all have returned nothing is to be said.
    fn of(event: &Event) -> Option<Self> {
        let (jid, what) = event
            .tag
            .as_str()
            .strip_prefix("saltern/job/")?
            .split_once('/')?;
        let kind = match what {
            "verdict" => Self::Judged,
            "below" => Self::Relayed,
            "finished" => {
                let data = MapView::parse(event.data.bytes().clone(), &Limits::WIRE);
                data.ok()
                    .filter(|data| data.str("state") != Some("complete"))?;
                Self::Ended
            }
            _ => return None,
        };
        Some(kind(Jid::parse(jid).ok()?, event.data.bytes().clone()))
    }

    fn size(&self) -> usize {
        match self {
            Self::Judged(_, data) | Self::Relayed(_, data) | Self::Ended(_, data) => data.len(),
            Self::NotPublished(_, reason) => reason.len(),
        }
    }

    /// Verdicts on minions, those with the same text together.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let (jid, read): (_, fn(&Value) -> Groups) = match self {
            Self::NotPublished(jid, reason) => {
                return vec![Verdict {
                    jid: jid.clone(),
                    depth: 0,
                    text: Some(cut(&format!("the job was not published: {reason}"))),
                    minions: None,
                }];
            }
            Self::Judged(jid, _) => (jid, judged),
            Self::Relayed(jid, _) => (jid, relayed),
            Self::Ended(jid, _) => (jid, ended),
        };
        let (Self::Judged(_, data) | Self::Relayed(_, data) | Self::Ended(_, data)) = self else {
            return Vec::new();
        };
        let data = decode(data, &Limits::WIRE).unwrap_or(Value::Nil);
        let groups = read(&data).into_iter();
        let verdicts = groups.flat_map(|((depth, text), minions)| {
            let parts = minions.chunks(MAX_MINIONS);
            let parts = parts.map(|minions| Verdict {
                jid: jid.clone(),
                depth,
                text: text.clone(),
                minions: Some(minions.to_vec()),
            });
            parts.collect::<Vec<_>>()
        });
        verdicts.collect()
    }
}

/// Minions by the number of syndics that the verdict came through and its text.
type Groups = BTreeMap<(i64, Option<String>), Vec<String>>;

/// One verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    jid: Jid,
    /// Number of syndics that it came through.
    depth: i64,
    /// `None`: an earlier one does not hold any more.
    text: Option<String>,
    /// `None`: all minions below.
    minions: Option<Vec<String>>,
}

impl Verdict {
    fn value(&self) -> Value {
        let names = |names: &Vec<String>| {
            let names = names.iter().map(|name| Value::from(name.as_str()));
            Value::Array(names.collect())
        };
        Value::Array(vec![
            self.jid.as_str().into(),
            Value::Int(self.depth),
            self.text.as_deref().map_or(Value::Nil, Value::from),
            self.minions.as_ref().map_or(Value::Nil, names),
        ])
    }
}

/// The requests with these verdicts, in their order, each with how many it has.
pub(crate) fn requests(verdicts: &[Verdict]) -> Vec<(u64, [(&'static str, Value); 2])> {
    let (mut requests, mut together, mut minions) = (Vec::new(), Vec::new(), 0);
    let mut flush = |together: &mut Vec<Value>| {
        let together = std::mem::take(together);
        if !together.is_empty() {
            let fields = [
                ("cmd", Value::from("saltern_syndic_verdicts")),
                ("verdicts", Value::Array(together.clone())),
            ];
            requests.push((together.len() as u64, fields));
        }
    };
    for verdict in verdicts {
        let more = verdict.minions.as_ref().map_or(COST_OF_ALL, Vec::len);
        if together.len() >= MAX_VERDICTS || minions + more > MAX_MINIONS {
            flush(&mut together);
            minions = 0;
        }
        minions += more;
        together.push(verdict.value());
    }
    flush(&mut together);
    requests
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_VERDICT_TEXT);
    text.get(..end).unwrap_or_default().to_owned()
}

fn text_of<'a>(data: &'a Value, name: &str) -> &'a str {
    data.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// State and reason of a minion, as `saltern explain` has them.
fn said(state: &str, reason: &str) -> String {
    match reason {
        "" => state.to_owned(),
        reason => cut(&format!("{state}: {reason}")),
    }
}

/// Of an event `verdict`. A late return goes up by itself.
fn judged(data: &Value) -> Groups {
    let mut groups = Groups::new();
    let minions = data.get("minions").and_then(Value::as_map);
    for (minion, change) in minions.unwrap_or_default() {
        let text = match text_of(change, "verdict") {
            "late" => continue,
            "back" => None,
            _ => Some(said(text_of(change, "is"), text_of(change, "reason"))),
        };
        let minion = minion.as_str().unwrap_or_default().to_owned();
        groups.entry((0, text)).or_default().push(minion);
    }
    groups
}

/// Of an event `below`.
fn relayed(data: &Value) -> Groups {
    let mut groups = Groups::new();
    let said = data.get("said").and_then(Value::as_array);
    for said in said.unwrap_or_default() {
        let minions = said.get("minions").and_then(Value::as_array);
        let minions = minions.unwrap_or_default().iter();
        let minions = minions.filter_map(|minion| minion.as_str().map(str::to_owned));
        let text = said.get("says").and_then(Value::as_str).map(cut);
        let depth = said.get("depth").and_then(Value::as_i64).unwrap_or(1);
        groups.entry((depth, text)).or_default().extend(minions);
    }
    groups
}

/// Of an event `finished`.
fn ended(data: &Value) -> Groups {
    let mut groups = Groups::new();
    for (group, state) in [
        ("unreachable", "unreachable"),
        ("unknown", "unknown"),
        ("awaited", "not waited for any more"),
    ] {
        let minions = data.get(group).and_then(Value::as_map);
        for (minion, reason) in minions.unwrap_or_default() {
            let text = said(state, reason.as_str().unwrap_or_default());
            let minion = minion.as_str().unwrap_or_default().to_owned();
            groups.entry((0, Some(text))).or_default().push(minion);
        }
    }
    groups
}

impl UpwardVerdicts {
    pub(crate) fn new(dropped: IntCounter) -> Self {
        Self {
            is_wanted: AtomicBool::new(true),
            queue: Mutex::default(),
            ready: Notify::new(),
            dropped,
        }
    }

    /// Takes over whether the master above takes verdicts.
    pub(crate) fn agree(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Relaxed);
        if !is_wanted {
            *self.queue.lock() = Queue::default();
        }
        self.ready.notify_one();
    }

    /// Puts one in the queue, where the master above takes them.
    pub(crate) fn push(&self, waiting: Waiting) {
        if !self.is_wanted.load(Relaxed) {
            return;
        }
        let mut queue = self.queue.lock();
        let size = waiting.size();
        if queue.waiting.len() >= MAX_WAITING || queue.bytes + size > MAX_WAITING_BYTES {
            self.dropped.inc();
            return;
        }
        queue.bytes += size;
        queue.waiting.push_back(waiting);
        drop(queue);
        self.ready.notify_one();
    }

    /// The next ones, which stay until they are [`Self::done`].
    pub(crate) fn next(&self) -> Vec<Waiting> {
        let queue = self.queue.lock();
        queue.waiting.iter().take(MAX_TOGETHER).cloned().collect()
    }

    /// Removes as many from the front as [`Self::next`] gave.
    pub(crate) fn done(&self, count: usize) {
        let mut queue = self.queue.lock();
        for _ in 0..count {
            if let Some(done) = queue.waiting.pop_front() {
                queue.bytes -= done.size();
            }
        }
    }
}

impl Tap for UpwardVerdicts {
    fn hear(&self, event: &Event) {
        if let Some(waiting) = Waiting::of(event) {
            self.push(waiting);
        }
    }
}

#[cfg(test)]
mod tests;

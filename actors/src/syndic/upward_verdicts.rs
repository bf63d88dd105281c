//! Verdicts on silent minions for one master above of ours: why a minion below has not returned a job of that
//! master (`saltern explain` above). They are read from the events of the job tracker; a publication from above
//! that was not published here is one on all minions.
//!
//! Evidence for people, so in memory and bounded: the oldest are dropped and counted. When a job ends
//! without returns, all that are missing go up once more, so little is lost with a master that was killed
//! before. Never for a master of stock, or one that does not agree.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use indexmap::IndexSet;
use parking_lot::Mutex;
use saltern_base::metrics::IntCounter;
use saltern_model::{Event, Jid};
use saltern_requests::{COST_OF_ALL, MAX_VERDICT_TEXT};
use saltern_wire::msgpack::{Limits, MapView, RawValue, Value};
use tokio::sync::Notify;

use crate::events::bus::Tap;

/// Events whose verdicts wait, and about how many bytes these take in memory.
const MAX_WAITING: usize = 1_000;
const MAX_WAITING_BYTES: usize = 8 << 20;

/// Allowance for what a text or the name of a minion takes beside its bytes.
const OVERHEAD: usize = 40;

/// Events whose verdicts are sent together.
const MAX_TOGETHER: usize = 50;

/// Most verdicts of one request, and most minions over all of them.
const MAX_VERDICTS: usize = 500;
const MAX_MINIONS: usize = 5_000;

/// Jobs that were not published here and are remembered, so that this is withdrawn if they are after all.
const MAX_NOT_PUBLISHED: usize = 1_000;

/// Attempts without an answer before fewer go up together, and of one alone before it is dropped.
const MAX_ATTEMPTS: u32 = 3;

/// Verdicts that wait for one master above.
pub(crate) struct UpwardVerdicts {
    /// The master above takes them, as far as is known. It changes under the lock of the queue alone.
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
    /// The number of the first one that waits; it grows with each that leaves.
    first: u64,
    not_published: IndexSet<Jid>,
}

impl Queue {
    fn drop_first(&mut self) -> Option<Waiting> {
        let dropped = self.waiting.pop_front()?;
        self.bytes -= dropped.size();
        self.first += 1;
        Some(dropped)
    }
}

/// Verdicts on one job, of the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) jid: Jid,
    /// The job came from that master above, or is to be looked up.
    pub(crate) is_from_above: bool,
    pub(crate) verdicts: Vec<Verdict>,
}

impl Waiting {
    /// Verdicts on all minions of a job from above: it was not published here for this reason, or was after all.
    fn of_all(jid: &Jid, text: Option<String>) -> Self {
        Self {
            jid: jid.clone(),
            is_from_above: true,
            verdicts: vec![Verdict {
                jid: jid.clone(),
                depth: 0,
                text,
                minions: None,
            }],
        }
    }

    /// Verdicts on minions in an event of the job tracker, those with the same text together; `None` where it has none.
    fn of(event: &Event) -> Option<Self> {
        let (jid, what) = event
            .tag
            .as_str()
            .strip_prefix("saltern/job/")?
            .split_once('/')?;
        let read: fn(&MapView) -> Groups = match what {
            "verdict" => judged,
            "below" => relayed,
            "finished" => ended,
            _ => return None,
        };
        let jid = Jid::parse(jid).ok()?;
        let data = MapView::parse(event.data.bytes().clone(), &Limits::WIRE).ok()?;
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
        let verdicts: Vec<Verdict> = verdicts.collect();
        (!verdicts.is_empty()).then_some(Self {
            jid,
            is_from_above: false,
            verdicts,
        })
    }

    fn size(&self) -> usize {
        self.verdicts.iter().map(Verdict::size).sum()
    }
}

/// How many of those that wait go up together: fewer after attempts without an answer.
#[derive(Debug)]
pub(crate) struct SendBatch {
    pub(crate) most: usize,
    attempts: u32,
}

impl Default for SendBatch {
    fn default() -> Self {
        Self {
            most: MAX_TOGETHER,
            attempts: 0,
        }
    }
}

impl SendBatch {
    /// Records an attempt without an answer; whether the one that was sent alone is to be dropped.
    pub(crate) fn fail(&mut self) -> bool {
        self.attempts += 1;
        if self.attempts < MAX_ATTEMPTS {
            return false;
        }
        self.attempts = 0;
        let is_alone = self.most == 1;
        self.most = if is_alone {
            MAX_TOGETHER
        } else {
            self.most / 2
        };
        is_alone
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
    fn size(&self) -> usize {
        let minions = self.minions.iter().flatten();
        let minions: usize = minions.map(|minion| minion.len() + OVERHEAD).sum();
        self.text.as_ref().map_or(0, String::len) + OVERHEAD + minions
    }

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

/// An entry of an event; the others, as all minions that have returned, are not unpacked.
fn part(data: &MapView, name: &str) -> Value {
    data.get(name).map_or(Value::Nil, RawValue::decode)
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
fn judged(data: &MapView) -> Groups {
    let mut groups = Groups::new();
    let minions = part(data, "minions");
    for (minion, change) in minions.as_map().unwrap_or_default() {
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
fn relayed(data: &MapView) -> Groups {
    let mut groups = Groups::new();
    let said = part(data, "said");
    for said in said.as_array().unwrap_or_default() {
        let minions = said.get("minions").and_then(Value::as_array);
        let minions = minions.unwrap_or_default().iter();
        let minions = minions.filter_map(|minion| minion.as_str().map(str::to_owned));
        let text = said.get("says").and_then(Value::as_str).map(cut);
        let depth = said.get("depth").and_then(Value::as_i64).unwrap_or(1);
        groups.entry((depth, text)).or_default().extend(minions);
    }
    groups
}

/// Of an event `finished`. Where all have returned nothing is to be said.
fn ended(data: &MapView) -> Groups {
    let mut groups = Groups::new();
    if data.str("state") == Some("complete") {
        return groups;
    }
    for (group, state) in [
        ("unreachable", "unreachable"),
        ("unknown", "unknown"),
        ("awaited", "not waited for any more"),
    ] {
        let minions = part(data, group);
        for (minion, reason) in minions.as_map().unwrap_or_default() {
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
        let mut queue = self.queue.lock();
        self.is_wanted.store(is_wanted, Relaxed);
        if !is_wanted {
            while queue.drop_first().is_some() {}
            queue.not_published.clear();
        }
        drop(queue);
        self.ready.notify_one();
    }

    /// Says that a job from above was not published here, for this reason.
    pub(crate) fn not_published(&self, jid: &Jid, reason: &str) {
        let mut queue = self.queue.lock();
        if !self.is_wanted.load(Relaxed) {
            return;
        }
        queue.not_published.insert(jid.clone());
        if queue.not_published.len() > MAX_NOT_PUBLISHED {
            queue.not_published.shift_remove_index(0);
        }
        drop(queue);
        let text = cut(&format!("the job was not published: {reason}"));
        self.push(Waiting::of_all(jid, Some(text)));
    }

    /// Withdraws that a job was not published here, if that was said: it is after all.
    pub(crate) fn published(&self, jid: &Jid) {
        let was_said = self.queue.lock().not_published.shift_remove(jid);
        if was_said {
            self.push(Waiting::of_all(jid, None));
        }
    }

    /// Puts one in the queue, where the master above takes them. The oldest go when there are too many: later ones
    /// say what holds now, and when a job ends all that are missing are named once more.
    pub(crate) fn push(&self, waiting: Waiting) {
        let mut queue = self.queue.lock();
        if !self.is_wanted.load(Relaxed) {
            return;
        }
        queue.bytes += waiting.size();
        queue.waiting.push_back(waiting);
        while queue.waiting.len() > MAX_WAITING || queue.bytes > MAX_WAITING_BYTES {
            if queue.drop_first().is_none() {
                break;
            }
            self.dropped.inc();
        }
        drop(queue);
        self.ready.notify_one();
    }

    /// The next ones, this many at most, and the number after the last of them. They stay until they are
    /// [`Self::done`].
    pub(crate) fn next(&self, most: usize) -> (u64, Vec<Waiting>) {
        let queue = self.queue.lock();
        let next: Vec<Waiting> = queue.waiting.iter().take(most).cloned().collect();
        (queue.first + next.len() as u64, next)
    }

    /// Removes those before this number, as [`Self::next`] gave it. Some may be gone, and others have come.
    pub(crate) fn done(&self, end: u64) {
        let mut queue = self.queue.lock();
        while queue.first < end && queue.drop_first().is_some() {}
    }

    /// Drops those before this number, and counts them.
    pub(crate) fn give_up(&self, end: u64) {
        let mut queue = self.queue.lock();
        while queue.first < end && queue.drop_first().is_some() {
            self.dropped.inc();
        }
    }
}

impl Tap for UpwardVerdicts {
    fn hear(&self, event: &Event) {
        // What nobody takes need not be read.
        if self.is_wanted.load(Relaxed)
            && let Some(waiting) = Waiting::of(event)
        {
            self.push(waiting);
        }
    }
}

#[cfg(test)]
mod tests;

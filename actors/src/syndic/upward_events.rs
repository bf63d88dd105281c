//! Events for one master above: which go up (`_process_event` in `salt/minion.py`), and their queue.
//!
//! Bounded in events and bytes. What finds no room is counted and announced to the master above by
//! a gap event, where it belongs in the order. Returns of jobs go up by the outbox, and events of
//! this program's own (`saltern/…`) stay here.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::metrics::IntCounter;
use saltern_config::SyndicMode;
use saltern_model::{Event, Jid};
use saltern_wire::msgpack::{Limits, MapView, RawValue, Value};
use tokio::sync::Notify;

use crate::events::bus::{QueueLimits, Tap};

/// Events of one request, and about how many bytes they have.
const MAX_TOGETHER: usize = 500;
const MAX_TOGETHER_BYTES: usize = 1 << 20;

/// The event that announces missed ones.
const GAP: &str = "saltern/bus/gap";

/// The events that wait for one master above.
pub(crate) struct UpwardEvents {
    mode: SyndicMode,
    limits: QueueLimits,
    queue: Mutex<Queue>,
    pub(crate) ready: Notify,
    dropped: IntCounter,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<(String, Bytes)>,
    bytes: usize,
    /// Events dropped behind those in the queue.
    missed: u64,
}

impl UpwardEvents {
    pub(crate) fn new(mode: SyndicMode, limits: QueueLimits, dropped: IntCounter) -> Self {
        Self {
            mode,
            limits,
            queue: Mutex::default(),
            ready: Notify::new(),
            dropped,
        }
    }

    /// The next events, for one request; empty when there are none.
    pub(crate) fn take(&self) -> Vec<(String, Bytes)> {
        let mut queue = self.queue.lock();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < MAX_TOGETHER
            && (taken.is_empty() || bytes < MAX_TOGETHER_BYTES)
            && let Some((tag, data)) = queue.events.pop_front()
        {
            bytes += data.len();
            queue.bytes -= data.len();
            taken.push((tag, data));
        }
        if queue.events.is_empty() && queue.missed > 0 {
            let missed = std::mem::take(&mut queue.missed);
            let gap = Value::map([("missed", i64::try_from(missed).unwrap_or(i64::MAX))]);
            let packed = saltern_wire::msgpack::encode(&gap, saltern_wire::msgpack::Dialect::Bin);
            taken.push((GAP.to_owned(), packed.into()));
        }
        taken
    }
}

impl Tap for UpwardEvents {
    fn hear(&self, event: &Event) {
        let tag = event.tag.as_str();
        let data = event.data.bytes();
        if !goes_up(self.mode, tag, data) {
            return;
        }
        let mut queue = self.queue.lock();
        let is_full = queue.events.len() >= self.limits.frames
            || (queue.bytes > 0 && queue.bytes + data.len() > self.limits.bytes);
        // Nothing more goes in before the gap is announced.
        if is_full || queue.missed > 0 {
            queue.missed += 1;
            self.dropped.inc();
            return;
        }
        queue.bytes += data.len();
        queue.events.push_back((tag.to_owned(), data.clone()));
        drop(queue);
        self.ready.notify_one();
    }
}

/// Whether an event goes up.
fn goes_up(mode: SyndicMode, tag: &str, data: &Bytes) -> bool {
    if tag.starts_with("saltern/") {
        return false;
    }
    let parts: Vec<&str> = tag.splitn(5, '/').collect();
    let of_job = match parts.as_slice() {
        [_, "job", jid, what, ..] if Jid::parse(jid).is_ok() => Some(*what),
        _ => None,
    };
    if of_job == Some("ret") {
        return false;
    }
    let Ok(data) = MapView::parse(data.clone(), &Limits::WIRE) else {
        return false;
    };
    let says_who = || {
        let has_minions = data.get("minions").and_then(RawValue::as_array).is_some();
        has_minions && (of_job.is_some() || Jid::parse(tag).is_ok())
    };
    !data.contains("retcode") && (mode == SyndicMode::Sync || says_who())
}

#[cfg(test)]
mod tests {
    use saltern_base::metrics::{Registry, counter};
    use saltern_model::{Packed, Tag};
    use saltern_wire::msgpack::{Dialect, encode};

    use super::*;

    const JID: &str = "20260102030405060708";

    fn event(tag: &str, entry: &str) -> Event {
        let data = Value::map([(entry, Value::Array(Vec::new()))]);
        Event {
            tag: Tag::parse(tag).unwrap(),
            data: Packed::new(encode(&data, Dialect::Bin)),
        }
    }

    fn queue(mode: SyndicMode, frames: usize) -> UpwardEvents {
        let limits = QueueLimits {
            frames,
            bytes: 1 << 20,
        };
        let dropped = counter(&Registry::new(), "dropped_total", "Dropped.");
        UpwardEvents::new(mode, limits, dropped)
    }

    #[test]
    fn events_go_up_by_the_mode_and_returns_never_as_events() {
        let ret = format!("salt/job/{JID}/ret/m");
        let new = format!("salt/job/{JID}/new");
        for (tag, entry, sync, cluster) in [
            (ret.as_str(), "return", false, false),
            (&new, "minions", true, true),
            (JID, "minions", true, true),
            ("salt/auth", "id", true, false),
            ("my/own", "minions", true, false),
            ("my/own", "retcode", false, false),
            ("saltern/job/x", "minions", false, false),
        ] {
            let event = event(tag, entry);
            let goes = |mode| goes_up(mode, tag, event.data.bytes());
            assert_eq!(goes(SyndicMode::Sync), sync, "{tag}");
            assert_eq!(goes(SyndicMode::Cluster), cluster, "{tag}");
        }
    }

    #[test]
    fn full_queue_announces_the_number_that_was_missed() {
        let queue = queue(SyndicMode::Sync, 2);
        for _ in 0..5 {
            queue.hear(&event("my/own", "x"));
        }
        let tags: Vec<String> = queue.take().into_iter().map(|(tag, _)| tag).collect();
        assert_eq!(tags, ["my/own", "my/own", GAP]);
        assert_eq!(queue.dropped.get(), 3);
        assert!(queue.take().is_empty());
        queue.hear(&event("my/own", "x"));
        assert_eq!(queue.take().len(), 1, "there is room again");
    }
}

//! What Batches hears of others: returns of the jobs that it drives, and what local programs say
//! of batches on the bus.
//!
//! Shared by those who tell, because they are built before Batches is. Whether a jid is of
//! interest costs one load of a number while no batch is open.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use actix::Recipient;
use dashmap::DashSet;
use saltern_model::{Event, Jid, MinionId};
use saltern_wire::msgpack::{Dialect, Limits, MapView, Value, encode};

use crate::messages::{BatchCall, BatchCalled, BatchReturn, BatchReturns};

/// The end of a batch is stored within this, unless the disk does not take it.
const STOP: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Default)]
pub(crate) struct BatchFeed {
    followed: DashSet<Jid>,
    count: AtomicUsize,
    batches: OnceLock<Batches>,
}

struct Batches {
    returns: Recipient<BatchReturns>,
    calls: Recipient<BatchCalled>,
}

impl BatchFeed {
    /// Says who listens; once.
    pub(crate) fn listen(&self, returns: Recipient<BatchReturns>, calls: Recipient<BatchCalled>) {
        // Nobody else says so.
        let _ = self.batches.set(Batches { returns, calls });
    }

    /// From now on the returns of this job are of interest.
    pub(crate) fn follow(&self, jid: &Jid) {
        if self.followed.insert(jid.clone()) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// They are not any more.
    pub(crate) fn forget(&self, jid: &Jid) {
        if self.followed.remove(jid).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether the returns of this job are of interest.
    pub(crate) fn follows(&self, jid: &Jid) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.followed.contains(jid)
    }

    /// Tells of returns that are stored, or will not be. Never waits, because Batches may be
    /// waiting for who tells; bounded, because each return was a message of its own before.
    pub(crate) fn tell(&self, returns: Vec<BatchReturn>) {
        if let Some(batches) = self.batches.get().filter(|_| !returns.is_empty()) {
            batches.returns.do_send(BatchReturns(returns));
        }
    }

    /// Has a batch ended, and if `kill`, what its minions run of it too. Blocks until the end is
    /// durable, and gives whether it was stopped; `None` when there is no room for the message, or
    /// when it takes too long.
    pub(crate) fn stop(&self, jid: &Jid, kill: bool) -> Option<bool> {
        let data = Value::map([("reason", Value::from("stop")), ("kill", kill.into())]);
        let data = MapView::parse(encode(&data, Dialect::Bin).into(), &Limits::WIRE);
        let (stopped, answer) = sync_channel(1);
        let called = BatchCalled {
            jid: jid.clone(),
            call: BatchCall::Stop,
            data: data.ok()?,
            stopped: Some(stopped),
        };
        self.batches.get()?.calls.try_send(called).ok()?;
        answer.recv_timeout(STOP).ok()
    }

    /// What these events of a local program say of batches.
    pub(crate) fn heard(events: &[Event]) -> Vec<BatchCalled> {
        events.iter().filter_map(called).collect()
    }

    /// Passes on what a local program said of batches; waits until there is room.
    pub(crate) async fn pass_on(&self, heard: Vec<BatchCalled>) {
        let Some(batches) = self.batches.get() else {
            return;
        };
        for called in heard {
            let jid = called.jid.clone();
            if batches.calls.send(called).await.is_err() {
                tracing::warn!(%jid, "what a local program said of a batch was lost");
            }
        }
    }
}

fn called(event: &Event) -> Option<BatchCalled> {
    let (jid, what) = event
        .tag
        .as_str()
        .strip_prefix("salt/batch/")?
        .split_once('/')?;
    let call = match what {
        "new" => BatchCall::New,
        "stop" => BatchCall::Stop,
        "recover" => BatchCall::Recover,
        "progress" => BatchCall::Progress,
        "complete" | "halted" => BatchCall::Over,
        _ => return None,
    };
    Some(BatchCalled {
        jid: Jid::parse(jid).ok()?,
        call,
        data: MapView::parse(event.data.bytes().clone(), &Limits::WIRE).ok()?,
        stopped: None,
    })
}

impl BatchReturn {
    /// A minion's return.
    pub(crate) fn new(jid: &Jid, minion: &MinionId, retcode: i64) -> Self {
        Self {
            jid: jid.clone(),
            minion: minion.clone(),
            retcode,
        }
    }
}

#[cfg(test)]
mod tests {
    use saltern_model::{Packed, Tag};

    use super::*;

    #[test]
    fn only_events_of_batches_are_heard() {
        let event = |tag: &str| Event {
            tag: Tag::parse(tag).unwrap(),
            data: Packed::new(&b"\x80"[..]),
        };
        let jid = "20260102030405060708";
        let heard = called(&event(&format!("salt/batch/{jid}/stop"))).unwrap();
        assert_eq!((heard.jid.as_str(), heard.call), (jid, BatchCall::Stop));
        for tag in [
            &format!("salt/batch/{jid}/other"),
            &format!("salt/job/{jid}/new"),
            "salt/batch/../stop",
            "salt/batch/stop",
        ] {
            assert!(called(&event(tag)).is_none(), "{tag}");
        }
    }

    #[test]
    fn a_job_is_followed_until_it_is_forgotten_however_often_that_is_said() {
        let feed = BatchFeed::default();
        let jid = Jid::parse("20260102030405060708").unwrap();
        assert!(!feed.follows(&jid));
        feed.follow(&jid);
        feed.follow(&jid);
        assert!(feed.follows(&jid));
        feed.forget(&jid);
        feed.forget(&jid);
        assert!(!feed.follows(&jid));
        assert_eq!(feed.count.load(Ordering::SeqCst), 0);
    }
}

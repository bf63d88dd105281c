//! Feeds Batches: returns of the jobs that it drives, and events of local programs about batches.
//!
//! Shared by Batches and the senders. While no batch is open, the check whether a jid is followed
//! costs one atomic load.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use actix::Recipient;
use dashmap::DashSet;
use saltern_model::{Event, Jid};
use saltern_runners::BatchCommand;
use saltern_wire::msgpack::{Dialect, Limits, MapView, Value, encode};

use crate::messages::{BatchCall, BatchCalled, BatchReturns, MinionReturned};

/// A change of a batch is stored within this, unless the disk does not take it.
const STORED: Duration = Duration::from_secs(30);

/// Forwards returns and calls about batches to the actor.
pub(crate) struct BatchFeed {
    followed: DashSet<Jid>,
    count: AtomicUsize,
    returns: Recipient<BatchReturns>,
    calls: Recipient<BatchCalled>,
}

impl BatchFeed {
    /// The feed of these recipients.
    pub(crate) fn new(returns: Recipient<BatchReturns>, calls: Recipient<BatchCalled>) -> Self {
        Self {
            followed: DashSet::new(),
            count: AtomicUsize::new(0),
            returns,
            calls,
        }
    }

    /// Follows the returns of this job from now on.
    pub(crate) fn follow(&self, jid: &Jid) {
        if self.followed.insert(jid.clone()) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Follows them no longer.
    pub(crate) fn forget(&self, jid: &Jid) {
        if self.followed.remove(jid).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether the returns of this job are followed.
    pub(crate) fn follows(&self, jid: &Jid) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.followed.contains(jid)
    }

    /// Notifies Batches of returns that are stored, or will not be. Never waits, because Batches
    /// may be waiting for the sender; bounded, because each return was a message of its own
    /// before.
    pub(crate) fn send(&self, returns: Vec<MinionReturned>) {
        if !returns.is_empty() {
            self.returns.do_send(BatchReturns(returns));
        }
    }

    /// Pauses, resumes or stops a batch. Blocks until that is durable. Gives whether it was done;
    /// `None` when the mailbox is full or on timeout.
    pub(crate) fn drive(&self, jid: &Jid, command: BatchCommand) -> Option<bool> {
        let (call, data) = match command {
            BatchCommand::Pause => (BatchCall::Pause, Value::Map(Vec::new())),
            BatchCommand::Resume => (BatchCall::Resume, Value::Map(Vec::new())),
            BatchCommand::Stop { kill } => {
                let data = [("reason", Value::from("stop")), ("kill", kill.into())];
                (BatchCall::Stop, Value::map(data))
            }
        };
        let data = MapView::parse(encode(&data, Dialect::Bin).into(), &Limits::WIRE);
        let (done, answer) = sync_channel(1);
        let called = BatchCalled {
            jid: jid.clone(),
            call,
            data: data.ok()?,
            done: Some(done),
        };
        self.calls.try_send(called).ok()?;
        answer.recv_timeout(STORED).ok()
    }

    /// The calls about batches among these events of a local program.
    pub(crate) fn heard(events: &[Event]) -> Vec<BatchCalled> {
        events.iter().filter_map(called).collect()
    }

    /// Forwards calls of local programs about batches; waits for room.
    pub(crate) async fn pass_on(&self, heard: Vec<BatchCalled>) {
        for called in heard {
            let jid = called.jid.clone();
            if self.calls.send(called).await.is_err() {
                tracing::warn!(%jid, "the call of a local program about a batch was lost");
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
        done: None,
    })
}

#[cfg(test)]
mod tests {
    use saltern_model::{Packed, Tag};

    use super::*;
    use crate::shared::testing::closed;

    #[test]
    fn only_batch_events_are_calls() {
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
    fn repeated_follow_and_forget_are_idempotent() {
        let feed = BatchFeed::new(closed(), closed());
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

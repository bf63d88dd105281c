//! Frames on their way to a master of ours (`saltern_syndic_frames`): their numbers, the lanes that they
//! wait in, and the answers. No clock, no actor and no socket.
//!
//! Each lane has one frame under way, so frames of one lane arrive in their order; all returns of a
//! minion go by one lane. A frame whose answer is lost is made again, with the number that follows the
//! last batch that was stored as a whole.

use std::collections::VecDeque;
use std::sync::Arc;

use saltern_channel::FrameAgreement;
use saltern_model::Jid;
use saltern_wire::msgpack::Value;

use super::super::upper::UpperChannel;
use super::queue::{Frame, LANES};

/// Session of frames with one master above; a session outlives connections, and ends with the process
/// at either end.
#[derive(Default)]
pub(super) struct FrameSession {
    /// The channel of the uplink, and those of the lanes beside it.
    base: Option<UpperChannel>,
    lanes: Vec<UpperChannel>,
    upper: String,
    epoch: String,
    session: u64,
    next: u64,
}

impl FrameSession {
    /// Takes over what a connected master wants. A new session bears the number `session`, or one above
    /// it, which is larger than that of any before.
    pub(super) fn agree(
        &mut self,
        upper: &str,
        (channel, agreed): (&UpperChannel, &FrameAgreement),
        session: u64,
    ) {
        let is_same = |known: &UpperChannel| Arc::ptr_eq(known, channel);
        if !self.base.as_ref().is_some_and(is_same) {
            let lanes = std::iter::repeat_with(|| Arc::new(channel.another()));
            self.lanes = lanes.take(LANES).collect();
            self.base = Some(channel.clone());
        }
        if self.upper != upper || self.epoch != agreed.epoch {
            upper.clone_into(&mut self.upper);
            self.begin(&agreed.epoch, session);
        }
    }

    /// Begins a session.
    pub(super) fn begin(&mut self, epoch: &str, session: u64) {
        epoch.clone_into(&mut self.epoch);
        (self.session, self.next) = (session.max(self.session.saturating_add(1)), 1);
    }

    /// The channel of a lane.
    pub(super) fn channel(&self, lane: usize) -> Option<UpperChannel> {
        self.lanes.get(lane).cloned()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Goes on from this number: what bore it, or a larger one, is made again.
    pub(super) fn go_back(&mut self, window: &FrameWindow) {
        if let Some(first) = window.first_number() {
            // A session that has begun meanwhile has numbers of its own.
            self.next = self.next.min(first);
        }
    }

    /// The fields of the request for a frame of stream `stream`, of the syndic `id`.
    pub(super) fn fields(
        &self,
        sent: &SentFrame,
        stream: i64,
        id: &str,
    ) -> [(&'static str, Value); 6] {
        let number = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
        [
            ("cmd", Value::from("saltern_syndic_frame")),
            ("epoch", Value::from(self.epoch.as_str())),
            ("stream", Value::Int(stream)),
            ("session", number(self.session)),
            ("number", number(sent.number)),
            ("load", sent.frame.load(id)),
        ]
    }
}

/// A frame with its number.
pub(super) struct SentFrame {
    number: u64,
    pub(super) batch: u64,
    pub(super) frame: Frame,
}

impl SentFrame {
    /// The first of its jobs.
    pub(super) fn jids(&self, most: usize) -> Vec<Jid> {
        self.frame.jids().take(most).cloned().collect()
    }
}

/// Frames that wait or are under way.
#[derive(Default)]
pub(super) struct FrameWindow {
    lanes: [Lane; LANES],
    batches: VecDeque<OpenBatch>,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<SentFrame>,
    is_busy: bool,
}

/// A batch of which frames are not stored.
struct OpenBatch {
    batch: u64,
    /// The number of its first frame.
    first: u64,
    left: usize,
}

impl FrameWindow {
    /// Adds the frames of a batch.
    pub(super) fn push(&mut self, batch: u64, frames: Vec<Frame>, session: &mut FrameSession) {
        self.batches.push_back(OpenBatch {
            batch,
            first: session.next,
            left: frames.len(),
        });
        for frame in frames {
            let number = session.number();
            if let Some(lane) = self.lanes.get_mut(frame.lane) {
                lane.waiting.push_back(SentFrame {
                    number,
                    batch,
                    frame,
                });
            }
        }
    }

    /// The next frame of a lane that has none under way; its lane has from now on.
    pub(super) fn ready(&mut self) -> Option<SentFrame> {
        let mut free = self.lanes.iter_mut().filter(|lane| !lane.is_busy);
        free.find_map(|lane| {
            let frame = lane.waiting.pop_front()?;
            lane.is_busy = true;
            Some(frame)
        })
    }

    /// A frame is stored; whether it was the last one of its batch.
    pub(super) fn stored(&mut self, sent: &SentFrame) -> bool {
        if let Some(lane) = self.lanes.get_mut(sent.frame.lane) {
            lane.is_busy = false;
        }
        let mut batches = self.batches.iter_mut();
        let Some(open) = batches.find(|open| open.batch == sent.batch) else {
            return false;
        };
        open.left = open.left.saturating_sub(1);
        let is_last = open.left == 0;
        while self.batches.pop_front_if(|open| open.left == 0).is_some() {}
        is_last
    }

    /// The lowest number of a batch that is not stored as a whole.
    fn first_number(&self) -> Option<u64> {
        self.batches.front().map(|open| open.first)
    }
}

/// Answer of the master above to a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameAnswer {
    /// It has committed the frame, with so many of its returns; the others are not the syndic's to bring.
    Stored(u64),
    /// It could not be committed now.
    NotStored,
    /// A session of this epoch has to begin, above this number.
    BeginAnew(String, u64),
    /// It does not take the frame, for this reason.
    Refused(String),
}

impl FrameAnswer {
    /// Reads the answer to a frame.
    pub(super) fn read(answer: &Value, sent: &SentFrame) -> Self {
        let text = |name: &str| answer.get(name).and_then(Value::as_str);
        let number = |name: &str| answer.get(name).and_then(Value::as_u64);
        match text("result") {
            Some("stored") if number("number") == Some(sent.number) => {
                let returns = number("returns").unwrap_or(sent.frame.returns);
                Self::Stored(returns.min(sent.frame.returns))
            }
            Some("stored" | "not_stored") => Self::NotStored,
            Some("begin_anew") => {
                let epoch = text("epoch").unwrap_or_default().to_owned();
                Self::BeginAnew(epoch, number("session").unwrap_or(0))
            }
            _ => Self::Refused(text("reason").unwrap_or("it gives no reason").to_owned()),
        }
    }

    /// The result in metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Stored(_) => "stored",
            Self::NotStored => "not_stored",
            Self::BeginAnew(..) => "begin_anew",
            Self::Refused(_) => "refused",
        }
    }
}

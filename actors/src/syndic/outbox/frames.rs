//! Frames on their way to a master of ours (`saltern_syndic_frames`): their numbers, the lanes that they
//! wait in, and the answers. No clock, no actor and no socket.
//!
//! Each lane has one frame under way, so frames of one lane arrive in their order; all returns of a
//! minion go by one lane. A frame whose answer is lost is made again, with the number that follows the
//! last batch that was stored as a whole.

#[cfg(test)]
mod simulation;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use saltern_channel::{FrameAgreement, MAX_EPOCH};
use saltern_model::Jid;
use saltern_wire::msgpack::Value;

use super::super::upper::UpperChannel;
use super::queue::{Frame, LANES};

/// Distance between the lowest number that is not stored and any other that is sent. The master above
/// takes none that is farther from the highest one.
const WINDOW: u64 = 64;

/// Least size of the largest request of a master to which frames go, in bytes.
const MIN_REQUEST_BYTES: usize = 1 << 20;

/// Session of frames with one master above; a session outlives connections, and ends with the process
/// at either end.
#[derive(Default)]
pub(super) struct FrameSession {
    /// The channel of the uplink, and those of the lanes beside it.
    base: Option<UpperChannel>,
    lanes: Vec<UpperChannel>,
    upper: String,
    /// Frames go to this master as they should.
    goes_on: bool,
    /// The agreement of the sign-in, and the epoch in it. The master above may have another epoch by
    /// now: a sign-in outlives its restart.
    agreed: Option<Arc<FrameAgreement>>,
    agreed_epoch: String,
    /// The epoch that frames bear.
    epoch: String,
    session: u64,
    next: u64,
    /// A session has begun since [`FrameSession::take_begun`].
    has_begun: bool,
    /// By the name of the master above: an agreement that it keeps no more.
    declined: BTreeMap<String, Arc<FrameAgreement>>,
    /// The master above does not take this one for a syndic.
    is_unknown: bool,
}

impl FrameSession {
    /// The agreement by which frames go to a connected master above. Where there is none, no master is kept:
    /// `_syndic_return` may go to any.
    pub(super) fn usable(
        &mut self,
        upper: &str,
        agreed: Option<Arc<FrameAgreement>>,
    ) -> Option<Arc<FrameAgreement>> {
        let usable = agreed.filter(|agreed| self.is_usable(upper, agreed));
        self.goes_on &= usable.is_some();
        usable
    }

    fn is_usable(&self, upper: &str, agreed: &Arc<FrameAgreement>) -> bool {
        let declined = self.declined.get(upper);
        let is_declined = declined.is_some_and(|declined| Arc::ptr_eq(declined, agreed));
        agreed.bytes >= MIN_REQUEST_BYTES && !is_declined
    }

    /// Whether the frames that were sent last went up.
    pub(super) fn went(&mut self, all: bool) {
        self.goes_on = all;
    }

    /// The master above that the session is with.
    pub(super) fn upper(&self) -> &str {
        &self.upper
    }

    /// The master above to which frames go as they should: a session with another one would begin with
    /// new numbers, and read again what is on its way.
    pub(super) fn kept(&self) -> Option<&str> {
        self.goes_on.then_some(&*self.upper)
    }

    /// Takes over what an answer says of the session. A new one bears the number `session`, or one above
    /// it and all that the master above knows.
    pub(super) fn learn(&mut self, answer: &FrameAnswer, session: u64) {
        match answer {
            FrameAnswer::BeginAnew(epoch, above) => {
                self.begin(epoch, session.max(above.saturating_add(1)));
            }
            FrameAnswer::NotSyndic(_) => self.is_unknown = true,
            FrameAnswer::NotAgreed(_) => self.decline(),
            FrameAnswer::Stored(_)
            | FrameAnswer::NotStored
            | FrameAnswer::Refused(_)
            | FrameAnswer::TooLarge => {}
        }
    }

    /// The master above does not take frames: none goes there before the next sign-in.
    fn decline(&mut self) {
        if let Some(agreed) = &self.agreed {
            self.declined.insert(self.upper.clone(), agreed.clone());
        }
    }

    /// The channel by which the start event has to go once more.
    pub(super) fn take_unknown(&mut self) -> Option<UpperChannel> {
        let channel = self.base.clone();
        channel.filter(|_| std::mem::take(&mut self.is_unknown))
    }

    /// Largest request that the master above takes, in bytes.
    pub(super) fn max_bytes(&self) -> usize {
        self.agreed
            .as_ref()
            .map_or(usize::MAX, |agreed| agreed.bytes)
    }

    /// Takes over what a connected master wants. A new session bears the number `session`, or one above
    /// it, which is larger than that of any before.
    pub(super) fn agree(
        &mut self,
        upper: &str,
        (channel, agreed): (&UpperChannel, &Arc<FrameAgreement>),
        session: u64,
    ) {
        let is_same = |known: &UpperChannel| Arc::ptr_eq(known, channel);
        if !self.base.as_ref().is_some_and(is_same) {
            let lanes = std::iter::repeat_with(|| Arc::new(channel.another()));
            self.lanes = lanes.take(LANES).collect();
            self.base = Some(channel.clone());
        }
        self.take_over(upper, agreed, session);
    }

    /// Takes over an agreement. The epoch that an answer named since is kept.
    fn take_over(&mut self, upper: &str, agreed: &Arc<FrameAgreement>, session: u64) {
        self.agreed = Some(agreed.clone());
        if self.upper != upper || self.agreed_epoch != agreed.epoch {
            upper.clone_into(&mut self.upper);
            agreed.epoch.clone_into(&mut self.agreed_epoch);
            self.begin(&agreed.epoch, session);
        }
    }

    /// Begins a session.
    fn begin(&mut self, epoch: &str, session: u64) {
        epoch.clone_into(&mut self.epoch);
        (self.session, self.next) = (session.max(self.session.saturating_add(1)), 1);
        self.has_begun = true;
    }

    /// Whether a session has begun since the last call. Behind the name of the master above may then stand
    /// a process with another database.
    pub(super) fn take_begun(&mut self) -> bool {
        std::mem::take(&mut self.has_begun)
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
    /// The number of the frame that is under way.
    under_way: Option<u64>,
}

impl Lane {
    /// The lowest number that is not stored.
    fn lowest(&self) -> Option<u64> {
        let waiting = || self.waiting.front().map(|sent| sent.number);
        self.under_way.or_else(waiting)
    }
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

    /// The next frame of a lane that has none under way; its lane has from now on. None is beyond the
    /// window of the master above.
    pub(super) fn ready(&mut self) -> Option<SentFrame> {
        let lowest = self.lanes.iter().filter_map(Lane::lowest).min()?;
        let end = lowest.saturating_add(WINDOW);
        let mut free = self.lanes.iter_mut();
        free.find_map(|lane| {
            if lane.under_way.is_some() || lane.lowest()? >= end {
                return None;
            }
            let frame = lane.waiting.pop_front()?;
            lane.under_way = Some(frame.number);
            Some(frame)
        })
    }

    /// A frame is stored; whether it was the last one of its batch.
    pub(super) fn stored(&mut self, sent: &SentFrame) -> bool {
        if let Some(lane) = self.lanes.get_mut(sent.frame.lane) {
            lane.under_way = None;
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
    /// It does not take these returns, for this reason.
    Refused(String),
    /// None: the request is larger than it takes.
    TooLarge,
    /// It does not take this master for a syndic.
    NotSyndic(String),
    /// It does not take frames, or answers in another way than it agreed to.
    NotAgreed(String),
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
            Some("begin_anew") => match text("epoch").filter(|it| it.len() <= MAX_EPOCH) {
                Some(epoch) => Self::BeginAnew(epoch.to_owned(), number("session").unwrap_or(0)),
                None => Self::NotAgreed("it names no epoch".to_owned()),
            },
            _ => {
                let reason = text("reason").unwrap_or("it gives no reason").to_owned();
                match text("class") {
                    Some("content") => Self::Refused(reason),
                    Some("not_syndic") => Self::NotSyndic(reason),
                    _ => Self::NotAgreed(reason),
                }
            }
        }
    }

    /// The result in metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Stored(_) => "stored",
            Self::NotStored => "not_stored",
            Self::BeginAnew(..) => "begin_anew",
            Self::Refused(_) => "refused",
            Self::TooLarge => "too_large",
            Self::NotSyndic(_) => "not_syndic",
            Self::NotAgreed(_) => "not_agreed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreement(epoch: &str, bytes: usize) -> Arc<FrameAgreement> {
        let epoch = epoch.to_owned();
        Arc::new(FrameAgreement { epoch, bytes })
    }

    fn frame(lane: usize) -> Frame {
        let mut frame = Frame::default();
        (frame.lane, frame.returns) = (lane, 1);
        frame
    }

    #[test]
    fn frame_session_keeps_the_epoch_of_a_restarted_master_until_the_next_sign_in() {
        let mut session = FrameSession::default();
        let first = agreement("e1", MIN_REQUEST_BYTES);
        session.take_over("top", &first, 10);
        assert_eq!((&*session.epoch, session.session), ("e1", 10));
        session.begin("e2", 20);
        session.number();
        session.take_over("top", &first, 30);
        assert_eq!((&*session.epoch, session.session), ("e2", 20));
        assert_eq!(session.next, 2);
        session.take_over("other", &first, 40);
        assert_eq!((&*session.epoch, session.session), ("e1", 40));
        session.take_over("other", &agreement("e3", MIN_REQUEST_BYTES), 40);
        assert_eq!((&*session.epoch, session.session), ("e3", 41));
    }

    #[test]
    fn frame_session_begins_with_each_process_above() {
        let mut session = FrameSession::default();
        let first = agreement("e1", MIN_REQUEST_BYTES);
        session.take_over("top", &first, 10);
        assert!(session.take_begun() && !session.take_begun());
        session.take_over("top", &first, 20);
        session.learn(&FrameAnswer::Stored(1), 20);
        assert!(!session.take_begun(), "it is the same process");
        session.learn(&FrameAnswer::BeginAnew("e2".to_owned(), 0), 20);
        assert!(session.take_begun());
        session.take_over("top", &agreement("e3", MIN_REQUEST_BYTES), 30);
        assert!(session.take_begun());
        session.take_over("other", &first, 40);
        assert!(session.take_begun());
    }

    #[test]
    fn master_above_is_kept_while_its_frames_go_up() {
        let mut session = FrameSession::default();
        assert_eq!(session.kept(), None);
        session.take_over("top", &agreement("e1", MIN_REQUEST_BYTES), 10);
        assert_eq!(session.kept(), None);
        session.went(true);
        assert_eq!(session.kept(), Some("top"));
        session.went(false);
        assert_eq!(session.kept(), None);
    }

    #[test]
    fn master_above_without_frame_agreement_is_kept_no_more() {
        let mut session = FrameSession::default();
        let agreed = agreement("e1", MIN_REQUEST_BYTES);
        session.take_over("top", &agreed, 10);
        session.went(true);
        assert!(session.usable("top", Some(agreed)).is_some());
        assert_eq!(session.kept(), Some("top"));
        assert!(session.usable("top", None).is_none());
        assert_eq!(session.kept(), None, "it came back without frames");
        session.went(true);
        let small = agreement("e2", MIN_REQUEST_BYTES - 1);
        assert!(session.usable("top", Some(small)).is_none());
        assert_eq!(session.kept(), None, "it takes smaller requests");
    }

    #[test]
    fn declined_frame_agreement_is_unusable_until_the_next_sign_in() {
        let mut session = FrameSession::default();
        let first = agreement("e1", MIN_REQUEST_BYTES);
        session.take_over("top", &first, 10);
        assert!(session.is_usable("top", &first));
        session.learn(&FrameAnswer::NotAgreed(String::new()), 0);
        assert!(!session.is_usable("top", &first));
        assert!(session.is_usable("other", &first), "another master");
        assert!(session.is_usable("top", &agreement("e1", MIN_REQUEST_BYTES)));
        assert!(!session.is_usable("top", &agreement("e1", MIN_REQUEST_BYTES - 1)));
    }

    #[test]
    fn frame_window_holds_back_numbers_far_from_the_lowest_open_one() {
        let (mut window, mut session) = (FrameWindow::default(), FrameSession::default());
        session.take_over("top", &agreement("e1", MIN_REQUEST_BYTES), 1);
        let others = std::iter::repeat_n(1, 80);
        window.push(
            0,
            std::iter::once(0).chain(others).map(frame).collect(),
            &mut session,
        );
        let first = window.ready().unwrap();
        assert_eq!(first.number, 1);
        let mut last = 0;
        while let Some(sent) = window.ready() {
            last = sent.number;
            assert!(!window.stored(&sent));
        }
        assert_eq!(last, WINDOW);
        assert!(!window.stored(&first));
        assert_eq!(window.ready().unwrap().number, WINDOW + 1);
    }

    #[test]
    fn frame_answer_counts_towards_a_drop_only_for_its_content() {
        let sent = SentFrame {
            number: 1,
            batch: 0,
            frame: frame(0),
        };
        let read = |fields: &[(&str, &str)]| {
            let fields = fields
                .iter()
                .map(|(name, text)| (*name, Value::from(*text)));
            FrameAnswer::read(&Value::map(fields), &sent).label()
        };
        let refused = ("result", "refused");
        let (anew, long) = (("result", "begin_anew"), "e".repeat(MAX_EPOCH + 1));
        for (fields, expected) in [
            (&[refused, ("class", "content")][..], "refused"),
            (&[refused, ("class", "not_syndic")], "not_syndic"),
            (&[refused, ("class", "not_agreed")], "not_agreed"),
            (&[refused], "not_agreed"),
            (&[], "not_agreed"),
            (&[("result", "other")], "not_agreed"),
            (&[anew], "not_agreed"),
            (&[anew, ("epoch", &long)], "not_agreed"),
            (&[anew, ("epoch", "e2")], "begin_anew"),
        ] {
            assert_eq!(read(fields), expected, "{fields:?}");
        }
        assert_eq!(FrameAnswer::read(&Value::Nil, &sent).label(), "not_agreed");
    }
}

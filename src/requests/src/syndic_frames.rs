//! Numbers of the frames in which syndics of ours send returns (`saltern_syndic_frames`).
//!
//! A syndic numbers its frames within a session of its own, one row of numbers for each of its
//! streams, and has several of them in flight. A frame that is not near the highest number so far is
//! not taken: it is a replay, or its sender has lost count and begins a new session. What a frame bears is stored once for each
//! jid and minion, so a frame that comes twice within the window is harmless. In memory only: a master
//! that was started anew has another epoch, and the syndic begins a new session.
//!
//! Not here: what stands in a frame (`saltern_syndic_frame`).

use std::collections::HashMap;

use parking_lot::Mutex;
use saltern_config::MasterConfig;
use saltern_crypto::public_random;
use saltern_model::MinionId;
use serde::Serialize;

/// Distance between the highest number so far and any other that is taken.
const WINDOW: u64 = 64;

/// Largest number of a session: the one above it has to fit into a signed number.
const MAX_SESSION: u64 = i64::MAX as u64 - 1;

/// Least `saltern_max_message_size` with which frames are taken, in bytes.
const MIN_REQUEST_BYTES: usize = 1 << 20;

/// Streams of one syndic: returns of jobs from this master, and of all other jobs.
const STREAMS: usize = 2;

/// Header of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameHeader<'a> {
    /// Epoch of the master that it is for.
    pub epoch: &'a str,
    /// Stream of the syndic.
    pub stream: usize,
    /// Session of the stream: larger than all before.
    pub session: u64,
    /// Its number in the session, from one.
    pub number: u64,
}

/// Why a frame is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRefusal {
    /// The syndic has to begin a session above this one.
    BeginAnew(u64),
    /// It is not a frame of a syndic of ours in order, for this reason.
    Refused(RefusalClass, &'static str),
}

impl FrameRefusal {
    /// Of a frame that no syndic sends which keeps the agreement.
    fn not_agreed(reason: &'static str) -> Self {
        Self::Refused(RefusalClass::NotAgreed, reason)
    }
}

/// Subject of a refusal, of a frame or of a part of an inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalClass {
    /// Its content: a frame may be dropped after some more tries.
    Content,
    /// The sender, which is no syndic as far as this master knows: its start event is missing.
    NotSyndic,
    /// The kind as such: returns have to come as `_syndic_return`, an inventory not at all.
    NotAgreed,
}

impl RefusalClass {
    /// The word for it in the answer.
    pub fn word(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::NotSyndic => "not_syndic",
            Self::NotAgreed => "not_agreed",
        }
    }
}

/// Terms for a syndic that sends frames.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct FrameAgreement<'a> {
    /// Random text of this process, which every frame has to bear.
    epoch: &'a str,
    /// Largest request that this master takes, in bytes.
    bytes: usize,
}

/// Numbers of all syndics.
pub struct SyndicFrames {
    is_on: bool,
    epoch: String,
    max_bytes: usize,
    streams: Mutex<HashMap<MinionId, [Option<Stream>; STREAMS]>>,
}

#[derive(Clone, Copy)]
struct Stream {
    session: u64,
    highest: u64,
}

impl SyndicFrames {
    /// None yet; frames are taken where `saltern_syndic_frames` and `order_masters` are on, and requests
    /// may have 1 MiB.
    pub fn new(config: &MasterConfig) -> Self {
        let has_room = config.saltern_max_message_size >= MIN_REQUEST_BYTES;
        Self {
            is_on: config.syndic.frames && config.order_masters() && has_room,
            epoch: format!("{:032x}", u128::from_be_bytes(public_random())),
            max_bytes: config.saltern_max_message_size,
            streams: Mutex::default(),
        }
    }

    /// Whether this master takes frames.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The terms for syndics, where frames are taken.
    pub(crate) fn agreement(&self) -> Option<FrameAgreement<'_>> {
        self.is_on.then_some(FrameAgreement {
            epoch: &self.epoch,
            bytes: self.max_bytes,
        })
    }

    /// The epoch.
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Takes over the number of a frame.
    ///
    /// # Errors
    /// It is not to be taken.
    pub fn take(&self, syndic: &MinionId, frame: FrameHeader<'_>) -> Result<(), FrameRefusal> {
        let mut all = self.streams.lock();
        let known = all
            .get(syndic)
            .and_then(|streams| streams.get(frame.stream));
        let known = known.copied().flatten();
        if frame.epoch != self.epoch {
            return Err(FrameRefusal::BeginAnew(known.map_or(0, |it| it.session)));
        }
        let next = checked(known, frame)?;
        let streams = all.entry(syndic.clone()).or_default();
        let place = streams.get_mut(frame.stream);
        *place.ok_or(FrameRefusal::not_agreed("it names no stream"))? = Some(next);
        Ok(())
    }

    /// Whether there is anything of this syndic.
    pub fn has(&self, syndic: &MinionId) -> bool {
        self.streams.lock().contains_key(syndic)
    }

    /// The syndics that have sent frames.
    pub fn syndics(&self) -> Vec<MinionId> {
        self.streams.lock().keys().cloned().collect()
    }

    /// Forgets the numbers of a syndic.
    pub fn forget(&self, syndic: &MinionId) {
        self.streams.lock().remove(syndic);
    }
}

/// The stream after a frame.
fn checked(known: Option<Stream>, frame: FrameHeader<'_>) -> Result<Stream, FrameRefusal> {
    let FrameHeader {
        session, number, ..
    } = frame;
    if frame.stream >= STREAMS {
        return Err(FrameRefusal::not_agreed("it names no stream"));
    }
    if number == 0 {
        return Err(FrameRefusal::not_agreed("it has no number"));
    }
    if session > MAX_SESSION {
        return Err(FrameRefusal::not_agreed(
            "the number of its session is too large",
        ));
    }
    let highest = match known {
        Some(known) if session < known.session => {
            return Err(FrameRefusal::BeginAnew(known.session));
        }
        Some(known) if session == known.session => known.highest,
        // Its numbers may have gone with its registration as a syndic.
        None if number > WINDOW => return Err(FrameRefusal::BeginAnew(session)),
        _ => 0,
    };
    let is_beyond = number > highest.saturating_add(WINDOW);
    if is_beyond || number.saturating_add(WINDOW) <= highest {
        return Err(FrameRefusal::BeginAnew(session));
    }
    Ok(Stream {
        session,
        highest: highest.max(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: u64 = 1_000;

    fn after(known: Option<(u64, u64)>, session: u64, number: u64) -> Result<u64, FrameRefusal> {
        let known = known.map(|(session, highest)| Stream { session, highest });
        let frame = FrameHeader {
            epoch: "",
            stream: 0,
            session,
            number,
        };
        checked(known, frame).map(|stream| stream.highest)
    }

    #[test]
    fn frame_is_taken_near_the_highest_number_of_its_session() {
        let anew = |session| Err(FrameRefusal::BeginAnew(session));
        let not_agreed = |reason| Err(FrameRefusal::not_agreed(reason));
        let too_large = not_agreed("the number of its session is too large");
        for (known, session, number, expected) in [
            (None, SESSION, 1, Ok(1)),
            (None, SESSION, WINDOW, Ok(WINDOW)),
            (None, SESSION, WINDOW + 1, anew(SESSION)),
            (None, SESSION, 0, not_agreed("it has no number")),
            (None, MAX_SESSION, 1, Ok(1)),
            (None, MAX_SESSION + 1, 1, too_large),
            (None, u64::MAX, 1, too_large),
            (Some((SESSION, 100)), SESSION, 101, Ok(101)),
            (Some((SESSION, 100)), SESSION, 99, Ok(100)),
            (Some((SESSION, 100)), SESSION, 100, Ok(100)),
            (
                Some((SESSION, 100)),
                SESSION,
                100 + WINDOW,
                Ok(100 + WINDOW),
            ),
            (Some((SESSION, 100)), SESSION, 101 + WINDOW, anew(SESSION)),
            (Some((SESSION, 100)), SESSION, 100 - WINDOW, anew(SESSION)),
            (Some((SESSION, 100)), SESSION, u64::MAX, anew(SESSION)),
            (Some((SESSION, 100)), SESSION - 1, 101, anew(SESSION)),
            (Some((SESSION, 100)), SESSION + 1, 1, Ok(1)),
            (
                Some((SESSION, 100)),
                SESSION + 1,
                WINDOW + 1,
                anew(SESSION + 1),
            ),
        ] {
            let result = after(known, session, number);
            assert_eq!(result, expected, "{known:?} {session} {number}");
        }
    }
}

//! `saltern_syndic_frame`: a syndic of ours brings returns in a numbered frame. Stock has no such
//! command; a syndic sends it only to a master whose signed answer to `_auth` agrees to it.
//!
//! A frame bears what a `_syndic_return` would, and goes through the same checks. It is answered when
//! all of it is committed; a syndic has several frames in flight, and its cursor moves to the end of the
//! longest row of answered ones.

use bytes::Bytes;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, Kind, RawValue, Value, encode};

use crate::audit::AuditNote;
use crate::envelope::Sealed;
use crate::syndic_frames::{FrameHeader, FrameRefusal, RefusalClass};
use crate::syndic_return::{self, Taken, Undecided};
use crate::{Outcome, Services, syndics};

/// The most bytes of a frame with several returns. A syndic of ours fills one with 1 MB of returns,
/// beside loads of jobs.
const MAX_FRAME_BYTES: usize = 16 << 20;

/// Answers when the frame is stored, or why it is not.
pub(crate) fn handle(sealed: &Sealed, services: &Services) -> Outcome {
    match take(sealed, services) {
        Ok((number, Some(taken))) => stored(sealed, number, taken),
        Ok((number, None)) => Outcome::reply(not_stored(sealed, number)),
        Err(FrameRefusal::BeginAnew(session)) => {
            let epoch = Value::from(services.minions.frames.epoch());
            let fields = vec![("epoch", epoch), ("session", number_value(session))];
            Outcome::reply(answer(sealed, "begin_anew", fields))
        }
        Err(FrameRefusal::Refused(class, reason)) => {
            services.metrics.refuse("syndic_frame");
            complain!(
                services, minion = %sealed.minion, reason,
                "a frame of returns of a syndic is refused"
            );
            let fields = vec![
                ("class", Value::from(class.word())),
                ("reason", Value::from(reason)),
            ];
            Outcome::reply(answer(sealed, "refused", fields))
        }
    }
}

/// The number of a frame and what it brings; without that it has to come again.
fn take(sealed: &Sealed, services: &Services) -> Result<(u64, Option<Taken>), FrameRefusal> {
    let (syndic, frames) = (&sealed.minion, &services.minions.frames);
    may_send(syndic, services)?;
    let malformed = |class| FrameRefusal::Refused(class, "it is malformed");
    let header = header(sealed).ok_or(malformed(RefusalClass::NotAgreed))?;
    let load = sealed
        .load
        .get("load")
        .filter(|load| load.kind() == Kind::Array);
    let load = load.ok_or(malformed(RefusalClass::Content))?;
    let is_large = load.bytes().len() > MAX_FRAME_BYTES;
    if is_large && syndic_return::returns_in(&sealed.load) > 1 {
        let reason = "it is larger than frames are";
        return Err(FrameRefusal::Refused(RefusalClass::Content, reason));
    }
    frames.take(syndic, header)?;
    syndics::heard(syndic, services);
    let taken = syndic_return::take_all(&sealed.load, syndic, services);
    // The key may have gone since the request came, and the numbers with it.
    if !matches!(services.keys.pki.accepted_key(syndic), Ok(Some(_))) {
        frames.forget(syndic);
    }
    match taken {
        Ok(taken) => Ok((header.number, Some(taken))),
        Err(Undecided::NotNow) => Ok((header.number, None)),
        Err(Undecided::TooLarge) => {
            let reason = "its returns by second ways need too much of their jobs to be read";
            Err(FrameRefusal::Refused(RefusalClass::Content, reason))
        }
    }
}

/// Whether frames of this peer are taken. One that is no syndic comes first: as `_syndic_return` its
/// returns would be dropped, so it has to keep them.
fn may_send(peer: &MinionId, services: &Services) -> Result<(), FrameRefusal> {
    if !syndics::acts(peer, services) {
        let reason = match services.site.order_masters {
            true => "it sent no start event as a syndic",
            false => "without order_masters there are no syndics",
        };
        return Err(FrameRefusal::Refused(RefusalClass::NotSyndic, reason));
    }
    if !services.minions.frames.is_on() {
        let reason = "saltern_syndic_frames is off, or saltern_max_message_size below 1 MiB";
        return Err(FrameRefusal::Refused(RefusalClass::NotAgreed, reason));
    }
    Ok(())
}

fn header(sealed: &Sealed) -> Option<FrameHeader<'_>> {
    let load = &sealed.load;
    let number = |name: &str| load.get(name).and_then(RawValue::as_u64);
    Some(FrameHeader {
        epoch: load.str("epoch")?,
        stream: usize::try_from(number("stream")?).ok()?,
        session: number("session")?,
        number: number("number")?,
    })
}

fn stored(sealed: &Sealed, number: u64, taken: Taken) -> Outcome {
    let returns = number_value(taken.len() as u64);
    let fields = vec![("number", number_value(number)), ("returns", returns)];
    Outcome {
        reply: answer(sealed, "stored", fields),
        reply_if_not_stored: not_stored(sealed, number),
        later: None,
        audit: AuditNote::default(),
        effects: taken.into_effects(),
    }
}

fn not_stored(sealed: &Sealed, number: u64) -> Bytes {
    answer(sealed, "not_stored", vec![("number", number_value(number))])
}

fn number_value(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn answer(sealed: &Sealed, result: &str, more: Vec<(&str, Value)>) -> Bytes {
    let fields = std::iter::once(("result", Value::from(result))).chain(more);
    sealed
        .answer
        .seal(&encode(&Value::map(fields), Dialect::Raw))
}

//! Notes on a job beside its row: which minions were given up and why. The job tracker writes them.
//!
//! A msgpack map, readable by any program: the reason's word with the minions it applies to, under
//! `signalled` those that signalled their process of the job, and verdicts of syndics under `below`. A minion that is not named is
//! expected. Unknown words are skipped, so that an older release can read the notes of a newer
//! one.

use std::sync::Arc;

use bytes::Bytes;
use indexmap::IndexMap;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_exact, encode};

/// Why a minion's return is not awaited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostReason {
    /// It holds no connection to the publish port; why, in words.
    NotConnected(Arc<str>),
    /// The load never left the master.
    NotSent,
    /// A master before this one may have sent it, and it is too old to be sent again.
    PerhapsNotSent,
    /// It was asked and did not answer.
    NoAnswer,
    /// It answered, but could not say what it runs.
    CannotSay,
    /// It answered twice that it does not run the job, and no return came.
    NotRunning,
    /// It sent the job a signal that ends it, then said twice that it does not run the job, and no
    /// return came.
    Killed,
}

impl LostReason {
    /// For people.
    pub fn text(&self) -> &str {
        match self {
            Self::NotConnected(why) => why,
            Self::NotSent => "the job was not sent to it",
            Self::PerhapsNotSent => "it is not known whether the job was sent to it",
            Self::NoAnswer => "it did not answer when it was asked",
            Self::CannotSay => "it cannot say which jobs it runs",
            Self::NotRunning => "it does not run the job and has not returned",
            Self::Killed => "its process was ended by a signal",
        }
    }

    /// Whether the minion cannot have got the job; else that is not known.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::NotConnected(_) | Self::NotSent)
    }

    /// The state of a minion that was given up for this reason, as on the bus.
    pub fn state(&self) -> &'static str {
        match self.is_unreachable() {
            true => "unreachable",
            false => "unknown",
        }
    }
}

/// Verdict of a syndic on a minion below it, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyndicSays {
    /// The syndic that said it to this master.
    pub syndic: MinionId,
    /// Number of syndics that it came through.
    pub depth: u8,
    /// The verdict, with the names of these syndics.
    pub text: Arc<str>,
}

impl SyndicSays {
    /// This verdict beside what this master knows itself.
    pub fn beside(&self, why: &str) -> String {
        format!("{why}; {}", self.text)
    }
}

/// Notes on one job, packed and unpacked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobNotes {
    /// Minions that were given up, and why.
    pub lost: Vec<(MinionId, LostReason)>,
    /// Minions that sent their process of the job a signal.
    pub signalled: Vec<MinionId>,
    /// Minions with the verdict of a syndic on them.
    pub below: Vec<(MinionId, SyndicSays)>,
}

const SIGNALLED: &str = "signalled";
/// Followed by the reason in words.
const NOT_CONNECTED: &str = "not_connected: ";
/// Followed by the number of syndics, the one that said it to this master, and the verdict, with a slash (which
/// stands in no id) between them.
const BELOW: &str = "below ";

impl JobNotes {
    /// The packed notes.
    pub fn pack(&self) -> Bytes {
        let mut groups: IndexMap<String, Vec<Value>> = IndexMap::new();
        let lost = self.lost.iter().map(|(id, reason)| (word(reason), id));
        let signalled = self.signalled.iter().map(|id| (SIGNALLED.to_owned(), id));
        let below = self.below.iter();
        let below = below.map(|(id, said)| {
            let SyndicSays {
                syndic,
                depth,
                text,
            } = said;
            (format!("{BELOW}{depth}/{syndic}/{text}"), id)
        });
        for (word, minion) in lost.chain(signalled).chain(below) {
            groups.entry(word).or_default().push(minion.as_str().into());
        }
        let groups = groups.into_iter();
        let groups =
            groups.map(|(word, minions)| (Value::from(word.as_str()), Value::Array(minions)));
        encode(&Value::Map(groups.collect()), Dialect::Bin).into()
    }

    /// Unpacks notes; empty when they cannot be read.
    pub fn unpack(packed: &[u8]) -> Self {
        let mut notes = Self::default();
        let value = match decode_exact(packed, &Limits::WIRE) {
            Ok(value) => value,
            Err(error) => {
                tracing::warn!(%error, "the notes of a job cannot be read");
                return notes;
            }
        };
        for (word, minions) in value.as_map().unwrap_or_default() {
            let (Some(word), Some(minions)) = (word.as_str(), minions.as_array()) else {
                continue;
            };
            let minions = minions
                .iter()
                .filter_map(|minion| MinionId::parse(minion.as_str()?).ok());
            if word == SIGNALLED {
                notes.signalled.extend(minions);
            } else if let Some(said) = said(word) {
                notes.below.extend(minions.map(|id| (id, said.clone())));
            } else if let Some(reason) = reason(word) {
                notes.lost.extend(minions.map(|id| (id, reason.clone())));
            }
        }
        notes
    }
}

fn word(reason: &LostReason) -> String {
    match reason {
        LostReason::NotConnected(why) => format!("{NOT_CONNECTED}{why}"),
        LostReason::NotSent => "not_sent".to_owned(),
        LostReason::PerhapsNotSent => "perhaps_not_sent".to_owned(),
        LostReason::NoAnswer => "no_answer".to_owned(),
        LostReason::CannotSay => "cannot_say".to_owned(),
        LostReason::NotRunning => "not_running".to_owned(),
        LostReason::Killed => "killed".to_owned(),
    }
}

fn said(word: &str) -> Option<SyndicSays> {
    let (depth, said) = word.strip_prefix(BELOW)?.split_once('/')?;
    let (syndic, text) = said.split_once('/')?;
    Some(SyndicSays {
        syndic: MinionId::parse(syndic).ok()?,
        depth: depth.parse().ok()?,
        text: Arc::from(text),
    })
}

fn reason(word: &str) -> Option<LostReason> {
    Some(match word {
        "not_sent" => LostReason::NotSent,
        "perhaps_not_sent" => LostReason::PerhapsNotSent,
        "no_answer" => LostReason::NoAnswer,
        "cannot_say" => LostReason::CannotSay,
        "not_running" => LostReason::NotRunning,
        "killed" => LostReason::Killed,
        _ => LostReason::NotConnected(Arc::from(word.strip_prefix(NOT_CONNECTED)?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_round_trip_and_unknown_words_are_skipped() {
        let id = |name: &str| MinionId::parse(name).unwrap();
        let says = |depth, text: &str| SyndicSays {
            syndic: id("low 7"),
            depth,
            text: Arc::from(text),
        };
        let notes = JobNotes {
            lost: vec![
                (id("a"), LostReason::NotConnected("no connection".into())),
                (id("b"), LostReason::NotSent),
                (id("c"), LostReason::NoAnswer),
                (id("d"), LostReason::CannotSay),
                (id("e"), LostReason::NotRunning),
                (id("f"), LostReason::Killed),
                (id("h"), LostReason::PerhapsNotSent),
            ],
            signalled: vec![id("f"), id("g")],
            below: vec![(id("a"), says(1, "gone")), (id("h"), says(2, "gone/away"))],
        };
        assert_eq!(JobNotes::unpack(&notes.pack()), notes);
        let newer = Value::map([("abducted", Value::Array(vec!["a".into()]))]);
        let newer = encode(&newer, Dialect::Bin);
        assert_eq!(JobNotes::unpack(&newer), JobNotes::default());
        assert_eq!(JobNotes::unpack(b"\xc1"), JobNotes::default());
    }
}

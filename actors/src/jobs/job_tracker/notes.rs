//! Notes on a job beside its row: which minions were given up and why.
//!
//! A msgpack map, readable by any program: the reason's word with the minions it applies to, and
//! under `signalled` those that signalled their process of the job. A minion that is not named is
//! expected. Unknown words are skipped, so that an older release can read the notes of a newer
//! one.

use std::sync::Arc;

use bytes::Bytes;
use indexmap::IndexMap;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_exact, encode};

use super::job::{Job, MinionState, Reason};

/// Notes on one job, packed and unpacked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    pub(super) lost: Vec<(MinionId, Reason)>,
    pub(super) signalled: Vec<MinionId>,
}

const SIGNALLED: &str = "signalled";
/// Followed by the reason in words.
const NOT_CONNECTED: &str = "not_connected: ";

impl Notes {
    pub(super) fn of(job: &Job) -> Self {
        let mut notes = Self::default();
        if job.counts().returned() == job.counts().total() {
            return notes;
        }
        for (minion, entry) in job.missing() {
            if let Some(reason) = entry.state().reason() {
                notes.lost.push((minion.clone(), reason.clone()));
            }
            if entry.was_signalled {
                notes.signalled.push(minion.clone());
            }
        }
        notes
    }

    /// Restores the states of a job's minions.
    pub(super) fn restore(self, job: &mut Job) {
        for (minion, reason) in self.lost {
            job.put(&minion, MinionState::lost(reason));
        }
        for minion in self.signalled {
            if let Some(entry) = job.entry_mut(&minion) {
                entry.was_signalled = true;
            }
        }
    }

    /// `None` when there is nothing to write.
    pub(super) fn pack(&self) -> Bytes {
        let mut groups: IndexMap<String, Vec<Value>> = IndexMap::new();
        let lost = self.lost.iter().map(|(id, reason)| (word(reason), id));
        let signalled = self.signalled.iter().map(|id| (SIGNALLED.to_owned(), id));
        for (word, minion) in lost.chain(signalled) {
            groups.entry(word).or_default().push(minion.as_str().into());
        }
        let groups = groups.into_iter();
        let groups =
            groups.map(|(word, minions)| (Value::from(word.as_str()), Value::Array(minions)));
        encode(&Value::Map(groups.collect()), Dialect::Bin).into()
    }

    /// Unpacks notes; empty when they cannot be read.
    pub(super) fn unpack(packed: &[u8]) -> Self {
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
            } else if let Some(reason) = reason(word) {
                notes.lost.extend(minions.map(|id| (id, reason.clone())));
            }
        }
        notes
    }
}

fn word(reason: &Reason) -> String {
    match reason {
        Reason::NotConnected(why) => format!("{NOT_CONNECTED}{why}"),
        Reason::NotSent => "not_sent".to_owned(),
        Reason::PerhapsNotSent => "perhaps_not_sent".to_owned(),
        Reason::NoAnswer => "no_answer".to_owned(),
        Reason::CannotSay => "cannot_say".to_owned(),
        Reason::NotRunning => "not_running".to_owned(),
        Reason::Killed => "killed".to_owned(),
    }
}

fn reason(word: &str) -> Option<Reason> {
    Some(match word {
        "not_sent" => Reason::NotSent,
        "perhaps_not_sent" => Reason::PerhapsNotSent,
        "no_answer" => Reason::NoAnswer,
        "cannot_say" => Reason::CannotSay,
        "not_running" => Reason::NotRunning,
        "killed" => Reason::Killed,
        _ => Reason::NotConnected(Arc::from(word.strip_prefix(NOT_CONNECTED)?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_round_trip_and_unknown_words_are_skipped() {
        let id = |name: &str| MinionId::parse(name).unwrap();
        let notes = Notes {
            lost: vec![
                (id("a"), Reason::NotConnected("no connection".into())),
                (id("b"), Reason::NotSent),
                (id("c"), Reason::NoAnswer),
                (id("d"), Reason::CannotSay),
                (id("e"), Reason::NotRunning),
                (id("f"), Reason::Killed),
                (id("h"), Reason::PerhapsNotSent),
            ],
            signalled: vec![id("f"), id("g")],
        };
        assert_eq!(Notes::unpack(&notes.pack()), notes);
        let newer = Value::map([("abducted", Value::Array(vec!["a".into()]))]);
        let newer = encode(&newer, Dialect::Bin);
        assert_eq!(Notes::unpack(&newer), Notes::default());
        assert_eq!(Notes::unpack(b"\xc1"), Notes::default());
    }
}

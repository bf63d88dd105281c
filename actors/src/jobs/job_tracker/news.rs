//! Events about jobs besides stock's own, under `saltern/job/<jid>/…`.
//!
//! | tag ends in | when | what |
//! |---|---|---|
//! | `progress` | returns come in, four times a second at most | counts |
//! | `state` | a client connects to the bus, to it alone | counts of a job that is open |
//! | `verdict` | minions are given up, are back, or come late | those minions, before and after |
//! | `below` | a syndic says why minions below it have not returned, or that this does not hold any more | its words |
//! | `finished` | the job ends, or turns out to be complete after all | the state of each minion |
//!
//! A job without minions that no syndic could receive names the syndics as unreachable; its counts
//! are those of minions all the same.
//!
//! Every one of them has `jid` and `_stamp`. Minions are named in lists and as keys, never in tags.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use saltern_model::{Event, Jid, MinionId, Packed, Tag};
use saltern_store::jobs::JobState;
use saltern_wire::msgpack::{Dialect, as_map, pack};
use serde::{Serialize, Serializer};

use super::job::{Counts, Job, MinionState, Reason};
use super::moment::Moment;

/// An event about a job.
#[derive(Clone, Debug)]
pub(super) enum JobNews {
    Progress(Overview),
    State(Overview),
    Verdict {
        jid: Jid,
        changes: Vec<Change>,
    },
    Below {
        jid: Jid,
        syndic: MinionId,
        said: Vec<SaidBelow>,
    },
    Finished(Ending),
}

/// Minions of which a syndic says the same.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SaidBelow {
    /// Null when an earlier verdict does not hold any more.
    #[serde(serialize_with = "text_or_null")]
    pub(super) says: Option<Arc<str>>,
    /// Number of syndics that it came through.
    pub(super) depth: u8,
    pub(super) minions: Vec<MinionId>,
}

fn text_or_null<S: Serializer>(text: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(to)
}

/// Progress of a job.
#[derive(Clone, Debug)]
pub(super) struct Overview {
    pub(super) jid: Jid,
    fun: String,
    created: i64,
    counts: Counts,
}

impl Overview {
    pub(super) fn of(jid: &Jid, job: &Job) -> Self {
        Self {
            jid: jid.clone(),
            fun: job.fun.to_string(),
            created: job.created,
            counts: *job.counts(),
        }
    }
}

/// A change of a minion's state.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) minion: MinionId,
    pub(super) before: MinionState,
    pub(super) after: MinionState,
    has_left: bool,
}

impl Change {
    pub(super) fn new(
        job: &Job,
        minion: &MinionId,
        before: MinionState,
        after: MinionState,
    ) -> Self {
        Self {
            minion: minion.clone(),
            before,
            after,
            has_left: job.left.is_some(),
        }
    }

    /// One word for it: given up, back, or returned late.
    pub(super) fn verdict(&self) -> &'static str {
        match &self.after {
            MinionState::Unreachable(_) => "unreachable",
            MinionState::Unknown(_) => "unknown",
            MinionState::Returned { .. } => "late",
            _ => "back",
        }
    }
}

/// End of a job.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) jid: Jid,
    pub(super) state: JobState,
    /// Since it began, or since this master resumed it.
    pub(super) took: Duration,
    fun: String,
    counts: Counts,
    pub(super) returned: Vec<MinionId>,
    retcodes: BTreeMap<i64, u32>,
    failed: Vec<MinionId>,
    pub(super) missing: Vec<(MinionId, MinionState)>,
}

impl Ending {
    pub(super) fn of(jid: &Jid, job: &Job, state: JobState, now: Moment) -> Self {
        let mut ending = Self {
            jid: jid.clone(),
            state,
            took: now.since(job.begun),
            fun: job.fun.to_string(),
            counts: *job.counts(),
            returned: Vec::with_capacity(job.counts().returned()),
            retcodes: BTreeMap::new(),
            failed: Vec::new(),
            missing: Vec::new(),
        };
        for (minion, entry) in job.entries() {
            match entry.state() {
                MinionState::Returned { retcode } => {
                    *ending.retcodes.entry(*retcode).or_default() += 1;
                    if *retcode != 0 {
                        ending.failed.push(minion.clone());
                    }
                    ending.returned.push(minion.clone());
                }
                state => ending.missing.push((minion.clone(), state.clone())),
            }
        }
        if job.reached_nobody() {
            let unheard = job.unheard.iter().cloned();
            let unheard = unheard.map(|(syndic, why)| (syndic, Reason::NotConnected(why)));
            let unheard = unheard.map(|(id, reason)| (id, MinionState::Unreachable(reason)));
            ending.missing.extend(unheard);
        }
        ending
    }
}

/// The word for a job's state.
pub(super) fn state_word(state: JobState) -> &'static str {
    match state {
        JobState::Open => "open",
        JobState::Complete => "complete",
        JobState::Expired => "expired",
        JobState::Killed => "killed",
    }
}

/// Data of `progress` and `state`.
#[derive(Serialize)]
struct OverviewData<'a> {
    jid: &'a Jid,
    fun: &'a str,
    /// The word for the job's state.
    state: &'static str,
    counts: CountsData,
    /// When the job was made, in microseconds since 1970.
    created: i64,
    _stamp: &'a str,
}

/// How many of a job's minions stand where.
#[derive(Serialize)]
struct CountsData {
    expected: usize,
    awaited: usize,
    running: usize,
    returned: usize,
    failed: usize,
    unreachable: usize,
    unknown: usize,
}

/// Data of `finished`. Of the minions that did not return, each group names the reasons.
#[derive(Serialize)]
struct EndingData<'a> {
    jid: &'a Jid,
    fun: &'a str,
    state: &'static str,
    counts: CountsData,
    returned: &'a [MinionId],
    failed: &'a [MinionId],
    /// How many minions returned each code.
    retcodes: &'a BTreeMap<i64, u32>,
    #[serde(serialize_with = "as_map::serialize")]
    unreachable: Vec<(&'a MinionId, &'a str)>,
    #[serde(serialize_with = "as_map::serialize")]
    unknown: Vec<(&'a MinionId, &'a str)>,
    #[serde(serialize_with = "as_map::serialize")]
    awaited: Vec<(&'a MinionId, &'a str)>,
    _stamp: &'a str,
}

/// Data of `verdict`.
#[derive(Serialize)]
struct VerdictData<'a> {
    jid: &'a Jid,
    #[serde(serialize_with = "as_map::serialize")]
    minions: Vec<(&'a MinionId, ChangeData<'a>)>,
    _stamp: &'a str,
}

/// Data of `below`.
#[derive(Serialize)]
struct BelowData<'a> {
    jid: &'a Jid,
    syndic: &'a MinionId,
    said: &'a [SaidBelow],
    _stamp: &'a str,
}

/// A minion's change of state, in words.
#[derive(Serialize)]
struct ChangeData<'a> {
    verdict: &'static str,
    was: &'a str,
    is: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retcode: Option<i64>,
}

impl JobNews {
    /// As an event; `stamp` is its `_stamp`.
    pub(super) fn event(&self, stamp: &str) -> Event {
        let (tag, data) = match self {
            Self::Progress(overview) => (Tag::job_progress(&overview.jid), overview.packed(stamp)),
            Self::State(overview) => (Tag::job_state(&overview.jid), overview.packed(stamp)),
            Self::Verdict { jid, changes } => (Tag::job_verdict(jid), verdict(jid, changes, stamp)),
            Self::Below { jid, syndic, said } => {
                let data = BelowData {
                    jid,
                    syndic,
                    said,
                    _stamp: stamp,
                };
                (Tag::job_below(jid), pack(&data, Dialect::Bin))
            }
            Self::Finished(ending) => (Tag::job_finished(&ending.jid), ending.packed(stamp)),
        };
        let data = Packed::new(data);
        Event { tag, data }
    }
}

impl CountsData {
    fn of(counts: &Counts) -> Self {
        Self {
            expected: counts.total(),
            awaited: counts.awaited(),
            running: counts.running(),
            returned: counts.returned(),
            failed: counts.failed,
            unreachable: counts.unreachable(),
            unknown: counts.unknown(),
        }
    }
}

impl Overview {
    fn packed(&self, stamp: &str) -> Vec<u8> {
        let data = OverviewData {
            jid: &self.jid,
            fun: &self.fun,
            state: state_word(JobState::Open),
            counts: CountsData::of(&self.counts),
            created: self.created,
            _stamp: stamp,
        };
        pack(&data, Dialect::Bin)
    }
}

impl Ending {
    fn packed(&self, stamp: &str) -> Vec<u8> {
        let data = EndingData {
            jid: &self.jid,
            fun: &self.fun,
            state: state_word(self.state),
            counts: CountsData::of(&self.counts),
            returned: &self.returned,
            failed: &self.failed,
            retcodes: &self.retcodes,
            unreachable: self.group(|state| matches!(state, MinionState::Unreachable(_))),
            unknown: self.group(|state| matches!(state, MinionState::Unknown(_))),
            awaited: self.group(|state| !state.is_lost()),
            _stamp: stamp,
        };
        pack(&data, Dialect::Bin)
    }

    fn group(&self, is_meant: fn(&MinionState) -> bool) -> Vec<(&MinionId, &str)> {
        let missing = self.missing.iter().filter(|(_, state)| is_meant(state));
        let reasons = missing.map(|(minion, state)| {
            let reason = match state {
                MinionState::Running => "it runs the job",
                state => state.reason().map_or("", Reason::text),
            };
            (minion, reason)
        });
        reasons.collect()
    }
}

fn verdict(jid: &Jid, changes: &[Change], stamp: &str) -> Vec<u8> {
    let minions = changes.iter().map(|change| {
        let data = ChangeData {
            verdict: change.verdict(),
            was: change.before.name(change.has_left),
            is: change.after.name(change.has_left),
            reason: change.after.reason().map(Reason::text),
            retcode: match change.after {
                MinionState::Returned { retcode } => Some(retcode),
                _ => None,
            },
        };
        (&change.minion, data)
    });
    let data = VerdictData {
        jid,
        minions: minions.collect(),
        _stamp: stamp,
    };
    pack(&data, Dialect::Bin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use saltern_wire::msgpack::{Limits, Value, decode_exact};

    fn read(news: &JobNews) -> (String, Value) {
        let event = news.event("2026-01-02T03:04:05.000001");
        let value = decode_exact(event.data.as_ref(), &Limits::WIRE).unwrap();
        (event.tag.to_string(), value)
    }

    #[test]
    fn finished_event_names_every_minion_by_state() {
        let jid = Jid::parse("20260102030405000001").unwrap();
        let id = |name: &str| MinionId::parse(name).unwrap();
        let mut job = Job::new("test.ping".into(), 7, Moment::default());
        job.expect(["a", "b", "c", "d", "e"].map(id).to_vec());
        job.put(&id("a"), MinionState::Returned { retcode: 0 });
        job.put(&id("b"), MinionState::Returned { retcode: 3 });
        let gone = Reason::NotConnected("no connection".into());
        job.put(&id("c"), MinionState::Unreachable(gone));
        job.put(&id("d"), MinionState::Unknown(Reason::NoAnswer));
        let ending = Ending::of(&jid, &job, JobState::Expired, Moment::default());
        let (tag, value) = read(&JobNews::Finished(ending));
        assert_eq!(tag, "saltern/job/20260102030405000001/finished");
        let names = |list: &str| {
            let names = value.get(list).unwrap().as_array().unwrap().iter();
            names
                .map(|name| name.as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("returned"), ["a", "b"]);
        assert_eq!(names("failed"), ["b"]);
        let reason = |group: &str, minion: &str| {
            let group = value.get(group).unwrap();
            assert_eq!(group.as_map().unwrap().len(), 1);
            group.get(minion).unwrap().as_str().unwrap().to_owned()
        };
        assert_eq!(reason("unreachable", "c"), "no connection");
        assert_eq!(reason("unknown", "d"), Reason::NoAnswer.text());
        assert_eq!(reason("awaited", "e"), "");
        assert_eq!(value.get("state").and_then(Value::as_str), Some("expired"));
        let count = |name: &str| value.get("counts").unwrap().get(name).unwrap().as_i64();
        assert_eq!((count("expected"), count("failed")), (Some(5), Some(1)));
    }

    #[test]
    fn verdict_names_minions_with_both_states() {
        let jid = Jid::parse("20260102030405000001").unwrap();
        let job = Job::new("test.ping".into(), 7, Moment::default());
        let minion = MinionId::parse("a").unwrap();
        let before = MinionState::Unknown(Reason::NoAnswer);
        let after = MinionState::Returned { retcode: 2 };
        let changes = vec![Change::new(&job, &minion, before, after)];
        let (tag, value) = read(&JobNews::Verdict { jid, changes });
        assert_eq!(tag, "saltern/job/20260102030405000001/verdict");
        let said = value.get("minions").unwrap().get("a").unwrap();
        let text = |name: &str| said.get(name).and_then(Value::as_str);
        assert_eq!(text("verdict"), Some("late"));
        assert_eq!(
            (text("was"), text("is")),
            (Some("unknown"), Some("returned"))
        );
        assert_eq!(said.get("retcode").and_then(Value::as_i64), Some(2));
    }
}

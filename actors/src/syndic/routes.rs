//! Which master above a job came from, and so whom its returns are for.
//!
//! The uplink marks the load of a job that it has published here; the load is stored with the job,
//! in the transaction after which the job is sent. So the mark is there whenever a return of the published job is.
//!
//! A minion may return a job before it is published here; such a job is a report, and the publication takes its
//! place. So a job without a mark is looked at again with each batch, unless this master has published it.
//! Outboxes that read a return from before the publication at different times may both take it for the other's, or both
//! for their own. The first would lose it, so the outbox of the master above goes back to such returns when the
//! publication comes ([`Upper::returned_early`](super::upper::Upper::returned_early)). The second is harmless: a
//! master above stores a return once for each jid and minion, acknowledges it both times, and fires its events once.
//! Such a job is on the disk before it is published ([`EarlyJobs`](saltern_store::EarlyJobs)). One whose report comes only
//! while it is being published is there a moment later: a process that is killed in this moment does not go back.

use std::collections::{HashMap, HashSet};

use saltern_model::{Jid, Packed};
use saltern_requests::job::UPPER;
use saltern_store::StoreError;
use saltern_store::jobs::{JobQueries, StoredJob};
use saltern_wire::msgpack::{Limits, MapView, RawValue, Value, decode};

/// Most jobs that are remembered; beyond it all are forgotten and read again.
const MAX_JOBS: usize = 4096;

/// Origin of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The master above of this name.
    Upper(String),
    /// This master, or a minion that reported it.
    Here,
}

/// Origins of the jobs that were looked at last.
#[derive(Default)]
pub(crate) struct JobOrigins {
    known: HashMap<Jid, Origin>,
    /// Jobs that were looked for since [`Self::begin_batch`] and are not there, or bear no mark: that may come.
    unmarked: HashSet<Jid>,
}

impl JobOrigins {
    /// Looks again for the jobs that were not there, or had no mark. To be called when rows were read, before they
    /// are judged: what is known of their jobs must not be older than they are.
    pub(crate) fn begin_batch(&mut self) {
        self.unmarked.clear();
    }

    /// Remembers a job, unless a publication may yet take its place.
    pub(crate) fn learn(&mut self, job: &StoredJob) {
        if job.reporter.is_none() {
            self.remember(&job.record.jid, origin(job.record.load.bytes()));
        }
    }

    fn remember(&mut self, jid: &Jid, origin: Origin) {
        if self.known.len() >= MAX_JOBS {
            self.known.clear();
        }
        self.known.insert(jid.clone(), origin);
    }

    /// The origin of a job, of which `load` reads the load if it is not known; of one that is not there, here.
    ///
    /// # Errors
    /// Those of `load`.
    pub(crate) fn of(
        &mut self,
        jid: &Jid,
        load: impl FnOnce() -> Result<Option<Packed>, StoreError>,
    ) -> Result<&Origin, StoreError> {
        if !self.known.contains_key(jid) && !self.unmarked.contains(jid) {
            match load()?.map(|load| origin(load.bytes())) {
                Some(upper @ Origin::Upper(_)) => self.remember(jid, upper),
                Some(Origin::Here) | None => _ = self.unmarked.insert(jid.clone()),
            }
        }
        Ok(self.known.get(jid).unwrap_or(&Origin::Here))
    }
}

/// The origin that a stored load names.
pub(crate) fn origin(load: &bytes::Bytes) -> Origin {
    let load = MapView::parse(load.clone(), &Limits::WIRE).ok();
    let kwargs = load.as_ref().and_then(|load| load.get("kwargs"));
    let kwargs = kwargs.and_then(RawValue::as_map);
    let upper = kwargs.as_ref().and_then(|kwargs| kwargs.str(UPPER));
    upper.map_or(Origin::Here, |name| Origin::Upper(name.to_owned()))
}

/// Whether a publication of this master above, under the jid of a job that is here, has gone in a circle: this
/// master has published the job, or has it from another one above. One that a minion has reported is no
/// publication yet, and a part of a batch comes again from where it came first.
pub(crate) fn has_gone_in_a_circle(known: &StoredJob, upper: &str) -> bool {
    let origin = || origin(known.record.load.bytes());
    known.reporter.is_none() && origin() != Origin::Upper(upper.to_owned())
}

/// Whether minions had returned a job, which was `known` like this before, when it was published here: no outbox took
/// such a return for one of the master above. Asked of the job database after the publication, which notes there up to
/// which return it came too late: a report may come until then. A job of which returns cannot be looked for counts
/// as one.
pub(crate) fn was_returned_early(
    known: Option<&StoredJob>,
    jid: &Jid,
    reader: &dyn JobQueries,
) -> bool {
    // A part of a batch has returns of those before it, which went up.
    is_unpublished(known) && reader.has_early_returns(jid).unwrap_or(true)
}

/// Whether no publication of a job is here: nothing, or the report of a minion.
pub(crate) fn is_unpublished(known: Option<&StoredJob>) -> bool {
    known.is_none_or(|known| known.reporter.is_some())
}

/// The load of a job as it goes up: as stock's job cache gives it, without the mark.
pub(crate) fn load_upward(job: &StoredJob) -> Value {
    let load = decode(job.record.load.as_ref(), &Limits::WIRE).unwrap_or(Value::Nil);
    let Value::Map(mut entries) = load else {
        return Value::Map(Vec::new());
    };
    for (name, value) in &mut entries {
        if let (Some("kwargs"), Value::Map(kwargs)) = (name.as_str(), value) {
            kwargs.retain(|(name, _)| name.as_str() != Some(UPPER));
        }
    }
    let minions = job.record.minions.iter();
    let minions = minions.map(|minion| Value::from(minion.as_str())).collect();
    entries.push(("Minions".into(), Value::Array(minions)));
    Value::Map(entries)
}

#[cfg(test)]
pub(super) mod tests {
    use saltern_model::{JobRecord, MinionId};
    use saltern_store::JobState;
    use saltern_wire::msgpack::{Dialect, encode};

    use super::*;

    fn jid(number: usize) -> Jid {
        Jid::parse(&format!("20260101{number:012}")).unwrap()
    }

    /// The load of a job of this master, or of one above.
    fn load(upper: Option<&str>) -> Packed {
        let mark = upper.map(|upper| (UPPER, upper));
        let load = Value::map([("kwargs", Value::map(mark))]);
        Packed::new(encode(&load, Dialect::Bin))
    }

    /// Job 1, of this master or of one above, as published here or reported by a minion.
    pub(in crate::syndic) fn job(upper: Option<&str>, reporter: Option<&str>) -> StoredJob {
        StoredJob {
            id: 1,
            record: JobRecord {
                jid: jid(1),
                created: 1,
                user: "root".to_owned(),
                fun: "test.ping".to_owned(),
                tgt: "*".to_owned(),
                tgt_type: "glob".to_owned(),
                load: load(upper),
                minions: Vec::new(),
                nocache: false,
            },
            state: JobState::Open,
            published: None,
            finished: None,
            notes: None,
            publisher: None,
            reporter: reporter.map(|minion| MinionId::parse(minion).unwrap()),
        }
    }

    #[test]
    fn publication_of_a_job_from_elsewhere_has_gone_in_a_circle() {
        for (upper, reporter, expected) in [
            (None, None, true),
            (Some("other:4506"), None, true),
            (Some("top:4506"), None, false),
            (None, Some("m"), false),
        ] {
            let is_circle = has_gone_in_a_circle(&job(upper, reporter), "top:4506");
            assert_eq!(is_circle, expected, "{upper:?} {reporter:?}");
        }
    }

    #[test]
    fn job_without_a_mark_is_looked_at_again_unless_it_was_published_here() {
        for (reporter, expected) in [(None, 0), (Some("m"), 1)] {
            let mut origins = JobOrigins::default();
            origins.learn(&job(None, reporter));
            let mut reads = 0;
            for _ in 0..2 {
                let of = origins.of(&jid(1), || {
                    reads += 1;
                    Ok(Some(load(None)))
                });
                assert_eq!(of.unwrap(), &Origin::Here);
            }
            assert_eq!(reads, expected, "{reporter:?}");
        }
    }

    #[test]
    fn load_of_a_job_is_read_once_and_one_without_a_mark_once_in_a_batch() {
        let load = load(Some("top:4506"));
        let mut origins = JobOrigins::default();
        let mut look = |jid: &Jid, found: Option<&Packed>| {
            let mut reads = 0;
            let of = origins.of(jid, || {
                reads += 1;
                Ok(found.cloned())
            });
            (of.unwrap().clone(), reads)
        };
        let top = Origin::Upper("top:4506".to_owned());
        assert_eq!(look(&jid(1), Some(&load)), (top.clone(), 1));
        assert_eq!(look(&jid(1), Some(&load)), (top.clone(), 0));
        assert_eq!(look(&jid(2), None), (Origin::Here, 1));
        assert_eq!(look(&jid(2), None), (Origin::Here, 0));
        let reported = self::load(None);
        assert_eq!(look(&jid(3), Some(&reported)), (Origin::Here, 1));
        assert_eq!(look(&jid(3), Some(&reported)), (Origin::Here, 0));
        origins.begin_batch();
        for number in [2, 3] {
            let again = origins.of(&jid(number), || Ok(Some(load.clone())));
            assert_eq!(again.unwrap(), &top, "it was published meanwhile");
        }
    }
}

//! The outcome of each change of a batch, from the rows that it depends on. Pure: it asks nobody.
//!
//! The changes of one row are gathered, so a batch takes a few statements over arrays, however its
//! changes are mixed. Removing a job is none of them ([`super::writer`] does that by itself).

use std::collections::HashMap;

use bytes::Bytes;
use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_store::jobs::{
    AuditHead, AuditValue, Committed, JobState, KeptEvent, NewEvent, Write, Written,
    next_audit_row, says_the_same,
};

/// The numbers that were given last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) job: i64,
    pub(super) returned: i64,
    /// Of events: their position.
    pub(super) event: i64,
    /// The lowest of imported rows.
    pub(super) lowest_job: i64,
    pub(super) lowest_return: i64,
    pub(super) audit: AuditHead,
    /// Of events of [`Write::Events`]: the number that their sender gives, in this process.
    pub(super) sent_event: u64,
}

/// The rows that a batch depends on.
#[derive(Default)]
pub(super) struct Picture {
    pub(super) jobs: HashMap<Jid, KnownJob>,
    pub(super) returns: HashMap<(Jid, MinionId), KnownReturn>,
    /// Whether they are open.
    pub(super) batches: HashMap<Jid, bool>,
}

/// A job that is there.
pub(super) struct KnownJob {
    /// The number of the last return when it was published: returns up to it answer no publication of
    /// today's. `None` if it was not published here, or no return may be older.
    pub(super) returns_before: Option<i64>,
    pub(super) is_reported: bool,
}

/// A return that is there.
pub(super) struct KnownReturn {
    pub(super) id: i64,
    pub(super) fun: String,
    pub(super) load: Bytes,
}

/// How the row of a job changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    /// It is new, with this number.
    New(i64),
    /// It is there, and its record is replaced.
    Replaced,
    /// It is there, and keeps its record.
    Kept,
}

/// A change of a job's row.
pub(super) struct JobChange<'b> {
    pub(super) jid: &'b Jid,
    pub(super) kind: JobKind,
    /// Of one that keeps its record there is none.
    pub(super) record: Option<&'b JobRecord>,
    /// With the time of its end.
    pub(super) state: Option<(JobState, Option<i64>)>,
    pub(super) notes: Option<&'b Bytes>,
    pub(super) published: Option<i64>,
    pub(super) publisher: Option<&'b MinionId>,
    pub(super) reporter: Option<&'b MinionId>,
    /// Of a publication ([`KnownJob::returns_before`]).
    pub(super) returns_before: Option<i64>,
}

/// A change of a batch's row.
pub(super) enum BatchChange<'b> {
    New(&'b Jid, &'b Packed),
    Paused(&'b Jid, Option<i64>),
    Over(&'b Jid, Option<&'b str>),
}

/// Minions of a batch that are given up, and why.
pub(super) struct GivenUp<'b> {
    pub(super) jid: &'b Jid,
    pub(super) reason: &'static str,
    pub(super) minions: &'b [MinionId],
}

/// Everything that a batch changes.
#[derive(Default)]
pub(super) struct Changes<'b> {
    pub(super) jobs: Vec<JobChange<'b>>,
    /// Jobs whose expected minions go before others come.
    pub(super) forgotten: Vec<&'b Jid>,
    pub(super) expected: Vec<(&'b Jid, &'b [MinionId])>,
    pub(super) returns: Vec<(i64, &'b ReturnRecord)>,
    pub(super) batches: Vec<BatchChange<'b>>,
    pub(super) given_up: Vec<GivenUp<'b>>,
    pub(super) events: Vec<KeptEvent>,
    pub(super) audit: Vec<Vec<AuditValue>>,
    /// Places in `jobs`.
    places: HashMap<&'b Jid, usize>,
}

/// Decides over changes, each with the events that it causes.
pub(super) fn decide<'b>(
    picture: Picture,
    numbers: &mut Numbers,
    writes: impl Iterator<Item = (&'b Write, &'b [NewEvent])>,
    committed: &mut Committed,
) -> Changes<'b> {
    let mut decision = Decision {
        picture,
        numbers,
        changes: Changes::default(),
    };
    for (write, caused) in writes {
        let written = decision.apply(write);
        if !matches!(written, Written::Repeated { .. }) {
            decision.keep(caused);
        }
        committed.written.push(written);
    }
    let changes = decision.changes;
    committed.events.extend(changes.events.iter().cloned());
    changes
}

struct Decision<'b, 'n> {
    picture: Picture,
    numbers: &'n mut Numbers,
    changes: Changes<'b>,
}

impl<'b> Decision<'b, '_> {
    fn apply(&mut self, write: &'b Write) -> Written {
        match write {
            Write::Job(record) => self.new_job(record, JobState::Open, None),
            Write::JobPart(record) => self.part(record),
            Write::ClosedJob { job, reporter } => {
                self.new_job(job, JobState::Complete, reporter.as_ref())
            }
            Write::Expected { jid, minions } => {
                if !self.picture.jobs.contains_key(jid) {
                    return Written::NoSuchJob;
                }
                self.expect(jid, minions);
                Written::Updated
            }
            Write::Return(record) => self.new_return(record),
            Write::JobState {
                jid,
                state,
                at,
                notes,
            } => self.update(jid, |job| {
                job.state = Some((*state, (*state != JobState::Open).then_some(*at)));
                job.notes = notes.as_ref().or(job.notes);
            }),
            Write::Published { jid, at } => self.update(jid, |job| {
                job.published.get_or_insert(*at);
            }),
            Write::PublishedFor { jid, minion } => {
                self.update(jid, |job| job.publisher = Some(minion))
            }
            Write::Batch { .. }
            | Write::BatchFailed { .. }
            | Write::BatchPaused { .. }
            | Write::BatchOver { .. } => self.change_batch(write),
            Write::Events { first, events } => {
                let known = (self.numbers.sent_event + 1).saturating_sub(*first);
                let known = usize::try_from(known).unwrap_or(usize::MAX);
                self.keep(events.get(known..).unwrap_or_default());
                let last = first.saturating_add(events.len() as u64).saturating_sub(1);
                self.numbers.sent_event = self.numbers.sent_event.max(last);
                Written::Updated
            }
            Write::Audit(record) => {
                let (row, head) = next_audit_row(self.numbers.audit, record);
                self.numbers.audit = head;
                self.changes.audit.push(row);
                Written::New { id: head.number }
            }
            // The writer's own.
            Write::DeleteJob { .. } => Written::Deleted { rows: 0 },
        }
    }

    fn new_job(
        &mut self,
        record: &'b JobRecord,
        state: JobState,
        reporter: Option<&'b MinionId>,
    ) -> Written {
        if self.picture.jobs.contains_key(&record.jid) {
            return Written::Duplicate;
        }
        self.numbers.job += 1;
        let id = self.numbers.job;
        let known = KnownJob {
            returns_before: None,
            is_reported: reporter.is_some(),
        };
        self.picture.jobs.insert(record.jid.clone(), known);
        let finished = (state != JobState::Open).then_some(record.created);
        let job = self.change_of(&record.jid);
        *job = JobChange {
            kind: JobKind::New(id),
            record: Some(record),
            state: Some((state, finished)),
            reporter,
            ..JobChange::nothing(&record.jid)
        };
        self.expect(&record.jid, &record.minions);
        Written::New { id }
    }

    /// A further part of a job: its load is replaced, and expected minions are added. A report and the
    /// published job may expect different minions.
    fn part(&mut self, record: &'b JobRecord) -> Written {
        let jid = &record.jid;
        // Returns that are there already are not answers to this publication.
        let returns_before = Some(self.numbers.returned);
        let Some(known) = self.picture.jobs.get_mut(jid) else {
            let written = self.new_job(record, JobState::Open, None);
            self.change_of(jid).returns_before = returns_before;
            if let Some(known) = self.picture.jobs.get_mut(jid) {
                known.returns_before = returns_before;
            }
            return written;
        };
        let was_reported = std::mem::replace(&mut known.is_reported, false);
        known.returns_before = returns_before;
        let job = self.change_of(jid);
        let notes = job.notes;
        let kind = match job.kind {
            JobKind::New(id) => JobKind::New(id),
            JobKind::Replaced | JobKind::Kept => JobKind::Replaced,
        };
        *job = JobChange {
            kind,
            record: Some(record),
            state: Some((JobState::Open, None)),
            notes,
            returns_before,
            ..JobChange::nothing(jid)
        };
        if was_reported {
            self.changes.expected.retain(|(one, _)| *one != jid);
            self.changes.forgotten.push(jid);
        }
        self.expect(jid, &record.minions);
        Written::Updated
    }

    fn update(&mut self, jid: &'b Jid, change: impl FnOnce(&mut JobChange<'b>)) -> Written {
        if !self.picture.jobs.contains_key(jid) {
            return Written::NoSuchJob;
        }
        change(self.change_of(jid));
        Written::Updated
    }

    fn change_of(&mut self, jid: &'b Jid) -> &mut JobChange<'b> {
        let jobs = &mut self.changes.jobs;
        let place = *self.changes.places.entry(jid).or_insert_with(|| {
            jobs.push(JobChange::nothing(jid));
            jobs.len() - 1
        });
        &mut jobs[place]
    }

    fn expect(&mut self, jid: &'b Jid, minions: &'b [MinionId]) {
        if !minions.is_empty() {
            self.changes.expected.push((jid, minions));
        }
    }

    fn new_return(&mut self, record: &'b ReturnRecord) -> Written {
        let key = (record.jid.clone(), record.minion.clone());
        if let Some(known) = self.picture.returns.get(&key) {
            let job = self.picture.jobs.get(&record.jid);
            let before = job.and_then(|job| job.returns_before);
            let is_newer = before.is_none_or(|before| known.id > before);
            let is_same =
                known.fun == record.fun && says_the_same(&known.load, record.load.bytes());
            return match is_newer && is_same {
                true => Written::Repeated { id: known.id },
                false => Written::Duplicate,
            };
        }
        self.numbers.returned += 1;
        let id = self.numbers.returned;
        let known = KnownReturn {
            id,
            fun: record.fun.clone(),
            load: record.load.bytes().clone(),
        };
        self.picture.returns.insert(key, known);
        self.changes.returns.push((id, record));
        Written::New { id }
    }

    fn change_batch(&mut self, write: &'b Write) -> Written {
        let batches = &mut self.picture.batches;
        let (changes, given_up) = (&mut self.changes.batches, &mut self.changes.given_up);
        match write {
            Write::Batch { jid, plan } => {
                if batches.contains_key(jid) {
                    return Written::Duplicate;
                }
                batches.insert(jid.clone(), true);
                changes.push(BatchChange::New(jid, plan));
            }
            Write::BatchFailed {
                jid,
                minions,
                reason,
            } => given_up.push(GivenUp {
                jid,
                reason,
                minions,
            }),
            Write::BatchPaused { jid, since } => {
                if batches.get(jid) != Some(&true) {
                    return Written::NoSuchJob;
                }
                changes.push(BatchChange::Paused(jid, *since));
            }
            Write::BatchOver { jid, halted } => {
                let Some(is_open) = batches.get_mut(jid) else {
                    return Written::NoSuchJob;
                };
                *is_open = false;
                changes.push(BatchChange::Over(jid, halted.as_deref()));
            }
            _ => {}
        }
        Written::Updated
    }

    /// Keeps events at the next positions.
    fn keep(&mut self, events: &[NewEvent]) {
        for event in events {
            self.numbers.event += 1;
            self.changes.events.push(KeptEvent {
                position: self.numbers.event,
                received: event.received,
                tag: event.tag.clone(),
                data: event.data.clone(),
                of_minion: event.of_minion,
            });
        }
    }
}

impl<'b> JobChange<'b> {
    fn nothing(jid: &'b Jid) -> Self {
        Self {
            jid,
            kind: JobKind::Kept,
            record: None,
            state: None,
            notes: None,
            published: None,
            publisher: None,
            reporter: None,
            returns_before: None,
        }
    }
}

//! An engine that keeps the job database in memory: short, and with no more than the seam asks for.
//! What the suite and the simulation find in SQLite and not here is SQLite's own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::ready;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use saltern_model::{AuditRow, Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_python::expression::Pattern;
use saltern_store::jobs::{
    AuditCheck, Batch, Committed, Engine, FoundJobs, IncompleteJob, JobHead, JobSearch, JobSummary,
    JobsPage, NewestReturn, Pending, PresenceEvents, ReturnHead, ReturnRun, ReturnSearch,
    ReturnsOf, ReturnsPage, StateFilter,
};
use saltern_store::{
    AuditBreak, AuditHead, AuditPage, BrokenRow, CachedJob, EventRange, EventSlice, EventsPage,
    Housekeeping, Imported, JobLog, JobQueries, JobState, KeptEvent, NewEvent, Numbered, OpenJob,
    Reason, Removed, Result, Retention, StoredBatch, StoredJob, Write, Written,
};

/// Rows that outlive the engines over them.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Rows>>);

#[derive(Clone, Default)]
struct Rows {
    jobs: BTreeMap<i64, StoredJob>,
    numbers: HashMap<Jid, i64>,
    returns: BTreeMap<i64, ReturnRecord>,
    /// The number of the last return when a job was published again.
    returns_before: HashMap<Jid, i64>,
    batches: BTreeMap<Jid, StoredBatch>,
    events: Vec<KeptEvent>,
    audit: Vec<AuditRow>,
    /// The last numbers of a job and of a return, and the lowest ones of imported rows.
    last: (i64, i64),
    lowest: (i64, i64),
    /// Events that their sender has had kept in this process.
    sent: u64,
    has_imported: bool,
}

impl Memory {
    /// A process that opens the database.
    pub(crate) fn process(&self) -> Engine {
        self.rows().sent = 0;
        Engine {
            log: Arc::new(self.clone()),
            queries: Arc::new(self.clone()),
            housekeeping: Arc::new(self.clone()),
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock()
    }

    /// Does something wholly or not at all.
    fn change<T: Send + 'static>(&self, change: impl FnOnce(&mut Rows) -> T) -> Pending<T> {
        let mut rows = self.rows();
        let mut changed = rows.clone();
        let done = change(&mut changed);
        *rows = changed;
        Box::pin(ready(Ok(done)))
    }
}

impl Rows {
    fn job(&self, jid: &Jid) -> Option<&StoredJob> {
        self.jobs.get(self.numbers.get(jid)?)
    }

    fn job_mut(&mut self, jid: &Jid) -> Option<&mut StoredJob> {
        self.jobs.get_mut(self.numbers.get(jid)?)
    }

    fn update(&mut self, jid: &Jid, change: impl FnOnce(&mut StoredJob)) -> Written {
        match self.job_mut(jid) {
            Some(job) => {
                change(job);
                Written::Updated
            }
            None => Written::NoSuchJob,
        }
    }

    fn returns_of<'a>(&'a self, jid: &'a Jid) -> impl Iterator<Item = (i64, &'a ReturnRecord)> {
        let returns = self.returns.iter().map(|(id, record)| (*id, record));
        returns.filter(move |(_, record)| record.jid == *jid)
    }

    fn insert_job(&mut self, id: i64, job: &JobRecord, state: JobState) -> bool {
        if self.numbers.contains_key(&job.jid) {
            return false;
        }
        let mut record = job.clone();
        record.minions = sorted(record.minions);
        self.numbers.insert(job.jid.clone(), id);
        let job = StoredJob {
            id,
            finished: (state != JobState::Open).then_some(record.created),
            record,
            state,
            published: None,
            notes: None,
            publisher: None,
            reporter: None,
        };
        self.jobs.insert(id, job);
        true
    }

    fn new_job(&mut self, job: &JobRecord, state: JobState) -> Written {
        if !self.insert_job(self.last.0 + 1, job, state) {
            return Written::Duplicate;
        }
        self.last.0 += 1;
        Written::New { id: self.last.0 }
    }

    fn part(&mut self, record: &JobRecord) -> Written {
        self.returns_before.insert(record.jid.clone(), self.last.1);
        let written = self.new_job(record, JobState::Open);
        if written != Written::Duplicate {
            return written;
        }
        self.update(&record.jid, |job| {
            let mut minions = record.minions.clone();
            if job.reporter.is_none() {
                minions.append(&mut job.record.minions);
            }
            job.record = record.clone();
            job.record.minions = sorted(minions);
            job.state = JobState::Open;
            (job.published, job.finished) = (None, None);
            (job.publisher, job.reporter) = (None, None);
        })
    }

    fn new_return(&mut self, record: &ReturnRecord) -> Written {
        let found = self.returns_of(&record.jid);
        let found = found
            .into_iter()
            .find(|(_, one)| one.minion == record.minion);
        let Some((id, one)) = found else {
            self.last.1 += 1;
            self.returns.insert(self.last.1, record.clone());
            return Written::New { id: self.last.1 };
        };
        let before = self.returns_before.get(&record.jid);
        let is_newer = before.is_none_or(|before| id > *before);
        match is_newer && one.fun == record.fun && one.load.as_ref() == record.load.as_ref() {
            true => Written::Repeated { id },
            false => Written::Duplicate,
        }
    }

    fn keep(&mut self, events: &[NewEvent], kept: &mut Vec<KeptEvent>) {
        for event in events {
            let event = KeptEvent {
                position: self.next_position(),
                received: event.received,
                tag: event.tag.clone(),
                data: event.data.clone(),
                of_minion: event.of_minion,
            };
            self.events.push(event.clone());
            kept.push(event);
        }
    }

    fn next_position(&self) -> i64 {
        self.events.last().map_or(1, |event| event.position + 1)
    }

    fn audit_head(&self) -> AuditHead {
        let last = self.audit.last();
        last.map_or_else(AuditHead::default, |row| AuditHead {
            number: row.number,
            hash: row.hash,
        })
    }

    fn apply(&mut self, write: &Write, kept: &mut Vec<KeptEvent>) -> Written {
        match write {
            Write::Job(job) => self.new_job(job, JobState::Open),
            Write::JobPart(job) => self.part(job),
            Write::ClosedJob { job, reporter } => {
                let written = self.new_job(job, JobState::Complete);
                if written.is_new() {
                    self.update(&job.jid, |job| job.reporter = reporter.clone());
                }
                written
            }
            Write::Expected { jid, minions } => self.update(jid, |job| {
                let known = std::mem::take(&mut job.record.minions);
                job.record.minions = sorted(known.into_iter().chain(minions.iter().cloned()));
            }),
            Write::Return(record) => self.new_return(record),
            Write::JobState {
                jid,
                state,
                at,
                notes,
            } => self.update(jid, |job| {
                job.state = *state;
                job.finished = (*state != JobState::Open).then_some(*at);
                job.notes = notes.clone().or(job.notes.take());
            }),
            Write::Published { jid, at } => self.update(jid, |job| {
                job.published.get_or_insert(*at);
            }),
            Write::PublishedFor { jid, minion } => {
                self.update(jid, |job| job.publisher = Some(minion.clone()))
            }
            Write::Batch { jid, plan } => self.new_batch(jid, plan),
            Write::BatchFailed {
                jid,
                minions,
                reason,
            } => {
                if let Some(batch) = self.batches.get_mut(jid) {
                    let failed = minions.iter().cloned();
                    batch
                        .failed
                        .extend(failed.map(|one| (one, (*reason).to_owned())));
                }
                Written::Updated
            }
            Write::BatchPaused { jid, since } => {
                let batch = self.batches.get_mut(jid).filter(|batch| batch.is_open);
                match batch {
                    Some(batch) => {
                        batch.paused_since = *since;
                        Written::Updated
                    }
                    None => Written::NoSuchJob,
                }
            }
            Write::BatchOver { jid, halted } => match self.batches.get_mut(jid) {
                Some(batch) => {
                    (batch.is_open, batch.halted) = (false, halted.clone());
                    Written::Updated
                }
                None => Written::NoSuchJob,
            },
            Write::Events { first, events } => {
                let known = usize::try_from((self.sent + 1).saturating_sub(*first));
                let new = events.get(known.unwrap_or(0)..).unwrap_or_default();
                self.sent = self.sent.max(first + events.len() as u64 - 1);
                self.keep(new, kept);
                Written::Updated
            }
            Write::Audit(record) => {
                let AuditHead { number, hash } = self.audit_head();
                let hash = hash.map(|byte| byte.wrapping_mul(31).wrapping_add(number as u8 + 1));
                self.audit.push(AuditRow {
                    number: number + 1,
                    record: (**record).clone(),
                    hash,
                });
                Written::New { id: number + 1 }
            }
            Write::DeleteJob { jid } => Written::Deleted {
                rows: self.delete(jid),
            },
        }
    }

    fn new_batch(&mut self, jid: &Jid, plan: &Packed) -> Written {
        if self.batches.contains_key(jid) {
            return Written::Duplicate;
        }
        let batch = StoredBatch {
            jid: jid.clone(),
            plan: plan.clone(),
            is_open: true,
            halted: None,
            paused_since: None,
            failed: Vec::new(),
            sent: Vec::new(),
            returned: Vec::new(),
            published: None,
        };
        self.batches.insert(jid.clone(), batch);
        Written::Updated
    }

    fn delete(&mut self, jid: &Jid) -> usize {
        let before = self.returns.len() + self.jobs.len() + self.batches.len();
        self.returns.retain(|_, record| record.jid != *jid);
        self.batches.remove(jid);
        self.returns_before.remove(jid);
        if let Some(number) = self.numbers.remove(jid) {
            self.jobs.remove(&number);
        }
        before - self.returns.len() - self.jobs.len() - self.batches.len()
    }

    fn completed(&self, batch: &StoredBatch) -> StoredBatch {
        let job = self.job(&batch.jid);
        StoredBatch {
            sent: job
                .map(|job| job.record.minions.clone())
                .unwrap_or_default(),
            returned: self.heads(&batch.jid),
            published: job.and_then(|job| job.published),
            ..batch.clone()
        }
    }

    fn heads(&self, jid: &Jid) -> Vec<ReturnHead> {
        let returns = self.returns_of(jid);
        returns
            .map(|(_, record)| ReturnHead {
                minion: record.minion.clone(),
                received: record.received,
                retcode: record.retcode,
            })
            .collect()
    }

    fn open(&self, job: &StoredJob) -> OpenJob {
        let returned = self.returns_of(&job.record.jid);
        let returned = returned.map(|(_, one)| (one.minion.clone(), one.retcode));
        OpenJob {
            job: job.clone(),
            returned: returned.collect::<BTreeMap<_, _>>().into_iter().collect(),
        }
    }

    fn summary(&self, job: &StoredJob) -> JobSummary {
        let returned = || self.returns_of(&job.record.jid);
        JobSummary {
            jid: job.record.jid.clone(),
            created: job.record.created,
            finished: job.finished,
            user: job.record.user.clone(),
            fun: job.record.fun.clone(),
            tgt: job.record.tgt.clone(),
            tgt_type: job.record.tgt_type.clone(),
            state: job.state,
            expected: job.record.minions.len(),
            returned: returned().count(),
            failed: returned().filter(|(_, one)| one.retcode != 0).count(),
        }
    }

    /// The jobs, highest jid first.
    fn newest(&self) -> Vec<&StoredJob> {
        let mut jobs: Vec<_> = self.jobs.values().collect();
        jobs.sort_by(|one, other| other.record.jid.cmp(&one.record.jid));
        jobs
    }

    fn matches(&self, search: &JobSearch<'_>, job: &StoredJob) -> bool {
        let record = &job.record;
        let has_failed = || {
            self.returns_of(&record.jid)
                .any(|(_, one)| one.retcode != 0)
        };
        let involves = |minion: &MinionId| {
            let mut returned = self.returns_of(&record.jid);
            record.minions.contains(minion) || returned.any(|(_, one)| one.minion == *minion)
        };
        search
            .before
            .is_none_or(|before| record.jid.as_str() < before)
            && search.since.is_none_or(|since| record.created >= since)
            && search.until.is_none_or(|until| record.created <= until)
            && search.user.is_none_or(|user| record.user == user)
            && search
                .target
                .is_none_or(|pattern| pattern.matches(&record.tgt))
            && search.minion.is_none_or(involves)
            && search.function.is_none_or(|pattern| {
                pattern.matches(&record.fun)
                    || record.fun.split(',').any(|one| pattern.matches(one))
            })
            && match search.state {
                None => true,
                Some(StateFilter::Open) => job.state == JobState::Open,
                Some(StateFilter::Ended) => job.state != JobState::Open,
                Some(StateFilter::Failed) => {
                    matches!(job.state, JobState::Expired | JobState::Killed) || has_failed()
                }
            }
    }
}

fn sorted(minions: impl IntoIterator<Item = MinionId>) -> Vec<MinionId> {
    let minions: BTreeSet<MinionId> = minions.into_iter().collect();
    minions.into_iter().collect()
}

impl JobLog for Memory {
    fn append(&self, batch: Arc<Batch>) -> Pending<Committed> {
        self.change(|rows| {
            let mut committed = Committed::default();
            for (index, write) in batch.writes.iter().enumerate() {
                let written = rows.apply(write, &mut committed.events);
                committed.written.push(written);
                if !matches!(written, Written::Repeated { .. }) {
                    let caused = batch.caused.get(index).map(Vec::as_slice);
                    rows.keep(caused.unwrap_or_default(), &mut committed.events);
                }
            }
            committed
        })
    }

    fn import(&self, slice: Vec<CachedJob>) -> Pending<Imported> {
        self.change(|rows| {
            let mut imported = Imported::default();
            for cached in &slice {
                if let Some(job) = &cached.job
                    && rows.insert_job(rows.lowest.0 - 1, job, JobState::Expired)
                {
                    rows.lowest.0 -= 1;
                    imported.jobs += 1;
                    rows.update(&job.jid, |stored| stored.reporter = cached.reporter.clone());
                }
                for record in &cached.returns {
                    let mut known = rows.returns_of(&record.jid);
                    if known.all(|(_, one)| one.minion != record.minion) {
                        drop(known);
                        rows.lowest.1 -= 1;
                        rows.returns.insert(rows.lowest.1, record.clone());
                        imported.returns += 1;
                    }
                }
                let returned = rows.returns_of(&cached.jid).count();
                rows.update(&cached.jid, |job| {
                    if cached.is_whole && job.id < 0 && returned >= job.record.minions.len() {
                        job.state = JobState::Complete;
                    }
                });
            }
            imported
        })
    }

    fn finish_import(&self) -> Pending<()> {
        self.change(|rows| rows.has_imported = true)
    }

    fn next_event_position(&self) -> Pending<i64> {
        self.change(|rows| rows.next_position())
    }

    fn audit_head(&self) -> Pending<AuditHead> {
        self.change(|rows| rows.audit_head())
    }
}

impl Housekeeping for Memory {
    fn place(&self) -> &Path {
        Path::new("memory")
    }

    fn remove_slice(&self, retention: Retention, _: usize) -> Pending<Option<Removed>> {
        self.change(|rows| {
            let is_old = |job: &&StoredJob| {
                let before = retention.jobs_before();
                before.is_some_and(|before| job.record.created < before)
            };
            let old = rows.jobs.values().find(is_old);
            let most = retention.most_jobs.map_or(usize::MAX, |most| most as usize);
            let excess = || {
                let mut ended = rows.jobs.values().filter(|job| job.state != JobState::Open);
                ended.next().filter(|_| rows.jobs.len() > most)
            };
            let (jid, reason) = match old {
                Some(job) => (job.record.jid.clone(), Reason::Age),
                None => (excess()?.record.jid.clone(), Reason::Count),
            };
            Some(Removed {
                reason,
                rows: rows.delete(&jid),
                jobs: vec![jid],
            })
        })
    }
}

/// The number of a row, 0 where there is none.
fn number(id: Option<&i64>) -> i64 {
    id.copied().unwrap_or(0)
}

impl JobQueries for Memory {
    fn another(&self) -> Result<Arc<dyn JobQueries>> {
        Ok(Arc::new(self.clone()))
    }

    fn identity(&self) -> Result<String> {
        Ok(format!("{:016x}", Arc::as_ptr(&self.0) as usize))
    }

    fn load(&self, jid: &Jid) -> Result<Option<StoredJob>> {
        Ok(self.rows().job(jid).cloned())
    }

    fn has(&self, jid: &Jid) -> Result<bool> {
        Ok(self.rows().job(jid).is_some())
    }

    fn is_published_for(&self, jid: &Jid, minion: &MinionId) -> Result<bool> {
        let rows = self.rows();
        let expects =
            |job: &StoredJob| job.reporter.is_none() && job.record.minions.contains(minion);
        Ok(rows.job(jid).is_some_and(expects))
    }

    fn is_reported(&self, jid: &Jid) -> Result<bool> {
        let rows = self.rows();
        Ok(rows.job(jid).is_some_and(|job| job.reporter.is_some()))
    }

    fn has_early_returns(&self, jid: &Jid) -> Result<bool> {
        let rows = self.rows();
        let before = number(rows.returns_before.get(jid));
        let has_some = rows.returns_of(jid).any(|(id, _)| id <= before);
        Ok(rows.job(jid).is_some() && has_some)
    }

    fn incomplete(&self, jid: &Jid, minion: &MinionId) -> Result<Option<IncompleteJob>> {
        let rows = self.rows();
        let is_incomplete = |job: &&StoredJob| {
            job.state.is_incomplete_end() && job.reporter.is_none() && !job.record.nocache
        };
        let found = rows.job(jid).filter(is_incomplete);
        Ok(found.map(|job| IncompleteJob {
            minions: job.record.minions.len(),
            expects: job.record.minions.contains(minion),
        }))
    }

    fn publisher_of(&self, jid: &Jid) -> Result<Option<MinionId>> {
        Ok(self.rows().job(jid).and_then(|job| job.publisher.clone()))
    }

    fn load_of(&self, jid: &Jid) -> Result<Option<Packed>> {
        Ok(self.rows().job(jid).map(|job| job.record.load.clone()))
    }

    fn batch(&self, jid: &Jid) -> Result<Option<StoredBatch>> {
        let rows = self.rows();
        Ok(rows.batches.get(jid).map(|batch| rows.completed(batch)))
    }

    fn batch_paused_since(&self, jid: &Jid) -> Result<Option<i64>> {
        let rows = self.rows();
        let open = rows.batches.get(jid).filter(|batch| batch.is_open);
        Ok(open.and_then(|batch| batch.paused_since))
    }

    fn returns(&self, jid: &Jid) -> Result<Vec<ReturnRecord>> {
        let rows = self.rows();
        Ok(rows.returns_of(jid).map(|(_, one)| one.clone()).collect())
    }

    fn return_of(&self, jid: &Jid, minion: &MinionId) -> Result<Option<ReturnRecord>> {
        let rows = self.rows();
        let found = rows.returns_of(jid).find(|(_, one)| one.minion == *minion);
        Ok(found.map(|(_, one)| one.clone()))
    }

    fn returns_page(
        &self,
        jid: &Jid,
        after: Option<&str>,
        limit: usize,
        most_bytes: usize,
    ) -> Result<ReturnsPage> {
        let mut returns = self.returns(jid)?;
        returns.retain(|one| after.is_none_or(|after| one.minion.as_str() > after));
        returns.sort_by(|one, other| one.minion.cmp(&other.minion));
        returns.truncate(limit);
        let mut bytes = 0;
        let fits = returns.iter().take_while(|one| {
            bytes += one.load.as_ref().len();
            bytes <= most_bytes
        });
        let fits = fits.count().max(1);
        let is_cut = returns.len() > fits;
        returns.truncate(fits);
        Ok(ReturnsPage { returns, is_cut })
    }

    fn return_heads(&self, jid: &Jid) -> Result<Vec<ReturnHead>> {
        Ok(self.rows().heads(jid))
    }

    fn returned_minions(&self, jid: &Jid) -> Result<Vec<MinionId>> {
        let rows = self.rows();
        Ok(sorted(
            rows.returns_of(jid).map(|(_, one)| one.minion.clone()),
        ))
    }

    fn last_return_at(&self, jid: &Jid) -> Result<Option<i64>> {
        let rows = self.rows();
        Ok(rows.returns_of(jid).map(|(_, one)| one.received).max())
    }

    fn jobs_page(&self, page: &JobsPage<'_>) -> Result<Vec<JobHead>> {
        let rows = self.rows();
        let is_meant = |job: &&StoredJob| {
            let jid = job.record.jid.as_str();
            page.before.is_none_or(|before| jid < before)
                && page.from.is_none_or(|from| jid >= from)
                && page
                    .until
                    .is_none_or(|until| jid <= until || jid.starts_with(until))
                && page.function.is_none_or(|fun| job.record.fun == fun)
        };
        let jobs = rows.newest().into_iter().filter(is_meant).take(page.limit);
        let heads = jobs.map(|job| JobHead {
            jid: job.record.jid.clone(),
            fun: job.record.fun.clone(),
            tgt: job.record.tgt.clone(),
            tgt_type: job.record.tgt_type.clone(),
        });
        Ok(heads.collect())
    }

    fn search_jobs(&self, search: &JobSearch<'_>) -> Result<FoundJobs> {
        let rows = self.rows();
        let jobs = rows.newest().into_iter();
        let mut found = jobs.filter(|job| rows.matches(search, job));
        let jobs: Vec<JobSummary> = found
            .by_ref()
            .take(search.limit)
            .map(|job| rows.summary(job))
            .collect();
        let last = jobs.last().map(|job| job.jid.to_string());
        let next = found.next().and(last);
        Ok(FoundJobs { jobs, next })
    }

    fn latest_jobs(&self, limit: usize) -> Result<Vec<JobSummary>> {
        let rows = self.rows();
        let jobs = rows.newest().into_iter().take(limit);
        Ok(jobs.map(|job| rows.summary(job)).collect())
    }

    fn functions(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let rows = self.rows();
        let functions: BTreeSet<&String> = rows.jobs.values().map(|job| &job.record.fun).collect();
        let meant = functions.into_iter().filter(|fun| fun.starts_with(prefix));
        Ok(meant.take(limit).cloned().collect())
    }

    fn newest_returns(
        &self,
        (above, through): (i64, i64),
        search: &mut dyn ReturnSearch,
    ) -> Result<()> {
        let rows = self.rows();
        let span = above + 1..through.max(above) + 1;
        for (id, one) in rows.returns.range(span).rev() {
            let minion = one.minion.as_str();
            let Some(is_wanted) = search.wants(minion) else {
                break;
            };
            if is_wanted {
                search.take(NewestReturn {
                    id: *id,
                    minion,
                    jid: one.jid.as_str(),
                    fun: &one.fun,
                    received: one.received,
                    retcode: one.retcode,
                });
            }
        }
        Ok(())
    }

    fn open_page(&self, before: Option<&str>, limit: usize) -> Result<Vec<OpenJob>> {
        let mut open = self.open_jobs()?;
        let known = open
            .iter()
            .find(|open| Some(open.job.record.jid.as_str()) == before);
        let below = known.map_or(i64::MAX, |open| open.job.id);
        open.retain(|open| open.job.id < below);
        open.reverse();
        open.truncate(limit);
        Ok(open)
    }

    fn counts(&self) -> Result<(u64, u64)> {
        let rows = self.rows();
        Ok((rows.jobs.len() as u64, rows.returns.len() as u64))
    }

    fn open_jobs(&self) -> Result<Vec<OpenJob>> {
        let rows = self.rows();
        let open = rows.jobs.values().filter(|job| job.state == JobState::Open);
        Ok(open.map(|job| rows.open(job)).collect())
    }

    fn open_batches(&self) -> Result<Vec<StoredBatch>> {
        let rows = self.rows();
        let open = rows.batches.values().filter(|batch| batch.is_open);
        Ok(open.map(|batch| rows.completed(batch)).collect())
    }

    fn return_span(&self) -> Result<(i64, i64)> {
        let rows = self.rows();
        Ok((
            number(rows.returns.keys().next()),
            number(rows.returns.keys().last()),
        ))
    }

    fn last_ids(&self) -> Result<(i64, i64)> {
        let rows = self.rows();
        Ok((
            number(rows.jobs.keys().last()),
            number(rows.returns.keys().last()),
        ))
    }

    fn jobs_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<StoredJob>, usize)> {
        let rows = self.rows();
        let (mut found, mut left) = (Vec::new(), bytes);
        for (_, job) in rows.jobs.range(cursor + 1..).take(limit) {
            let size = job.record.load.as_ref().len();
            if size > left && !found.is_empty() {
                return Ok((found, 0));
            }
            left = left.saturating_sub(size);
            found.push(job.clone());
        }
        Ok((found, left))
    }

    fn returns_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Numbered<ReturnRecord>>> {
        let rows = self.rows();
        let mut used = 0;
        let returns = rows.returns.range(cursor + 1..).take(limit);
        let fits = returns.enumerate().take_while(|(index, (_, one))| {
            used += one.load.as_ref().len();
            *index == 0 || used <= bytes
        });
        let numbered = fits.map(|(_, (id, record))| Numbered {
            id: *id,
            record: record.clone(),
        });
        Ok(numbered.collect())
    }

    fn return_runs(&self, cursor: i64, limit: usize) -> Result<Vec<ReturnRun>> {
        let mut runs = Vec::new();
        for (id, record) in self.rows().returns.range(cursor + 1..).take(limit) {
            ReturnRun::add(&mut runs, *id, record.jid.as_str()).expect("a jid");
        }
        Ok(runs)
    }

    fn first_return(&self, jid: &Jid, cursor: i64) -> Result<Option<i64>> {
        let rows = self.rows();
        let above = rows.returns_of(jid).map(|(id, _)| id);
        Ok(above.filter(|id| *id > cursor).min())
    }

    fn returns_of(&self, functions: &[&str], cursor: i64) -> Result<ReturnsOf> {
        let rows = self.rows();
        let last = rows.returns.keys().last().copied().unwrap_or(0);
        let meant = rows.returns.range(cursor + 1..);
        let meant = meant.filter(|(_, one)| functions.contains(&one.fun.as_str()));
        let numbered = meant.map(|(id, record)| Numbered {
            id: *id,
            record: record.clone(),
        });
        Ok(ReturnsOf {
            returns: numbered.collect(),
            through: last,
            last,
        })
    }

    fn has_imported(&self) -> Result<bool> {
        Ok(self.rows().has_imported)
    }

    fn events(&self, page: &EventsPage<'_>) -> Result<Vec<KeptEvent>> {
        let rows = self.rows();
        let glob = page.tag.and_then(|tag| Pattern::glob(tag).ok());
        let is_meant = |event: &&KeptEvent| {
            glob.as_ref().is_none_or(|glob| glob.matches(&event.tag))
                && page.since.is_none_or(|since| event.received >= since)
        };
        let newest = rows.events.iter().rev().filter(is_meant).take(page.limit);
        let mut newest: Vec<_> = newest.cloned().collect();
        newest.reverse();
        Ok(newest)
    }

    fn events_between(&self, range: &EventRange) -> Result<EventSlice> {
        let rows = self.rows();
        let within =
            |event: &&KeptEvent| event.position > range.after && event.position <= range.through;
        let events = rows.events.iter().filter(within).take(range.max_events);
        let events: Vec<KeptEvent> = events.cloned().collect();
        let is_full = events.len() == range.max_events;
        let last = events.last().filter(|_| is_full);
        Ok(EventSlice {
            through: last.map_or(range.through, |event| event.position),
            events,
        })
    }

    fn events_backwards(&self, range: &EventRange) -> Result<EventSlice> {
        let rows = self.rows();
        let within =
            |event: &&KeptEvent| event.position > range.after && event.position <= range.through;
        let events = rows.events.iter().rev().filter(within);
        let events: Vec<KeptEvent> = events.take(range.max_events).cloned().collect();
        let is_full = events.len() == range.max_events;
        let last = events.last().filter(|_| is_full);
        Ok(EventSlice {
            through: last.map_or(range.after, |event| event.position - 1),
            events,
        })
    }

    fn presence_events(&self, minion: &str, before: Option<i64>) -> Result<PresenceEvents> {
        let rows = self.rows();
        let start = format!("salt/minion/{minion}/start");
        let tags = ["salt/presence/change", "salt/key", "salt/auth", &start];
        let older = rows.events.iter().rev();
        let events = older.filter(|event| before.is_none_or(|before| event.position < before));
        let events = events.filter(|event| tags.contains(&event.tag.as_str()));
        Ok(PresenceEvents {
            events: events.cloned().collect(),
            before: None,
            since: rows.events.first().map(|event| event.received),
        })
    }

    fn audit_of_job(&self, jid: &Jid, _: i64) -> Result<Option<AuditRow>> {
        let rows = self.rows();
        let is_meant = |row: &&AuditRow| row.record.jid.as_ref() == Some(jid);
        Ok(rows.audit.iter().find(is_meant).cloned())
    }

    fn audit_ends(&self) -> Result<(AuditHead, AuditHead)> {
        Ok((AuditHead::default(), self.rows().audit_head()))
    }

    fn audit(&self, page: &AuditPage<'_>) -> Result<Vec<AuditRow>> {
        let rows = self.rows();
        let is_meant = |row: &&AuditRow| {
            page.user.is_none_or(|user| row.record.user == user)
                && page.before.is_none_or(|before| row.number < before)
        };
        let newest = rows.audit.iter().rev().filter(is_meant).take(page.limit);
        Ok(newest.cloned().collect())
    }

    fn check_audit(&self, noted: Option<AuditHead>) -> Result<AuditCheck> {
        let rows = self.rows();
        let is_noted = |noted: &AuditHead| {
            let mut rows = rows.audit.iter();
            rows.any(|row| row.number == noted.number && row.hash == noted.hash)
        };
        let broken = noted.filter(|noted| !is_noted(noted));
        Ok(AuditCheck {
            rows: rows.audit.len() as u64,
            anchor: AuditHead::default(),
            head: rows.audit_head(),
            broken: broken.map(|noted| BrokenRow {
                number: noted.number,
                fault: AuditBreak::NotAsNoted,
            }),
        })
    }
}

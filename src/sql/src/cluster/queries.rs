//! The reads of the job database by PostgreSQL. Each stands with its SQL in the file of its subject.

use std::sync::Arc;

use saltern_model::{AuditRow, Jid, MinionId, Packed, ReturnRecord};

use super::import::DONE;
use super::reader::ClusterReader;
use saltern_store::Result;
use saltern_store::jobs::{
    AuditCheck, AuditHead, AuditPage, EventRange, EventSlice, EventsPage, FoundJobs, IncompleteJob,
    JobHead, JobQueries, JobSearch, JobSummary, JobsPage, KeptEvent, Numbered, OpenJob,
    PresenceEvents, ReturnHead, ReturnRun, ReturnSearch, ReturnsOf, ReturnsPage, StoredBatch,
    StoredJob,
};

impl JobQueries for ClusterReader {
    fn another(&self) -> Result<Arc<dyn JobQueries>> {
        Ok(Arc::new(Self::another(self)))
    }

    fn identity(&self) -> Result<String> {
        Ok(self.meta("identity")?.unwrap_or_default())
    }

    fn load(&self, jid: &Jid) -> Result<Option<StoredJob>> {
        Self::load(self, jid)
    }

    fn has(&self, jid: &Jid) -> Result<bool> {
        Self::has(self, jid)
    }

    fn is_published_for(&self, jid: &Jid, minion: &MinionId) -> Result<bool> {
        Self::is_published_for(self, jid, minion)
    }

    fn is_reported(&self, jid: &Jid) -> Result<bool> {
        Self::is_reported(self, jid)
    }

    fn has_early_returns(&self, jid: &Jid) -> Result<bool> {
        Self::has_early_returns(self, jid)
    }

    fn incomplete(&self, jid: &Jid, minion: &MinionId) -> Result<Option<IncompleteJob>> {
        Self::incomplete(self, jid, minion)
    }

    fn publisher_of(&self, jid: &Jid) -> Result<Option<MinionId>> {
        Self::publisher_of(self, jid)
    }

    fn load_of(&self, jid: &Jid) -> Result<Option<Packed>> {
        Self::load_of(self, jid)
    }

    fn batch(&self, jid: &Jid) -> Result<Option<StoredBatch>> {
        Self::batch(self, jid)
    }

    fn batch_paused_since(&self, jid: &Jid) -> Result<Option<i64>> {
        Self::batch_paused_since(self, jid)
    }

    fn returns(&self, jid: &Jid) -> Result<Vec<ReturnRecord>> {
        Self::returns(self, jid)
    }

    fn return_of(&self, jid: &Jid, minion: &MinionId) -> Result<Option<ReturnRecord>> {
        Self::return_of(self, jid, minion)
    }

    fn returns_page(
        &self,
        jid: &Jid,
        after: Option<&str>,
        limit: usize,
        most_bytes: usize,
    ) -> Result<ReturnsPage> {
        Self::returns_page(self, jid, after, limit, most_bytes)
    }

    fn return_heads(&self, jid: &Jid) -> Result<Vec<ReturnHead>> {
        Self::return_heads(self, jid)
    }

    fn returned_minions(&self, jid: &Jid) -> Result<Vec<MinionId>> {
        Self::returned_minions(self, jid)
    }

    fn last_return_at(&self, jid: &Jid) -> Result<Option<i64>> {
        Self::last_return_at(self, jid)
    }

    fn jobs_page(&self, page: &JobsPage<'_>) -> Result<Vec<JobHead>> {
        Self::jobs_page(self, page)
    }

    fn search_jobs(&self, search: &JobSearch<'_>) -> Result<FoundJobs> {
        Self::search_jobs(self, search)
    }

    fn latest_jobs(&self, limit: usize) -> Result<Vec<JobSummary>> {
        Self::latest_jobs(self, limit)
    }

    fn functions(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        Self::functions(self, prefix, limit)
    }

    fn newest_returns(&self, span: (i64, i64), search: &mut dyn ReturnSearch) -> Result<()> {
        Self::newest_returns(self, span, search)
    }

    fn open_page(&self, before: Option<&str>, limit: usize) -> Result<Vec<OpenJob>> {
        Self::open_page(self, before, limit)
    }

    fn counts(&self) -> Result<(u64, u64)> {
        Self::counts(self)
    }

    fn open_jobs(&self) -> Result<Vec<OpenJob>> {
        Self::open_jobs(self)
    }

    fn open_batches(&self) -> Result<Vec<StoredBatch>> {
        Self::open_batches(self)
    }

    fn return_span(&self) -> Result<(i64, i64)> {
        Self::return_span(self)
    }

    fn last_ids(&self) -> Result<(i64, i64)> {
        Self::last_ids(self)
    }

    fn jobs_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<StoredJob>, usize)> {
        Self::jobs_within(self, cursor, limit, bytes)
    }

    fn returns_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Numbered<ReturnRecord>>> {
        Self::returns_within(self, cursor, limit, bytes)
    }

    fn return_runs(&self, cursor: i64, limit: usize) -> Result<Vec<ReturnRun>> {
        Self::return_runs(self, cursor, limit)
    }

    fn first_return(&self, jid: &Jid, cursor: i64) -> Result<Option<i64>> {
        Self::first_return(self, jid, cursor)
    }

    fn returns_of(&self, functions: &[&str], cursor: i64) -> Result<ReturnsOf> {
        Self::returns_of(self, functions, cursor)
    }

    fn has_imported(&self) -> Result<bool> {
        Ok(self.meta(DONE)?.is_some())
    }

    fn events(&self, page: &EventsPage<'_>) -> Result<Vec<KeptEvent>> {
        Self::events(self, page)
    }

    fn events_between(&self, range: &EventRange) -> Result<EventSlice> {
        Self::events_between(self, range)
    }

    fn events_backwards(&self, range: &EventRange) -> Result<EventSlice> {
        Self::events_backwards(self, range)
    }

    fn presence_events(&self, minion: &str, before: Option<i64>) -> Result<PresenceEvents> {
        Self::presence_events(self, minion, before)
    }

    fn audit(&self, page: &AuditPage<'_>) -> Result<Vec<AuditRow>> {
        Self::audit(self, page)
    }

    fn audit_ends(&self) -> Result<(AuditHead, AuditHead)> {
        Self::audit_ends(self)
    }

    fn audit_of_job(&self, jid: &Jid, at: i64) -> Result<Option<AuditRow>> {
        Self::audit_of_job(self, jid, at)
    }

    fn check_audit(&self, noted: Option<AuditHead>) -> Result<AuditCheck> {
        Self::check_audit(self, noted)
    }
}

//! Listings of jobs and their filters. Jobs are scanned page by page, newest first, so a filter
//! over a million of them takes time but no memory. Old jobs of the site's SQL database are merged in.

use std::iter::Peekable;
use std::vec::IntoIter;

use saltern_model::{Jid, JobRecord};
use saltern_python::expression::Pattern;
use saltern_store::jobs::{JobHead, JobQueries, JobsPage};
use saltern_wire::msgpack::Value;

use super::describe::Entries;
use super::{CallResult, Source, describe, moment, show_progress, source};
use crate::call::{Bound, RunnerError};
use crate::notices::Notices;
use crate::old_jobs::OldPages;
use crate::python;
use crate::registry::RunnerContext;

/// Jobs of one answer, unless the call says how many.
pub const MAX_LISTED_JOBS: usize = 10_000;

/// Jobs read in one query.
const PAGE: usize = 512;

/// Filter of a listing.
#[derive(Default)]
pub(super) struct Filter {
    /// One of these entries has to be in the metadata.
    metadata: Option<Value>,
    functions: Option<Vec<Pattern>>,
    targets: Option<Vec<Pattern>>,
    from: Option<String>,
    until: Option<String>,
    before: Option<String>,
}

impl Filter {
    /// Metadata that is no map matches no job, as in stock.
    pub(super) fn new(
        metadata: Option<&Value>,
        functions: Option<&Value>,
        targets: Option<&Value>,
    ) -> Result<Self, RunnerError> {
        Ok(Self {
            metadata: metadata.cloned(),
            functions: functions.map(patterns).transpose()?,
            targets: targets.map(patterns).transpose()?,
            ..Self::default()
        })
    }

    /// The filters of `list_jobs`.
    fn of_call(call: &Bound<'_>) -> Result<Self, RunnerError> {
        Ok(Self {
            from: time(call, "start_time")?,
            until: time(call, "end_time")?,
            before: call.text("before")?,
            ..Self::new(
                call.truthy("search_metadata"),
                call.truthy("search_function"),
                call.truthy("search_target"),
            )?
        })
    }

    /// The highest jid that the filter admits.
    pub(super) fn newest(
        &self,
        context: &RunnerContext,
        source: Source,
    ) -> Result<Option<Jid>, RunnerError> {
        let mut newest = None;
        let problem = self.each(context, source, |candidate| {
            newest = Some(candidate.head.jid);
            Ok(false)
        })?;
        match (newest, problem) {
            (None, Some(problem)) => Err(RunnerError::Refused(problem)),
            (newest, _) => Ok(newest),
        }
    }

    /// Gives each matching job to `take`, highest jid first, until there are no more or `take` stops.
    /// Returns why there may be others.
    fn each(
        &self,
        context: &RunnerContext,
        source: Source,
        mut take: impl FnMut(Candidate) -> Result<bool, RunnerError>,
    ) -> Result<Option<String>, RunnerError> {
        let mut own = OwnPages::new(self, &*context.jobs, source);
        let mut old = self.old_pages(context, source)?;
        loop {
            let own_next = own.peek()?.map(|head| head.jid.clone());
            let older = old
                .as_mut()
                .and_then(|old| old.take_above(own_next.as_ref()));
            let mut candidate = match (older, own_next) {
                (Some(job), _) => Candidate::of_old(&job),
                (None, Some(_)) => match own.page.next() {
                    Some(head) => Candidate { head, job: None },
                    None => continue,
                },
                (None, None) => return Ok(old.and_then(OldPages::problem)),
            };
            if !self.means(&candidate.head) {
                continue;
            }
            if self.metadata.is_some() {
                let job = candidate.described(context)?;
                if !self.means_metadata(&job) {
                    continue;
                }
                candidate.job = Some(job);
            }
            if !take(candidate)? {
                return Ok(None);
            }
        }
    }

    fn old_pages<'c>(
        &self,
        context: &'c RunnerContext,
        source: Source,
    ) -> Result<Option<OldPages<'c>>, RunnerError> {
        let Some(old) = &context.old_jobs else {
            return Ok(None);
        };
        let until = self.until.as_deref().map(following);
        let bounds = [self.before.clone(), until];
        let before = bounds.into_iter().flatten().min();
        let (before, from) = (before.as_deref(), self.from.as_deref());
        Ok(Some(match source {
            Source::Own => old.pages(&*context.jobs, before, from)?,
            Source::Old => old.all_pages(before, from),
        }))
    }

    /// The only function that the filter admits, for which there is an index.
    fn one_function(&self) -> Option<&str> {
        match self.functions.as_deref() {
            Some([one]) => one.literal(),
            _ => None,
        }
    }

    fn means(&self, head: &JobHead) -> bool {
        let targets: Vec<&str> = match head.tgt_type.as_str() {
            "list" => head.tgt.split(',').collect(),
            _ => vec![&head.tgt],
        };
        let functions: Vec<&str> = head.fun.split(',').collect();
        any_matches(self.functions.as_deref(), &functions)
            && any_matches(self.targets.as_deref(), &targets)
    }

    fn means_metadata(&self, described: &[(Value, Value)]) -> bool {
        let found = described
            .iter()
            .find(|(name, _)| name.as_str() == Some("Metadata"));
        let wanted = self.metadata.as_ref().and_then(Value::as_map);
        let (Some((_, found)), Some(wanted)) = (found, wanted) else {
            return false;
        };
        let has = |(name, value): &(Value, Value)| {
            let entries = found.as_map().unwrap_or_default();
            entries.iter().any(|(n, v)| n == name && v == value)
        };
        wanted.iter().any(has)
    }
}

/// A job that a listing may have.
struct Candidate {
    head: JobHead,
    /// Its description, if that is known already.
    job: Option<Entries>,
}

impl Candidate {
    fn of_old(job: &JobRecord) -> Self {
        Self {
            head: JobHead {
                jid: job.jid.clone(),
                fun: job.fun.clone(),
                tgt: job.tgt.clone(),
                tgt_type: job.tgt_type.clone(),
            },
            job: Some(describe::of_load(job.jid.as_str(), &job.load)),
        }
    }

    fn described(&mut self, context: &RunnerContext) -> Result<Entries, RunnerError> {
        match self.job.take() {
            Some(job) => Ok(job),
            None => described(context, &self.head.jid),
        }
    }
}

/// Jobs of the job database, page by page.
struct OwnPages<'a> {
    filter: &'a Filter,
    jobs: &'a dyn JobQueries,
    before: Option<String>,
    page: Peekable<IntoIter<JobHead>>,
    has_more: bool,
}

impl<'a> OwnPages<'a> {
    fn new(filter: &'a Filter, jobs: &'a dyn JobQueries, source: Source) -> Self {
        Self {
            filter,
            jobs,
            before: filter.before.clone(),
            page: Vec::new().into_iter().peekable(),
            has_more: source == Source::Own,
        }
    }

    fn peek(&mut self) -> Result<Option<&JobHead>, RunnerError> {
        if self.page.peek().is_none() && self.has_more {
            let heads = self.jobs.jobs_page(&JobsPage {
                before: self.before.as_deref(),
                from: self.filter.from.as_deref(),
                until: self.filter.until.as_deref(),
                function: self.filter.one_function(),
                limit: PAGE,
            })?;
            self.has_more = !heads.is_empty();
            self.before = heads.last().map(|last| last.jid.to_string());
            self.page = heads.into_iter().peekable();
        }
        Ok(self.page.peek())
    }
}

/// The digits of a jid behind those of `until` and all its suffixes.
fn following(until: &str) -> String {
    match until.parse::<u128>() {
        Ok(number) => format!("{:0>20}", number.saturating_add(1)),
        Err(_) => until.to_owned(),
    }
}

/// The time that an argument names, as the digits of a jid.
fn time(call: &Bound<'_>, name: &str) -> Result<Option<String>, RunnerError> {
    let text = call.text(name)?.filter(|text| !text.is_empty());
    let digits = |text: String| {
        moment::digits(&text).ok_or_else(|| {
            RunnerError::Refused(format!(
                "{name} \"{text}\" is no time that is understood here: write it as \
                 \"2015-03-16 19:00:00\" or \"2015, Mar 16 19:00\""
            ))
        })
    };
    text.map(digits).transpose()
}

fn any_matches(patterns: Option<&[Pattern]>, texts: &[&str]) -> bool {
    patterns.is_none_or(|patterns| {
        let matches = |text: &&str| patterns.iter().any(|pattern| pattern.matches(text));
        texts.iter().any(matches)
    })
}

fn patterns(value: &Value) -> Result<Vec<Pattern>, RunnerError> {
    let texts = python::split_input(value);
    let pattern = |text: &String| {
        Pattern::glob(text).map_err(|error| RunnerError::Refused(error.to_string()))
    };
    texts.iter().map(pattern).collect()
}

fn described(context: &RunnerContext, jid: &Jid) -> Result<Entries, RunnerError> {
    let load = context.jobs.load_of(jid)?;
    Ok(match load {
        Some(load) => describe::of_load(jid.as_str(), &load),
        // It expired since the page was read.
        None => describe::unknown(jid.as_str()),
    })
}

pub(super) fn list_jobs(
    context: &RunnerContext,
    call: &Bound<'_>,
    progress: &mut Notices<'_>,
) -> CallResult {
    let source = source(context, call)?;
    show_progress(call, progress, "Querying returner local_cache for jobs.");
    let limit = call.count("limit")?.unwrap_or(MAX_LISTED_JOBS);
    let mut jobs = Vec::new();
    if limit > 0 {
        let problem = Filter::of_call(call)?.each(context, source, |mut candidate| {
            let mut entries = candidate.described(context)?;
            let jid = &candidate.head.jid;
            if let Some(end) = describe::end_time(context, jid)? {
                entries.push(("EndTime".into(), describe::time_text(end).into()));
            }
            jobs.push((Value::from(jid.as_str()), Value::Map(entries)));
            Ok(jobs.len() < limit)
        })?;
        say_problem(source, problem, progress)?;
    }
    Ok(with_outputter(call, Value::Map(jobs)))
}

pub(super) fn list_jobs_filter(
    context: &RunnerContext,
    call: &Bound<'_>,
    progress: &mut Notices<'_>,
) -> CallResult {
    let source = source(context, call)?;
    show_progress(call, progress, "Querying returner local_cache for jobs.");
    let count = call.count("count")?.unwrap_or_default();
    let skips_probes = call.flag("filter_find_job", true);
    let filter = Filter {
        before: call.text("before")?,
        ..Filter::default()
    };
    let mut jobs = Vec::new();
    if count > 0 {
        let problem = filter.each(context, source, |mut candidate| {
            if skips_probes && candidate.head.fun == "saltutil.find_job" {
                return Ok(true);
            }
            let mut entries = candidate.described(context)?;
            let start = entries.len().saturating_sub(1);
            let jid = candidate.head.jid.as_str();
            entries.insert(start, ("JID".into(), jid.into()));
            jobs.push(Value::Map(entries));
            Ok(jobs.len() < count)
        })?;
        say_problem(source, problem, progress)?;
    }
    // Stock gives the oldest first.
    jobs.reverse();
    Ok(with_outputter(call, Value::Array(jobs)))
}

/// Jobs of our own are listed without the old ones, and it is said; where only old ones were asked for,
/// it is an error.
fn say_problem(
    source: Source,
    problem: Option<String>,
    progress: &mut Notices<'_>,
) -> Result<(), RunnerError> {
    match (source, problem) {
        (_, None) => {}
        (Source::Own, Some(problem)) => progress.say(&problem),
        (Source::Old, Some(problem)) => return Err(RunnerError::Refused(problem)),
    }
    Ok(())
}

fn with_outputter(call: &Bound<'_>, jobs: Value) -> Value {
    match call.truthy("outputter") {
        Some(outputter) => Value::map([("outputter", outputter.clone()), ("data", jobs)]),
        None => jobs,
    }
}

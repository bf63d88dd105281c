//! Listings of jobs and their filters. Jobs are scanned page by page, newest first, so a filter
//! over a million of them takes time but no memory.

use saltern_model::Jid;
use saltern_python::expression::Pattern;
use saltern_store::jobs::{JobHead, JobsPage};
use saltern_wire::msgpack::Value;

use super::{CallResult, describe, moment, only_own_cache, show_progress};
use crate::call::{Bound, RunnerError};
use crate::notices::Notices;
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
    pub(super) fn newest(&self, context: &RunnerContext) -> Result<Option<Jid>, RunnerError> {
        let mut newest = None;
        self.each(context, |head, _| {
            newest = Some(head.jid);
            Ok(false)
        })?;
        Ok(newest)
    }

    /// Gives each matching job to `take`, with its description if a filter needed that, until there
    /// are no more or `take` stops.
    fn each(
        &self,
        context: &RunnerContext,
        mut take: impl FnMut(JobHead, Option<Vec<(Value, Value)>>) -> Result<bool, RunnerError>,
    ) -> Result<(), RunnerError> {
        let mut before = self.before.clone();
        loop {
            let heads = context.jobs.jobs_page(&JobsPage {
                before: before.as_deref(),
                from: self.from.as_deref(),
                until: self.until.as_deref(),
                function: self.one_function(),
                limit: PAGE,
            })?;
            let Some(last) = heads.last() else {
                return Ok(());
            };
            before = Some(last.jid.to_string());
            for head in heads {
                if !self.means(&head) {
                    continue;
                }
                let described = match self.metadata {
                    Some(_) => {
                        let job = described(context, &head.jid)?;
                        if !self.means_metadata(&job) {
                            continue;
                        }
                        Some(job)
                    }
                    None => None,
                };
                if !take(head, described)? {
                    return Ok(());
                }
            }
        }
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

fn described(context: &RunnerContext, jid: &Jid) -> Result<Vec<(Value, Value)>, RunnerError> {
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
    only_own_cache(call)?;
    show_progress(call, progress, "Querying returner local_cache for jobs.");
    let limit = call.count("limit")?.unwrap_or(MAX_LISTED_JOBS);
    let mut jobs = Vec::new();
    if limit > 0 {
        Filter::of_call(call)?.each(context, |head, job| {
            let mut entries = match job {
                Some(job) => job,
                None => described(context, &head.jid)?,
            };
            if let Some(end) = describe::end_time(context, &head.jid)? {
                entries.push(("EndTime".into(), describe::time_text(end).into()));
            }
            jobs.push((Value::from(head.jid.as_str()), Value::Map(entries)));
            Ok(jobs.len() < limit)
        })?;
    }
    Ok(with_outputter(call, Value::Map(jobs)))
}

pub(super) fn list_jobs_filter(
    context: &RunnerContext,
    call: &Bound<'_>,
    progress: &mut Notices<'_>,
) -> CallResult {
    only_own_cache(call)?;
    show_progress(call, progress, "Querying returner local_cache for jobs.");
    let count = call.count("count")?.unwrap_or_default();
    let skips_probes = call.flag("filter_find_job", true);
    let filter = Filter {
        before: call.text("before")?,
        ..Filter::default()
    };
    let mut jobs = Vec::new();
    if count > 0 {
        filter.each(context, |head, _| {
            if skips_probes && head.fun == "saltutil.find_job" {
                return Ok(true);
            }
            let mut entries = described(context, &head.jid)?;
            let start = entries.len().saturating_sub(1);
            entries.insert(start, ("JID".into(), head.jid.as_str().into()));
            jobs.push(Value::Map(entries));
            Ok(jobs.len() < count)
        })?;
    }
    // Stock gives the oldest first.
    jobs.reverse();
    Ok(with_outputter(call, Value::Array(jobs)))
}

fn with_outputter(call: &Bound<'_>, jobs: Value) -> Value {
    match call.truthy("outputter") {
        Some(outputter) => Value::map([("outputter", outputter.clone()), ("data", jobs)]),
        None => jobs,
    }
}

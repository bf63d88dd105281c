//! `jobs.*`: jobs, their returns, and the minions still outstanding (`salt/runners/jobs.py`).
//!
//! All answers come from the job database, also that of `jobs.active`, for which stock asks every
//! minion, and old jobs from the SQL database in which the site keeps them, if there is one. The functions have stock's parameters and, behind them, their own for paging: `limit`
//! with `before` (a jid) for jobs, `limit` with `after` (a minion) for the returns of one.
//! Differences are listed in `DIFFERENCES.md`.

mod describe;
mod list;
mod moment;

pub use list::MAX_LISTED_JOBS;
use saltern_model::{Jid, JobRecord, MinionId, ReturnRecord};
use saltern_store::jobs::ReturnsPage;
use saltern_wire::msgpack::{Limits, MapView, Value, decode_exact};

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError};
use crate::notices::Notices;
use crate::old_jobs::OldJobs;
use crate::registry::RunnerContext;
use Parameter::{Needed, Optional};

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "active",
        parameters: &[
            Optional("display_progress"),
            Optional("limit"),
            Optional("before"),
        ],
        run: active,
    },
    Function {
        name: "exit_success",
        parameters: &[Needed("jid"), Optional("ext_source")],
        run: exit_success,
    },
    Function {
        name: "last_run",
        parameters: &[
            Optional("ext_source"),
            Optional("outputter"),
            Optional("metadata"),
            Optional("function"),
            Optional("target"),
            Optional("display_progress"),
            Optional("limit"),
            Optional("after"),
        ],
        run: last_run,
    },
    Function {
        name: "list_job",
        parameters: &[
            Needed("jid"),
            Optional("ext_source"),
            Optional("display_progress"),
            Optional("limit"),
            Optional("after"),
        ],
        run: list_job,
    },
    Function {
        name: "list_jobs",
        parameters: &[
            Optional("ext_source"),
            Optional("outputter"),
            Optional("search_metadata"),
            Optional("search_function"),
            Optional("search_target"),
            Optional("start_time"),
            Optional("end_time"),
            Optional("display_progress"),
            Optional("limit"),
            Optional("before"),
        ],
        run: list::list_jobs,
    },
    Function {
        name: "list_jobs_filter",
        parameters: &[
            Needed("count"),
            Optional("filter_find_job"),
            Optional("ext_source"),
            Optional("outputter"),
            Optional("display_progress"),
            Optional("before"),
        ],
        run: list::list_jobs_filter,
    },
    Function {
        name: "lookup_jid",
        parameters: &[
            Needed("jid"),
            Optional("ext_source"),
            Optional("returned"),
            Optional("missing"),
            Optional("display_progress"),
            Optional("limit"),
            Optional("after"),
        ],
        run: lookup_jid,
    },
    Function {
        name: "master",
        parameters: &[],
        run: |context, _, _| Ok(Value::Array(context.running())),
    },
    Function {
        name: "print_job",
        parameters: &[
            Needed("jid"),
            Optional("ext_source"),
            Optional("limit"),
            Optional("after"),
        ],
        run: print_job,
    },
];

/// The most packed bytes of loads or returns in one answer; larger answers are paged.
const MAX_BYTES: usize = 32 << 20;

/// Stands for an outstanding minion in an answer of `lookup_jid`.
const MISSING: &str = "Minion did not return";

/// The parts of one return that an answer needs.
struct Returned {
    minion: MinionId,
    entries: Vec<(Value, Value)>,
}

impl Returned {
    /// The parts of a return that stock keeps (`returner` in `salt/returners/local_cache.py`).
    fn of(record: &ReturnRecord) -> Self {
        let parts = MapView::parse(record.load.bytes().clone(), &Limits::WIRE).ok();
        let part = |name: &str| {
            let packed = parts.as_ref()?.get(name)?;
            decode_exact(packed.bytes(), &Limits::WIRE).ok()
        };
        let names = ["return", "retcode", "success", "out"];
        let entries = names
            .into_iter()
            .filter_map(|name| Some((Value::from(name), part(name)?)))
            .collect();
        Self {
            minion: record.minion.clone(),
            entries,
        }
    }

    fn part(&self, name: &str) -> Option<&Value> {
        let found = self
            .entries
            .iter()
            .find(|(key, _)| key.as_str() == Some(name));
        found.map(|(_, value)| value)
    }
}

/// A job and a page of its returns as they are stored, wherever that is.
struct Found {
    job: Option<JobRecord>,
    page: ReturnsPage,
    end: Option<i64>,
}

impl Found {
    /// Reads the job database, or, if it has nothing, the database of old jobs.
    fn read(
        context: &RunnerContext,
        source: Source,
        jid: &Jid,
        (after, limit): (Option<&str>, usize),
    ) -> Result<Self, RunnerError> {
        let own = match source {
            Source::Own => Self {
                job: context.jobs.load(jid)?.map(|job| job.record),
                page: context.jobs.returns_page(jid, after, limit, MAX_BYTES)?,
                end: describe::end_time(context, jid)?,
            },
            Source::Old => Self {
                job: None,
                page: ReturnsPage {
                    returns: Vec::new(),
                    is_cut: false,
                },
                end: None,
            },
        };
        let is_known = own.job.is_some() || !own.page.returns.is_empty();
        let Some(old) = context.old_jobs.as_ref().filter(|_| !is_known) else {
            return Ok(own);
        };
        let keeps_end = context.config.job_cache_store_endtime;
        let end = match keeps_end {
            true => old.counts(std::slice::from_ref(jid))?,
            false => Vec::new(),
        };
        Ok(Self {
            job: old.job(jid)?,
            page: old.returns(jid, after, limit, MAX_BYTES)?,
            end: end.first().and_then(|counts| counts.last),
        })
    }
}

/// A job with a page of its returns.
struct WholeJob {
    jid: String,
    /// Its description, as `list_job` gives it without the returns.
    entries: Vec<(Value, Value)>,
    /// The minions that it expects, sorted.
    minions: Vec<MinionId>,
    /// Sorted by minion.
    returned: Vec<Returned>,
    end: Option<i64>,
}

impl WholeJob {
    /// # Errors
    /// [`RunnerError::Refused`] when the returns have more than [`MAX_BYTES`] and were not asked
    /// for in pages.
    fn read(context: &RunnerContext, call: &Bound<'_>, jid: String) -> Result<Self, RunnerError> {
        let limit = call.count("limit")?;
        let after = call.text("after")?;
        let Ok(known) = Jid::parse(&jid) else {
            return Ok(Self {
                entries: describe::unknown(&jid),
                jid,
                minions: Vec::new(),
                returned: Vec::new(),
                end: None,
            });
        };
        let wanted = (after.as_deref(), limit.unwrap_or(usize::MAX));
        let found = Found::read(context, source(context, call)?, &known, wanted)?;
        let page = found.page;
        if page.is_cut && limit.is_none() {
            return Err(RunnerError::Refused(format!(
                "the returns of job {known} have more than {} MiB: ask for some of them with \
                 limit=NUMBER, and for the next ones with after=MINION as well",
                MAX_BYTES >> 20
            )));
        }
        let job = found.job;
        Ok(Self {
            entries: match &job {
                Some(job) => describe::whole(job),
                None => describe::unknown(&jid),
            },
            minions: job.map(|job| job.minions).unwrap_or_default(),
            returned: page.returns.iter().map(Returned::of).collect(),
            end: found.end,
            jid,
        })
    }

    /// The description with `Result` and, if that is kept, `EndTime`.
    fn into_entries(self) -> Vec<(Value, Value)> {
        let mut entries = self.entries;
        let returned = self.returned.into_iter();
        let result =
            returned.map(|one| (Value::from(one.minion.as_str()), Value::Map(one.entries)));
        entries.push(("Result".into(), Value::Map(result.collect())));
        if let Some(end) = self.end {
            entries.push(("EndTime".into(), describe::time_text(end).into()));
        }
        entries
    }

    fn return_of(&self, minion: &MinionId) -> Option<&Returned> {
        let found = self.returned.binary_search_by(|one| one.minion.cmp(minion));
        found.ok().and_then(|place| self.returned.get(place))
    }
}

/// The argument `jid`.
fn wanted(call: &Bound<'_>) -> Result<String, RunnerError> {
    Ok(call.text("jid")?.unwrap_or_default())
}

/// Where jobs are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// In the job database, and old ones in the SQL database of the site.
    Own,
    /// In the SQL database alone (`ext_source`).
    Old,
}

fn source(context: &RunnerContext, call: &Bound<'_>) -> Result<Source, RunnerError> {
    let old = context.old_jobs.as_ref().map(OldJobs::name);
    match call.truthy("ext_source").and_then(Value::as_str) {
        None | Some("local_cache") => Ok(Source::Own),
        other if other == old => Ok(Source::Old),
        Some(other) => Err(RunnerError::Refused(format!(
            "the job cache \"{other}\" is not available: this master keeps jobs in its own database"
        ))),
    }
}

fn show_progress(call: &Bound<'_>, progress: &mut Notices<'_>, text: &str) {
    if call.flag("display_progress", false) {
        progress.say(text);
    }
}

fn list_job(context: &RunnerContext, call: &Bound<'_>, progress: &mut Notices<'_>) -> CallResult {
    show_progress(call, progress, "Querying returner: local_cache");
    let job = WholeJob::read(context, call, wanted(call)?)?;
    let mut entries = vec![("jid".into(), Value::from(job.jid.as_str()))];
    entries.extend(job.into_entries());
    Ok(Value::Map(entries))
}

fn print_job(context: &RunnerContext, call: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    print(context, call, wanted(call)?)
}

fn print(context: &RunnerContext, call: &Bound<'_>, jid: String) -> CallResult {
    let job = WholeJob::read(context, call, jid.clone())?;
    Ok(Value::map([(jid, Value::Map(job.into_entries()))]))
}

fn lookup_jid(context: &RunnerContext, call: &Bound<'_>, progress: &mut Notices<'_>) -> CallResult {
    show_progress(call, progress, "Querying returner: local_cache");
    let job = WholeJob::read(context, call, wanted(call)?)?;
    let mut found = Vec::new();
    for one in &job.returned {
        show_progress(call, progress, one.minion.as_str());
        if call.flag("returned", true) {
            let value = one.part("return").cloned().unwrap_or(Value::Nil);
            found.push((Value::from(one.minion.as_str()), value));
        }
    }
    if call.flag("missing", false)
        && let Ok(jid) = Jid::parse(&job.jid)
    {
        // Counted over the whole job: this page need not hold all returns.
        let returned = context.jobs.returned_minions(&jid)?;
        let is_missing = |id: &&MinionId| returned.binary_search(id).is_err();
        let missing = job.minions.iter().filter(is_missing);
        found.extend(missing.map(|id| (Value::from(id.as_str()), MISSING.into())));
    }
    let outputter = job.returned.first().and_then(|one| one.part("out"));
    let found = Value::Map(found);
    Ok(match outputter.filter(|out| out.is_truthy()) {
        Some(outputter) => Value::map([("outputter", outputter.clone()), ("data", found)]),
        None => found,
    })
}

fn exit_success(context: &RunnerContext, call: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let job = WholeJob::read(context, call, wanted(call)?)?;
    let is_success = |one: &Returned| one.part("return").is_some_and(Value::is_truthy);
    let mut verdicts: Vec<(Value, Value)> = job
        .minions
        .iter()
        .map(|id| {
            let verdict = job.return_of(id).is_some_and(is_success);
            (Value::from(id.as_str()), verdict.into())
        })
        .collect();
    // A minion that was not expected counts if its return is a success.
    let uncalled = job
        .returned
        .iter()
        .filter(|one| is_success(one) && job.minions.binary_search(&one.minion).is_err());
    verdicts.extend(uncalled.map(|one| (Value::from(one.minion.as_str()), true.into())));
    Ok(Value::Map(verdicts))
}

fn last_run(context: &RunnerContext, call: &Bound<'_>, progress: &mut Notices<'_>) -> CallResult {
    let source = source(context, call)?;
    let metadata = call.truthy("metadata");
    if metadata.is_some_and(|metadata| metadata.as_map().is_none()) {
        return Ok(false.into());
    }
    show_progress(call, progress, "Querying returner local_cache for jobs.");
    let filter = list::Filter::new(metadata, call.truthy("function"), call.truthy("target"))?;
    match filter.newest(context, source)? {
        Some(jid) => print(context, call, jid.to_string()),
        None => Ok(false.into()),
    }
}

/// Jobs of one answer of `jobs.active`, unless the call says how many.
const MAX_ACTIVE: usize = 1_000;

fn active(context: &RunnerContext, call: &Bound<'_>, progress: &mut Notices<'_>) -> CallResult {
    let before = call.text("before")?;
    let limit = call.count("limit")?.unwrap_or(MAX_ACTIVE);
    let open = context.jobs.open_page(before.as_deref(), limit)?;
    let mut jobs = Vec::with_capacity(open.len());
    for job in open {
        let mut outstanding = job.outstanding().peekable();
        if outstanding.peek().is_none() {
            continue;
        }
        let jid = job.job.record.jid.to_string();
        show_progress(call, progress, &format!("Job {jid} is open"));
        // Stock has the number of the minion's process here, which the master does not know.
        let running = outstanding.map(|id| Value::map([(id.as_str(), Value::Nil)]));
        let running = Value::Array(running.collect());
        let returned = job.returned.iter().map(|(id, _)| id.as_str().into());
        let returned = Value::Array(returned.collect());
        let mut entries = describe::of_load(&jid, &job.job.record.load);
        entries.push(("Running".into(), running));
        entries.push(("Returned".into(), returned));
        jobs.push((Value::from(jid), Value::Map(entries)));
    }
    Ok(Value::Map(jobs))
}

#[cfg(test)]
mod tests;

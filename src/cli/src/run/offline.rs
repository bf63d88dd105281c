//! Functions without a running master: those that need the job database or Python only. The others
//! refuse and name what they miss.

use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_bridge::Bridge;
use saltern_client::{RunnerRequest, RunnerReturn, user};
use saltern_config::MasterConfig;
use saltern_model::JidMinter;
use saltern_runners::{Arguments, Call, Notice, Notices, OldJobs, RunnerContext, Runners};
use saltern_sql::open_reader;
use saltern_wire::msgpack::Value;

use super::FAILED;
use crate::options::Ending;

/// Jobs of one page of a listing.
const PAGE: usize = 1_000;

/// Runs a function in this process.
pub(super) fn call(
    config: &MasterConfig,
    request: &RunnerRequest,
    notify: &mut dyn FnMut(&str, Value),
) -> Result<RunnerReturn, Ending> {
    Ok(Offline::open(config)?.run(request, notify))
}

/// Lists jobs (`jobs.list_jobs`) by pages, so that never all of them are values at a time. Gives what
/// `print` makes of each page, newest jobs first; or the answer, if that is no jobs.
pub(super) fn list_jobs<T>(
    config: &MasterConfig,
    request: &RunnerRequest,
    notify: &mut dyn FnMut(&str, Value),
    print: impl Fn(&Value) -> T,
) -> Result<Result<Vec<T>, RunnerReturn>, Ending> {
    let offline = Offline::open(config)?;
    let mut left = match argument(request, "limit").map(Value::as_u64) {
        None => saltern_runners::MAX_LISTED_JOBS,
        Some(Some(limit)) => usize::try_from(limit).unwrap_or(usize::MAX),
        // What it means, or that it means nothing, the function says.
        Some(None) => return Ok(Err(offline.run(request, notify))),
    };
    let (mut page, mut printed) = (request.clone(), Vec::new());
    loop {
        set(&mut page, "limit", left.min(PAGE).into());
        let returned = match printed.is_empty() {
            true => offline.run(&page, notify),
            false => offline.run(&page, &mut |_, _| {}),
        };
        let jobs = returned.value.as_map().unwrap_or_default();
        let Some((oldest, _)) = jobs.last() else {
            return Ok(match printed.is_empty() {
                true => Err(returned),
                false => Ok(printed),
            });
        };
        printed.push(print(&returned.value));
        left = left.saturating_sub(jobs.len());
        if jobs.len() < PAGE || left == 0 {
            return Ok(Ok(printed));
        }
        set(&mut page, "before", oldest.clone());
    }
}

fn argument<'a>(request: &'a RunnerRequest, name: &str) -> Option<&'a Value> {
    let named = request.kwarg.iter().rev();
    let mut named = named.filter(|(known, _)| known.as_str() == Some(name));
    named.next().map(|(_, value)| value)
}

fn set(request: &mut RunnerRequest, name: &str, value: Value) {
    let kwarg = &mut request.kwarg;
    kwarg.retain(|(known, _)| known.as_str() != Some(name));
    kwarg.push((name.into(), value));
}

/// The functions that need no master.
struct Offline {
    runners: Runners,
    bridge: Arc<Bridge>,
}

impl Drop for Offline {
    fn drop(&mut self) {
        self.bridge.stop();
    }
}

impl Offline {
    fn open(config: &MasterConfig) -> Result<Self, Ending> {
        let jobs = open_reader(config);
        let jobs = jobs.map_err(|error| {
            let text = format!("no master runs, and its job database cannot be read: {error}\n");
            Ending::failed(FAILED, text)
        })?;
        let config = Arc::new(config.clone());
        let bridge = Arc::new(Bridge::new(&config));
        let old_jobs = OldJobs::open(&config, &Registry::new()).map_err(|error| {
            Ending::failed(FAILED, format!("no thread for reading old jobs: {error}\n"))
        })?;
        let context = RunnerContext::new(config, jobs)
            .with_old_jobs(old_jobs)
            .with_bridge(Arc::clone(&bridge));
        let runners = Runners::new(context);
        Ok(Self { runners, bridge })
    }

    fn run(&self, request: &RunnerRequest, notify: &mut dyn FnMut(&str, Value)) -> RunnerReturn {
        let named = request.kwarg.iter().filter_map(|(name, value)| {
            let name = name.as_str()?;
            Some((name.to_owned(), value.clone()))
        });
        let call = Call {
            jid: JidMinter::new(Clock::system(), None).mint(),
            fun: request.fun.clone(),
            arguments: Arguments {
                positional: request.arg.clone(),
                named: named.collect(),
            },
            user: user::publishing_user(),
        };
        let mut notice = |notice: Notice| {
            if let Notice::Progress(data) = notice {
                notify("progress", data);
            }
        };
        let ran = self.runners.run(&call, &mut Notices::new(&mut notice));
        let inner = [Some(&ran.value), ran.value.get("data")];
        let codes = inner
            .into_iter()
            .flatten()
            .filter_map(|place| place.get("retcode"));
        let retcode = ran
            .retcode
            .or_else(|| codes.filter_map(Value::as_i64).next());
        RunnerReturn {
            // There is no event; a copy of what may be large is not needed.
            data: Value::Nil,
            tag: String::new(),
            value: ran.value,
            retcode: retcode.unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use saltern_config::load_master;
    use saltern_model::{Jid, JobRecord, MinionId, Packed};
    use saltern_store::jobs::Write;
    use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
    use saltern_wire::msgpack::{Dialect, encode};

    use super::*;

    fn job(number: usize) -> Write {
        let load = Value::map([("fun", "test.ping")]);
        Write::Job(JobRecord {
            jid: Jid::parse(&format!("20261121070622{number:06}")).expect("a jid"),
            created: 1,
            user: "root".to_owned(),
            fun: "test.ping".to_owned(),
            tgt: "*".to_owned(),
            tgt_type: "glob".to_owned(),
            load: Packed::new(encode(&load, Dialect::Bin)),
            minions: vec![MinionId::parse("m1").expect("an id")],
            nocache: false,
        })
    }

    #[test]
    fn jobs_are_listed_by_pages_up_to_the_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = format!("id: m\nroot_dir: {}\n", dir.path().display());
        std::fs::write(dir.path().join("master"), options).expect("written");
        let Ok(loaded) = load_master(dir.path()) else {
            panic!("the options of this test are wrong")
        };
        let path = &loaded.config.saltern_job_database;
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        let mut database = JobDatabase::open(path, DatabaseLimits::default()).expect("opened");
        let jobs = 2 * PAGE + 500;
        let writes: Vec<Write> = (0..jobs).map(job).collect();
        database.commit(&writes).expect("committed");

        let sizes = |kwarg: &[(&str, Value)]| {
            let kwarg = kwarg.iter();
            let request = RunnerRequest {
                fun: "jobs.list_jobs".to_owned(),
                arg: Vec::new(),
                kwarg: kwarg
                    .map(|(name, value)| ((*name).into(), value.clone()))
                    .collect(),
                timeout: None,
            };
            let print = |page: &Value| page.as_map().expect("jobs").len();
            let listed = list_jobs(&loaded.config, &request, &mut |_, _| {}, print);
            let Ok(listed) = listed else {
                panic!("the database is there")
            };
            listed.map_err(|returned| returned.value)
        };
        let none = || Err(Value::Map(Vec::new()));
        for (kwarg, expected) in [
            (vec![], Ok(vec![PAGE, PAGE, 500])),
            (vec![("limit", Value::from(PAGE + 1))], Ok(vec![PAGE, 1])),
            (vec![("limit", PAGE.into())], Ok(vec![PAGE])),
            (vec![("limit", 0.into())], none()),
            (vec![("before", "20261121070622000007".into())], Ok(vec![7])),
            (vec![("search_function", "no.such".into())], none()),
            (vec![("limit", "7".into())], Ok(vec![7])),
        ] {
            let found = match sizes(&kwarg) {
                // A limit that is a text is the function's own.
                Err(Value::Map(jobs)) if !jobs.is_empty() => Ok(vec![jobs.len()]),
                found => found,
            };
            assert_eq!(found, expected, "{kwarg:?}");
        }
    }
}

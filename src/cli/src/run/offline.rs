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
use saltern_store::{DatabaseLimits, JobReader};
use saltern_wire::msgpack::Value;

use super::FAILED;
use crate::options::Ending;

/// Runs a function in this process.
pub(super) fn call(
    config: &MasterConfig,
    request: &RunnerRequest,
    notify: &mut dyn FnMut(&str, Value),
) -> Result<RunnerReturn, Ending> {
    let jobs = JobReader::open(&config.saltern_job_database, DatabaseLimits::default());
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
    let ran = runners.run(&call, &mut Notices::new(&mut notice));
    bridge.stop();
    let inner = [Some(&ran.value), ran.value.get("data")];
    let codes = inner
        .into_iter()
        .flatten()
        .filter_map(|place| place.get("retcode"));
    let retcode = ran
        .retcode
        .or_else(|| codes.filter_map(Value::as_i64).next());
    Ok(RunnerReturn {
        data: Value::map([("return", ran.value.clone())]),
        tag: String::new(),
        value: ran.value,
        retcode: retcode.unwrap_or(0),
    })
}

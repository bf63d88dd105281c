//! `saltutil.*`: the jobs that run now. The master asks `find_job` when a job takes long.

use futures_util::FutureExt;
use saltern_wire::msgpack::Value;

use super::arguments::{Parameter, Signature};
use super::{Call, Function, FunctionResult};
use crate::python;

const JID: &[Parameter] = &[Parameter::Required("jid")];

pub(crate) const FIND_JOB: Function = Function {
    name: "saltutil.find_job",
    doc: "The data of the job with this jid if it runs now, else nothing.",
    signature: Signature {
        function: "find_job",
        parameters: JID,
        more: false,
        keywords: false,
    },
    body: |call| {
        let job = call.context.jobs.get(&jid(&call));
        let data = job.map_or_else(|| Value::Map(Vec::new()), |job| job.describe());
        std::future::ready(Ok(FunctionResult::ok(data))).boxed()
    },
    quick: true,
    out: None,
};

pub(crate) const RUNNING: Function = Function {
    name: "saltutil.running",
    doc: "The data of every job that runs now, but for this one.",
    signature: Signature {
        function: "running",
        parameters: &[],
        more: false,
        keywords: false,
    },
    body: |call| {
        let others = call.context.jobs.all();
        let others = others.iter().filter(|job| job.jid != call.job.jid);
        let data: Vec<Value> = others.map(|job| job.describe()).collect();
        std::future::ready(Ok(FunctionResult::ok(data))).boxed()
    },
    quick: true,
    out: None,
};

pub(crate) const KILL_JOB: Function = Function {
    name: "saltutil.kill_job",
    doc: "Ends the job with this jid at once; it returns nothing.",
    signature: Signature {
        function: "kill_job",
        parameters: JID,
        more: false,
        keywords: false,
    },
    body: |call| std::future::ready(Ok(end(&call, 9))).boxed(),
    quick: true,
    out: None,
};

pub(crate) const TERM_JOB: Function = Function {
    name: "saltutil.term_job",
    doc: "Ends the job with this jid; its command is asked to stop and it returns nothing.",
    signature: Signature {
        function: "term_job",
        parameters: JID,
        more: false,
        keywords: false,
    },
    body: |call| std::future::ready(Ok(end(&call, 15))).boxed(),
    quick: true,
    out: None,
};

fn jid(call: &Call) -> String {
    call.arguments
        .get("jid")
        .map(python::text)
        .unwrap_or_default()
}

fn end(call: &Call, signal: i32) -> FunctionResult {
    let jid = jid(call);
    match call
        .context
        .jobs
        .get(&jid)
        .filter(|job| job.jid != call.job.jid)
    {
        Some(job) => {
            let pid = job.pid();
            job.end(signal);
            FunctionResult::ok(format!("Signal {signal} sent to job {jid} at pid {pid}"))
        }
        None => FunctionResult::ok(""),
    }
}

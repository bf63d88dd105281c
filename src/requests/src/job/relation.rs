//! Jobs about other jobs: those that ask whether one still runs, and those that end one.

use saltern_model::{Jid, MinionId, Target, TargetType};
use saltern_store::SyndicStore;
use saltern_wire::msgpack::Value;

use super::request::Request;
use crate::outcome::{JobRelation, SignalTargets};

/// Signals that end a process: KILL and TERM. After others it may go on, or end by itself.
const ENDING: [i64; 2] = [9, 15];

/// The relation of a job to another one, if it has one.
pub(crate) fn of_load(load: &Value, request: &Request<'_>, target: &Target) -> Option<JobRelation> {
    let [fun] = request.functions.as_slice() else {
        return None;
    };
    let arguments = load.get("arg")?.as_array()?;
    if let "saltutil.kill_all_jobs" | "saltutil.term_all_jobs" = fun.as_str() {
        return Some(JobRelation::Signal(SignalTargets::All));
    }
    let jid = Jid::parse(arguments.first()?.as_str()?).ok()?;
    let signal = arguments.get(1).and_then(Value::as_i64);
    match fun.as_str() {
        "saltutil.kill_job" | "saltutil.term_job" => {
            Some(JobRelation::Signal(SignalTargets::Job(jid)))
        }
        "saltutil.signal_job" if signal.is_some_and(|signal| ENDING.contains(&signal)) => {
            Some(JobRelation::Signal(SignalTargets::Job(jid)))
        }
        "saltutil.find_job" if arguments.len() == 1 && is_poll(load, target) => {
            Some(JobRelation::Running(jid))
        }
        _ => None,
    }
}

/// Whether a waiting client sent the job itself (`gather_job_info` in `salt/client/__init__.py`):
/// by list target, and without `show_jid`, which stock's command line sends for jobs that its user
/// asks for. Such a client looks for the answers on the bus only; others look for the job in the
/// job cache first.
fn is_poll(load: &Value, target: &Target) -> bool {
    let kwargs = load.get("kwargs");
    let is_of_user = kwargs.is_some_and(|kwargs| kwargs.get("show_jid").is_some());
    let returner = load.get("ret").and_then(Value::as_str).unwrap_or_default();
    target.kind() == TargetType::List && !is_of_user && returner.is_empty()
}

/// The minions that a client asks by name, when it waits for minions below syndics too.
pub(crate) fn named(target: &Target, syndics: &SyndicStore) -> Vec<MinionId> {
    let ids = |names: &mut dyn Iterator<Item = &str>| -> Vec<MinionId> {
        let ids = names.filter_map(|name| MinionId::parse(name).ok());
        ids.filter(|id| !syndics.is_only_syndic(id)).collect()
    };
    match target {
        Target::List(names) | Target::Words(names) => ids(&mut names.iter().map(String::as_str)),
        Target::Expression(_, names) => ids(&mut names.split(',')),
    }
}

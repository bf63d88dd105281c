//! Stock's outputter `highstate` (`salt/output/highstate.py`): the result of state runs, state by
//! state, with a summary for each minion.
//!
//! An orchestration is a state run of the master whose states hold the runs of minions as their
//! changes, so hosts are shown inside states, to any depth.

mod changes;
mod compress;
mod form;
mod host;
mod state;
mod tally;

pub(crate) use tally::milliseconds;

use saltern_wire::msgpack::Value;

use crate::{OutputOptions, dict};

/// The runs of a map of minions. Nothing is what it prints where stock raises an exception, and shows
/// as nested what it has made of the value by then.
pub(crate) fn highstate(value: &mut Value, options: &OutputOptions) -> Option<String> {
    shown(value, options, 1)
}

/// `level` is 1 for what is printed, and one more for each orchestration around it.
fn shown(value: &mut Value, options: &OutputOptions, level: usize) -> Option<String> {
    let hosts = match unwrapped(value)? {
        Value::Str(text) => return Some(text.clone()),
        Value::Nil => return Some("None".to_owned()),
        Value::Map(hosts) => hosts,
        _ => return None,
    };
    drop_return_code(hosts)?;
    let compressed = options.state.compress_ids;
    let compressed = compressed.then(|| compress::compressed(hosts)).flatten();
    let mut texts = Vec::with_capacity(hosts.len());
    for (at, (host, data)) in hosts.iter_mut().enumerate() {
        let states = compressed.as_ref().and_then(|hosts| hosts.get(at));
        let shown = host::shown(host, data, states.map(Vec::as_slice), options, level)?;
        texts.push(shown.text);
    }
    Some(texts.join("\n"))
}

/// The runs without what the job cache and the orchestrate runner wrap them in.
fn unwrapped(value: &mut Value) -> Option<&mut Value> {
    let data = entered(entered(value, "return"), "data");
    let Some([(_, job)]) = data.as_map() else {
        return Some(data);
    };
    if job.get("jid").is_none() || job.get("fun").is_none() {
        return Some(data);
    }
    match job.get("return") {
        Some(Value::Map(_)) | None => {}
        Some(_) => return None,
    }
    let is_wrapped = |job: &Value| job.get("return").and_then(|run| run.get("data")).is_some();
    if !is_wrapped(job) {
        return Some(data);
    }
    let Value::Map(jobs) = data else {
        return None;
    };
    let (_, job) = jobs.first_mut()?;
    dict::get_mut(dict::get_mut(job, "return")?, "data")
}

fn entered<'a>(data: &'a mut Value, name: &str) -> &'a mut Value {
    match data.get(name).is_some() {
        true => dict::get_mut(data, name).expect("invariant: the key is there"),
        false => data,
    }
}

/// An orchestration has its return code beside its one host, the master.
fn drop_return_code(hosts: &mut Vec<(Value, Value)>) -> Option<()> {
    let names: Option<Vec<&str>> = hosts.iter().map(|(host, _)| host.as_str()).collect();
    let masters = names?.into_iter().filter(|name| name.ends_with("_master"));
    if masters.count() == 1 {
        hosts.retain(|(host, _)| host.as_str() != Some("retcode"));
    }
    Some(())
}

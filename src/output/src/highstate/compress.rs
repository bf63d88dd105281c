//! `state_compress_ids`: states of the same id and result become one, which counts for all of them.

use std::cmp::Ordering;
use std::collections::HashMap;

use saltern_python::{Node, number};
use saltern_wire::msgpack::Value;

use crate::dict;

/// A state under the name it is shown by.
pub(super) struct Named {
    /// The key of the state, or the one of the states that it stands for.
    pub(super) name: Value,
    /// Its position in the host's return.
    pub(super) at: usize,
}

/// The states of each host, or nothing where stock logs that it cannot compress and shows all.
/// What was merged until then stays merged.
pub(super) fn compressed(hosts: &mut [(Value, Value)]) -> Option<Vec<Vec<Named>>> {
    let hosts = hosts.iter_mut();
    hosts.map(|(_, states)| compressed_host(states)).collect()
}

fn compressed_host(states: &mut Value) -> Option<Vec<Named>> {
    let Value::Map(states) = states else {
        return None;
    };
    let groups = states.iter().map(|(name, info)| group(name, info));
    let groups: Vec<String> = groups.collect::<Option<_>>()?;
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for group in &groups {
        *counts.entry(group).or_default() += 1;
    }
    let mut shown: Vec<Named> = Vec::new();
    let mut positions: HashMap<String, usize> = HashMap::new();
    for (at, group) in groups.iter().enumerate() {
        let (name, info) = states.get(at)?;
        let count = counts.get(group.as_str()).copied().unwrap_or(1);
        let name = match count {
            1 => name.as_str()?.to_owned(),
            _ => common_name(name.as_str()?, info, count)?,
        };
        let known = positions.get(&name).and_then(|known| shown.get_mut(*known));
        match known {
            Some(known) if count == 1 => known.at = at,
            Some(known) => merge(states, known.at, at)?,
            None => {
                positions.insert(name.clone(), shown.len());
                let name = Value::from(name);
                shown.push(Named { name, at });
            }
        }
    }
    Some(shown)
}

/// Group key: states of one group are merged into one.
fn group(name: &Value, info: &Value) -> Option<String> {
    let module = name.as_str()?.split("_|-").next()?;
    let field = |field| info.get(field).map(saltern_python::str);
    let (id, sls, result) = (field("__id__")?, field("__sls__")?, field("result")?);
    Some(format!("{module}_{id}_{sls}_{result}"))
}

fn common_name(name: &str, info: &Value, count: usize) -> Option<String> {
    let mut parts: Vec<String> = name.split("_|-").map(str::to_owned).collect();
    let field = |field| info.get(field).map(saltern_python::str);
    let (id, sls, result) = (field("__id__")?, field("__sls__")?, field("result")?);
    *parts.get_mut(2)? = format!("state_compressed_{sls}_{id}_{result}");
    *parts.get_mut(1)? = format!("{id} ({count})");
    Some(parts.join("_|-"))
}

/// Adds the state at `other` to the one at `first`.
fn merge(states: &mut [(Value, Value)], first: usize, other: usize) -> Option<()> {
    let (_, info) = states.get(other)?.clone();
    let (_, merged) = states.get_mut(first)?;
    let number = lesser(info.get("__run_num__")?, merged.get("__run_num__")?)?;
    dict::set(merged, "__run_num__", number);
    let duration = sum(info.get("duration")?, merged.get("duration")?)?;
    dict::set(merged, "duration", duration);
    let start = lesser(info.get("start_time")?, merged.get("start_time")?)?;
    dict::set(merged, "start_time", start);
    merge_changes(merged, &info)
}

/// The second value where it is less, else the first.
fn lesser(left: &Value, right: &Value) -> Option<Value> {
    let nodes = (Node::read(left).ok()?, Node::read(right).ok()?);
    match nodes.1.compare(&nodes.0)? {
        Ordering::Less => Some(right.clone()),
        _ => Some(left.clone()),
    }
}

fn sum(left: &Value, right: &Value) -> Option<Value> {
    match (Node::read(left).ok()?, Node::read(right).ok()?) {
        (Node::Float(left), right) => rounded(left + as_float(&right)?),
        (left, Node::Float(right)) => rounded(as_float(&left)? + right),
        (left, right) => {
            let sum = as_int(&left)?.checked_add(as_int(&right)?)?;
            let small = i64::try_from(sum).map(Value::from);
            small.or_else(|_| u64::try_from(sum).map(Value::from)).ok()
        }
    }
}

fn rounded(sum: f64) -> Option<Value> {
    Some(Value::Float(number::round(sum, 3)))
}

fn as_int(node: &Node) -> Option<i128> {
    match node {
        Node::Bool(flag) => Some(i128::from(*flag)),
        Node::Int(number) => Some(*number),
        _ => None,
    }
}

fn as_float(node: &Node) -> Option<f64> {
    match node {
        Node::Float(number) => Some(*number),
        _ => as_int(node).map(|number| number as f64),
    }
}

/// Changes are kept by name once there are several.
fn merge_changes(merged: &mut Value, info: &Value) -> Option<()> {
    const KEY: &str = "compressed changes";
    let Some(added) = info.get("changes").filter(|changes| changes.is_truthy()) else {
        return Some(());
    };
    let own = merged.get("changes").filter(|own| own.is_truthy()).cloned();
    let Some(own) = own else {
        let by_name = Value::Map(vec![(name_of(info)?, added.clone())]);
        dict::set(merged, "changes", Value::map([(KEY, by_name)]));
        return Some(());
    };
    own.as_map()?;
    if !own.get(KEY).is_some_and(Value::is_truthy) {
        let by_name = Value::Map(vec![(name_of(merged)?, own)]);
        dict::set(merged, "changes", Value::map([(KEY, by_name)]));
    }
    let Value::Map(by_name) = dict::get_mut(dict::get_mut(merged, "changes")?, KEY)? else {
        return None;
    };
    let name = name_of(info)?;
    match by_name.iter_mut().find(|(known, _)| *known == name) {
        Some((_, slot)) => *slot = added.clone(),
        None => by_name.push((name, added.clone())),
    }
    Some(())
}

/// The name of a state, if it can be the key of a dict.
fn name_of(info: &Value) -> Option<Value> {
    let name = info.get("name")?;
    let is_hashable = !matches!(name, Value::Array(_) | Value::Map(_));
    is_hashable.then(|| name.clone())
}

//! Order of chunks: by `order`, then by the alphabet; since 3008 requisites come before both
//! (`order_chunks` in `salt/state.py`, `DependencyGraph` in `salt/utils/requisite.py`).
//!
//! A requisite here decides when a reaction is begun, not whether: none waits for the outcome of
//! another.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use saltern_model::Compat;
use saltern_python::expression::Pattern;
use saltern_wire::msgpack::Value;

use super::Problem;
use super::compile::Chunk;
use saltern_requests::python_text;

/// Arguments that are requisites, those that order reactions first, by their weight.
pub(super) const REQUISITES: [&str; 13] = [
    "onfail",
    "onfail_any",
    "onfail_all",
    "require",
    "require_any",
    "onchanges",
    "onchanges_any",
    "watch",
    "watch_any",
    "prereq",
    "prerequired",
    "listen",
    "onfail_stop",
];

/// The number of these that order reactions.
const ORDERING: usize = 10;

/// The requisite that runs its reaction before the other, not after it.
const PREREQ: &str = "prereq";

/// After all explicit numbers.
const LAST: f64 = 1_000_000.0;

/// The chunks in the order in which they run, each with its `order`.
pub(super) fn in_order(
    mut chunks: Vec<Chunk>,
    compat: Compat,
    problems: &mut Vec<Problem>,
) -> Vec<Chunk> {
    let after = match compat {
        Compat::V3008 => loop {
            match requisites(&chunks) {
                Ok(after) => break after,
                Err(problem) => {
                    chunks.retain(|chunk| chunk.sls != problem.sls);
                    problems.push(problem);
                }
            }
        },
        Compat::V3006 | Compat::V3007 => Vec::new(),
    };
    let cap = cap(&chunks);
    let own: Vec<f64> = chunks
        .iter()
        .map(|chunk| order(chunk, cap, compat))
        .collect();
    let sorted = if after.is_empty() {
        let mut numbers: Vec<usize> = (0..chunks.len()).collect();
        let keys: Vec<_> = chunks
            .iter()
            .zip(&own)
            .map(|(chunk, own)| (*own, label(chunk)))
            .collect();
        numbers.sort_by(|a, b| compare(keys.get(*a), keys.get(*b)));
        numbers
    } else {
        topological(&chunks, &own, &after, problems)
    };
    let mut ordered = Vec::with_capacity(sorted.len());
    for number in sorted {
        let (Some(chunk), Some(own)) = (chunks.get(number), own.get(number)) else {
            continue;
        };
        let mut chunk = chunk.clone();
        chunk.entries.put("order".into(), number_of(*own));
        ordered.push(chunk);
    }
    ordered
}

fn compare(a: Option<&(f64, String)>, b: Option<&(f64, String)>) -> Ordering {
    let (Some((first, name)), Some((second, other))) = (a, b) else {
        return Ordering::Equal;
    };
    first.total_cmp(second).then_with(|| name.cmp(other))
}

/// The number of a chunk that has none of its own.
fn cap(chunks: &[Chunk]) -> f64 {
    let mut cap = 1.0;
    for chunk in chunks {
        let number = match chunk.entries.get("order") {
            Some(Value::Int(number)) => *number as f64,
            Some(Value::Bool(flag)) => f64::from(u8::from(*flag)),
            _ => continue,
        };
        if number > cap - 1.0 && number > 0.0 {
            cap = number + 100.0;
        }
    }
    cap
}

/// The `order` of a chunk as a number.
fn written(chunk: &Chunk, cap: f64) -> f64 {
    match chunk.entries.get("order") {
        Some(Value::Int(number)) => *number as f64,
        Some(Value::Float(number)) => *number,
        Some(Value::Bool(flag)) => f64::from(u8::from(*flag)),
        Some(Value::Str(word)) if word == "last" => cap + LAST,
        Some(Value::Str(word)) if word == "first" => 0.0,
        _ => cap,
    }
}

fn order(chunk: &Chunk, cap: f64, compat: Compat) -> f64 {
    let mut order = written(chunk, cap);
    // Before 3008 the index in `names` counts only beside an `order`.
    if compat == Compat::V3008 || chunk.entries.get("order").is_some() {
        order += f64::from(chunk.name_order) / 10_000.0;
    }
    if order < 0.0 {
        order += cap + LAST;
    }
    order
}

fn number_of(order: f64) -> Value {
    match order.fract() == 0.0 && order.abs() < 1e15 {
        true => Value::Int(order as i64),
        false => Value::Float(order),
    }
}

/// Sort key of reactions with the same order.
fn label(chunk: &Chunk) -> String {
    let name = chunk.entries.get("name");
    let name = name.and_then(python_text::str).unwrap_or_default();
    format!("{}{name}{}", chunk.state, chunk.fun)
}

/// Edge from a chunk to a later one, because of a requisite of this weight.
struct Arrow {
    from: usize,
    to: usize,
    weight: usize,
}

fn requisites(chunks: &[Chunk]) -> Result<Vec<Arrow>, Problem> {
    let mut arrows = Vec::new();
    for (to, chunk) in chunks.iter().enumerate() {
        for (weight, name) in REQUISITES.iter().take(ORDERING).enumerate() {
            let wanted = chunk.entries.get(name).and_then(Value::as_array);
            for requisite in wanted.unwrap_or_default() {
                let found = meant(requisite, chunks).ok_or_else(|| {
                    let shown = saltern_python::repr(requisite);
                    let text = format!("what \"{name}\" names does not exist: {shown}");
                    Problem::of_file(&chunk.sls, &chunk.id, &text)
                })?;
                for from in found {
                    let (from, to) = if *name == PREREQ {
                        (to, from)
                    } else {
                        (from, to)
                    };
                    arrows.push(Arrow { from, to, weight });
                }
            }
        }
    }
    Ok(arrows)
}

/// The chunks that a requisite names; `None` when there is none of that name.
fn meant(requisite: &Value, chunks: &[Chunk]) -> Option<Vec<usize>> {
    let (kind, value) = match requisite {
        Value::Str(id) => ("id", id.as_str()),
        Value::Map(one) => {
            let (kind, value) = one.first()?;
            if value.is_nil() {
                return Some(Vec::new());
            }
            (kind.as_str()?, value.as_str()?)
        }
        _ => return None,
    };
    let is_pattern = value.contains(['*', '?', '[', ']']);
    let pattern = Pattern::glob(value).ok().filter(|_| is_pattern);
    let is_it = |text: &str| match &pattern {
        Some(pattern) => pattern.matches(text),
        None => text == value,
    };
    let is_meant = |chunk: &Chunk| match kind {
        "sls" => is_it(&chunk.sls),
        _ if kind == "id" || kind == chunk.state => {
            let name = chunk.entries.get("name").and_then(Value::as_str);
            is_it(&chunk.id) || name.is_some_and(is_it)
        }
        _ => false,
    };
    let found = chunks
        .iter()
        .enumerate()
        .filter(|(_, chunk)| is_meant(chunk));
    let found: Vec<usize> = found.map(|(number, _)| number).collect();
    // A pattern over files may match none.
    (!found.is_empty() || (is_pattern && kind == "sls")).then_some(found)
}

/// Topological order of the chunks; of those that are ready, the one with the least order first. A
/// chunk before another is moved up to that other's order.
fn topological(
    chunks: &[Chunk],
    own: &[f64],
    arrows: &[Arrow],
    problems: &mut Vec<Problem>,
) -> Vec<usize> {
    let cap = cap(chunks);
    let keys: Vec<(f64, f64, String)> = chunks
        .iter()
        .zip(own)
        .enumerate()
        .map(|(number, (chunk, own))| {
            let least = least_after(number, chunks, arrows, cap);
            (own.min(least), *own, label(chunk))
        })
        .collect();
    let mut blocked = vec![0_usize; chunks.len()];
    for arrow in arrows {
        blocked
            .get_mut(arrow.to)
            .into_iter()
            .for_each(|count| *count += 1);
    }
    let mut waiting: BTreeSet<usize> = (0..chunks.len()).collect();
    let mut sorted = Vec::with_capacity(chunks.len());
    loop {
        let is_ready = |number: &usize| blocked.get(*number) == Some(&0);
        let compare = |a: &usize, b: &usize| match (keys.get(*a), keys.get(*b)) {
            (Some(a), Some(b)) => {
                let orders = a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
                orders.then_with(|| a.2.cmp(&b.2))
            }
            _ => Ordering::Equal,
        };
        let next = waiting.iter().copied().filter(is_ready).min_by(compare);
        let Some(next) = next else {
            break;
        };
        waiting.remove(&next);
        sorted.push(next);
        for arrow in arrows.iter().filter(|arrow| arrow.from == next) {
            blocked
                .get_mut(arrow.to)
                .into_iter()
                .for_each(|count| *count -= 1);
        }
    }
    // The rest forms a cycle.
    for number in waiting {
        if let Some(chunk) = chunks.get(number) {
            let text = "its requisites wait for each other";
            problems.push(Problem::of_chunk(chunk, text));
        }
    }
    sorted
}

fn least_after(number: usize, chunks: &[Chunk], arrows: &[Arrow], cap: f64) -> f64 {
    let mut least = f64::INFINITY;
    let mut heaviest = 0;
    for arrow in arrows.iter().filter(|arrow| arrow.from == number) {
        if heaviest <= arrow.weight {
            heaviest = arrow.weight;
            if let Some(after) = chunks.get(arrow.to) {
                least = least.min(written(after, cap));
            }
        }
    }
    least
}

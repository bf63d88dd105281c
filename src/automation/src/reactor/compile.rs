//! Compiles rendered files to low chunks, as stock's compiler does (`Compiler` in `salt/state.py`):
//! reactions are written like states.
//!
//! Where stock drops all files of an event because of a mistake in one, only that one is dropped.

use std::collections::{BTreeMap, BTreeSet};

use saltern_model::Compat;
use saltern_wire::msgpack::Value;

use super::order::{REQUISITES, in_order};
use super::{Problem, ReactionKey};
use saltern_requests::python_text;

/// The most reactions of one event.
const MAX_REACTIONS: usize = 10_000;

/// Low chunk: one call of one function, with its other entries.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chunk {
    /// The id of its reaction.
    pub(super) id: String,
    /// The file that it comes from.
    pub(super) sls: String,
    /// `local`, `runner` and the like, as it was written.
    pub(super) state: String,
    /// Its function.
    pub(super) fun: String,
    /// All other keys: `name`, `order`, arguments.
    pub(super) entries: Entries,
    /// Its index in the `names` of its reaction, from 1; 0 without.
    pub(super) name_order: u32,
}

impl Chunk {
    pub(super) fn key(&self) -> ReactionKey {
        let name = match self.name_order {
            0 => None,
            _ => self.entries.get("name").and_then(python_text::str),
        };
        ReactionKey {
            state: self.state.clone(),
            number: self.name_order,
            name: name.unwrap_or_default(),
        }
    }
}

/// Mapping with Python's insertion order: a replaced entry keeps its position.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entries(pub(super) Vec<(Value, Value)>);

impl Entries {
    pub(super) fn put(&mut self, key: Value, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, there)) => *there = value,
            None => self.0.push((key, value)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let found = self.0.iter().find(|(key, _)| key.as_str() == Some(name));
        found.map(|(_, value)| value)
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        let at = self
            .0
            .iter()
            .position(|(key, _)| key.as_str() == Some(name))?;
        Some(self.0.remove(at).1)
    }

    fn update(&mut self, other: &[(Value, Value)]) {
        for (key, value) in other {
            self.put(key.clone(), value.clone());
        }
    }
}

/// Reaction of a file, by its id.
struct Declared {
    id: String,
    sls: String,
    /// Types of reactions with what stands below them.
    body: Vec<(String, Value)>,
}

/// The chunks of these rendered files, in the order in which they are to run.
pub(super) fn chunks(
    rendered: Vec<(String, Value)>,
    compat: Compat,
    problems: &mut Vec<Problem>,
) -> Vec<Chunk> {
    let mut declared: Vec<Declared> = Vec::new();
    for (sls, high) in rendered {
        match read(&sls, high) {
            Ok(own) => own.into_iter().for_each(|one| merge(&mut declared, one)),
            Err(problem) => problems.push(problem),
        }
    }
    // One problem for a file: a retry renders all of it again.
    let mut wrong: BTreeMap<String, Problem> = BTreeMap::new();
    for one in &declared {
        for text in mistakes(one) {
            let problem = Problem::of_file(&one.sls, &one.id, &text);
            match wrong.get_mut(&one.sls) {
                Some(known) => known.text.push_str(&format!("; {}", problem.text)),
                None => drop(wrong.insert(one.sls.clone(), problem)),
            }
        }
    }
    declared.retain(|one| !wrong.contains_key(&one.sls));
    problems.extend(wrong.into_values());
    let mut chunks = Vec::new();
    for one in &declared {
        if chunks.len() > MAX_REACTIONS {
            let text = format!(
                "the event has more than {MAX_REACTIONS} reactions; the rest is passed over"
            );
            problems.push(Problem::new(&one.sls, Some(&one.id), text));
            break;
        }
        compile(one, &mut chunks, problems);
    }
    chunks.truncate(MAX_REACTIONS);
    in_order(chunks, compat, problems)
}

/// Of reactions with the same id the last one counts, at the position of the first.
fn merge(declared: &mut Vec<Declared>, one: Declared) {
    match declared.iter_mut().find(|known| known.id == one.id) {
        Some(known) => *known = one,
        None => declared.push(one),
    }
}

/// The reactions of a file, with dotted names taken apart (`pad_funcs`).
fn read(sls: &str, high: Value) -> Result<Vec<Declared>, Problem> {
    let wrong = |id: Option<&str>, text: &str| {
        Err(match id {
            Some(id) => Problem::of_file(sls, id, text),
            None => Problem::new(sls, None, text),
        })
    };
    if !high.is_truthy() {
        return Ok(Vec::new());
    }
    let Value::Map(entries) = high else {
        return wrong(None, "it is no mapping of ids to reactions");
    };
    let mut declared = Vec::new();
    for (id, body) in entries {
        let Value::Str(id) = id else {
            return wrong(None, "an id is no text; it may need quotes");
        };
        let body = match body {
            Value::Str(short) => match short.split_once('.') {
                Some((state, fun)) => {
                    vec![(state.to_owned(), Value::Array(vec![fun.into()]))]
                }
                None => return wrong(Some(&id), "the body is no mapping"),
            },
            Value::Map(body) => match padded(body) {
                Some(body) => body,
                None => return wrong(Some(&id), "a name is no text"),
            },
            _ => return wrong(Some(&id), "the body is no mapping"),
        };
        if !id.starts_with("__") {
            let sls = sls.to_owned();
            declared.push(Declared { id, sls, body });
        }
    }
    Ok(declared)
}

/// `{local.cmd.run: […]}` as `{local: […, cmd.run]}`; of several with the same type only the first
/// in the alphabet. `None` for a body with a key that is no text.
fn padded(body: Vec<(Value, Value)>) -> Option<Vec<(String, Value)>> {
    let mut padded: Vec<(String, Value)> = Vec::with_capacity(body.len());
    for (key, value) in body {
        match key {
            Value::Str(key) => padded.push((key, value)),
            _ => return None,
        }
    }
    let mut keys: Vec<String> = padded.iter().map(|(key, _)| key.clone()).collect();
    keys.sort();
    let mut seen = BTreeSet::new();
    for key in keys {
        let at = padded.iter().position(|(known, _)| *known == key)?;
        let is_list = padded
            .get(at)
            .is_some_and(|(_, value)| value.as_array().is_some());
        if key.starts_with('_') || !is_list {
            continue;
        }
        let Some((state, fun)) = key.split_once('.') else {
            seen.insert(key);
            continue;
        };
        if !seen.insert(state.to_owned()) {
            continue;
        }
        if let (_, Value::Array(mut items)) = padded.remove(at) {
            items.push(fun.into());
            padded.retain(|(known, _)| known != state);
            padded.push((state.to_owned(), Value::Array(items)));
        }
    }
    Some(padded)
}

/// Mistakes in a reaction (`_verify_high`).
fn mistakes(one: &Declared) -> Vec<String> {
    let mut found = Vec::new();
    for (state, run) in one
        .body
        .iter()
        .filter(|(state, _)| !state.starts_with("__"))
    {
        let Value::Array(items) = run else {
            found.push(match run {
                Value::Nil => format!("\"{state}\" ends in a colon and has no arguments"),
                _ => format!("what \"{state}\" has is no list"),
            });
            continue;
        };
        let names: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
        for name in &names {
            if name.trim().contains(' ') {
                found.push(format!(
                    "the function \"{name}\" has white space in it; perhaps it is an argument \
                     without a colon"
                ));
            }
        }
        let functions = names.len() + usize::from(state.contains('.'));
        if functions == 0 {
            found.push(format!("\"{state}\" names no function"));
        } else if functions > 1 {
            found.push(format!("\"{state}\" names several functions"));
        }
        let maps = items.iter().filter_map(Value::as_map);
        found.extend(maps.filter_map(mistake_of_argument));
    }
    found
}

fn mistake_of_argument(argument: &[(Value, Value)]) -> Option<String> {
    let Some((name, value)) = argument.first() else {
        return Some("an argument is an empty mapping".to_owned());
    };
    let name = name.as_str().unwrap_or_default();
    if name == "names" && value.as_array().is_none() {
        return Some("\"names\" is no list".to_owned());
    }
    if !REQUISITES.contains(&name) {
        return None;
    }
    let Some(requisites) = value.as_array() else {
        return Some(format!("\"{name}\" is no list"));
    };
    for requisite in requisites {
        match requisite {
            Value::Str(_) => {}
            Value::Map(one) => match one.as_slice() {
                [(kind, Value::Array(_) | Value::Map(_))] => {
                    return Some(format!("\"{name}\" names {kind:?} by what is no name"));
                }
                [(kind, _)] if kind.as_str().is_some_and(|kind| kind.contains('.')) => {
                    return Some(format!("\"{name}\" names a type with a dot: {kind:?}"));
                }
                [_] => {}
                _ => return Some(format!("\"{name}\" has what is no mapping of one entry")),
            },
            _ => return Some(format!("\"{name}\" has what is no mapping")),
        }
    }
    (argument.len() != 1).then(|| format!("other arguments stand beside \"{name}\""))
}

/// The chunks of a reaction (`compile_high_data`).
fn compile(one: &Declared, chunks: &mut Vec<Chunk>, problems: &mut Vec<Problem>) {
    for (state, run) in one
        .body
        .iter()
        .filter(|(state, _)| !state.starts_with("__"))
    {
        let items = run.as_array().unwrap_or_default();
        let Some(fun) = items.iter().find_map(Value::as_str) else {
            let text = format!("\"{state}\" is passed over: its type has another function already");
            problems.push(Problem {
                key: Some(Box::new(ReactionKey {
                    state: state.clone(),
                    number: 0,
                    name: String::new(),
                })),
                ..Problem::new(&one.sls, Some(&one.id), text)
            });
            continue;
        };
        let mut chunk = Chunk {
            id: one.id.clone(),
            sls: one.sls.clone(),
            state: state.clone(),
            fun: fun.to_owned(),
            entries: Entries(vec![("name".into(), one.id.as_str().into())]),
            name_order: 0,
        };
        let mut names: Vec<&Value> = Vec::new();
        for argument in items.iter().filter_map(Value::as_map) {
            for (key, value) in argument {
                if key.as_str() == Some("names") {
                    for name in value.as_array().unwrap_or_default() {
                        if !names.contains(&name) {
                            names.push(name);
                        }
                    }
                } else {
                    chunk.entries.update(argument);
                }
            }
        }
        if names.is_empty() {
            chunks.push(chunk);
            continue;
        }
        for (name, order) in names.into_iter().zip(1..) {
            chunks.push(named(chunk.clone(), name, order));
        }
    }
}

/// The chunk of one of several names, which may bring arguments of its own.
fn named(mut chunk: Chunk, name: &Value, order: u32) -> Chunk {
    chunk.name_order = order;
    match name.as_map().and_then(<[_]>::first) {
        Some((name, own)) => {
            chunk.entries.put("name".into(), name.clone());
            let own = own.as_array().unwrap_or_default().iter();
            for argument in own.filter_map(Value::as_map) {
                chunk.entries.update(argument);
            }
        }
        None => chunk.entries.put("name".into(), name.clone()),
    }
    chunk
}

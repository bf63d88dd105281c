//! Parses a low chunk into a typed reaction: both forms of arguments (`ReactWrap.run` in
//! `salt/utils/reactor.py`).

use saltern_config::yaml::{self, Limits};
use saltern_content::render::data::from_yaml;
use saltern_runners::Arguments;
use saltern_wire::msgpack::Value;

use super::Problem;
use super::compile::{Chunk, Entries};

/// Reaction to an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Reaction {
    /// Its id in its file.
    pub id: String,
    /// Its file.
    pub sls: String,
    /// Key of this reaction among those of its id.
    pub key: ReactionKey,
    /// Its call.
    pub call: ReactionCall,
}

/// Key of a reaction within its id: there may be one of each type, and of each of these one for
/// each of its `names`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReactionKey {
    /// `local`, `runner` and the like, as it was written.
    pub state: String,
    /// Its index in `names`, from 1; 0 without.
    pub number: u32,
    /// Its name there; empty without.
    pub name: String,
}

/// Call of a [`Reaction`].
#[derive(Clone, Debug, PartialEq)]
pub enum ReactionCall {
    /// `local`: a job. The load of a `publish`, without its publisher.
    Local(Value),
    /// A runner function.
    Runner(Function),
    /// A wheel function.
    Wheel(Function),
    /// `caller`: a function of a minion, in the master's own process.
    Caller(Function),
}

/// Function of the master with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub fun: String,
    /// Its arguments.
    pub arguments: Arguments,
    /// Arguments that are passed only if the function has such parameters: in the old form
    /// everything stands together, and `name` may be one of the compiler's words or an argument.
    pub if_taken: Vec<(String, Value)>,
    /// The arguments were written in the old form: the function's parameters are looked up before
    /// the call.
    pub is_flat: bool,
}

impl ReactionCall {
    /// Stock's name of the type.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Runner(_) => "runner",
            Self::Wheel(_) => "wheel",
            Self::Caller(_) => "caller",
        }
    }

    /// Approximate size in memory, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Local(load) => size(load),
            Self::Runner(function) | Self::Wheel(function) | Self::Caller(function) => {
                let Arguments { positional, named } = &function.arguments;
                let named = named.iter().chain(&function.if_taken);
                let named = named.map(|(name, value)| name.len() + size(value));
                positional.iter().map(size).sum::<usize>() + named.sum::<usize>()
            }
        }
    }

    /// The function that is called.
    pub fn fun(&self) -> &str {
        match self {
            Self::Local(load) => load.get("fun").and_then(Value::as_str).unwrap_or_default(),
            Self::Runner(function) | Self::Wheel(function) | Self::Caller(function) => {
                &function.fun
            }
        }
    }
}

/// Approximate size of a value in memory, in bytes; decoders bound the depth of values.
fn size(value: &Value) -> usize {
    let inside = match value {
        Value::Str(text) => text.len(),
        Value::Bin(bytes) => bytes.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Map(entries) => entries
            .iter()
            .map(|(key, value)| size(key) + size(value))
            .sum(),
        _ => 0,
    };
    inside + size_of::<Value>()
}

/// Words of the compiler that stand among the arguments of the old form (`REACTOR_INTERNAL_KEYWORDS`).
const INTERNAL: [&str; 7] = ["__id__", "__sls__", "name", "order", "fun", "key", "state"];

impl Reaction {
    pub(super) fn of(chunk: &Chunk) -> Result<Self, Problem> {
        let wrong = |error: CallError| Problem::of_chunk(chunk, error.to_string());
        let low = low(chunk);
        if let Some((name, _)) = low.0.iter().find(|(name, _)| name.as_str().is_none()) {
            return Err(wrong(CallError::Name(name.clone())));
        }
        let call = match chunk.state.as_str() {
            "local" | "cmd" => local(low, &chunk.fun).map(ReactionCall::Local),
            "runner" => on_master(low, &chunk.fun).map(ReactionCall::Runner),
            "wheel" => on_master(low, &chunk.fun).map(ReactionCall::Wheel),
            "caller" => caller(low, &chunk.fun).map(ReactionCall::Caller),
            other => Err(CallError::Kind(other.to_owned())),
        };
        Ok(Self {
            id: chunk.id.clone(),
            sls: chunk.sls.clone(),
            key: chunk.key(),
            call: call.map_err(wrong)?,
        })
    }
}

/// Why the call of a reaction is refused.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("\"{0}\" is no type of reaction; there are local, runner, wheel and caller")]
    Kind(String),
    #[error("the name of an argument is no text: {0:?}")]
    Name(Value),
    #[error("\"tgt\" is missing")]
    NoTarget,
    #[error("\"arg\" is no list")]
    Arg,
    #[error("\"args\" is neither a mapping nor a list of mappings of one entry")]
    Args,
    #[error("\"kwarg\" is no mapping")]
    Kwarg,
}

/// The chunk as stock's clients see it, but for its function.
fn low(chunk: &Chunk) -> Entries {
    let state = match chunk.state.as_str() {
        "cmd" => "local",
        other => other,
    };
    let mut low = Entries(vec![
        ("state".into(), state.into()),
        ("__sls__".into(), chunk.sls.as_str().into()),
        ("__id__".into(), chunk.id.as_str().into()),
    ]);
    for (name, value) in &chunk.entries.0 {
        if name.as_str() != Some("fun") {
            low.put(name.clone(), value.clone());
        }
    }
    low
}

/// The load that a client of the master would send (`LocalClient.cmd_async`, `_prep_pub`).
fn local(mut low: Entries, fun: &str) -> Result<Value, CallError> {
    let target = low.take("tgt").ok_or(CallError::NoTarget)?;
    let (arguments, named) = match low.take("args") {
        Some(args) => {
            low.take("arg");
            low.take("kwarg");
            (Vec::new(), named_of(args)?)
        }
        None => {
            let arguments = low.take("arg").map_or_else(|| Ok(Vec::new()), listed)?;
            let named = match low.take("kwarg") {
                Some(Value::Map(named)) => named,
                _ => Vec::new(),
            };
            (arguments, named)
        }
    };
    let mut arguments: Vec<Value> = arguments.into_iter().map(jid_as_text).collect();
    if !named.is_empty() {
        let mut kwarg = Entries(vec![("__kwarg__".into(), true.into())]);
        for (name, value) in named {
            kwarg.put(name, value);
        }
        arguments.push(Value::Map(kwarg.0));
    }
    let mut or_empty = |name| low.take(name).unwrap_or_else(|| "".into());
    let (ret, jid) = (or_empty("ret"), or_empty("jid"));
    let tgt_type = low.take("tgt_type").unwrap_or_else(|| "glob".into());
    let timeout = low.take("timeout");
    let mut load = vec![
        (Value::from("cmd"), Value::from("publish")),
        ("tgt".into(), target),
        ("fun".into(), fun.into()),
        ("arg".into(), Value::Array(arguments)),
        ("tgt_type".into(), tgt_type),
        ("ret".into(), ret),
        ("jid".into(), jid),
        ("kwargs".into(), Value::Map(low.0)),
    ];
    load.extend(timeout.map(|timeout| ("to".into(), timeout)));
    Ok(Value::Map(load))
}

/// A function of the master as `RunnerClient.low` and `WheelClient.low` get it.
fn on_master(mut low: Entries, fun: &str) -> Result<Function, CallError> {
    if let Some(args) = low.take("args") {
        return Ok(Function {
            fun: fun.to_owned(),
            arguments: Arguments {
                positional: Vec::new(),
                named: texts(named_of(args)?)?,
            },
            if_taken: Vec::new(),
            is_flat: false,
        });
    }
    if let (Some(arg), Some(kwarg)) = (low.get("arg"), low.get("kwarg")) {
        let Value::Map(named) = kwarg.clone() else {
            return Err(CallError::Kwarg);
        };
        return Ok(Function {
            fun: fun.to_owned(),
            arguments: Arguments {
                positional: listed(arg.clone())?,
                named: texts(named)?,
            },
            if_taken: Vec::new(),
            is_flat: false,
        });
    }
    let positional = low
        .get("arg")
        .cloned()
        .map_or_else(|| Ok(Vec::new()), listed)?;
    let is_internal = |name: &Value| name.as_str().is_some_and(|name| INTERNAL.contains(&name));
    low.put("fun".into(), fun.into());
    let (internal, named) = low.0.into_iter().partition(|(name, _)| is_internal(name));
    Ok(Function {
        fun: fun.to_owned(),
        arguments: Arguments {
            positional,
            named: texts(named)?,
        },
        if_taken: texts(internal)?,
        is_flat: true,
    })
}

/// A function of a minion as `Caller.cmd` gets it.
fn caller(mut low: Entries, fun: &str) -> Result<Function, CallError> {
    let arguments = match low.take("args") {
        Some(Value::Array(items)) if !is_dictlist(&items) => Arguments {
            positional: items,
            named: Vec::new(),
        },
        Some(args) => Arguments {
            positional: Vec::new(),
            named: texts(named_of(args)?)?,
        },
        None => Arguments {
            positional: low.take("arg").map_or_else(|| Ok(Vec::new()), listed)?,
            named: match low.take("kwarg") {
                None => Vec::new(),
                Some(Value::Map(named)) => texts(named)?,
                Some(_) => return Err(CallError::Kwarg),
            },
        },
    };
    Ok(Function {
        fun: fun.to_owned(),
        arguments,
        if_taken: Vec::new(),
        is_flat: false,
    })
}

/// The items over which Python would iterate: of a text its characters.
fn listed(value: Value) -> Result<Vec<Value>, CallError> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Str(text) => Ok(text.chars().map(|c| Value::from(c.to_string())).collect()),
        Value::Map(entries) => Ok(entries.into_iter().map(|(key, _)| key).collect()),
        _ => Err(CallError::Arg),
    }
}

/// Numbers that are jids become texts (`condition_input`): minions could not read them.
fn jid_as_text(value: Value) -> Value {
    /// Digits of a jid (`is_jid` in `salt/utils/jid.py`).
    const DIGITS: usize = 20;
    match &value {
        Value::Int(number) if number.to_string().len() == DIGITS => number.to_string().into(),
        Value::Uint(number) if number.to_string().len() == DIGITS => number.to_string().into(),
        _ => value,
    }
}

/// The arguments of the new form: a mapping, or a list of mappings of one entry each.
fn named_of(args: Value) -> Result<Vec<(Value, Value)>, CallError> {
    let args = match args {
        Value::Map(named) => return Ok(named),
        Value::Str(text) => {
            let node = yaml::parse(&text, "args", &Limits::DEFAULT);
            node.map_or(Value::Nil, from_yaml)
        }
        other => other,
    };
    let Value::Array(items) = args else {
        return Err(CallError::Args);
    };
    let mut named = Entries::default();
    for item in items {
        match item {
            Value::Map(mut one) if one.len() == 1 => {
                if let Some((name, value)) = one.pop() {
                    named.put(name, value);
                }
            }
            Value::Str(_) | Value::Int(_) | Value::Uint(_) | Value::Float(_) | Value::Bool(_) => {
                named.put(item, Value::Nil);
            }
            _ => return Err(CallError::Args),
        }
    }
    match named.0.is_empty() {
        true => Err(CallError::Args),
        false => Ok(named.0),
    }
}

fn is_dictlist(items: &[Value]) -> bool {
    let is_one = |item: &Value| item.as_map().is_some_and(|entries| entries.len() == 1);
    items.iter().all(is_one)
}

fn texts(named: Vec<(Value, Value)>) -> Result<Vec<(String, Value)>, CallError> {
    let named = named.into_iter().map(|(name, value)| match name {
        Value::Str(name) => Ok((name, value)),
        other => Err(CallError::Name(other)),
    });
    named.collect()
}

//! `match.*`: whether the minion matches a target (`salt/modules/match.py`).
//!
//! As in stock on a master, grains are those of the minion, but the id is that of the options,
//! which in 3008 is the master's own, unless the template names one (`minion_id=grains['id']`). A
//! target that makes no sense matches nothing.

use std::sync::LazyLock;

use saltern_config::yaml;
use saltern_model::Compat;
use saltern_policy::expression::PatternCache;
use saltern_policy::matching::Nodegroups;
use saltern_policy::matching::single::Single;
use saltern_wire::msgpack::Value;

use super::lookup::{Called, Facts, default_of, hashable, plain_text, row_of, update};
use crate::render::data::to_template;
use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::json;

/// Patterns come from templates, so the same few come again and again.
static PATTERNS: LazyLock<PatternCache> = LazyLock::new(PatternCache::default);

const BY_ID: [&str; 4] = ["glob", "list", "pcre", "compound"];
const UNEVEN: &str = "The ifelse function must have an odd number of arguments!";
const BY_PATH: [&str; 4] = ["grain", "grain_pcre", "pillar", "pillar_pcre"];

/// Adds the functions.
pub(super) fn matching(registry: &mut Registry, facts: &Facts) {
    for matcher in BY_ID {
        let facts = facts.clone();
        registry.add(&format!("match.{matcher}"), move |args| {
            let target = args.need(0, "tgt")?;
            let id = args.get(1, "minion_id").filter(|id| !id.is_nil());
            Ok(Value::Bool(is_match(&facts, matcher, target, id)))
        });
    }
    for matcher in BY_PATH {
        let facts = facts.clone();
        registry.add(&format!("match.{matcher}"), move |args| {
            let target = args.need(0, "tgt")?;
            match args.text(1, "delimiter").as_deref() {
                None | Some(":") => Ok(Value::Bool(is_match(&facts, matcher, target, None))),
                Some(delimiter) => by_other_path(&facts, matcher, target, delimiter),
            }
        });
    }
    let all = facts.clone();
    registry.add("match.ipcidr", move |args| {
        let target = args.need(0, "tgt")?;
        // Stock's answer to what is no address is an empty list, which is as false.
        let address = match target {
            Value::Str(text) => text.clone(),
            Value::Bool(flag) => number_as_address(i64::from(*flag)),
            Value::Int(number) => number_as_address(*number),
            _ => String::new(),
        };
        if !is_network(&address) {
            return Ok(Value::Array(Vec::new()));
        }
        let target = Value::from(address);
        Ok(Value::Bool(is_match(&all, "ipcidr", &target, None)))
    });
    registry.add("match.data", |args| {
        args.need(0, "tgt")?;
        Ok(Value::Bool(false))
    });
    let all = facts.clone();
    registry.add("match.filter_by", move |args| filter_by(&all, &args));
    let all = facts.clone();
    registry.add("match.search_by", move |args| search_by(&all, &args));
    let all = facts.clone();
    registry.add("match.ifelse", move |args| if_else(&all, args));
}

/// A number as Python's `ipaddress` takes it; nothing if it takes none.
fn number_as_address(number: i64) -> String {
    match (u32::try_from(number), u128::try_from(number)) {
        (Ok(bits), _) => std::net::Ipv4Addr::from(bits).to_string(),
        (_, Ok(bits)) => std::net::Ipv6Addr::from(bits).to_string(),
        _ => String::new(),
    }
}

fn is_network(text: &str) -> bool {
    match text.contains('/') {
        true => super::network::strict_network(text).is_some(),
        false => text.parse::<std::net::IpAddr>().is_ok(),
    }
}

fn is_match(facts: &Facts, matcher: &str, target: &Value, id: Option<&Value>) -> bool {
    let own = facts.opts.get("id").cloned().unwrap_or(Value::Nil);
    let id = plain_text(id.filter(|id| !id.is_nil()).unwrap_or(&own));
    let words = match (matcher, target) {
        ("compound", Value::Array(words)) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            Value::from(words.join(" "))
        }
        _ => target.clone(),
    };
    let single = Single {
        id: &id,
        grains: &facts.grains,
        pillar: &facts.pillar,
        nodegroups: &nodegroups(facts, &words),
        compat: Compat::V3008,
        patterns: &PATTERNS,
    };
    single.matches(matcher, &words).unwrap_or_else(|error| {
        tracing::error!(%error, "a target of a template matches nothing");
        false
    })
}

/// The nodegroups of the configuration, if the target may need them.
fn nodegroups(facts: &Facts, target: &Value) -> Nodegroups {
    let needs = target.as_str().is_some_and(|text| text.contains("N@"));
    let groups = facts.opts.get("nodegroups").filter(|_| needs);
    // JSON is YAML, which is what nodegroups are read from.
    let style = json::Style {
        ascii: true,
        sorted: false,
        indent: None,
    };
    let text = groups.and_then(|groups| json::dump(&to_template(groups), style).ok());
    let node = text.and_then(|text| yaml::parse(&text, "nodegroups", &yaml::Limits::DEFAULT).ok());
    node.map(|node| Nodegroups::from_node(&node))
        .unwrap_or_default()
}

/// A path with another delimiter, which is a compound target of one word.
fn by_other_path(facts: &Facts, matcher: &str, target: &Value, delimiter: &str) -> Called {
    let engine = match matcher {
        "grain" => 'G',
        "grain_pcre" => 'P',
        "pillar" => 'I',
        _ => 'J',
    };
    let text = target.as_str().unwrap_or_default();
    if delimiter.chars().count() != 1 || text.contains(char::is_whitespace) {
        return Err(CallError::Refused(format!(
            "\"match.{matcher}\" cannot use the delimiter \"{delimiter}\" for \"{text}\""
        )));
    }
    if !text.contains(delimiter) {
        return Ok(Value::Bool(false));
    }
    let word = Value::from(format!("{engine}{delimiter}@{text}"));
    Ok(Value::Bool(is_match(facts, "compound", &word, None)))
}

/// The matcher that `filter_by` and `search_by` accept as an argument.
fn matcher_of(args: &CallArgs) -> Result<String, CallError> {
    let matcher = args
        .text(1, "tgt_type")
        .unwrap_or_else(|| "compound".to_owned());
    let is_known = BY_ID.contains(&matcher.as_str())
        || BY_PATH.contains(&matcher.as_str())
        || matcher == "ipcidr";
    match is_known {
        true => Ok(matcher),
        false => Err(CallError::Failed(format!("'{matcher}'"))),
    }
}

/// `filter_by(lookup, tgt_type, minion_id, merge, merge_lists, default)`: the value of the first
/// target that matches.
fn filter_by(facts: &Facts, args: &CallArgs) -> Called {
    let matcher = matcher_of(args)?;
    let lookup = args.need(0, "lookup")?;
    let rows = lookup.as_map().unwrap_or_default();
    let id = args.get(2, "minion_id");
    let found = rows
        .iter()
        .find(|(target, _)| is_match(facts, &matcher, target, id));
    let Some((_, value)) = found else {
        let default = default_of(args, 5, Value::from("default"));
        return Ok(row_of(rows, &default).cloned().unwrap_or(Value::Nil));
    };
    let lists = args.flag(4, "merge_lists", false);
    match args.truthy(3, "merge") {
        None => Ok(value.clone()),
        Some(more @ Value::Map(_)) if value.is_nil() => Ok(more.clone()),
        Some(more @ Value::Map(_)) => update(value, more, lists),
        Some(_) => Err(CallError::Failed(
            "filter_by merge argument must be a dictionary.".to_owned(),
        )),
    }
}

/// `ifelse(target, value, …, default, tgt_type=, minion_id=, merge=, merge_lists=)`: the value after
/// the first target that matches; a target may be a boolean.
fn if_else(facts: &Facts, mut args: CallArgs) -> Called {
    let Some(default) = args.positional.pop() else {
        return Err(CallError::Failed(UNEVEN.to_owned()));
    };
    if args.positional.is_empty() {
        return Ok(default);
    }
    let mut rows: Vec<(Value, Value)> = Vec::new();
    for pair in args.positional.chunks(2) {
        let [target, value] = pair else {
            return Err(CallError::Failed(UNEVEN.to_owned()));
        };
        let target = match target {
            Value::Bool(true) => Value::from("*"),
            Value::Bool(false) => Value::from("SALT_IFELSE_MATCH_NOTHING"),
            target => hashable(target)?.clone(),
        };
        match rows.iter_mut().find(|(found, _)| *found == target) {
            Some((_, old)) => old.clone_from(value),
            None => rows.push((target, value.clone())),
        }
    }
    let name = Value::from("SALT_IFELSE_FUNCTION_DEFAULT");
    rows.push((name.clone(), default));
    args.positional = vec![Value::Map(rows)];
    args.named.push(("default".to_owned(), name));
    filter_by(facts, &args)
}

/// `search_by(lookup, tgt_type, minion_id)`: the names of the lists with a target that matches,
/// each as often as one does.
fn search_by(facts: &Facts, args: &CallArgs) -> Called {
    let matcher = matcher_of(args)?;
    let rows = args.need(0, "lookup")?.as_map().unwrap_or_default();
    let id = args.get(2, "minion_id");
    let mut names = Vec::new();
    for (name, targets) in rows {
        for target in targets.as_array().unwrap_or_default() {
            if is_match(facts, &matcher, target, id) {
                names.push(name.clone());
            }
        }
    }
    Ok(match names.is_empty() {
        true => Value::Nil,
        false => Value::Array(names),
    })
}

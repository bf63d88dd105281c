//! Options that are honoured in part: validation of those values that this master does not support.
//!
//! Only names and forms are checked. The parts that use these options check more when they are
//! opened; nothing here reads a file or connects to a server.

use regex::Regex;

use crate::finding::{Finding, Severity};
use crate::reader::{Reader, shown};
use crate::returners::{OWN_EVENTS, OWN_JOBS};
use crate::sql::{self, SqlSchema};
use crate::yaml::{Node, NodeValue};

/// The modules of `ext_pillar` that are built in.
const EXT_PILLARS: [&str; 8] = [
    "cmd_json",
    "cmd_yaml",
    "file_tree",
    "git",
    "http_json",
    "http_yaml",
    "nodegroups",
    "stack",
];

/// The modules of `external_auth` that are built in.
const EXTERNAL_AUTH: [&str; 4] = ["pam", "file", "sharedsecret", "auto"];

/// The modules of `master_tops` that are built in.
const MASTER_TOPS: [&str; 1] = ["ext_nodes"];

/// The renderers that are built in.
const RENDERERS: [&str; 6] = ["jinja", "yaml", "json", "gpg", "yaml_jinja", "json_jinja"];

/// Whether a renderer is built in; any other one takes Python.
pub fn is_built_in_renderer(name: &str) -> bool {
    RENDERERS.contains(&name)
}

/// The ways to merge pillars.
const STRATEGIES: [&str; 6] = ["smart", "aggregate", "recurse", "overwrite", "list", "none"];

/// Looks at the values.
pub(crate) fn values(reader: &mut Reader<'_>) {
    external_auth(reader);
    returners(reader);
    master_tops(reader);
    ext_pillar(reader);
    renderer(reader);
    pillars(reader);
    nodegroups(reader);
    mine_get(reader);
    order_masters(reader);
    // Stock's schema knows lists only, and its reactor takes the path of a file, too.
    if written(reader, "reactor").is_some_and(|node| node.as_str().is_some()) {
        reader.mark_read("reactor");
    }
}

fn warn(reader: &mut Reader<'_>, name: &str, message: impl Into<String>) {
    reader.find(Severity::Warning, name, message);
}

/// The written value, unless it is empty. Its type is checked here.
fn checked<'a>(reader: &mut Reader<'a>, name: &str) -> Option<&'a Node> {
    reader.mark_read(name);
    reader.written(name).filter(|node| !node.is_null())
}

fn written<'a>(reader: &Reader<'a>, name: &str) -> Option<&'a Node> {
    reader.written(name).filter(|node| !node.is_null())
}

fn external_auth(reader: &mut Reader<'_>) {
    let name = "external_auth";
    let modules = written(reader, name).and_then(Node::as_map);
    let modules = modules.into_iter().flat_map(|map| map.iter());
    let modules: Vec<String> = modules.map(|(key, _)| key.to_string()).collect();
    for module in modules {
        if !EXTERNAL_AUTH.contains(&module.as_str()) {
            needs_python(
                reader,
                name,
                &module,
                &EXTERNAL_AUTH,
                "nobody can log in by it",
            );
        }
    }
}

fn returners(reader: &mut Reader<'_>) {
    for (name, own, without) in [
        ("event_return", OWN_EVENTS, "it gets no events"),
        ("master_job_cache", OWN_JOBS, "it gets no jobs"),
        ("ext_job_cache", OWN_JOBS, "it gets no jobs"),
    ] {
        let built_in = [&[own][..], &SqlSchema::ALL.map(SqlSchema::name)].concat();
        let Some(node) = written(reader, name) else {
            continue;
        };
        let listed = node.as_seq().unwrap_or(std::slice::from_ref(node));
        let listed = listed.iter().filter_map(Node::as_str);
        for module in listed.filter(|name| !name.is_empty() && *name != own) {
            // Why one of them is left to Python has a finding of its own.
            if !sql::is_native(reader, module) {
                needs_python(reader, name, module, &built_in, without);
            }
        }
    }
}

fn master_tops(reader: &mut Reader<'_>) {
    let name = "master_tops";
    let Some(node) = checked(reader, name) else {
        return;
    };
    let Some(modules) = node.as_map() else {
        return warn(
            reader,
            name,
            format!("{} is no mapping of modules", shown(name, node)),
        );
    };
    let others = modules.iter().map(|(key, _)| key.to_string());
    let others: Vec<String> = others
        .filter(|module| !MASTER_TOPS.contains(&module.as_str()))
        .collect();
    for module in others {
        let without = "no minion gets states while it is there";
        needs_python(reader, name, &module, &MASTER_TOPS, without);
    }
}

fn ext_pillar(reader: &mut Reader<'_>) {
    let name = "ext_pillar";
    let Some(node) = checked(reader, name) else {
        return;
    };
    let Some(entries) = node.as_seq() else {
        return warn(
            reader,
            name,
            format!("{} is no list of modules", shown(name, node)),
        );
    };
    let excluded = reader.written("exclude_ext_pillar").and_then(Node::as_seq);
    let excluded: Vec<&str> = excluded
        .unwrap_or_default()
        .iter()
        .filter_map(Node::as_str)
        .collect();
    for entry in entries {
        let Some(modules) = entry.as_map().filter(|map| !map.is_empty()) else {
            let message = "an entry is no module with its arguments; every pillar fails there";
            warn(reader, name, message);
            continue;
        };
        for (key, _) in modules.iter() {
            let module = key.to_string();
            if excluded.contains(&module.as_str()) || EXT_PILLARS.contains(&module.as_str()) {
                continue;
            }
            let without = "every pillar has it as an error";
            needs_python(reader, name, &module, &EXT_PILLARS, without);
        }
    }
}

fn renderer(reader: &mut Reader<'_>) {
    let name = "renderer";
    let pipeline = written(reader, name).and_then(Node::as_str);
    for stage in pipeline.into_iter().flat_map(|text| text.split('|')) {
        let renderer = stage.split_whitespace().next().unwrap_or_default();
        if !renderer.is_empty() && !is_built_in_renderer(renderer) {
            let without = "files that name no other are errors";
            needs_python(reader, name, renderer, &RENDERERS, without);
        }
    }
}

/// A module that only Python can run: a hint, or a warning where no Python may run.
pub(crate) fn needs_python(
    reader: &mut Reader<'_>,
    name: &str,
    module: &str,
    built_in: &[&str],
    without: &str,
) {
    let is_off = |node: &Node| matches!(node.value, NodeValue::Bool(false));
    let is_off = reader.applies("python_bridge").is_some_and(is_off);
    let built_in = built_in.join(", ");
    if is_off {
        let message = format!(
            "\"{module}\" is not built in, only {built_in}, and python_bridge is off; {without}"
        );
        let finding = Finding::new(Severity::Warning, &reader.mark(name), name, message);
        reader.findings.push(finding.about_python());
    } else {
        let message = format!("\"{module}\" is not built in and needs Python (python_bridge)");
        let finding = Finding::new(Severity::Info, &reader.mark(name), name, message);
        reader.findings.push(finding.about_python());
    }
}

fn pillars(reader: &mut Reader<'_>) {
    let name = "pillar_cache_backend";
    if let Some(node) = checked(reader, name)
        && !matches!(node.as_str(), Some("disk" | "memory"))
    {
        // The backend of a cache that is off is nobody's.
        let is_used = reader.applies("pillar_cache").is_some_and(Node::is_truthy);
        let severity = match is_used {
            true => Severity::Error,
            false => Severity::Warning,
        };
        let message = format!("{} is not one of disk, memory", shown(name, node));
        reader.find(severity, name, message);
    }
    let name = "pillar_source_merging_strategy";
    if let Some(node) = checked(reader, name)
        && !node.as_str().is_some_and(|text| STRATEGIES.contains(&text))
    {
        let message = format!(
            "{} is not one of {}; pillars are merged by \"recurse\"",
            shown(name, node),
            STRATEGIES.join(", ")
        );
        warn(reader, name, message);
    }
}

fn nodegroups(reader: &mut Reader<'_>) {
    let name = "nodegroups";
    let Some(node) = checked(reader, name) else {
        return;
    };
    let Some(groups) = node.as_map() else {
        return warn(
            reader,
            name,
            format!("{} is no mapping of groups", shown(name, node)),
        );
    };
    for (group, entry) in groups.iter() {
        let is_list_of_words = |items: &[Node]| items.iter().all(|item| item.as_str().is_some());
        let is_good = match &entry.value.value {
            NodeValue::Str(_) => true,
            _ => entry.value.as_seq().is_some_and(is_list_of_words),
        };
        if !is_good || group.as_str().is_none() {
            let message = format!(
                "the group \"{group}\" is neither an expression nor a list of words; it is nobody"
            );
            warn(reader, name, message);
        }
    }
}

fn mine_get(reader: &mut Reader<'_>) {
    let name = "mine_get";
    reader.mark_read(name);
    let Some(node) = reader.written(name) else {
        return;
    };
    let Some(rules) = node.as_map() else {
        let message = format!(
            "{} is no mapping; nobody may read a mine",
            shown(name, node)
        );
        return warn(reader, name, message);
    };
    for (minions, entry) in rules.iter() {
        let minions = minions.as_str();
        let functions = entry.value.as_seq();
        if minions.is_none() || functions.is_none() {
            warn(
                reader,
                name,
                "a rule is no expression with a list of functions; it has no effect",
            );
        }
        let functions = functions
            .unwrap_or_default()
            .iter()
            .filter_map(Node::as_str);
        for expression in minions.into_iter().chain(functions) {
            if let Some(problem) = broken(expression) {
                let message = format!("\"{expression}\" matches nothing: {problem}");
                warn(reader, name, message);
            }
        }
    }
}

/// The mistake that makes an expression invalid in every dialect. Syntax of some dialects only,
/// such as look-around, is checked where the expression is compiled.
fn broken(expression: &str) -> Option<&'static str> {
    const PROBLEMS: [&str; 3] = ["unclosed group", "unopened group", "missing expression"];
    let error = Regex::new(expression).err()?.to_string();
    PROBLEMS.into_iter().find(|problem| error.contains(problem))
}

fn order_masters(reader: &mut Reader<'_>) {
    let name = "order_masters";
    let is_strict = reader.applies("saltern_strict_minion_events");
    if reader.applies(name).is_some_and(Node::is_truthy) && is_strict.is_some_and(Node::is_truthy) {
        let message = "every minion may return in the name of minions that are not this master's \
                       own, because a minion cannot be distinguished from a syndic";
        warn(reader, name, message);
    }
}

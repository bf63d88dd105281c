//! Settings that would have no effect: roots that do not exist, node groups that match nothing,
//! rules that hold for nobody.
//!
//! Stock passes over all of these silently. Types of whole options are looked at in `check.rs`.

use std::path::Path;

use crate::finding::{Finding, Severity};
use crate::master::MasterConfig;
use crate::reader::Reader;
use crate::yaml::{Key, Mark, Node, NodeValue};

/// The most findings about the contents of one option.
const MAX_FINDINGS: usize = 50;

/// Looks at the contents.
pub(crate) fn contents(reader: &mut Reader<'_>) {
    roots(reader, "file_roots");
    roots(reader, "pillar_roots");
    nodegroup_references(reader);
    for name in ["external_auth", "peer", "peer_run"] {
        rules(reader, name);
    }
}

/// Directories of `file_roots` and `pillar_roots` that are not there at this moment. A master starts
/// without them, and serves them once they exist, so only a check reports them.
pub fn missing_roots(config: &MasterConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for option in [config.file_roots(), config.pillar_roots()] {
        let map = option.written().and_then(Node::as_map).into_iter();
        for (environment, entry) in map.flat_map(|map| map.iter()) {
            let directories = entry.value.as_seq().unwrap_or_default();
            for path in directories.iter().filter_map(Node::as_str) {
                let is_pattern = path.contains(['*', '?', '[']) || path.contains("__env__");
                if !is_pattern && !Path::new(path).is_dir() && findings.len() < MAX_FINDINGS {
                    let message = format!(
                        "there is no directory \"{}\" (environment \"{environment}\")",
                        path.escape_debug()
                    );
                    findings.push(config.finding(Severity::Warning, option.name(), message));
                }
            }
        }
    }
    findings
}

fn entries<'a>(
    reader: &Reader<'a>,
    name: &str,
) -> impl Iterator<Item = (&'a Key, &'a Node)> + use<'a> {
    let map = reader.written(name).and_then(Node::as_map);
    let entries = map.into_iter().flat_map(|map| map.iter());
    entries.map(|(key, entry)| (key, &entry.value))
}

fn warn(reader: &mut Reader<'_>, mark: &Mark, name: &str, message: String) {
    let about = reader.findings.iter().filter(|it| it.option == name);
    if about.count() < MAX_FINDINGS {
        let finding = Finding::new(Severity::Warning, mark, name, message);
        reader.findings.push(finding);
    }
}

/// Reports environments that have something else than a list of directories.
fn roots(reader: &mut Reader<'_>, name: &str) {
    for (environment, node) in entries(reader, name) {
        if node.as_seq().is_none() && !node.is_null() {
            let message = format!(
                "the environment \"{environment}\" has {} in place of a list of directories; it is \
                 empty",
                node.kind()
            );
            warn(reader, &node.mark, name, message);
        }
    }
}

/// Groups that contain themselves, or name a group that is not there.
fn nodegroup_references(reader: &mut Reader<'_>) {
    const NAME: &str = "nodegroups";
    let groups: Vec<(&str, &Node)> = entries(reader, NAME)
        .filter_map(|(key, node)| Some((key.as_str()?, node)))
        .collect();
    for (group, node) in &groups {
        for named in references(node) {
            if !groups.iter().any(|(name, _)| *name == named) {
                let message = format!(
                    "the group \"{group}\" names the group \"{named}\", which there is not"
                );
                warn(reader, &node.mark, NAME, message);
            }
        }
        if contains_itself(group, &groups) {
            let message =
                format!("the group \"{group}\" contains itself; that part matches nothing");
            warn(reader, &node.mark, NAME, message);
        }
    }
}

/// The groups that a group names.
fn references(node: &Node) -> Vec<&str> {
    let words: Vec<&str> = match &node.value {
        NodeValue::Str(text) => text.split_whitespace().collect(),
        _ => {
            let items = node.as_seq().unwrap_or_default();
            items.iter().filter_map(Node::as_str).collect()
        }
    };
    let named = words.into_iter().filter_map(|word| word.strip_prefix("N@"));
    named.filter(|name| !name.is_empty()).collect()
}

fn contains_itself(group: &str, groups: &[(&str, &Node)]) -> bool {
    let mut seen: Vec<&str> = Vec::new();
    let mut left = vec![group];
    while let Some(next) = left.pop() {
        let node = groups.iter().find(|(name, _)| *name == next);
        for named in node.map(|(_, node)| references(node)).unwrap_or_default() {
            if named == group {
                return true;
            }
            if !seen.contains(&named) {
                seen.push(named);
                left.push(named);
            }
        }
    }
    false
}

/// Rules that are no mapping of names to lists.
fn rules(reader: &mut Reader<'_>, name: &str) {
    let is_nested = name == "external_auth";
    for (who, node) in entries(reader, name) {
        // The file of the backend `file` and the like.
        let is_rule = match is_nested {
            true => node.as_map().is_some(),
            false => node.as_seq().is_some(),
        };
        if !is_rule && !node.is_null() {
            let wanted = if is_nested {
                "a mapping of users"
            } else {
                "a list"
            };
            let message = format!(
                "\"{who}\" has {} in place of {wanted}; it gives nobody any rights",
                node.kind()
            );
            warn(reader, &node.mark, name, message);
        }
    }
}

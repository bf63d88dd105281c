//! Reads the configuration file and its includes, and merges them as stock does.
//!
//! The rules are odd and kept (`load_config`, `include_config` in `salt/config/__init__.py`): the
//! files of one include option are merged deeply, lists joined without repetition; the result then
//! replaces whole top-level options of the main file. An included file that is wrong is skipped by
//! stock; here it is an error.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use saltern_python::number::float_repr;

use crate::finding::{Finding, Severity};
use crate::glob::glob;
use crate::yaml::{self, Entry, Key, Limits, Mapping, Mark, Node, NodeValue};

/// Includes within includes; stock would follow a circle until it crashes.
const MAX_INCLUDE_DEPTH: usize = 16;

/// The file name that an empty `default_include` line means.
const DEFAULT_INCLUDE: &str = "master.d/*.conf";

/// The options of a file without the one that makes it invalid YAML, with that option's name. The
/// master does not start with such a file; tools beside a running one go on with the rest. Nothing
/// when the mistake is not within one option.
fn without_broken_option(bytes: &[u8], name: &str) -> Option<(String, Mapping)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let parse = |text: &str| yaml::parse(text, name, &Limits::DEFAULT).ok();
    let starts = text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    });
    let heads = starts.filter_map(|(start, line)| {
        let (head, _) = line.split_once(':')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        (!head.is_empty() && head.chars().all(is_name)).then_some((start, head))
    });
    let heads: Vec<(usize, &str)> = heads.collect();
    for (index, (start, head)) in heads.iter().enumerate() {
        let end = heads.get(index + 1).map_or(text.len(), |(next, _)| *next);
        let (before, from) = text.split_at_checked(*start)?;
        let (option, after) = from.split_at_checked(end - start)?;
        if parse(option).is_some() {
            continue;
        }
        let NodeValue::Map(rest) = parse(&format!("{before}{after}"))?.value else {
            return None;
        };
        return Some(((*head).to_owned(), rest));
    }
    None
}

/// The merged settings of the files.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) settings: Mapping,
    pub(crate) findings: Vec<Finding>,
    /// A file could not be read, as opposed to being wrong.
    pub(crate) unreadable: bool,
}

/// Reads a configuration. `path` is the file, or the directory that has a file `master`. The options of
/// `client_file`, where there is one, replace all others.
pub(crate) fn read(path: &Path, client_file: Option<&Path>) -> (PathBuf, Files) {
    let mut files = Files::default();
    let path = if path.is_dir() {
        path.join("master")
    } else {
        path.to_path_buf()
    };
    // A path that may not be looked at is none that is not there: reading it says why.
    if matches!(path.try_exists(), Ok(false))
        && path
            .parent()
            .is_some_and(|parent| parent.is_dir() && parent != Path::new(""))
    {
        // Stock starts with nothing but defaults then.
        let mark = Mark {
            file: path.display().to_string().into(),
            line: 1,
            column: 1,
        };
        let mut finding = Finding::new(
            Severity::Warning,
            &mark,
            "",
            "no such file, all options have their defaults",
        );
        finding.line = 0;
        files.findings.push(finding);
    } else if let Some(main) = files.load(&path) {
        files.settings = main;
    }
    let include = |settings: &Mapping, name: &str| settings.get(name).cloned();
    let default_include = include(&files.settings, "default_include").unwrap_or_else(|| {
        Node::new(
            NodeValue::Str(DEFAULT_INCLUDE.to_owned()),
            Mark::nowhere("default"),
        )
    });
    let own_include = include(&files.settings, "include");
    let included = files.include(&default_include, &path, false, 0);
    replace(&mut files.settings, included);
    if let Some(own_include) = own_include {
        let included = files.include(&own_include, &path, true, 0);
        replace(&mut files.settings, included);
    }
    if let Some(options) = client_file.and_then(|path| files.load(path)) {
        replace(&mut files.settings, options);
    }
    (path, files)
}

impl Files {
    fn problem(&mut self, severity: Severity, mark: &Mark, message: String) {
        self.findings
            .push(Finding::new(severity, mark, "", message));
    }

    /// One file as a mapping; `None` if there is a finding instead.
    fn load(&mut self, path: &Path) -> Option<Mapping> {
        let name = path.display().to_string();
        let top = Mark {
            file: name.as_str().into(),
            line: 1,
            column: 1,
        };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(problem) => {
                self.unreadable = true;
                let message = format!("cannot be read: {}", plain(&problem));
                let mut finding = Finding::new(Severity::Error, &top, "", message);
                finding.line = 0;
                self.findings.push(finding);
                return None;
            }
        };
        let node = match yaml::parse_bytes(&bytes, &name, &Limits::DEFAULT) {
            Ok(node) => node,
            Err(problem) => {
                // Stock renames a broken `_schedule.conf`, which its minions write themselves, and
                // goes on. We go on too, and leave the file alone.
                let severity = if name.ends_with("_schedule.conf") {
                    Severity::Warning
                } else {
                    Severity::Error
                };
                let (option, rest) = without_broken_option(&bytes, &name).unzip();
                self.findings.push(Finding::new(
                    severity,
                    &problem.mark,
                    &option.unwrap_or_default(),
                    problem.message,
                ));
                return rest;
            }
        };
        let mut map = match node.value {
            NodeValue::Map(map) => map,
            // Stock: `safe_load(...) or {}`.
            _ if !node.is_truthy() => Mapping::default(),
            _ => {
                let message = format!("the file holds {}, not options with values", node.kind());
                self.problem(Severity::Error, &node.mark, message);
                return None;
            }
        };
        if let Some(id) = map.get_mut("id") {
            id_as_text(id);
        }
        Some(map)
    }

    fn include(&mut self, include: &Node, origin: &Path, warns: bool, depth: usize) -> Mapping {
        let mut merged = Mapping::default();
        let single = std::slice::from_ref(include);
        let patterns = match &include.value {
            _ if !include.is_truthy() => return merged,
            NodeValue::Seq(items) => items.as_slice(),
            _ => single,
        };
        if depth >= MAX_INCLUDE_DEPTH {
            let message = format!("more than {MAX_INCLUDE_DEPTH} includes within each other");
            self.problem(Severity::Error, &include.mark, message);
            return merged;
        }
        for pattern in patterns {
            let Some(text) = pattern.as_str() else {
                let message = format!("an include must be a path, not {}", pattern.kind());
                self.problem(Severity::Error, &pattern.mark, message);
                continue;
            };
            let text = in_home(text);
            let base = origin.parent().unwrap_or(Path::new(""));
            let full = base.join(&text);
            let found = glob(&full.to_string_lossy());
            if found.is_empty() && warns {
                let message = format!("include: no file matches \"{}\"", full.display());
                self.problem(Severity::Warning, &pattern.mark, message);
            }
            for path in found {
                let Some(mut options) = self.load(&path) else {
                    continue;
                };
                if let Some(inner) = options.get("include").filter(|inner| inner.is_truthy()) {
                    let inner = inner.clone();
                    let included = self.include(&inner, &path, true, depth + 1);
                    replace(&mut options, included);
                }
                merge_schedule(&mut merged, &options);
                merge(&mut merged, options);
            }
        }
        merged
    }
}

fn plain(problem: &io::Error) -> String {
    match problem.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => problem.to_string(),
    }
}

/// A numeric id is allowed and becomes text (`_read_conf_file`).
fn id_as_text(id: &mut Node) {
    let text = match &id.value {
        NodeValue::Int(number) => number.to_string(),
        NodeValue::BigInt(digits) => digits.clone(),
        NodeValue::Float(number) => float_repr(*number),
        _ => return,
    };
    id.value = NodeValue::Str(text);
}

fn in_home(path: &str) -> String {
    match (path.strip_prefix('~'), std::env::var("HOME")) {
        (Some(rest), Ok(home)) if rest.is_empty() || rest.starts_with('/') => home + rest,
        _ => path.to_owned(),
    }
}

/// Python's `dict.update`: whole values are replaced.
pub(crate) fn replace(into: &mut Mapping, from: Mapping) {
    for (key, entry) in from {
        into.insert(key, entry);
    }
}

/// `salt.utils.dictupdate.update(dest, upd, True, True)`: mappings are merged, lists joined
/// without what is there already, anything else is replaced.
pub(crate) fn merge(into: &mut Mapping, from: Mapping) {
    for (key, entry) in from {
        match into.entry_of_mut(&key) {
            Some(there) => merge_entry(there, entry),
            None => {
                into.insert(key, entry);
            }
        }
    }
}

fn merge_entry(there: &mut Entry, entry: Entry) {
    match (&mut there.value.value, entry.value) {
        (
            NodeValue::Map(old),
            Node {
                value: NodeValue::Map(new),
                ..
            },
        ) => merge(old, new),
        (
            NodeValue::Seq(old),
            Node {
                value: NodeValue::Seq(new),
                ..
            },
        ) => {
            for item in new {
                if !old.contains(&item) {
                    old.push(item);
                }
            }
        }
        (_, value) => {
            *there = Entry {
                key_mark: entry.key_mark,
                value,
            }
        }
    }
}

/// Schedules of later files replace jobs of the same name whole, before the deep merge sees them.
fn merge_schedule(merged: &mut Mapping, options: &Mapping) {
    let Some(NodeValue::Map(new)) = options.get("schedule").map(|node| &node.value) else {
        return;
    };
    if let Some(NodeValue::Map(old)) = merged.get_mut("schedule").map(|node| &mut node.value) {
        let fresh: Vec<(Key, Entry)> = new
            .iter()
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        for (key, entry) in fresh {
            old.insert(key, entry);
        }
    }
}

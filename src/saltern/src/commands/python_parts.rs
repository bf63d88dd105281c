//! Parts of a configuration that only Python can run, and whether there is one to run them: the
//! last paragraph of `saltern check-config`.
//!
//! Names of modules are those of files; no module is read or loaded. What templates and files with
//! links need is reported when they are rendered.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use saltern_bridge::{Bridge, python_pillar_files};
use saltern_config::{Finding, MasterConfig, PythonBridge};

/// The kinds of modules in `extension_modules` that a master runs.
const KINDS: [&str; 11] = [
    "auth",
    "engines",
    "modules",
    "pillar",
    "renderers",
    "returners",
    "runners",
    "tops",
    "utils",
    "wheel",
    "wheels",
];

/// The most modules of a directory that are named.
const MAX_NAMES: usize = 100;

/// The findings; none for a configuration that needs no Python. The options that need it
/// are among the findings already.
pub(crate) fn describe(config: &MasterConfig, findings: &[Finding]) -> String {
    let mut text = String::new();
    for (place, names) in modules(config) {
        let _ = writeln!(text, "  {}: {}", place.display(), names.join(", "));
    }
    for (file, renderers) in python_pillar_files(config) {
        let _ = writeln!(text, "  {}: {}", file.display(), renderers.join(", "));
    }
    let is_named = matches!(config.python_bridge.python, PythonBridge::At(_));
    if text.is_empty() && !is_named && !findings.iter().any(|finding| finding.needs_python) {
        return text;
    }
    let python = match Bridge::new(config).python() {
        Ok(python) => format!("run by \"{}\"", python.display()),
        Err(reason) => format!("nothing runs it: {reason}"),
    };
    format!("what only Python can run (python_bridge)\n{text}  {python}\n")
}

/// Why nothing runs Python; `None` if something does, or if nothing needs it.
pub(crate) fn missing(config: &MasterConfig, findings: &[Finding]) -> Option<String> {
    if describe(config, findings).is_empty() {
        return None;
    }
    let missing = Bridge::new(config).python().err();
    missing.map(|reason| reason.to_string())
}

/// The directories with modules of the site's own, and the names in each.
pub(crate) fn modules(config: &MasterConfig) -> Vec<(PathBuf, Vec<String>)> {
    let extensions = config.extension_modules().map(PathBuf::from);
    let extensions = extensions.unwrap_or_else(|| config.cachedir.join("extmods"));
    let mut places: Vec<PathBuf> = KINDS.iter().map(|kind| extensions.join(kind)).collect();
    places.extend(config.runner_dirs().texts().map(PathBuf::from));
    for directory in config.module_dirs().texts().map(Path::new) {
        places.extend(KINDS.iter().map(|kind| directory.join(kind)));
    }
    let found = places.into_iter().map(|place| {
        let names = names_in(&place);
        (place, names)
    });
    found.filter(|(_, names)| !names.is_empty()).collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let modules = paths.filter(|path| path.extension().is_some_and(|ending| ending == "py"));
    let names = modules.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names
        .filter(|name| name != "__init__")
        .take(MAX_NAMES)
        .collect();
    names.sort();
    names
}

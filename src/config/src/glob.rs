//! Python's `glob.glob` for `include` and `default_include`, sorted as stock sorts it.
//!
//! `*`, `?` and `[…]` within one part of a path; no `**`, which stock does not ask for. A part
//! that does not start with a dot does not match hidden files.

use std::fs;
use std::path::{Path, PathBuf};

use saltern_python::fnmatch::Glob;

fn has_magic(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The existing paths that match, sorted. A directory that cannot be read matches nothing.
pub fn glob(pattern: &str) -> Vec<PathBuf> {
    let start = if pattern.starts_with('/') {
        PathBuf::from("/")
    } else {
        PathBuf::new()
    };
    let mut found = vec![start];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for base in &found {
            if has_magic(part) {
                next.extend(matches_in(base, part));
            } else {
                let path = base.join(part);
                if path.symlink_metadata().is_ok() {
                    next.push(path);
                }
            }
        }
        found = next;
    }
    found.sort();
    found
}

fn matches_in(base: &Path, part: &str) -> Vec<PathBuf> {
    let directory = if base.as_os_str().is_empty() {
        Path::new(".")
    } else {
        base
    };
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let pattern = Glob::new(part);
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| part.starts_with('.') || !name.starts_with('.'))
        .filter(|name| pattern.matches(name))
        .map(|name| base.join(name))
        .collect()
}

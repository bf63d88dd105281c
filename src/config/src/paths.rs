//! Paths as stock resolves them: below `root_dir`, with `sock_dir` moved when it is too long.
//!
//! Python's path functions work on text and do not look at the file system; so do these.

use std::path::PathBuf;

use saltern_python::path::normpath;

/// `prepend_root_dir` of `salt/config/__init__.py` for one path. Stock's own root is `/`.
///
/// An absolute path outside `root_dir` moves below it as well, since every absolute path starts
/// with the default root: `/var/cache` and a root of `/tmp/r` give `/tmp/r/var/cache`.
pub(crate) fn below_root(root_dir: &str, path: &str) -> String {
    // Stock strips the separator from its default root, "/", and is left with nothing.
    let default_root = "";
    let root = root_dir;
    let inside = |prefix: &str| {
        (path == prefix || path.starts_with(&format!("{prefix}/")))
            .then(|| path.get(prefix.len()..).unwrap_or_default())
    };
    let from_default = inside(default_root).filter(|rest| !rest.is_empty());
    let from_root = if root.is_empty() {
        None
    } else {
        inside(root).filter(|rest| !rest.is_empty())
    };
    let relative = match (from_default, from_root) {
        (Some(rest), None) => rest,
        (None, Some(rest)) => rest,
        // The default root is part of every root, so the configured one is the more specific.
        (Some(_), Some(rest)) => rest,
        (None, None) if path.starts_with('/') => return path.to_owned(),
        (None, None) => path,
    };
    joined(root, relative)
}

/// `salt.utils.path.join` of two parts: the second goes below the first even if it is absolute.
pub(crate) fn joined(root: &str, rest: &str) -> String {
    let (root, rest) = (normpath(root), normpath(rest));
    normpath(&format!(
        "{}/{}",
        root.trim_end_matches('/'),
        rest.trim_start_matches('/')
    ))
}

/// `os.path.abspath`.
pub(crate) fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        return normpath(path);
    }
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    normpath(&format!("{}/{path}", here.display()))
}

/// Whether stock would take the value for a URI (`file:///dev/log`) rather than for a path.
pub(crate) fn is_uri(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

//! Parses paths and URLs of minions into the one form of path that may be opened.
//!
//! Only a [`Relative`] can be opened below a root (see [`super::root`]), and a `Relative` cannot
//! name anything outside: it has no `..`, no empty part and no NUL, and does not start with `/`.
//! Nothing here looks at the file system, except `real_path`, which opens nothing.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use saltern_python::number::parse_int;
use saltern_python::path::normpath;

/// The longest path in bytes that Linux opens, less the closing NUL.
pub const MAX_PATH_BYTES: usize = 4095;

/// The longest name in bytes of one file.
pub const MAX_NAME_BYTES: usize = 255;

/// Maximum number of parts in a path from a minion.
pub const MAX_PARTS: usize = 256;

/// Why a path cannot be meant honestly. For the log and for counters: the minion gets the answer
/// for a file that is not there, as it does from stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Starts with `/`.
    #[error("the path is absolute")]
    Absolute,
    /// Leads upwards out of the root.
    #[error("the path leads out of its root")]
    Outside,
    /// Has a NUL byte in it.
    #[error("the path holds a NUL byte")]
    Nul,
    /// Too long as a whole, in one of its parts, or in the number of parts.
    #[error("the path is too long")]
    TooLong,
    /// A query that stock cannot take, `?path=…`.
    #[error("the query cannot be answered")]
    Query,
    /// The name of the environment would lead out of its place in `__env__`.
    #[error("the environment leads out of its root")]
    Environment,
}

/// A relative path that stays below whatever it is joined to, unless a symlink leads out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Relative(String);

impl Relative {
    /// Takes a path as Python's `os.path.normpath` reads it: `a/./b//c/..` is `a/b`.
    ///
    /// # Errors
    /// [`Refusal`] when the path is absolute, leads upwards, holds a NUL byte, or is longer than
    /// the system or [`MAX_PARTS`] allow. The empty path and `.` are [`Refusal::Outside`] too: they
    /// name the root, not something in it.
    pub fn parse(path: &str) -> Result<Self, Refusal> {
        if path.starts_with('/') {
            return Err(Refusal::Absolute);
        }
        if path.contains('\0') {
            return Err(Refusal::Nul);
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(Refusal::TooLong);
        }
        let normal = normpath(path);
        if normal == "." || normal == ".." || normal.starts_with("../") {
            return Err(Refusal::Outside);
        }
        let mut parts = 0_usize;
        for part in normal.split('/') {
            parts += 1;
            if part.len() > MAX_NAME_BYTES || parts > MAX_PARTS {
                return Err(Refusal::TooLong);
            }
        }
        Ok(Self(normal))
    }

    /// The path, without a leading or closing `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its parts, outermost first.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The path of an entry of the directory `parent`; the root is `None`. `name` comes from the
    /// system, so it is one valid part.
    pub(crate) fn child(parent: Option<&Relative>, name: &str) -> Self {
        match parent {
            Some(parent) => Self(format!("{}/{name}", parent.0)),
            None => Self(name.to_owned()),
        }
    }
}

/// Whether `path` is `root` or below it, both being normalised.
pub(crate) fn is_below(path: &str, root: &str) -> bool {
    root == "/"
        || path
            .strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A path as a minion asks for it, taken apart (`Fileserver.find_file`).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The path without query and escape.
    pub(crate) path: String,
    /// The environment that a query names; it beats the one of the load.
    pub(crate) saltenv: Option<String>,
    /// `?index=`: only that root, counted as Python counts, with `None` for what is no number.
    pub(crate) index: Option<Option<i64>>,
}

impl Wanted {
    /// Takes apart the `path` of a load.
    ///
    /// # Errors
    /// [`Refusal`] for what stock refuses at this point, and for what it would stumble over.
    pub(crate) fn parse(path: &str) -> Result<Self, Refusal> {
        let mut wanted = Self {
            path: String::new(),
            saltenv: None,
            index: None,
        };
        if path.len() > MAX_PATH_BYTES {
            return Err(Refusal::TooLong);
        }
        if let Some(unescaped) = unescape(path) {
            wanted.path = unescaped;
        } else {
            let mut parts = path.split('?');
            wanted.path = parts.next().unwrap_or_default().to_owned();
            let query = parts.next().unwrap_or_default();
            for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
                match name {
                    "saltenv" => wanted.saltenv = Some(value.to_owned()),
                    "index" => wanted.index = Some(index_of(value)),
                    // Stock passes a query on as keyword arguments, and fails on these two.
                    "path" | "self" => return Err(Refusal::Query),
                    _ => {}
                }
            }
        }
        if wanted.path.starts_with('/') {
            return Err(Refusal::Absolute);
        }
        if wanted.path.contains("../") {
            return Err(Refusal::Outside);
        }
        if wanted.path.contains('\0') {
            return Err(Refusal::Nul);
        }
        Ok(wanted)
    }
}

/// Takes away the `|` that keeps `?` from starting a query (`salt.utils.url.unescape`); `None` if
/// the path is not escaped.
fn unescape(path: &str) -> Option<String> {
    match scheme(path).as_deref() {
        None => path
            .starts_with('|')
            .then(|| path.trim_start_matches('|').to_owned()),
        // A whole url is escaped behind its scheme, and stays a url, which names no file.
        Some("salt") => path
            .strip_prefix("salt://")
            .filter(|rest| rest.trim_start_matches('/').starts_with('|'))
            .map(|_| path.to_owned()),
        Some(_) => None,
    }
}

/// The scheme that Python's `urlparse` finds.
fn scheme(url: &str) -> Option<String> {
    let (scheme, _) = url.split_once(':')?;
    let starts_right = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let goes_right = scheme
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    (starts_right && goes_right).then(|| scheme.to_ascii_lowercase())
}

/// `int(text)` of Python for numbers that an index can be.
fn index_of(text: &str) -> Option<i64> {
    i64::try_from(parse_int(text, 10).ok()?).ok()
}

/// Whether `saltenv` may take the place of `__env__` in a root: one or more plain parts. Stock puts
/// in whatever the minion sends, so `../../etc` opens `/etc`.
pub(crate) fn is_plain_environment(saltenv: &str) -> bool {
    saltenv.len() <= MAX_NAME_BYTES
        && !saltenv.contains('\0')
        && saltenv
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."))
}

/// Python's `os.path.realpath`: what is not there stays as it is written, and a loop of links ends
/// where it closes. `path` is absolute.
pub(crate) fn real_path(path: &str) -> PathBuf {
    let mut seen = HashMap::new();
    resolve(PathBuf::from("/"), Path::new(path), &mut seen, 0).0
}

/// How many links may lead to links; the system itself follows forty.
const MAX_LINKS: usize = 40;

/// The real path of `rest` below the real path `base`, and whether it came to an end.
fn resolve(
    base: PathBuf,
    rest: &Path,
    seen: &mut HashMap<PathBuf, Option<PathBuf>>,
    depth: usize,
) -> (PathBuf, bool) {
    use std::path::Component;
    let mut at = if rest.is_absolute() {
        PathBuf::from("/")
    } else {
        base
    };
    let mut parts = rest.components();
    while let Some(part) = parts.next() {
        match part {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                at.pop();
            }
            Component::Normal(name) => {
                let next = at.join(name);
                let Ok(target) = fs::read_link(&next) else {
                    at = next;
                    continue;
                };
                match seen.get(&next) {
                    Some(Some(known)) => at.clone_from(known),
                    // The link is being followed already: Python gives up here.
                    Some(None) => return (next.join(parts.as_path()), false),
                    None if depth >= MAX_LINKS => return (next.join(parts.as_path()), false),
                    None => {
                        seen.insert(next.clone(), None);
                        let (found, complete) = resolve(at, &target, seen, depth + 1);
                        if !complete {
                            return (found.join(parts.as_path()), false);
                        }
                        seen.insert(next, Some(found.clone()));
                        at = found;
                    }
                }
            }
        }
    }
    (at, true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_paths_that_stay_below_are_taken() {
        let long = "a/".repeat(MAX_PARTS + 1);
        let name = "n".repeat(MAX_NAME_BYTES + 1);
        let bytes = "a".repeat(MAX_PATH_BYTES + 1);
        for (path, refusal) in [
            ("", Refusal::Outside),
            (".", Refusal::Outside),
            ("..", Refusal::Outside),
            ("../x", Refusal::Outside),
            ("a/../..", Refusal::Outside),
            ("a/../../b", Refusal::Outside),
            ("/etc/passwd", Refusal::Absolute),
            ("//etc/passwd", Refusal::Absolute),
            ("a\0b", Refusal::Nul),
            (long.as_str(), Refusal::TooLong),
            (name.as_str(), Refusal::TooLong),
            (bytes.as_str(), Refusal::TooLong),
        ] {
            assert_eq!(Relative::parse(path), Err(refusal), "{path:?}");
        }
        for (path, normal) in [
            ("a/../b", "b"),
            ("..a/b", "..a/b"),
            ("...", "..."),
            ("\u{2025}/x", "\u{2025}/x"),
            ("a\\..\\b", "a\\..\\b"),
        ] {
            assert_eq!(Relative::parse(path).unwrap().as_str(), normal);
        }
    }

    #[test]
    fn queries_and_escapes_are_parsed() {
        let plain = |path: &str| Wanted {
            path: path.to_owned(),
            saltenv: None,
            index: None,
        };
        assert_eq!(Wanted::parse("a/b"), Ok(plain("a/b")));
        assert_eq!(Wanted::parse("|a?b"), Ok(plain("a?b")));
        assert_eq!(Wanted::parse("||a"), Ok(plain("a")));
        assert_eq!(Wanted::parse("a?env=x&b"), Ok(plain("a")));
        assert_eq!(Wanted::parse("a:b|c"), Ok(plain("a:b|c")));
        assert_eq!(Wanted::parse("|/etc/passwd"), Err(Refusal::Absolute));
        assert_eq!(Wanted::parse("a/../../b"), Err(Refusal::Outside));
        assert_eq!(Wanted::parse("a?path=b"), Err(Refusal::Query));
        let queried = Wanted::parse("a?saltenv=dev&index=-1?saltenv=no").unwrap();
        assert_eq!(queried.saltenv.as_deref(), Some("dev"));
        assert_eq!(queried.index, Some(Some(-1)));
        assert_eq!(Wanted::parse("a?index=x").unwrap().index, Some(None));
    }

    #[test]
    fn environment_is_one_or_more_plain_parts() {
        for good in ["dev", "feature/x", "v1.0", "..."] {
            assert!(is_plain_environment(good), "{good}");
        }
        let long = "e".repeat(MAX_NAME_BYTES + 1);
        for bad in [
            "", ".", "..", "../x", "a/../b", "/x", "x/", "a//b", "a\0", &long,
        ] {
            assert!(!is_plain_environment(bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn relative_path_never_has_parent_parts(path in "[a./\\x00\u{2024}]{0,40}") {
            if let Ok(relative) = Relative::parse(&path) {
                prop_assert!(!relative.as_str().starts_with('/'));
                for part in relative.parts() {
                    prop_assert!(!matches!(part, "" | "." | "..") && !part.contains('\0'));
                }
            }
        }

        #[test]
        fn any_path_parses_without_a_panic(path in ".{0,200}") {
            let _ = Wanted::parse(&path);
        }
    }
}

//! `file.find`, and the wildcards of paths.
//!
//! The criteria of stock that choose by name, kind, owner and size are here, and those that print;
//! one that runs a program or deletes is refused by name, as is `mtime`, and `grep`.

use std::cmp::Ordering;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use saltern_python::expression::{Expression, ExpressionFlags};
use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::Value;

use super::{MAX_ENTRIES, path_of, refused};
use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::jinja::filters;
use crate::render::modules::users;

pub(super) fn add(registry: &mut Registry) {
    registry.add("file.find", |args| {
        let path = path_of(&args)?;
        let search = match Search::read(&args)? {
            Ok(search) => search,
            Err(reason) => return Ok(Value::from(format!("error: {reason}"))),
        };
        let mut found = Vec::new();
        let mut budget = MAX_ENTRIES;
        for start in globbed(&path.to_string_lossy())? {
            search.run(&start, &mut found, &mut budget)?;
        }
        found.sort_by(|(_, a), (_, b)| order(a, b));
        Ok(Value::Array(
            found.into_iter().map(|(_, shown)| shown).collect(),
        ))
    });
}

/// The paths that a path with wildcards means, sorted; a path without any means itself, if it is
/// there (Python's `glob.glob`).
pub(super) fn globbed(path: &str) -> Result<Vec<String>, CallError> {
    let is_wild = |part: &str| part.contains(['*', '?', '[']);
    let mut paths = vec![if path.starts_with('/') { "/" } else { "" }.to_owned()];
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let pattern = Glob::new(part);
        let mut next = Vec::new();
        for base in paths {
            if !is_wild(part) {
                next.push(below(&base, part));
                continue;
            }
            let directory = if base.is_empty() { "." } else { &base };
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if (part.starts_with('.') || !name.starts_with('.')) && pattern.matches(&name) {
                    next.push(below(&base, &name));
                }
                if next.len() > MAX_ENTRIES {
                    return Err(refused(format!("\"{path}\" means too many files")));
                }
            }
        }
        paths = next;
    }
    paths.retain(|path| fs::symlink_metadata(path).is_ok());
    paths.sort();
    Ok(paths)
}

fn below(base: &str, part: &str) -> String {
    match base {
        "" => part.to_owned(),
        _ if base.ends_with('/') => format!("{base}{part}"),
        _ => format!("{base}/{part}"),
    }
}

/// Why the criteria of a search cannot be used. Stock returns these texts as if they were a result.
#[derive(Debug, thiserror::Error)]
enum SearchError {
    /// An option without a value.
    #[error("missing value for \"{0}\" option")]
    MissingValue(String),
    /// An expression that Python would not compile.
    #[error("invalid regular expression: \"{0}\"")]
    Expression(String),
    /// A letter that stands for no type of file.
    #[error("invalid file type \"{0}\"")]
    FileType(char),
    /// A user or group that does not exist.
    #[error("no such {kind} \"{name}\"")]
    Unknown {
        /// `user` or `group`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A size that is no number with a unit.
    #[error("invalid size: \"{0}\"")]
    Size(String),
    /// An option that does not exist.
    #[error("invalid option \"{0}\"")]
    Option(String),
}

/// A search, read from the arguments by name.
struct Search {
    names: Vec<Expression>,
    kinds: Option<String>,
    owners: Option<Vec<i64>>,
    groups: Option<Vec<i64>>,
    sizes: Option<(u64, u64)>,
    shortest: i64,
    deepest: Option<i64>,
    print: Vec<String>,
}

impl Search {
    fn read(args: &CallArgs) -> Result<Result<Search, SearchError>, CallError> {
        let mut search = Search {
            names: Vec::new(),
            kinds: None,
            owners: None,
            groups: None,
            sizes: None,
            shortest: 0,
            deepest: None,
            print: Vec::new(),
        };
        if args
            .positional
            .iter()
            .skip(1)
            .any(|it| it.as_str() == Some("delete"))
        {
            return Err(refused("\"file.find\" cannot delete files in a template"));
        }
        for (key, value) in &args.named {
            let text = value.as_str().unwrap_or_default();
            match key.as_str() {
                "path" => {}
                "mindepth" => search.shortest = value.as_i64().unwrap_or(0),
                "maxdepth" => search.deepest = value.as_i64(),
                _ if key.starts_with('_') => {}
                "delete" | "exec" | "mtime" | "grep" | "test" => {
                    return Err(refused(format!(
                        "\"file.find\" has no option \"{key}\" here"
                    )));
                }
                _ if text.is_empty() => {
                    return Ok(Err(SearchError::MissingValue(key.clone())));
                }
                _ => match search.criterion(key, text) {
                    Ok(()) => {}
                    Err(reason) => return Ok(Err(reason)),
                },
            }
        }
        Ok(Ok(search))
    }

    fn criterion(&mut self, key: &str, text: &str) -> Result<(), SearchError> {
        match key {
            "name" | "iname" | "regex" | "iregex" => {
                let flags = ExpressionFlags {
                    ignores_case: key.starts_with('i'),
                    is_multiline: false,
                };
                // Stock's wildcards are a translation of their own, not `fnmatch`.
                let pattern = if key.ends_with("name") {
                    let text = text
                        .replace('.', "\\.")
                        .replace('?', ".?")
                        .replace('*', ".*");
                    format!("{text}$")
                } else {
                    text.to_owned()
                };
                let pattern = filters::compile(&format!("\\A(?:{pattern})"), flags)
                    .map_err(|_| SearchError::Expression(text.to_owned()))?;
                self.names.push(pattern);
            }
            "type" => {
                let kinds: String = text
                    .chars()
                    .filter(|c| !c.is_whitespace() && *c != ',')
                    .collect();
                if let Some(unknown) = kinds.chars().find(|kind| !"bcdflps".contains(*kind)) {
                    return Err(SearchError::FileType(unknown));
                }
                self.kinds = Some(kinds);
            }
            "owner" => self.owners = Some(ids(text, users::uid, "user")?),
            "group" => self.groups = Some(ids(text, users::gid, "group")?),
            "size" => self.sizes = Some(sizes(text)?),
            "print" => {
                self.print = text
                    .split([',', ' '])
                    .filter(|part| !part.is_empty())
                    .map(str::to_owned)
                    .collect();
            }
            _ => return Err(SearchError::Option(key.to_owned())),
        }
        Ok(())
    }

    fn run(
        &self,
        start: &str,
        found: &mut Vec<(String, Value)>,
        budget: &mut usize,
    ) -> Result<(), CallError> {
        if self.shortest < 1 {
            self.look(start, found)?;
        }
        let mut waiting = vec![(PathBuf::from(start), 1)];
        while let Some((directory, depth)) = waiting.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                *budget = budget.checked_sub(1).ok_or_else(|| {
                    refused(format!(
                        "there are more than {MAX_ENTRIES} entries below \"{start}\""
                    ))
                })?;
                let path = entry.path();
                if depth >= self.shortest && self.deepest.is_none_or(|most| most >= depth) {
                    self.look(&path.to_string_lossy(), found)?;
                }
                let is_deeper = self.deepest.is_none_or(|most| most > depth);
                if is_deeper && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    waiting.push((path, depth + 1));
                }
            }
        }
        Ok(())
    }

    fn look(&self, path: &str, found: &mut Vec<(String, Value)>) -> Result<(), CallError> {
        let name = path.rsplit('/').next().unwrap_or_default();
        if !self
            .names
            .iter()
            .all(|pattern| pattern.is_match(name).unwrap_or(false))
        {
            return Ok(());
        }
        let it = fs::metadata(path).or_else(|_| fs::symlink_metadata(path));
        let Ok(it) = it else { return Ok(()) };
        let passes = self
            .kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(letter(&it)))
            && self
                .owners
                .as_ref()
                .is_none_or(|ids| ids.contains(&it.uid().into()))
            && self
                .groups
                .as_ref()
                .is_none_or(|ids| ids.contains(&it.gid().into()))
            && self
                .sizes
                .is_none_or(|(least, most)| (least..=most).contains(&it.size()));
        if passes {
            found.push((path.to_owned(), self.shown(path, &it)?));
        }
        Ok(())
    }

    /// The printed values of a file: one, or several as a list.
    fn shown(&self, path: &str, it: &Metadata) -> Result<Value, CallError> {
        let mut values = Vec::new();
        for part in &self.print {
            values.push(match part.as_str() {
                "path" => Value::from(path),
                "name" => Value::from(path.rsplit('/').next().unwrap_or_default()),
                "size" => Value::Uint(it.size()),
                "type" => Value::from(letter(it).to_string()),
                "mode" => Value::Int(i64::from(it.mode() & 0o777)),
                "mtime" => Value::Int(it.mtime()),
                "user" => users::user_name(it.uid().into())
                    .map_or(Value::Int(it.uid().into()), Value::from),
                "group" => users::group_name(it.gid().into())
                    .map_or(Value::Int(it.gid().into()), Value::from),
                "md5" if it.is_file() => Value::from(super::read::hash(Path::new(path), "md5")?),
                "md5" => Value::from(""),
                _ => continue,
            });
        }
        Ok(match values.len() {
            0 if self.print.is_empty() => Value::from(path),
            1 => values.remove(0),
            _ => Value::Array(values),
        })
    }
}

/// As Python compares texts, numbers and lists of them.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).map(|(a, b)| order(a, b));
            let first = pairs.into_iter().find(|order| order.is_ne());
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (a, b) => a.as_i64().cmp(&b.as_i64()),
    }
}

fn letter(it: &Metadata) -> char {
    let kind = it.file_type();
    match kind {
        _ if kind.is_dir() => 'd',
        _ if kind.is_symlink() => 'l',
        _ if kind.is_block_device() => 'b',
        _ if kind.is_char_device() => 'c',
        _ if kind.is_fifo() => 'p',
        _ if kind.is_socket() => 's',
        _ => 'f',
    }
}

fn ids(
    text: &str,
    id: fn(&str) -> Option<i64>,
    kind: &'static str,
) -> Result<Vec<i64>, SearchError> {
    text.split([',', ' '])
        .filter(|name| !name.is_empty())
        .map(|name| {
            let id = name.parse().ok().or_else(|| id(name));
            id.ok_or_else(|| SearchError::Unknown {
                kind,
                name: name.to_owned(),
            })
        })
        .collect()
}

/// A size with its unit, and what the sign in front makes of it.
fn sizes(text: &str) -> Result<(u64, u64), SearchError> {
    let invalid = || SearchError::Size(text.to_owned());
    let lower = text.trim().to_lowercase();
    let (sign, rest) = match lower.strip_prefix(['+', '-']) {
        Some(rest) => (lower.chars().next(), rest),
        None => (None, lower.as_str()),
    };
    let units = [
        ('b', 1_u64),
        ('k', 1 << 10),
        ('m', 1 << 20),
        ('g', 1 << 30),
        ('t', 1 << 40),
    ];
    let unit = units.iter().find(|(unit, _)| rest.ends_with(*unit));
    let (number, unit) = match unit {
        Some((letter, unit)) => (rest.trim_end_matches(*letter), *unit),
        None => (rest, 1),
    };
    let number: f64 = number.trim().parse().map_err(|_| invalid())?;
    if !(0.0..1e15).contains(&number) {
        return Err(invalid());
    }
    let size = (number * unit as f64) as u64;
    Ok(match sign {
        Some('-') => (0, size),
        Some(_) => (size, u64::MAX),
        None if unit == 1 => (size, size),
        // A size in a unit means all that would be rounded down to it.
        None => (size, size + unit - 1),
    })
}

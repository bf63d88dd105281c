//! `file_roots.*` and `pillar_roots.*`: the files below the roots of environments
//! (`salt/wheel/file_roots.py`, `salt/wheel/pillar_roots.py`).
//!
//! Files are opened by [`Root`] alone: nothing outside a root is read or written, whatever a path
//! or a link in it says. `pillar_roots.find` and `read` of stock read any file of the machine.

use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{Dir, FileType};
use saltern_content::files::path::Relative;
use saltern_content::files::root::{Links, Root};
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::registry::RunnerContext;
use Parameter::{Needed, Optional};

const FIND: &[Parameter] = &[Needed("path"), Optional("saltenv")];
const LIST: &[Parameter] = &[Optional("saltenv")];
const WRITE: &[Parameter] = &[
    Needed("data"),
    Needed("path"),
    Optional("saltenv"),
    Optional("index"),
];

/// The functions of `file_roots`.
pub(crate) const FILE_FUNCTIONS: &[Function] = &[
    function("find", FIND, |k, bound, _| find(files(k)?, bound)),
    function("list_env", LIST, |k, bound, _| list_env(files(k)?, bound)),
    function("list_roots", &[], |k, _, _| list_roots(files(k)?)),
    function("read", FIND, |k, bound, _| read(files(k)?, bound)),
    function("write", WRITE, |k, bound, _| {
        write(files(k)?, bound, |path| format!("Invalid path: {path}"))
    }),
];

/// The functions of `pillar_roots`.
pub(crate) const PILLAR_FUNCTIONS: &[Function] = &[
    function("find", FIND, |k, bound, _| find(pillars(k)?, bound)),
    function("list_env", LIST, |k, bound, _| list_env(pillars(k)?, bound)),
    function("list_roots", &[], |k, _, _| list_roots(pillars(k)?)),
    function("read", FIND, |k, bound, _| read(pillars(k)?, bound)),
    function("write", WRITE, |k, bound, _| {
        write(pillars(k)?, bound, |_| "Invalid path".to_owned())
    }),
];

/// Environments with their roots.
type Roots = [(String, Vec<String>)];

/// The largest file that is read as text.
const MAX_BYTES: u64 = 16 << 20;

/// The bytes at the beginning of a file that decide whether it is text.
const BLOCK: usize = 512;

/// Entries of one listing.
const MAX_ENTRIES: usize = 200_000;

/// Directories within each other of one listing.
const MAX_DIRECTORY_DEPTH: usize = 64;

fn files(context: &RunnerContext) -> Result<&Roots, RunnerError> {
    Ok(context.master()?.files.roots())
}

fn pillars(context: &RunnerContext) -> Result<&Roots, RunnerError> {
    Ok(context.master()?.pillars.roots())
}

fn of_environment<'a>(roots: &'a Roots, saltenv: &str) -> Option<&'a [String]> {
    let found = roots.iter().find(|(name, _)| name == saltenv);
    found.map(|(_, roots)| roots.as_slice())
}

fn saltenv(bound: &Bound<'_>) -> Result<String, RunnerError> {
    Ok(bound.text("saltenv")?.unwrap_or_else(|| "base".to_owned()))
}

/// A file that was found, under its full path as stock writes it.
struct Found {
    full: String,
    file: std::fs::File,
    is_text: bool,
}

/// The file in each root that has it. A path that leads out of its root finds nothing.
fn found(roots: &Roots, bound: &Bound<'_>) -> Result<Vec<Found>, RunnerError> {
    let path = bound.text("path")?.unwrap_or_default();
    let saltenv = saltenv(bound)?;
    let roots = of_environment(roots, &saltenv).unwrap_or_default();
    let Ok(relative) = Relative::parse(&path) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for root in roots {
        let Ok(opened) = Root::open(Path::new(root)) else {
            continue;
        };
        let Ok(mut file) = opened.file(&relative, Links::Inside) else {
            continue;
        };
        let full = joined(root, &path);
        let is_text = is_text(&mut file).map_err(|error| failed("read", &full, &error))?;
        found.push(Found {
            full,
            file,
            is_text,
        });
    }
    Ok(found)
}

fn find(roots: &Roots, bound: &Bound<'_>) -> CallResult {
    let found = found(roots, bound)?.into_iter();
    let kinds = found.map(|one| Value::map([(one.full, if one.is_text { "txt" } else { "bin" })]));
    Ok(Value::Array(kinds.collect()))
}

fn read(roots: &Roots, bound: &Bound<'_>) -> CallResult {
    let mut texts = Vec::new();
    for one in found(roots, bound)? {
        if one.is_text {
            let text = text_of(one.file).map_err(|error| failed("read", &one.full, &error))?;
            texts.push(Value::map([(one.full, text)]));
        }
    }
    Ok(Value::Array(texts))
}

/// The whole of a file that was looked at before.
fn text_of(mut file: std::fs::File) -> io::Result<String> {
    use std::io::Seek;
    file.rewind()?;
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Whether the beginning of a file looks like text (`is_text` in `salt/utils/files.py`).
fn is_text(file: &mut std::fs::File) -> io::Result<bool> {
    let mut block = Vec::with_capacity(BLOCK);
    file.take(BLOCK as u64).read_to_end(&mut block)?;
    if block.contains(&0) {
        return Ok(false);
    }
    // Beyond ASCII, bytes count as text where the block is UTF-8 as a whole.
    let is_utf8 = std::str::from_utf8(&block).is_ok();
    let is_plain = |byte: u8| match byte {
        b' '..=b'~' | b'\n' | b'\r' | b'\t' | 0x0c | 0x08 => true,
        0x80..=0xfe => is_utf8,
        _ => false,
    };
    let strange = block.iter().filter(|byte| !is_plain(**byte)).count();
    Ok(strange * 10 <= block.len() * 3)
}

fn write(roots: &Roots, bound: &Bound<'_>, invalid: fn(&str) -> String) -> CallResult {
    let (path, saltenv) = (bound.text("path")?.unwrap_or_default(), saltenv(bound)?);
    let data = match bound.get("data") {
        Some(Value::Str(text)) => text.as_bytes(),
        Some(Value::Bin(bytes)) => bytes.as_ref(),
        _ => return Err(RunnerError::Refused("\"data\" has to be a text".to_owned())),
    };
    let Some(roots) = of_environment(roots, &saltenv) else {
        return Ok(format!("Named environment {saltenv} is not present").into());
    };
    let index = bound.count("index")?.unwrap_or(0);
    let Some(root) = roots.get(index) else {
        let text = format!("Specified index {index} in environment {saltenv} is not present");
        return Ok(text.into());
    };
    if path.starts_with('/') {
        let text = "is not relative to the environment";
        return Ok(format!("The path passed in {path} {text} {saltenv}").into());
    }
    let Ok(relative) = Relative::parse(&path) else {
        return Ok(invalid(&path).into());
    };
    let full = joined(root, &path);
    let written = Root::open(Path::new(root))
        .and_then(|root| root.file_to_write(&relative))
        .and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(data)
        });
    match written {
        Ok(()) => {
            tracing::info!(path = full, "a file below a root was written");
            Ok(format!("Wrote data to file {full}").into())
        }
        Err(error) => Err(failed("write", &full, &error)),
    }
}

fn list_roots(roots: &Roots) -> CallResult {
    let mut left = MAX_ENTRIES;
    let mut environments = Vec::with_capacity(roots.len());
    for (name, roots) in roots {
        let listed = Value::Array(vec![trees(roots, &mut left)?]);
        environments.push((name.into(), listed));
    }
    Ok(Value::Map(environments))
}

fn list_env(roots: &Roots, bound: &Bound<'_>) -> CallResult {
    let saltenv = saltenv(bound)?;
    let roots = of_environment(roots, &saltenv).unwrap_or_default();
    trees(roots, &mut MAX_ENTRIES.clone())
}

/// Maps each root to its tree: of a directory a mapping, of a file `f`.
fn trees(roots: &[String], left: &mut usize) -> CallResult {
    let mut found = Vec::with_capacity(roots.len());
    for root in roots {
        let tree = match Root::open(Path::new(root)) {
            Ok(opened) => tree(&opened, None, MAX_DIRECTORY_DEPTH, left)?,
            Err(_) => Vec::new(),
        };
        found.push((root.into(), Value::Map(tree)));
    }
    Ok(Value::Map(found))
}

/// The entries of a directory. As in stock, a link to a directory is shown as an empty one, and
/// unreadable entries are left out.
fn tree(
    root: &Root,
    at: Option<&Relative>,
    depth: usize,
    left: &mut usize,
) -> Result<Vec<(Value, Value)>, RunnerError> {
    let Ok(directory) = root.directory(at, Links::Never) else {
        return Ok(Vec::new());
    };
    let Ok(entries) = Dir::new(directory) else {
        return Ok(Vec::new());
    };
    let (mut directories, mut plain) = (Vec::new(), Vec::new());
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name == "." || name == ".." {
            continue;
        }
        *left = left.checked_sub(1).ok_or_else(|| {
            let text = format!("there are more than {MAX_ENTRIES} files: ask for less");
            RunnerError::Refused(text)
        })?;
        let path = match at {
            Some(at) => Relative::parse(&format!("{}/{name}", at.as_str())),
            None => Relative::parse(name),
        };
        let Ok(path) = path else { continue };
        let is_directory = |links| {
            let stat = root.stat(&path, links);
            stat.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Directory)
        };
        if depth > 0 && is_directory(Links::Never) {
            let inner = tree(root, Some(&path), depth - 1, left)?;
            directories.push((name.into(), Value::Map(inner)));
        } else if is_directory(Links::Inside) {
            directories.push((name.into(), Value::Map(Vec::new())));
        } else {
            plain.push((name.into(), Value::from("f")));
        }
    }
    directories.extend(plain);
    Ok(directories)
}

/// `os.path.join` of a root and a relative path.
fn joined(root: &str, path: &str) -> String {
    match root.ends_with('/') {
        true => format!("{root}{path}"),
        false => format!("{root}/{path}"),
    }
}

fn failed(action: &str, path: &str, error: &io::Error) -> RunnerError {
    RunnerError::Refused(format!("cannot {action} \"{path}\": {error}"))
}

#[cfg(test)]
mod tests;

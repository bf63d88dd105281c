//! Banks of `cachedir` by name: `cache.store`, `fetch`, `list` and `flush` of the driver `localfs`
//! (`salt/cache/localfs.py`).
//!
//! A bank is a directory, a key a file `<key>.p` in it. Banks and keys are paths that cannot leave
//! `cachedir` ([`Relative`]). Entries of `cachedir` that are no banks are refused: otherwise a
//! caller could read sessions, tokens and jobs. In stock these functions reach any file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use saltern_content::files::path::Relative;
use saltern_store::StoreError;
use saltern_store::files::{self, Create};
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_exact, encode};

use crate::call::{Bound, CallResult, RunnerError};
use crate::notices::Notices;
use crate::registry::RunnerContext;

/// The largest file, in bytes.
const MAX_BYTES: usize = 16 << 20;

const LIMITS: Limits = Limits {
    bytes: MAX_BYTES,
    ..Limits::WIRE
};

/// The most entries of one listing.
const MAX_ENTRIES: usize = 100_000;

/// Entries of `cachedir` that are no banks.
const NO_BANKS: [&str; 17] = [
    "extmods",
    "file_lists",
    "files",
    "git_pillar",
    "gitfs",
    "health",
    "jobs",
    "pillar_cache",
    "proc",
    "publish_auth",
    "queues",
    "roots",
    "saltern",
    "sessions",
    "syndics",
    "thorium",
    "tokens",
];

/// A bank of a call, below `cachedir`.
struct Bank {
    cachedir: PathBuf,
    name: Relative,
}

impl Bank {
    fn of(context: &RunnerContext, bound: &Bound<'_>) -> Result<Self, RunnerError> {
        let config = &context.config;
        // Another `cachedir` belongs to another site.
        if bound
            .text("cachedir")?
            .is_some_and(|dir| Path::new(&dir) != config.cachedir)
        {
            let text = "only the cachedir of this master can be looked at";
            return Err(RunnerError::Refused(text.to_owned()));
        }
        let text = bound.text("bank")?.unwrap_or_default();
        let name = relative("bank", &text)?;
        let first = name.parts().next().unwrap_or_default();
        if first.starts_with('.') || NO_BANKS.contains(&first) {
            return Err(RunnerError::Refused(format!("\"{text}\" is no bank")));
        }
        Ok(Self {
            cachedir: config.cachedir.clone(),
            name,
        })
    }

    fn directory(&self) -> PathBuf {
        self.cachedir.join(self.name.as_str())
    }

    fn file(&self, key: &str) -> Result<PathBuf, RunnerError> {
        let name = relative("key", &format!("{key}.p"))?;
        Ok(self.directory().join(name.as_str()))
    }

    /// A bank stored whole in one file, with its keys inside.
    fn as_file(&self) -> PathBuf {
        self.cachedir.join(format!("{}.p", self.name.as_str()))
    }
}

fn relative(what: &str, text: &str) -> Result<Relative, RunnerError> {
    Relative::parse(text).map_err(|refusal| {
        RunnerError::Refused(format!("the {what} \"{text}\" cannot be used: {refusal}"))
    })
}

fn key(bound: &Bound<'_>) -> Result<String, RunnerError> {
    Ok(bound.text("key")?.unwrap_or_default())
}

pub(super) fn store(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let path = Bank::of(context, bound)?.file(&key(bound)?)?;
    let packed = encode(bound.get("data").unwrap_or(&Value::Nil), Dialect::Bin).into();
    files::readable(&packed, &LIMITS, &path)?;
    if let Some(directory) = path.parent() {
        files::ensure_dir(directory, 0o755)?;
    }
    files::write_atomic(&path, &packed, Create::PRIVATE.derived())?;
    Ok(Value::Nil)
}

pub(super) fn fetch(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let (bank, key) = (Bank::of(context, bound)?, key(bound)?);
    if let Some(value) = read(&bank.file(&key)?)? {
        return Ok(value);
    }
    let nothing = Value::Map(Vec::new());
    let Some(all) = read(&bank.as_file())? else {
        return Ok(nothing);
    };
    let missing = || RunnerError::Refused(format!("KeyError: '{key}'"));
    all.get(&key).cloned().ok_or_else(missing)
}

fn read(path: &Path) -> Result<Option<Value>, RunnerError> {
    let is_file = fs::metadata(path).is_ok_and(|it| it.is_file());
    let Some(packed) = is_file.then(|| files::read(path, MAX_BYTES)).transpose()? else {
        return Ok(None);
    };
    let Some(packed) = packed else {
        return Ok(None);
    };
    let value = decode_exact(&packed, &LIMITS).map_err(|_| StoreError::Malformed {
        path: path.to_path_buf(),
        reason: "it is not msgpack",
    })?;
    Ok(Some(value))
}

pub(super) fn list(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let directory = Bank::of(context, bound)?.directory();
    let mut names = Vec::new();
    if directory.is_dir() {
        files::each_entry(&directory, |name, _| {
            if names.len() <= MAX_ENTRIES && !name.starts_with(".saltern-") {
                names.push(name.strip_suffix(".p").unwrap_or(name).to_owned());
            }
        })?;
    }
    if names.len() > MAX_ENTRIES {
        let text = format!("the bank has more than {MAX_ENTRIES} entries");
        return Err(RunnerError::Refused(text));
    }
    names.sort_unstable();
    Ok(Value::Array(names.into_iter().map(Value::from).collect()))
}

pub(super) fn flush(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let bank = Bank::of(context, bound)?;
    if bound.get("key").is_some() {
        let path = bank.file(&key(bound)?)?;
        let is_there = path.is_file() && files::remove(&path)?;
        return Ok(is_there.into());
    }
    let directory = bank.directory();
    match fs::remove_dir_all(&directory) {
        Ok(()) => Ok(true.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false.into()),
        Err(error) => Err(StoreError::io("remove", directory, error).into()),
    }
}

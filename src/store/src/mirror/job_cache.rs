//! Reads jobs back from the job-cache files: those that stock's master wrote before this one took
//! its place, and those of a job database that was lost.
//!
//! One slice at a time, bounded in rows and bytes. Nothing is followed out of a job's directory
//! (no symbolic links), nothing is changed, and what cannot be read is passed over and counted. The
//! 256 parts of the job cache that cannot be listed may be gone through once more.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use saltern_base::chain;
use saltern_base::clock::unix_micros;
use saltern_config::MasterConfig;
use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
use saltern_wire::msgpack::{Dialect, Encoder, Limits, MapView, RawValue, Value, decode};

use super::job_files::ReturnParts;
use crate::error::{Result, StoreError};
use crate::options::StoreOptions;

/// Returns and jobs of one slice at most.
const SLICE_ROWS: usize = 500;

/// A slice ends with the row that makes it larger than this, in bytes.
const SLICE_BYTES: usize = 8 << 20;

/// The longest `jid` file that is read, in bytes.
const JID_BYTES: usize = 256;

/// The name of an outputter, packed.
const OUT_BYTES: usize = 4 << 10;

/// As for the lists that are written.
const MINIONS_BYTES: usize = 32 << 20;

/// How often a part that cannot be listed is tried.
const ATTEMPTS: u32 = 5;

/// Maximum number of minions read of one job.
const MAX_MINIONS: usize = 1_000_000;

/// Begins the user of a job that a minion reported; its id follows. No user of a job that was
/// published: a local user's name has no colon, and stock's files have none of the two words.
pub const USER_OF_MINION: &str = "minion:";

/// The same of a job that a syndic reported.
pub const USER_OF_SYNDIC: &str = "syndic:";

/// A job of the job cache, or a part of its returns.
#[derive(Clone, Debug)]
pub struct CachedJob {
    /// Its id.
    pub jid: Jid,
    /// The job; none when it has no load, and with every part of its returns but the first.
    pub job: Option<JobRecord>,
    /// The peer that reported the job; none of one that a master published.
    pub reporter: Option<MinionId>,
    /// Some of its returns.
    pub returns: Vec<ReturnRecord>,
    /// Whether these are the last ones.
    pub is_whole: bool,
}

/// Goes through all jobs of the job cache once.
pub struct JobCacheReader {
    root: PathBuf,
    /// Jobs with an older `jid` file are passed over, in microseconds since 1970.
    since: i64,
    /// The parts to come, the next one last.
    parts: Vec<u8>,
    /// Parts that could not be listed in this pass.
    unlisted: Vec<u8>,
    /// The number of this pass.
    attempt: u32,
    /// Job directories of the present part.
    dirs: Vec<PathBuf>,
    open: Option<OpenJobDir>,
    unreadable: u64,
}

/// A job whose returns are being read.
struct OpenJobDir {
    fd: OwnedFd,
    path: PathBuf,
    jid: Jid,
    fun: String,
    job: Option<JobRecord>,
    minions: Vec<MinionId>,
}

impl JobCacheReader {
    /// A reader of the jobs in `cachedir/jobs` that `since` does not exclude, in microseconds
    /// since 1970.
    pub fn new(config: &MasterConfig, since: Option<i64>) -> Self {
        Self::with_options(&StoreOptions::from(config), since)
    }

    /// The same with this crate's options.
    pub fn with_options(options: &StoreOptions, since: Option<i64>) -> Self {
        Self {
            root: options.job_files(),
            since: since.unwrap_or(i64::MIN),
            parts: (0..=u8::MAX).rev().collect(),
            unlisted: Vec::new(),
            attempt: 1,
            dirs: Vec::new(),
            open: None,
            unreadable: 0,
        }
    }

    /// Whether there is any job directory at all.
    pub fn is_empty(config: &MasterConfig) -> bool {
        match fs::read_dir(StoreOptions::from(config).job_files()) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => is_absent(&error),
        }
    }

    /// Jobs, or returns of a job, that could not be read so far.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Directories of the job cache that could not be listed in this pass.
    pub fn unlisted(&self) -> usize {
        self.unlisted.len()
    }

    /// Goes through the parts once more that could not be listed in this pass, which has ended;
    /// `false` when there are none, or when each was tried `ATTEMPTS` times. What was read of
    /// them comes again.
    pub fn try_again(&mut self) -> bool {
        if self.unlisted.is_empty() || self.attempt >= ATTEMPTS {
            return false;
        }
        self.attempt += 1;
        self.parts = std::mem::take(&mut self.unlisted);
        self.parts.reverse();
        true
    }

    /// The next slice; none when all has been read.
    pub fn next_slice(&mut self) -> Option<Vec<CachedJob>> {
        let mut slice = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while rows < SLICE_ROWS && bytes < SLICE_BYTES {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => match self.next_dir() {
                    Some(open) => open,
                    None => return (!slice.is_empty()).then_some(slice),
                },
            };
            let job = open.job.take();
            rows += 1;
            bytes += job.as_ref().map_or(0, |job| job.load.as_ref().len());
            let mut returns = Vec::new();
            while rows < SLICE_ROWS && bytes < SLICE_BYTES {
                let Some(minion) = open.minions.pop() else {
                    break;
                };
                match open.read_return(minion) {
                    Some(record) => {
                        bytes += record.load.as_ref().len();
                        returns.push(record);
                    }
                    None => self.unreadable += 1,
                }
                rows += 1;
            }
            let is_whole = open.minions.is_empty();
            if is_whole && job.is_none() && returns.is_empty() {
                continue;
            }
            slice.push(CachedJob {
                jid: open.jid.clone(),
                reporter: job.as_ref().and_then(|job| reporter_of(&job.user)),
                job,
                returns,
                is_whole,
            });
            if !is_whole {
                self.open = Some(open);
            }
        }
        Some(slice)
    }

    fn next_dir(&mut self) -> Option<OpenJobDir> {
        loop {
            let Some(path) = self.dirs.pop() else {
                let part = self.parts.pop()?;
                self.list(part);
                continue;
            };
            match OpenJobDir::open(path, self.since) {
                Opened::Job(open) => return Some(*open),
                Opened::TooOld => {}
                Opened::Unreadable => self.unreadable += 1,
            }
        }
    }

    /// Lists a part as far as that works.
    fn list(&mut self, part: u8) {
        let path = self.root.join(format!("{part:02x}"));
        let Err(error) = directories(&path, &mut self.dirs) else {
            return;
        };
        // A disk that fails has all of them fail: one line in the log a pass.
        if self.unlisted.is_empty() {
            tracing::warn!(
                error = chain(&error),
                attempt = self.attempt,
                most = ATTEMPTS,
                "jobs in a directory of stock's job cache are passed over for now"
            );
        } else {
            tracing::debug!(
                error = chain(&error),
                "a further directory of the job cache cannot be listed"
            );
        }
        self.unlisted.push(part);
    }
}

enum Opened {
    Job(Box<OpenJobDir>),
    TooOld,
    Unreadable,
}

impl OpenJobDir {
    fn open(path: PathBuf, since: i64) -> Opened {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(fd) => fd,
            // Removed a moment ago.
            Err(Errno::NOENT) => return Opened::TooOld,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "a job of the job cache cannot be opened");
                return Opened::Unreadable;
            }
        };
        let load = read_at(&fd, ".load.p", Limits::WIRE.bytes);
        let load = load.and_then(|(load, at)| {
            let view = MapView::parse(Bytes::from(load), &Limits::WIRE).ok()?;
            Some((view, at))
        });
        let (jid, created) = match read_at(&fd, "jid", JID_BYTES) {
            Some((text, at)) => (String::from_utf8(text).unwrap_or_default(), at),
            None => match &load {
                Some((load, at)) => (load.str("jid").unwrap_or_default().to_owned(), *at),
                None => return Opened::Unreadable,
            },
        };
        let Ok(jid) = Jid::parse(jid.trim()) else {
            return Opened::Unreadable;
        };
        if created < since {
            return Opened::TooOld;
        }
        let Ok(names) = entries(&fd) else {
            return Opened::Unreadable;
        };
        let is_cached = !names.iter().any(|name| name == "nocache");
        let job = load.map(|(load, _)| {
            let expected = names.iter().filter(|name| is_minions_list(name));
            let mut minions: Vec<MinionId> =
                expected.flat_map(|name| minions_in(&fd, name)).collect();
            minions.sort_unstable();
            minions.dedup();
            JobRecord {
                jid: jid.clone(),
                created,
                user: load.str("user").unwrap_or_default().to_owned(),
                fun: joined(load.get("fun")),
                tgt: joined(load.get("tgt")),
                tgt_type: load.str("tgt_type").unwrap_or("glob").to_owned(),
                load: Packed::new(load.pack_bin_dialect()),
                minions,
                nocache: !is_cached,
            }
        });
        // Files of the job itself have names of minions, too: they are no directories, and are
        // passed over when they are read.
        let own = ["jid", "nocache", "endtime"];
        let minions = names.iter().filter(|name| !name.starts_with('.'));
        let minions = minions.filter(|name| !own.contains(&name.as_str()));
        let minions: Vec<_> = minions
            .filter_map(|name| MinionId::parse(name).ok())
            .collect();
        Opened::Job(Box::new(Self {
            fun: job.as_ref().map_or(String::new(), |job| job.fun.clone()),
            fd,
            path,
            jid,
            job,
            minions,
        }))
    }

    fn read_return(&self, minion: MinionId) -> Option<ReturnRecord> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.fd, minion.as_str(), flags, Mode::empty()).ok()?;
        let (packed, received) = read_at(&dir, "return.p", Limits::WIRE.bytes)?;
        let view = MapView::parse(Bytes::from(packed), &Limits::WIRE);
        let view = view
            .inspect_err(|error| {
                tracing::debug!(job = %self.path.display(), %minion, %error, "an unreadable return");
            })
            .ok()?;
        let out = read_at(&dir, "out.p", OUT_BYTES)
            .and_then(|(out, _)| RawValue::parse(Bytes::from(out), &Limits::WIRE).ok());
        let parts = ReturnParts {
            out: out.map(|out| out.to_bin_dialect()),
            ..ReturnParts::of(&view)
        };
        Some(ReturnRecord {
            jid: self.jid.clone(),
            received,
            fun: self.fun.clone(),
            retcode: view.get("retcode").and_then(RawValue::as_i64).unwrap_or(0),
            success: view
                .get("success")
                .is_none_or(|success| success.as_bool().unwrap_or(false)),
            load: Packed::new(self.load_of(&minion, &parts)),
            minion,
        })
    }

    /// Return load of the minion, as far as the job cache has it.
    fn load_of(&self, minion: &MinionId, parts: &ReturnParts) -> Vec<u8> {
        let parts = [
            ("return", &parts.value),
            ("retcode", &parts.retcode),
            ("success", &parts.success),
            ("out", &parts.out),
        ];
        let parts = parts
            .iter()
            .filter_map(|(name, part)| Some((name, part.as_ref()?)));
        let mut packed = Vec::new();
        let mut encoder = Encoder::new(&mut packed, Dialect::Bin);
        encoder.map(3 + parts.clone().count());
        encoder.str("id").str(minion.as_str());
        encoder.str("jid").str(self.jid.as_str());
        encoder.str("fun").str(&self.fun);
        for (name, part) in parts {
            encoder.str(name).raw(part);
        }
        packed
    }
}

fn reporter_of(user: &str) -> Option<MinionId> {
    let id = user.strip_prefix(USER_OF_MINION);
    let id = id.or_else(|| user.strip_prefix(USER_OF_SYNDIC))?;
    MinionId::parse(id).ok()
}

/// Adds the directories in a directory to those that were found.
fn directories(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |source| StoreError::io("list", dir, source);
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.push(entry.path()),
            Ok(_) => {}
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// There is none, or a file in its place.
fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// The names in a job's directory that are text.
fn entries(fd: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(fd)? {
        if names.len() >= MAX_MINIONS {
            break;
        }
        if let Ok(name) = entry?.file_name().to_str() {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// `.minions.p` and what syndics said, `.minions.<syndic>.p`.
fn is_minions_list(name: &str) -> bool {
    name.starts_with(".minions.") && name.ends_with(".p")
}

fn minions_in(fd: &OwnedFd, name: &str) -> Vec<MinionId> {
    let packed = read_at(fd, name, MINIONS_BYTES);
    let list = packed.and_then(|(packed, _)| decode(&packed, &Limits::WIRE).ok());
    let list = list.as_ref().and_then(Value::as_array).unwrap_or_default();
    let names = list.iter().filter_map(Value::as_str);
    names
        .filter_map(|name| MinionId::parse(name).ok())
        .collect()
}

/// A text, or several joined by commas.
fn joined(value: Option<&RawValue>) -> String {
    let Some(value) = value else {
        return String::new();
    };
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let items = value.as_array().unwrap_or_default();
            let items: Vec<&str> = items.iter().filter_map(RawValue::as_str).collect();
            items.join(",")
        }
    }
}

/// The content of a regular file of at most `limit` bytes, and when it was written, in microseconds
/// since 1970. A pipe of that name is not waited for.
fn read_at(dir: &OwnedFd, name: &str, limit: usize) -> Option<(Vec<u8>, i64)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut content = Vec::new();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut content);
    let is_whole = read.ok()? as u64 <= limit;
    let at = meta.modified().map_or(0, unix_micros);
    is_whole.then_some((content, at))
}

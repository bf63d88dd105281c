//! One job's files as `salt/returners/local_cache.py` lays them out.
//!
//! Under `cachedir/jobs`, `HH/REST` is the hexadecimal digest of the jid. In it lie `jid`,
//! `.load.p`, `.minions.p`, perhaps `nocache` and `endtime`, and a directory for each minion that
//! returned, with `return.p` and perhaps `out.p`. The `.p` files are msgpack with bin types.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use bytes::Bytes;
use openssl::hash::MessageDigest;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use saltern_base::clock::civil;
use saltern_config::MasterConfig;
use saltern_model::{Compat, Jid, JobRecord, MinionId, Packed};
use saltern_wire::msgpack::{Dialect, Encoder, Limits, MapView, RawValue};

use crate::error::{Result, StoreError};
use crate::files::{self, Create, Version};
use crate::options::StoreOptions;
use saltern_base::hex;

/// A minion's directory is filled under this name and then gets its own, so that a reader sees all
/// of it or nothing. Stock's readers pass over names that begin with a dot.
const GROWING: &str = ".saltern-return";

/// Before the umask, which keeps others out where no other users are admitted; stock's under its
/// usual umask.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

/// A list of 100,000 long ids; a larger `.minions.p` is not ours and not merged.
const MINIONS_BYTES: usize = 32 << 20;

/// Writes the job-cache files of jobs and returns.
#[derive(Clone)]
pub struct JobFiles {
    root: PathBuf,
    publish_auth: PathBuf,
    digest: MessageDigest,
    compat: Compat,
    endtime: bool,
}

/// The open directory of one job.
pub struct JobDir {
    fd: OwnedFd,
    path: PathBuf,
    nocache: bool,
}

impl JobDir {
    /// Returns of this job are not to be written.
    pub fn nocache(&self) -> bool {
        self.nocache
    }
}

/// Parts of a return load that are kept, as packed values in the dialect with bin types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturnParts {
    /// `return`
    pub value: Option<Bytes>,
    /// `retcode`
    pub retcode: Option<Bytes>,
    /// `success`
    pub success: Option<Bytes>,
    /// `out`, in a file of its own.
    pub out: Option<Bytes>,
}

impl ReturnParts {
    /// Takes the parts out of a return load without unpacking them.
    pub fn of(load: &MapView) -> Self {
        let part = |name| load.get(name).map(RawValue::to_bin_dialect);
        Self {
            value: part("return"),
            retcode: part("retcode"),
            success: part("success"),
            out: part("out"),
        }
    }

    /// The content of `return.p`: the parts that the load has, in stock's order.
    fn pack(&self) -> Vec<u8> {
        let parts = [
            ("return", &self.value),
            ("retcode", &self.retcode),
            ("success", &self.success),
        ];
        let size: usize = parts
            .iter()
            .map(|(_, p)| p.as_ref().map_or(0, Bytes::len))
            .sum();
        let mut packed = Vec::with_capacity(size + 32);
        let mut encoder = Encoder::new(&mut packed, Dialect::Bin);
        encoder.map(parts.iter().filter(|(_, part)| part.is_some()).count());
        for (name, part) in parts {
            if let Some(part) = part {
                encoder.str(name).raw(part);
            }
        }
        packed
    }
}

impl JobFiles {
    /// The job files of a configuration.
    pub fn open(config: &MasterConfig) -> Result<Self> {
        Self::with_options(&StoreOptions::from(config))
    }

    /// The same with this crate's options.
    ///
    /// # Errors
    /// [`StoreError::Option`] for a `hash_type` that this machine's OpenSSL does not have.
    pub fn with_options(options: &StoreOptions) -> Result<Self> {
        let unknown = || StoreError::Option {
            option: "hash_type",
            reason: format!("\"{}\" is not available here", options.hash_type),
        };
        let digest = MessageDigest::from_name(&options.hash_type).ok_or_else(unknown)?;
        openssl::hash::hash(digest, b"").map_err(|_| unknown())?;
        let root = options.job_files();
        files::ensure_dir(&root, DIR_MODE)?;
        let admits_users = !options.acl_users.is_empty() || options.external_auth;
        if admits_users && let Err(error) = let_others_read(&root) {
            tracing::warn!(%error, "users of publisher_acl may not see the files of their jobs");
        }
        Ok(Self {
            root,
            publish_auth: options.publish_auth(),
            digest,
            compat: options.compat,
            endtime: options.store_endtime,
        })
    }

    /// The directory of a job's files.
    pub fn job_dir(&self, jid: &Jid) -> Result<PathBuf> {
        let digest = openssl::hash::hash(self.digest, jid.as_str().as_bytes())
            .map_err(|source| StoreError::io("name the directory in", &self.root, source))?;
        let mut name = hex(&digest);
        let rest = name.split_off(2);
        Ok(self.root.join(name).join(rest))
    }

    /// Makes a job's directory with its `jid` and, if asked for, `nocache` (stock: `prep_jid`).
    pub fn prepare(&self, jid: &Jid, nocache: bool) -> Result<()> {
        let dir = self.job_dir(jid)?;
        files::ensure_dir(&dir, DIR_MODE)?;
        write_plain(&dir.join("jid"), jid.as_str().as_bytes())?;
        if nocache {
            write_plain(&dir.join("nocache"), b"")?;
        }
        Ok(())
    }

    /// Writes what stock's command line looks for before it waits for a job: `jid`, `.minions.p`
    /// and `.load.p`, in this order (stock: `prep_jid`, `save_load`). To be called before a publish
    /// is answered. Does not wait for the disk; the mirror repairs what a power loss took.
    pub fn write_load(
        &self,
        jid: &Jid,
        load: &Packed,
        minions: Option<&[MinionId]>,
        nocache: bool,
    ) -> Result<()> {
        self.prepare(jid, nocache)?;
        if let Some(minions) = minions {
            self.write_minions(jid, minions, None)?;
        }
        let path = self.job_dir(jid)?.join(".load.p");
        files::write_atomic(
            &path,
            load.as_ref(),
            Create::PRIVATE.mode(FILE_MODE).derived(),
        )
    }

    /// The same of a stored job.
    fn write_job(&self, job: &JobRecord) -> Result<()> {
        self.write_load(&job.jid, &job.load, Some(&job.minions), job.nocache)
    }

    /// Whether a job's load exists, written by this master or another one.
    pub(crate) fn has_load(&self, jid: &Jid) -> Result<bool> {
        let load = Version::of(&self.job_dir(jid)?.join(".load.p"), false)?;
        Ok(load.is_some_and(|stat| stat.size() > 0))
    }

    /// Writes the job's files unless they are there already and whole.
    pub(crate) fn complete_load(&self, job: &JobRecord) -> Result<()> {
        let dir = self.job_dir(&job.jid)?;
        let whole = |name, size: Option<usize>| -> Result<bool> {
            let stat = Version::of(&dir.join(name), false)?;
            Ok(stat.is_some_and(|stat| {
                stat.size() > 0 && size.is_none_or(|size| stat.size() == size as u64)
            }))
        };
        let complete = whole(".load.p", Some(job.load.as_ref().len()))?
            && whole(".minions.p", None)?
            && whole("jid", None)?;
        if complete {
            Ok(())
        } else {
            self.write_job(job)
        }
    }

    /// Writes `.minions.p`, or `.minions.<syndic>.p` for what a syndic reports.
    ///
    /// 3008 merges with the list that is there and sorts; 3006 and 3007 replace it. That of a
    /// syndic is always merged: one with a master of masters below it reports in several parts.
    pub fn write_minions(
        &self,
        jid: &Jid,
        minions: &[MinionId],
        syndic: Option<&MinionId>,
    ) -> Result<()> {
        let dir = self.job_dir(jid)?;
        files::ensure_dir(&dir, DIR_MODE)?;
        let name = match syndic {
            Some(id) => format!(".minions.{id}.p"),
            None => ".minions.p".to_owned(),
        };
        let path = files::child(&dir, &name)?;
        let mut names: Vec<&str> = minions.iter().map(MinionId::as_str).collect();
        let is_merged = self.compat == Compat::V3008 || syndic.is_some();
        let known = match is_merged {
            false => Vec::new(),
            true => known_minions(&path)?,
        };
        if is_merged {
            names.extend(known.iter().map(String::as_str));
            names.sort_unstable();
            names.dedup();
        }
        let mut packed = Vec::with_capacity(names.iter().map(|name| name.len() + 2).sum());
        let mut encoder = Encoder::new(&mut packed, Dialect::Bin);
        encoder.array(names.len());
        for name in names {
            encoder.str(name);
        }
        files::write_atomic(&path, &packed, Create::PRIVATE.mode(FILE_MODE).derived())
    }

    /// Opens a job's directory; `None` when there is none.
    pub fn open_dir(&self, jid: &Jid) -> Result<Option<JobDir>> {
        let path = self.job_dir(jid)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(StoreError::io("open", path, error)),
        };
        let nocache = rustix::fs::statat(&fd, "nocache", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        Ok(Some(JobDir { fd, path, nocache }))
    }

    /// Writes a minion's directory with `return.p` and, if the load has it, `out.p`.
    ///
    /// An existing file stays, unless it was cut short by a power loss. `false` when the job's
    /// directory has been removed since it was opened.
    pub fn write_return(
        &self,
        dir: &JobDir,
        minion: &MinionId,
        parts: &ReturnParts,
    ) -> Result<bool> {
        let packed = parts.pack();
        let failed = |error: Errno| StoreError::io("write a return in", &dir.path, error);
        let return_p = format!("{GROWING}/return.p");
        let out_p = format!("{GROWING}/out.p");
        match rustix::fs::mkdirat(&dir.fd, GROWING, Mode::from_raw_mode(DIR_MODE)) {
            Ok(()) => {}
            // From a crash, or from a return that was there already.
            Err(Errno::EXIST) => unlink_at(dir, &out_p)?,
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        write_at(dir, &return_p, &packed)?;
        if let Some(out) = &parts.out {
            write_at(dir, &out_p, out)?;
        }
        match rustix::fs::renameat(&dir.fd, GROWING, &dir.fd, minion.as_str()) {
            Ok(()) => return Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(Errno::NOTDIR) => {
                // An id such as "jid" names one of the job's own files; stock loses it too.
                tracing::warn!(minion = %minion, dir = %dir.path.display(),
                    "a file has the minion's name; its return has no file");
                return Ok(true);
            }
            Err(error) => return Err(failed(error)),
        }
        for (name, fresh, size) in [
            ("return.p", &return_p, Some(packed.len())),
            ("out.p", &out_p, parts.out.as_ref().map(Bytes::len)),
        ] {
            let Some(size) = size else { continue };
            let old = format!("{minion}/{name}");
            let whole = rustix::fs::statat(&dir.fd, &old, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| u64::try_from(stat.st_size) == Ok(size as u64));
            if !whole {
                rustix::fs::renameat(&dir.fd, fresh, &dir.fd, &old).map_err(failed)?;
            }
        }
        Ok(true)
    }

    /// Writes `endtime`: the time of the latest return, in stock's words.
    pub(crate) fn write_endtime(&self, dir: &JobDir, unix_micros: i64) -> Result<()> {
        write_at(dir, "endtime", endtime_text(unix_micros).as_bytes())
    }

    /// Whether `endtime` is wanted (`job_cache_store_endtime`).
    pub fn stores_endtime(&self) -> bool {
        self.endtime
    }

    /// Syncs all job files to the disk.
    pub fn sync(&self) -> Result<()> {
        let failed = |error: Errno| StoreError::io("write to the disk", &self.root, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&self.root, flags, Mode::empty()).map_err(failed)?;
        rustix::fs::syncfs(&fd).map_err(failed)
    }

    /// Opens a directory that was made a moment ago.
    pub(super) fn reopen_dir(&self, jid: &Jid) -> Result<JobDir> {
        let missing = || -> Result<JobDir> {
            Err(StoreError::Missing {
                path: self.job_dir(jid)?,
                reason: "it was made a moment ago",
            })
        };
        self.open_dir(jid)?.map_or_else(missing, Ok)
    }

    pub(super) fn root(&self) -> &std::path::Path {
        &self.root
    }

    pub(super) fn publish_auth(&self) -> &std::path::Path {
        &self.publish_auth
    }
}

/// `2026, Nov 21 07:06:22.637714`: stock's `jid_to_time`.
pub fn endtime_text(unix_micros: i64) -> String {
    civil(unix_micros).strftime("%Y, %b %d %T.%6f").to_string()
}

/// Other users whom the master admits read the files of their jobs (stock's `salt` looks for the
/// load before it waits): opens the upper directories, which may be from before they were admitted.
fn let_others_read(root: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    const OTHERS_READ: u32 = 0o005;
    let open = |path: &std::path::Path| {
        let mode = std::fs::metadata(path)?.permissions().mode() & 0o7777;
        if mode & OTHERS_READ == OTHERS_READ {
            return Ok(());
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode | OTHERS_READ))
    };
    let failed = |source: std::io::Error| StoreError::io("let other users read", root, source);
    open(root).map_err(failed)?;
    for part in 0..=u8::MAX {
        match open(&root.join(format!("{part:02x}"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The list that is there; none when it is damaged, as in stock.
fn known_minions(path: &std::path::Path) -> Result<Vec<String>> {
    let Some(packed) = files::read(path, MINIONS_BYTES)? else {
        return Ok(Vec::new());
    };
    let list = saltern_wire::msgpack::decode(&packed, &Limits::WIRE);
    Ok(list
        .ok()
        .and_then(|list| {
            let names = list.as_array()?.iter().filter_map(|name| name.as_str());
            Some(names.map(str::to_owned).collect())
        })
        .unwrap_or_default())
}

/// Truncates and writes, as stock does for files that nobody reads while they grow.
fn write_plain(path: &std::path::Path, content: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(FILE_MODE))
        .map_err(std::io::Error::from)
        .and_then(|fd| File::from(fd).write_all(content))
        .map_err(|error| StoreError::io("write", path, error))
}

fn write_at(dir: &JobDir, name: &str, content: &[u8]) -> Result<()> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&dir.fd, name, flags, Mode::from_raw_mode(FILE_MODE))
        .map_err(std::io::Error::from)
        .and_then(|fd| File::from(fd).write_all(content))
        .map_err(|error| StoreError::io("write", dir.path.join(name), error))
}

fn unlink_at(dir: &JobDir, name: &str) -> Result<()> {
    match rustix::fs::unlinkat(&dir.fd, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(StoreError::io("remove", dir.path.join(name), error)),
    }
}

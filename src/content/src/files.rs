//! The file server: what `salt://` urls name, and the lists of it, for every backend.
//!
//! [`FileServer`] has one function for each command of a minion, named as on the wire, and gives
//! the values that stock replies with (`salt/fileserver/__init__.py`). It knows neither the load of
//! the request nor the reply: the caller takes the arguments out of the load, and answers an `Err`
//! as stock answers an exception in a handler, with an empty string.
//!
//! No path from a minion leaves its root: only a [`path::Relative`] can be opened, and only below
//! a [`root::Root`]. Symlinks are followed as `fileserver_followsymlinks` says; with its default
//! they lead wherever users with write access below a root point them.
//!
//! `files/DIFFERENCES.md` lists where answers differ from stock's; `tests/files_stock` compares the
//! rest. Calls block for as long as the disk does; only a [`Fetch`] waits for the network.
//!
//! Longer than 500 lines because it has one function for each command of a minion.

mod changes;
mod chosen;
mod error;
mod found;
mod gitfs;
mod hash;
pub(crate) mod ignore;
mod listing;
mod minionfs;
pub(crate) mod options;
pub mod path;
mod receive;
pub mod root;
mod roots;
pub(crate) mod state;
pub(crate) mod tree;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use saltern_base::clock::Clock;
use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

pub use crate::git::GitError;
pub use changes::FileChanges;
pub use chosen::Chosen;
pub use error::FilesError;

use found::Found;
use gitfs::GitFs;
use hash::Hashes;
use listing::Purpose;
use minionfs::MinionFs;
use options::{BackendName, Options};
pub(crate) use options::{expand as expand_glob, without_scheme};
use path::{Refusal, Relative, Wanted};
use roots::Roots;

use crate::git::Fetch;

/// Serves files to minions, and takes theirs. Shared by all workers; caches have locks of their
/// own.
pub struct FileServer {
    options: Arc<Options>,
    backends: Vec<Backend>,
    hashes: Hashes,
    clock: Clock,
}

enum Backend {
    Roots(Roots),
    MinionFs(MinionFs),
    Git(Box<GitFs>),
}

/// The lists that there are.
#[derive(Clone, Copy)]
enum Form {
    Files,
    EmptyDirectories,
    Directories,
}

impl FileServer {
    /// A file server for this configuration. Roots that are missing are served once they are
    /// there.
    ///
    /// # Errors
    /// [`FilesError::Option`] for an option that cannot work, and for a backend that there is not.
    pub fn new(config: &MasterConfig, clock: Clock) -> Result<Self, FilesError> {
        let options = Arc::new(Options::new(config)?);
        let backends = options
            .backends
            .iter()
            .map(|name| {
                Ok(match name {
                    BackendName::Roots => Backend::Roots(Roots::new(Arc::clone(&options))),
                    BackendName::MinionFs => Backend::MinionFs(MinionFs::new(Arc::clone(&options))),
                    BackendName::Git => Backend::Git(Box::new(GitFs::new(config)?)),
                })
            })
            .collect::<Result<_, FilesError>>()?;
        let hashes = Hashes::new(options.hash_type);
        Ok(Self {
            options,
            backends,
            hashes,
            clock,
        })
    }

    /// Options without effect: each with the reason, in lower case and without
    /// a final period.
    pub fn problems(&self) -> &[(&'static str, String)] {
        &self.options.problems
    }

    /// The roots of each environment (`file_roots`), wildcards expanded.
    pub fn roots(&self) -> &[(String, Vec<String>)] {
        &self.options.file_roots
    }

    /// `_file_envs`: the environments of all backends. Stock's order is that of a Python set, ours
    /// is sorted.
    pub fn file_envs(&self) -> Value {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for backend in &self.backends {
            backend.add_environments(&mut names);
        }
        Value::Array(names.into_iter().map(Value::from).collect())
    }

    /// `_file_find`: `{path, rel, stat, back}` of a file, or `{path: "", rel: ""}`.
    ///
    /// # Errors
    /// [`FilesError::Io`] where the master cannot look, for a reason of its own.
    pub fn file_find(&self, path: &str, saltenv: &str) -> Result<Value, FilesError> {
        let found = self.find(path, saltenv)?;
        Ok(found.map_or_else(nothing_found, |found| found.value()))
    }

    /// `_file_hash`: `{hash_type, hsum}` of a file, or `""`.
    ///
    /// # Errors
    /// [`FilesError::Io`] for a file that is there and cannot be read.
    pub fn file_hash(&self, path: &str, saltenv: &str) -> Result<Value, FilesError> {
        match self.find(path, saltenv)? {
            Some(found) => self.hash_of(&found, saltenv),
            None => Ok(no_hash()),
        }
    }

    /// `_file_hash_and_stat`: the two as a list, or `["", nil]`.
    ///
    /// # Errors
    /// As [`FileServer::file_hash`].
    pub fn file_hash_and_stat(&self, path: &str, saltenv: &str) -> Result<Value, FilesError> {
        match self.find(path, saltenv)? {
            Some(found) => Ok(Value::Array(vec![
                self.hash_of(&found, saltenv)?,
                found.stat_value(),
            ])),
            None => Ok(no_hash_and_stat()),
        }
    }

    /// `_serve_file`: `{data, dest}` with at most `file_buffer_size` bytes from the offset `loc`
    /// on, and `gzip` with the level if the bytes are compressed. Past the end of the file `data`
    /// is empty, and for no file `dest` is too. `gzip` is zlib's level; `None` and 0 mean none.
    ///
    /// # Errors
    /// [`FilesError::Offset`] and [`FilesError::GzipLevel`] for such arguments, where there is a
    /// file; [`FilesError::Io`] if it cannot be read.
    pub fn serve_file(
        &self,
        path: &str,
        saltenv: &str,
        loc: i64,
        gzip: Option<i64>,
    ) -> Result<Value, FilesError> {
        let Some((found, backend)) = self.find_with_backend(path, saltenv)? else {
            return Ok(nothing_served());
        };
        match backend {
            Backend::Roots(roots) => roots.serve(&found, saltenv, loc, gzip),
            Backend::MinionFs(minionfs) => minionfs.serve(&found, loc, gzip),
            Backend::Git(_) => found.serve(loc, gzip, self.options.chunk),
        }
    }

    /// `_file_list`: the files of an environment whose path starts with `prefix`, sorted, as a
    /// packed list in the dialect of replies.
    ///
    /// # Errors
    /// [`FilesError::TooManyEntries`] and [`FilesError::TooDeep`].
    pub fn file_list(&self, saltenv: &str, prefix: &str) -> Result<Bytes, FilesError> {
        self.list(saltenv, prefix, Form::Files)
    }

    /// `_file_list_emptydirs`: the directories without an entry, packed as a sorted list.
    ///
    /// # Errors
    /// As [`FileServer::file_list`].
    pub fn file_list_emptydirs(&self, saltenv: &str, prefix: &str) -> Result<Bytes, FilesError> {
        self.list(saltenv, prefix, Form::EmptyDirectories)
    }

    /// `_dir_list`: the directories, packed as a sorted list.
    ///
    /// # Errors
    /// As [`FileServer::file_list`].
    pub fn dir_list(&self, saltenv: &str, prefix: &str) -> Result<Bytes, FilesError> {
        self.list(saltenv, prefix, Form::Directories)
    }

    /// `_symlink_list`: `{link: target}`, sorted.
    ///
    /// # Errors
    /// As [`FileServer::file_list`].
    pub fn symlink_list(&self, saltenv: &str, prefix: &str) -> Result<Value, FilesError> {
        let prefix = prefix.trim_matches('/');
        let mut entries = Vec::new();
        for backend in &self.backends {
            let listing = match backend {
                Backend::Roots(roots) => {
                    roots.listing(saltenv, self.clock.now(), Purpose::Answer)?
                }
                Backend::Git(gitfs) => gitfs.links(saltenv)?,
                Backend::MinionFs(_) => continue,
            };
            // Of several backends with links, the last one answers.
            entries = listing
                .links
                .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
                .take_while(|(link, _)| link.starts_with(prefix))
                .map(|(link, target)| (Value::from(link), Value::from(target)))
                .collect();
        }
        Ok(Value::Map(entries))
    }

    /// Walks every configured environment whose lists are older than they may be. Called at the
    /// start and every now and then it leaves requests little to read: only directories that have
    /// changed since. One environment that cannot be listed does not keep the others from it.
    ///
    /// # Errors
    /// The first of [`FilesError::TooManyEntries`] and [`FilesError::TooDeep`].
    pub fn refresh_lists(&self) -> Result<(), FilesError> {
        let mut result = Ok(());
        for backend in &self.backends {
            if let Backend::Roots(roots) = backend {
                for saltenv in roots.environments() {
                    let listed = roots
                        .listing(saltenv, self.clock.now(), Purpose::Ahead)
                        .map(|_| ());
                    result = result.and(listed);
                }
            }
        }
        result
    }

    /// Whether `roots` is a backend.
    pub fn has_roots(&self) -> bool {
        let is_roots = |backend: &Backend| matches!(backend, Backend::Roots(_));
        self.backends.iter().any(is_roots)
    }

    /// Changes below `file_roots` since the last call, also of a master before this
    /// one; `None` if `roots` is no backend.
    ///
    /// # Errors
    /// [`FilesError::TooManyEntries`], [`FilesError::TooDeep`], or the look cannot be kept.
    pub fn changes(&self) -> Result<Option<FileChanges>, FilesError> {
        match self.has_roots() {
            true => changes::look(&self.options).map(Some),
            false => Ok(None),
        }
    }

    /// The fetches of git remotes whose `update_interval` has passed, to be run on threads of their
    /// own: each waits for its remote. What was fetched before is served on meanwhile.
    pub fn due_remotes(&self) -> Vec<Fetch> {
        let mut due = Vec::new();
        for backend in &self.backends {
            if let Backend::Git(gitfs) = backend {
                due.extend(gitfs.due());
            }
        }
        due
    }

    /// Fetches the git remotes whose `update_interval` has passed, one after the other; a remote
    /// that cannot be fetched is logged. Blocks, so it is for a maintenance thread. Returns whether
    /// anything changed.
    pub fn refresh_remotes(&self) -> bool {
        let mut changed = false;
        for backend in &self.backends {
            if let Backend::Git(gitfs) = backend {
                changed |= gitfs.refresh();
            }
        }
        changed
    }

    /// The whole of a file, for templates; `None` if there is no such file.
    ///
    /// # Errors
    /// [`FilesError::Io`] if it cannot be read, also if it has more than `limit` bytes.
    pub fn read(
        &self,
        path: &str,
        saltenv: &str,
        limit: usize,
    ) -> Result<Option<Bytes>, FilesError> {
        let Some(found) = self.find(path, saltenv)? else {
            return Ok(None);
        };
        let failed = |error: std::io::Error| FilesError::io("read", &found.path, error);
        let data = found::read_at(&found.open()?, 0, limit.saturating_add(1)).map_err(failed)?;
        if data.len() > limit {
            return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
        }
        Ok(Some(data.into()))
    }

    /// `_file_recv`: writes a chunk of a file that a minion pushes, at the offset `loc`; an offset
    /// of 0 starts the file anew. `parts` is the `path` of the load. `false` if that is refused:
    /// receiving is off, the path or the offset is no good, or the file gets larger than
    /// `file_recv_max_size`.
    ///
    /// # Errors
    /// [`FilesError::Io`] if it cannot be written, also if something other than a regular file is
    /// in its place.
    pub fn receive(
        &self,
        minion: &MinionId,
        parts: &[&str],
        loc: i64,
        data: &[u8],
    ) -> Result<bool, FilesError> {
        receive::receive(&self.options, minion, parts, loc, data)
    }

    /// Why a path in a load cannot be meant honestly; `None` if it can. The functions above answer
    /// such a path like one that is not there, so a caller that logs and counts attacks asks here.
    pub fn refusal(path: &str, saltenv: &str) -> Option<Refusal> {
        let wanted = match Wanted::parse(path) {
            Ok(wanted) => wanted,
            Err(refusal) => return Some(refusal),
        };
        if !path::is_plain_environment(wanted.saltenv.as_deref().unwrap_or(saltenv)) {
            return Some(Refusal::Environment);
        }
        // The root itself is no file, but nothing to be alarmed about.
        match Relative::parse(&wanted.path) {
            Err(Refusal::Outside) if saltern_python::path::normpath(&wanted.path) == "." => None,
            parsed => parsed.err(),
        }
    }

    /// Whether a file, its hash and its bytes can be read without a process of git, which is slow:
    /// a caller that must not block runs the others elsewhere.
    pub fn finds_at_once(&self, path: &str, saltenv: &str) -> bool {
        let Ok(wanted) = Wanted::parse(path) else {
            return true;
        };
        let saltenv = wanted.saltenv.as_deref().unwrap_or(saltenv);
        for backend in &self.backends {
            if let Backend::Git(gitfs) = backend
                && !gitfs.finds_at_once(&wanted, saltenv)
            {
                // Unless a backend before it has the file.
                let before = self.backends.iter();
                let mut before = before.take_while(|backend| !matches!(backend, Backend::Git(_)));
                return before.any(|backend| {
                    matches!(Self::found_in(backend, &wanted, saltenv), Ok(Some(_)))
                });
            }
        }
        true
    }

    /// Whether the lists of an environment can be had without a process of git.
    pub fn lists_at_once(&self, saltenv: &str) -> bool {
        self.backends.iter().all(|backend| match backend {
            Backend::Git(gitfs) => gitfs.lists_at_once(saltenv),
            Backend::Roots(_) | Backend::MinionFs(_) => true,
        })
    }

    fn find(&self, path: &str, saltenv: &str) -> Result<Option<Found>, FilesError> {
        let found = self.find_with_backend(path, saltenv)?;
        Ok(found.map(|(found, _)| found))
    }

    fn find_with_backend(
        &self,
        path: &str,
        saltenv: &str,
    ) -> Result<Option<(Found, &Backend)>, FilesError> {
        let Ok(wanted) = Wanted::parse(path) else {
            return Ok(None);
        };
        let saltenv = wanted.saltenv.as_deref().unwrap_or(saltenv);
        for backend in &self.backends {
            if let Some(found) = Self::found_in(backend, &wanted, saltenv)? {
                return Ok(Some((found, backend)));
            }
        }
        Ok(None)
    }

    fn found_in(
        backend: &Backend,
        wanted: &Wanted,
        saltenv: &str,
    ) -> Result<Option<Found>, FilesError> {
        match backend {
            Backend::Roots(roots) => roots.find(wanted, saltenv),
            Backend::MinionFs(minionfs) => minionfs.find(wanted, saltenv),
            Backend::Git(gitfs) => gitfs.find(wanted, saltenv),
        }
    }

    fn hash_of(&self, found: &Found, saltenv: &str) -> Result<Value, FilesError> {
        // Stock's minionfs looks at the environment of the load once more.
        if found.back == minionfs::NAME && saltenv != found.saltenv {
            return Ok(Value::Map(Vec::new()));
        }
        let hash = self
            .hashes
            .of(&found.open()?, self.clock.now())
            .map_err(|error| FilesError::io("hash", &found.path, error))?;
        Ok(Value::map([
            ("hash_type", self.hashes.name()),
            ("hsum", &hash),
        ]))
    }

    fn list(&self, saltenv: &str, prefix: &str, form: Form) -> Result<Bytes, FilesError> {
        let now = self.clock.now();
        let prefix = prefix.trim_matches('/');
        if let [Backend::Roots(roots)] = self.backends.as_slice() {
            let listing = roots.listing(saltenv, now, Purpose::Answer)?;
            return Ok(form.of(&listing).packed_below(prefix));
        }
        let mut merged: BTreeSet<Box<str>> = BTreeSet::new();
        for backend in &self.backends {
            backend.add_listed(saltenv, prefix, form, now, &mut merged)?;
        }
        let merged: Vec<Box<str>> = merged
            .into_iter()
            .filter(|path| path.starts_with(prefix))
            .collect();
        Ok(listing::pack(&merged))
    }
}

impl Backend {
    fn add_environments(&self, names: &mut BTreeSet<String>) {
        match self {
            Backend::Roots(roots) => names.extend(roots.environments().map(str::to_owned)),
            Backend::MinionFs(minionfs) => {
                names.insert(minionfs.environment().to_owned());
            }
            Backend::Git(gitfs) => names.extend(gitfs.environments().iter().cloned()),
        }
    }

    /// Adds what the backend has of an environment.
    fn add_listed(
        &self,
        saltenv: &str,
        prefix: &str,
        form: Form,
        now: SystemTime,
        merged: &mut BTreeSet<Box<str>>,
    ) -> Result<(), FilesError> {
        match (self, form) {
            (Backend::Roots(roots), _) => {
                let listing = roots.listing(saltenv, now, Purpose::Answer)?;
                merged.extend(form.of(&listing).below(prefix).iter().cloned());
            }
            (Backend::MinionFs(minionfs), Form::Files) => {
                merged.extend(minionfs.files(saltenv, prefix, now)?);
            }
            (Backend::MinionFs(minionfs), Form::Directories) => {
                merged.extend(minionfs.directories(saltenv, prefix, now)?);
            }
            (Backend::MinionFs(_), Form::EmptyDirectories) => {}
            (Backend::Git(gitfs), _) => {
                let listing = gitfs.listing(saltenv)?;
                merged.extend(form.of(&listing).below(prefix).iter().cloned());
            }
        }
        Ok(())
    }
}

impl Form {
    fn of(self, listing: &listing::Listing) -> &listing::Paths {
        match self {
            Form::Files => &listing.files,
            Form::EmptyDirectories => &listing.empty_directories,
            Form::Directories => &listing.directories,
        }
    }
}

/// Answer of `_file_find` for no file, and for a load without a path.
pub fn nothing_found() -> Value {
    Value::map([("path", ""), ("rel", "")])
}

/// Answer of `_serve_file` for no file, and for a load without `path`, `loc` or `saltenv`.
pub fn nothing_served() -> Value {
    Value::map([("data", ""), ("dest", "")])
}

/// Answer of `_file_hash` for no file, and for a load without `path` or `saltenv`.
pub fn no_hash() -> Value {
    Value::from("")
}

/// Answer of `_file_hash_and_stat` for no file, and for a load without `path` or `saltenv`.
pub fn no_hash_and_stat() -> Value {
    Value::Array(vec![no_hash(), Value::Nil])
}

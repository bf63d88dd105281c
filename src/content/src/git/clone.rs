//! One clone: a bare repository below `cachedir`, and the files and checkouts made from it.
//!
//! Its directory has `repository` (bare), `files` (single files by the name of their object),
//! `trees` (checkouts by the name of their commit) and `lock`. All of it can be deleted while no
//! master runs; the next fetch gets it again. Bounds: the bytes of all files; checkouts
//! that no ref names any more are removed by the fetch that noticed; of lists of trees, and of
//! names of commits, those used last are kept.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};
use saltern_base::hex;
use sha2::{Digest as _, Sha256};

use super::blobs::{Blobs, is_leftover};
use super::command::{CommandError, Git, LOCAL_TIME};
use super::error::GitError;
use super::fetch::{self, Schedule};
use super::kept::Kept;
use super::origin::Origin;
use super::refs::{FORMAT, Oid, Refs};
use super::tree::{MAX_ENTRIES, Tree};

/// Cached trees of refs.
const KEPT_TREES: usize = 64;
/// Cached trees of other commits: minions can ask for them.
const KEPT_COMMIT_TREES: usize = 8;
/// How many names of commits are remembered, and as many that name nothing: they come from
/// minions.
const KEPT_COMMITS: usize = 1024;
/// How many names are looked up in the repository between two fetches. Each costs a process, and a
/// minion can make names up without end.
const LOOKUPS: usize = 256;

/// A clone. Shared by all threads.
pub(crate) struct Clone {
    origin: Origin,
    directory: PathBuf,
    schedule: Mutex<Schedule>,
    /// Whether there is anything of the remote here.
    is_fetched: AtomicBool,
    refs: RwLock<Arc<Refs>>,
    /// Grows when the refs change.
    generation: AtomicU64,
    trees: Mutex<Trees>,
    commits: Mutex<Commits>,
    blobs: Blobs,
    checkouts: Mutex<HashMap<Oid, Arc<Checkout>>>,
    /// For the names of what is being written.
    serial: AtomicU64,
}

/// Lists of trees. Those of commits that no ref names are apart, because minions choose them.
struct Trees {
    named: Kept<Oid, Arc<Tree>>,
    others: Kept<Oid, Arc<Tree>>,
}

/// Names of commits that were asked for.
struct Commits {
    /// Names of commits, since the refs have changed.
    known: Kept<String, Oid>,
    /// Names without a commit, since the last fetch.
    unknown: Kept<String, ()>,
    /// How many have been looked up since the last fetch.
    lookups: usize,
}

/// A commit as a directory. It stays while this is held.
pub(crate) struct Checkout {
    path: PathBuf,
}

impl Checkout {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A directory in which `target`, a directory of this checkout, stands at `mountpoint`, by way
    /// of a link.
    pub(crate) fn mounted(&self, target: &Path, mountpoint: &str) -> Result<PathBuf, GitError> {
        let name = Sha256::digest(format!("{}\0{mountpoint}", target.display()));
        let name = hex(&name);
        let top = self.path.with_extension("mounts").join(name);
        let link = top.join(mountpoint);
        let failed = |error: io::Error| GitError::io(&link, error);
        create_directories(link.parent().unwrap_or(&top)).map_err(failed)?;
        match symlink(target, &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => Ok(top),
        }
    }
}

impl Clone {
    pub(super) fn new(below: &Path, origin: Origin, interval: Duration) -> Self {
        let clone = Self {
            directory: below.join(origin.directory()),
            schedule: Mutex::new(Schedule::new(interval)),
            is_fetched: AtomicBool::new(false),
            refs: RwLock::default(),
            generation: AtomicU64::new(0),
            trees: Mutex::new(Trees {
                named: Kept::new(KEPT_TREES),
                others: Kept::new(KEPT_COMMIT_TREES),
            }),
            commits: Mutex::new(Commits {
                known: Kept::new(KEPT_COMMITS),
                unknown: Kept::new(KEPT_COMMITS),
                lookups: 0,
            }),
            blobs: Blobs::new(below.join(origin.directory()).join("files")),
            origin,
            checkouts: Mutex::default(),
            serial: AtomicU64::new(0),
        };
        clone.remove_leftovers();
        // What an earlier master fetched is served until this one has.
        if clone.repository().join("HEAD").is_file()
            && let Err(error) = clone.read_refs()
        {
            tracing::warn!(%error, "the refs of an earlier fetch cannot be read");
        }
        let refs = clone.refs();
        clone
            .is_fetched
            .store(*refs != Refs::default(), Ordering::Release);
        clone
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The remote without its password, for messages.
    pub(crate) fn shown(&self) -> String {
        self.origin.shown()
    }

    /// Whether it has ever been fetched, as far as one can see: a remote that was found empty by
    /// an earlier master has not.
    pub(crate) fn is_fetched(&self) -> bool {
        self.is_fetched.load(Ordering::Acquire)
    }

    pub(super) fn set_fetched(&self) {
        self.is_fetched.store(true, Ordering::Release);
    }

    pub(super) fn repository(&self) -> PathBuf {
        self.directory.join("repository")
    }

    /// Directory of the files of [`Clone::file`].
    pub(crate) fn files(&self) -> &Path {
        self.blobs.directory()
    }

    /// Removes what an earlier master was busy with when it was killed.
    fn remove_leftovers(&self) {
        // Without a directory there is nothing; and another process may be busy with it.
        if let Ok(Some(_lock)) = fetch::lock(self) {
            self.blobs.remove_leftovers();
            let trees = entries(&self.directory.join("trees")).into_iter();
            trees
                .filter(|path| is_leftover(path))
                .for_each(|path| remove(&path));
        }
    }

    pub(super) fn failed(&self, action: &'static str, error: &CommandError) -> GitError {
        GitError::Failed {
            action,
            remote: self.origin.shown(),
            problem: self.origin.redacted(&error.to_string()),
        }
    }

    /// The branches and tags.
    pub(crate) fn refs(&self) -> Arc<Refs> {
        Arc::clone(&self.refs.read())
    }

    /// A number that is different after the refs have changed.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Takes the refs over as they are now. Returns whether they are different.
    ///
    /// # Errors
    /// [`GitError::Failed`].
    pub(super) fn read_refs(&self) -> Result<bool, GitError> {
        let printed = Git::on(&self.repository())
            .args(["for-each-ref", FORMAT, "refs/remotes/origin", "refs/tags"])
            .output(Vec::new())
            .map_err(|problem| self.failed("for-each-ref", &problem))?;
        let refs = Refs::parse(&String::from_utf8_lossy(&printed));
        {
            // What named nothing may name something now.
            let mut commits = self.commits.lock();
            commits.unknown.clear();
            commits.lookups = 0;
        }
        let mut current = self.refs.write();
        if **current == refs {
            return Ok(false);
        }
        *current = Arc::new(refs);
        self.commits.lock().known.clear();
        self.generation.fetch_add(1, Ordering::Release);
        Ok(true)
    }

    /// The commit with this name, which may be shortened, if that is known without a process:
    /// an inner `None` says that it names nothing, or that no more names are looked up until the
    /// next fetch.
    pub(crate) fn known_commit(&self, name: &str) -> Option<Option<Oid>> {
        if name.len() < 4 || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some(None);
        }
        let mut commits = self.commits.lock();
        if let Some(known) = commits.known.get(name) {
            return Some(Some(known));
        }
        let is_unknown = commits.unknown.get(name).is_some();
        (is_unknown || commits.lookups >= LOOKUPS).then_some(None)
    }

    /// The commit with this name; `None` if there is none.
    ///
    /// # Errors
    /// [`GitError::Failed`] where git could not look; nothing is remembered of that.
    pub(crate) fn commit(&self, name: &str) -> Result<Option<Oid>, GitError> {
        if let Some(known) = self.known_commit(name) {
            return Ok(known);
        }
        let lookups = {
            let mut commits = self.commits.lock();
            commits.lookups += 1;
            commits.lookups
        };
        if lookups == LOOKUPS {
            tracing::warn!(
                remote = self.shown(),
                lookups,
                "no more commits are looked up until the next fetch"
            );
        }
        let wanted = format!("{name}^{{commit}}");
        let printed = Git::on(&self.repository())
            .args([
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &wanted,
            ])
            .lookup()
            .map_err(|problem| self.failed("rev-parse", &problem))?;
        let found = printed.and_then(|it| Oid::parse(String::from_utf8_lossy(&it).trim()));
        let mut commits = self.commits.lock();
        match &found {
            Some(oid) => commits.known.insert(name.to_owned(), oid.clone()),
            None => commits.unknown.insert(name.to_owned(), ()),
        }
        Ok(found)
    }

    /// The tree of a commit, if it has been listed and is still kept.
    pub(crate) fn known_tree(&self, commit: &Oid) -> Option<Arc<Tree>> {
        let mut trees = self.trees.lock();
        let named = trees.named.get(commit);
        named.or_else(|| trees.others.get(commit))
    }

    /// The tree of a commit, or of a tag of one.
    ///
    /// # Errors
    /// [`GitError::Failed`] and [`GitError::TooLarge`].
    pub(crate) fn tree(&self, commit: &Oid) -> Result<Arc<Tree>, GitError> {
        if let Some(tree) = self.known_tree(commit) {
            return Ok(tree);
        }
        let repository = self.repository();
        let listed = Git::on(&repository)
            .args(["ls-tree", "-r", "-t", "-z", "--full-tree", commit.as_str()])
            .output(Vec::new())
            .map_err(|problem| self.failed("ls-tree", &problem))?;
        let (mut tree, links) = Tree::parse(&listed).ok_or_else(|| GitError::TooLarge {
            remote: self.origin.shown(),
            limit: MAX_ENTRIES,
        })?;
        if !links.is_empty() {
            let names: String = links
                .iter()
                .map(|link| format!("{}\n", link.oid.as_str()))
                .collect();
            let printed = Git::on(&repository)
                .args(["cat-file", "--batch"])
                .output(names.into_bytes())
                .map_err(|problem| self.failed("cat-file", &problem))?;
            tree.links(links, &printed);
        }
        let tree = Arc::new(tree);
        let is_named = named(&self.refs()).contains(commit);
        let mut trees = self.trees.lock();
        let kept = match is_named {
            true => &mut trees.named,
            false => &mut trees.others,
        };
        kept.insert(commit.clone(), Arc::clone(&tree));
        Ok(tree)
    }

    /// Whether a file is on disk.
    pub(crate) fn has_file(&self, oid: &Oid) -> bool {
        self.blobs.get(oid).is_some()
    }

    /// Puts a file on disk, if it is not there yet, and gives its path below [`Clone::files`].
    ///
    /// # Errors
    /// [`GitError::Failed`] and [`GitError::Io`].
    pub(crate) fn file(&self, oid: &Oid) -> Result<String, GitError> {
        if let Some(name) = self.blobs.get(oid) {
            return Ok(name);
        }
        self.blobs.put(oid, &self.fresh_name(), |file| {
            Git::on(&self.repository())
                .args(["cat-file", "blob", oid.as_str()])
                .run(Some(file), LOCAL_TIME)
                .map_err(|problem| self.failed("cat-file", &problem))
        })
    }

    /// A name that nothing else has.
    fn fresh_name(&self) -> String {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        format!("new.{}.{serial}", std::process::id())
    }

    /// A commit as a directory.
    ///
    /// # Errors
    /// [`GitError::Failed`] and [`GitError::Io`].
    pub(crate) fn checkout(&self, commit: &Oid) -> Result<Arc<Checkout>, GitError> {
        // Others wait here: they want the same, mostly.
        let mut checkouts = self.checkouts.lock();
        if let Some(checkout) = checkouts.get(commit) {
            return Ok(Arc::clone(checkout));
        }
        let trees = self.directory.join("trees");
        let path = trees.join(commit.as_str());
        if !path.is_dir() {
            let fresh = trees.join(self.fresh_name());
            let made = self.check_out(commit, &fresh).and_then(|tree| {
                // Under its name it is trusted for ever, also after a power failure.
                synced(&tree).map_err(|error| GitError::io(&tree, error))?;
                fs::rename(tree, &path).map_err(|error| GitError::io(&path, error))
            });
            // Its index, and what is left of it after a failure.
            let _ = fs::remove_dir_all(&fresh);
            made?;
        }
        let checkout = Arc::new(Checkout { path });
        checkouts.insert(commit.clone(), Arc::clone(&checkout));
        Ok(checkout)
    }

    /// Checks a commit out below a fresh directory, and gives the directory of its files.
    fn check_out(&self, commit: &Oid, fresh: &Path) -> Result<PathBuf, GitError> {
        let (index, tree) = (fresh.join("index"), fresh.join("tree"));
        create_directories(&tree).map_err(|error| GitError::io(&tree, error))?;
        let git = || Git::on(&self.repository()).env("GIT_INDEX_FILE", &index);
        git()
            .args(["read-tree", commit.as_str()])
            .run(None, LOCAL_TIME)
            .map_err(|problem| self.failed("read-tree", &problem))?;
        git()
            .env("GIT_WORK_TREE", &tree)
            .in_directory(&tree)
            .args(["checkout-index", "--all", "--force", "--quiet"])
            .run(None, LOCAL_TIME)
            .map_err(|problem| self.failed("checkout-index", &problem))?;
        Ok(tree)
    }

    /// Removes unused checkouts that no ref names any more.
    pub(super) fn remove_unused(&self) {
        let refs = self.refs();
        let named = named(&refs);
        let trees = self.directory.join("trees");
        let mut doomed = Vec::new();
        {
            let mut checkouts = self.checkouts.lock();
            checkouts.retain(|oid, held| named.contains(oid) || Arc::strong_count(held) > 1);
            for path in entries(&trees) {
                let name = path.file_stem().and_then(|name| name.to_str());
                let oid = name.and_then(Oid::parse);
                if oid.is_some_and(|oid| named.contains(&oid) || checkouts.contains_key(&oid)) {
                    continue;
                }
                // Out of the way at once; the rest takes its time, and nobody waits for that.
                let aside = trees.join(format!("old.{}", self.fresh_name()));
                match fs::rename(&path, &aside) {
                    Ok(()) => doomed.push(aside),
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "cannot remove a checkout");
                    }
                }
            }
        }
        doomed.iter().for_each(|path| remove(path));
    }
}

/// Waits until the file system of a directory has everything on the disk.
fn synced(directory: &Path) -> io::Result<()> {
    let directory = fs::File::open(directory)?;
    Ok(rustix::fs::syncfs(&directory)?)
}

/// The objects that refs name.
fn named(refs: &Refs) -> HashSet<&Oid> {
    refs.branches.values().chain(refs.tags.values()).collect()
}

/// The entries of a directory; none if it cannot be read.
pub(super) fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

pub(super) fn remove(path: &Path) {
    let removed = if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "cannot remove unused files of a clone");
    }
}

/// Removes stale lock files of a killed git. Only the holder of the clone's lock writes in the
/// clone, so none of them can be in use.
pub(super) fn remove_stale_locks(repository: &Path) {
    let mut directories = vec![repository.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in entries(&directory) {
            let is_objects = path.ends_with("objects");
            if path
                .extension()
                .is_some_and(|extension| extension == "lock")
            {
                remove(&path);
            } else if path.is_dir() && !path.is_symlink() && !is_objects {
                directories.push(path);
            }
        }
    }
}

/// Makes directories that only this user can enter.
pub(super) fn create_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

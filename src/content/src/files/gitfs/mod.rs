//! The `gitfs` backend: branches and tags of git repositories as environments
//! (`salt/fileserver/gitfs.py`, `salt/utils/gitfs.py`).
//!
//! A request sees what the last [`GitFs::refresh`] fetched and never fetches itself. Lists come
//! from the trees of commits in memory; the bytes of a file are written below `cachedir` when it is
//! first asked for, under the name of its object, so a file that is being served never changes.
//!
//! As in stock, links are followed only where a file is asked for and only its last part is one,
//! always within the repository; the rules for ignored files do not hold here.

mod options;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use saltern_config::MasterConfig;
use saltern_python::path::{join, normpath};

use self::options::{RefType, Remote};
use super::error::FilesError;
use super::found::Found;
use super::listing::{Listing, Paths};
use super::path::{Relative, Wanted};
use super::root::{Links, Root};
use crate::git::{Clones, Entry, Fetch, GitError, Kept, Oid, Refs, Tree};

/// The backend's name in answers.
pub(crate) const NAME: &str = "gitfs";

/// Maximum number of links in a chain.
const MAX_LINKS: usize = 100;

/// Cached lists of environments.
const KEPT_LISTINGS: usize = 256;
/// How many lists are kept for what no ref makes an environment of: the names come from minions.
const KEPT_OTHERS: usize = 16;

pub(crate) struct GitFs {
    remotes: Vec<Remote>,
    clones: Clones,
    /// Path at which stock would put a file; part of the answers.
    shown: String,
    cache: Mutex<Cache>,
}

/// Cache that is valid until the refs change.
struct Cache {
    /// One number of each remote.
    generations: Vec<u64>,
    environments: Arc<BTreeSet<String>>,
    listings: Kept<String, Arc<Listing>>,
    /// The lists of what is not among the environments.
    others: Kept<String, Arc<Listing>>,
}

impl Cache {
    fn new(generations: Vec<u64>, environments: BTreeSet<String>) -> Self {
        Self {
            generations,
            environments: Arc::new(environments),
            listings: Kept::new(KEPT_LISTINGS),
            others: Kept::new(KEPT_OTHERS),
        }
    }

    fn lists_of(&mut self, saltenv: &str) -> &mut Kept<String, Arc<Listing>> {
        match self.environments.contains(saltenv) {
            true => &mut self.listings,
            false => &mut self.others,
        }
    }
}

impl GitFs {
    /// The backend for this configuration. What an earlier master fetched is there at once.
    ///
    /// # Errors
    /// [`GitError`] for remotes that cannot be used, and if there is no git.
    pub(crate) fn new(config: &MasterConfig) -> Result<Self, GitError> {
        let mut clones = Clones::new(config.cachedir.join("saltern/git/gitfs"))?;
        Ok(Self {
            remotes: options::remotes(config, &mut clones)?,
            clones,
            shown: config
                .cachedir
                .join("gitfs/refs")
                .to_string_lossy()
                .into_owned(),
            cache: Mutex::new(Cache::new(Vec::new(), BTreeSet::new())),
        })
    }

    /// The fetches whose time has come.
    pub(crate) fn due(&self) -> Vec<Fetch> {
        self.clones.due()
    }

    /// Fetches the remotes whose time has come. Returns whether anything is different.
    pub(crate) fn refresh(&self) -> bool {
        self.clones.refresh()
    }

    /// Fetches the remotes whether or not their time has come.
    pub(crate) fn fetch_now(&self) {
        self.clones.fetch_now();
    }

    /// The environments of all remotes.
    pub(crate) fn environments(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.cache().environments)
    }

    /// The cache, emptied if the refs have changed.
    fn cache(&self) -> parking_lot::MutexGuard<'_, Cache> {
        let mut cache = self.cache.lock();
        let generations = self.remotes.iter().map(|remote| remote.clone.generation());
        let generations: Vec<u64> = generations.collect();
        if cache.generations != generations {
            let environments = self
                .remotes
                .iter()
                .flat_map(|remote| remote.environments(&remote.clone.refs()));
            *cache = Cache::new(generations, environments.collect());
        }
        cache
    }

    /// Looks for a file in all remotes, in their order.
    ///
    /// # Errors
    /// [`FilesError::Git`] where a remote that may have it cannot be read: whether there is such a
    /// file, and which one, is not known then.
    pub(crate) fn find(&self, wanted: &Wanted, saltenv: &str) -> Result<Option<Found>, FilesError> {
        let path = wanted.path.as_str();
        // Stock joins the path to that of its cache, and refuses one that leads out of there.
        if path.starts_with('/') || Relative::parse(path).is_err() {
            return Ok(None);
        }
        for remote in &self.remotes {
            let Some(below) = self.below(remote, path, saltenv) else {
                continue;
            };
            let tree = try_tree(remote, saltenv)?;
            if let Some((oid, mode)) = tree.and_then(|tree| file_at(&tree, below)) {
                return Ok(Some(self.found(remote, &oid, mode, path, saltenv)?));
            }
        }
        Ok(None)
    }

    /// A path within a remote's tree, if the remote can have it.
    fn below(&self, remote: &Remote, path: &str, saltenv: &str) -> Option<String> {
        let below = match remote.mountpoint(saltenv) {
            "" => path,
            mountpoint => path.strip_prefix(mountpoint)?.strip_prefix('/')?,
        };
        if !self.is_looked_into(remote, saltenv) {
            return None;
        }
        let below = below.trim_start_matches('/');
        Some(match remote.root(saltenv) {
            "" => below.to_owned(),
            root => joined(root, below),
        })
    }

    /// Whether [`GitFs::find`] answers without a process of git. (Unless the refs change just
    /// then: a process more now and then does no harm.)
    pub(crate) fn finds_at_once(&self, wanted: &Wanted, saltenv: &str) -> bool {
        for remote in &self.remotes {
            let Some(below) = self.below(remote, &wanted.path, saltenv) else {
                continue;
            };
            let Some(commit) = known_commit(remote, saltenv) else {
                return false;
            };
            let Some(commit) = commit else { continue };
            let Some(tree) = remote.clone.known_tree(&commit) else {
                return false;
            };
            if let Some((oid, _)) = file_at(&tree, below) {
                return remote.clone.has_file(&oid);
            }
        }
        true
    }

    /// Whether [`GitFs::listing`] answers without a process of git.
    pub(crate) fn lists_at_once(&self, saltenv: &str) -> bool {
        let is_kept = self.cache().lists_of(saltenv).get(saltenv).is_some();
        is_kept
            || self.remotes.iter().all(|remote| {
                !self.is_looked_into(remote, saltenv)
                    || known_commit(remote, saltenv).is_some_and(|commit| {
                        commit.is_none_or(|commit| remote.clone.known_tree(&commit).is_some())
                    })
            })
    }

    fn found(
        &self,
        remote: &Remote,
        oid: &Oid,
        mode: u32,
        path: &str,
        saltenv: &str,
    ) -> Result<Found, GitError> {
        let take = || -> Result<_, GitError> {
            let files = remote.clone.files();
            let name = remote.clone.file(oid)?;
            let wrong = |error: &dyn std::fmt::Display| GitError::io(files, error);
            let stored = Relative::parse(&name).map_err(|error| wrong(&error))?;
            let root = Root::open(files).map_err(|error| wrong(&error))?;
            let stat = root
                .stat(&stored, Links::Never)
                .map_err(|error| wrong(&error))?;
            Ok((stored, root, stat))
        };
        // It may have been removed to make room, right after it was there.
        let (stored, root, stat) = take().or_else(|_| take())?;
        Ok(Found {
            path: join(&join(&self.shown, saltenv), path),
            rel: path.to_owned(),
            stat,
            git_mode: Some(mode),
            back: NAME,
            saltenv: saltenv.to_owned(),
            by_index: false,
            root,
            relative: stored,
            links: Links::Never,
        })
    }

    /// Whether a remote can have anything in an environment.
    fn is_looked_into(&self, remote: &Remote, saltenv: &str) -> bool {
        is_hexadecimal(saltenv)
            || !remote.fallback.is_empty()
            || self.cache().environments.contains(saltenv)
    }

    /// The lists of an environment.
    ///
    /// # Errors
    /// [`FilesError::Git`] if git cannot list a tree.
    pub(crate) fn listing(&self, saltenv: &str) -> Result<Arc<Listing>, FilesError> {
        if let Some(listing) = self.cache().lists_of(saltenv).get(saltenv) {
            return Ok(listing);
        }
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        let mut links = BTreeMap::new();
        let before = self.cache().generations.clone();
        let mut has_tree = false;
        for remote in &self.remotes {
            if self.is_looked_into(remote, saltenv)
                && let Some(tree) = try_tree(remote, saltenv)?
            {
                has_tree = true;
                list(
                    remote,
                    saltenv,
                    &tree,
                    &mut files,
                    &mut directories,
                    &mut links,
                );
            }
        }
        let listing = Arc::new(Listing {
            files: Paths::new(files),
            directories: Paths::new(directories),
            empty_directories: Paths::default(),
            links,
        });
        let mut cache = self.cache();
        // Refs that changed meanwhile make it a list of the past. Without a tree there is nothing to
        // keep: the next fetch, or the next look into the repository, may find one.
        if has_tree && cache.generations == before {
            cache
                .lists_of(saltenv)
                .insert(saltenv.to_owned(), Arc::clone(&listing));
        }
        Ok(listing)
    }

    /// The lists for `_symlink_list`: stock has none for an environment that is not a ref's.
    pub(crate) fn links(&self, saltenv: &str) -> Result<Arc<Listing>, FilesError> {
        if is_hexadecimal(saltenv) || self.cache().environments.contains(saltenv) {
            self.listing(saltenv)
        } else {
            Ok(Arc::default())
        }
    }
}

/// The tree of an environment, if the remote has it.
fn try_tree(remote: &Remote, saltenv: &str) -> Result<Option<Arc<Tree>>, GitError> {
    if !remote.is_exposed(saltenv) {
        return Ok(None);
    }
    let Some(reference) = remote.reference(saltenv) else {
        return Ok(None);
    };
    let refs = remote.clone.refs();
    let fallback = (!remote.fallback.is_empty()).then_some(remote.fallback.as_str());
    let commit = match (commit(remote, &refs, reference)?, fallback) {
        (None, Some(fallback)) => commit(remote, &refs, fallback)?,
        (found, _) => found,
    };
    commit.map(|commit| remote.clone.tree(&commit)).transpose()
}

/// The commit of an environment, if that is known without a process; an inner `None` if the remote
/// has none.
fn known_commit(remote: &Remote, saltenv: &str) -> Option<Option<Oid>> {
    if !remote.is_exposed(saltenv) {
        return Some(None);
    }
    let Some(reference) = remote.reference(saltenv) else {
        return Some(None);
    };
    let refs = remote.clone.refs();
    let fallback = (!remote.fallback.is_empty()).then_some(remote.fallback.as_str());
    for name in std::iter::once(reference).chain(fallback) {
        for ref_type in &remote.ref_types {
            let found = match ref_type {
                RefType::Branch => refs.branches.get(name).cloned(),
                RefType::Tag => refs.tags.get(name).cloned(),
                RefType::Sha => remote.clone.known_commit(name)?,
            };
            if found.is_some() {
                return Some(found);
            }
        }
    }
    Some(None)
}

/// The object of a branch, a tag or a commit, by the types that the remote has, in their order.
fn commit(remote: &Remote, refs: &Refs, reference: &str) -> Result<Option<Oid>, GitError> {
    for ref_type in &remote.ref_types {
        let found = match ref_type {
            RefType::Branch => refs.branches.get(reference).cloned(),
            RefType::Tag => refs.tags.get(reference).cloned(),
            RefType::Sha => remote.clone.commit(reference)?,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The file at a path, behind links in the place of its last part.
fn file_at(tree: &Tree, mut path: String) -> Option<(Oid, u32)> {
    for _ in 0..MAX_LINKS {
        match tree.get(&path)? {
            Entry::File { oid, mode } => return Some((oid.clone(), *mode)),
            Entry::Link { target } => {
                let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                path = joined(directory, target);
            }
            Entry::Directory => return None,
        }
    }
    None
}

/// `salt.utils.path.join` of two parts, where an absolute second part is below the first too.
fn joined(base: &str, path: &str) -> String {
    let below = normpath(path);
    normpath(&join(&normpath(base), below.trim_start_matches('/')))
}

fn list(
    remote: &Remote,
    saltenv: &str,
    tree: &Tree,
    files: &mut Vec<Box<str>>,
    directories: &mut Vec<Box<str>>,
    links: &mut BTreeMap<String, String>,
) {
    let root = remote.root(saltenv);
    // Stock looks the root up as it is written, so that `.` is no directory here.
    if !root.is_empty() && !matches!(tree.get(root), Some(Entry::Directory)) {
        return;
    }
    let mountpoint = remote.mountpoint(saltenv);
    let mounted = |path: &str| match mountpoint {
        "" => path.to_owned(),
        mountpoint => join(mountpoint, path),
    };
    for (path, entry) in tree.below(root) {
        let path = mounted(path);
        match entry {
            Entry::Directory => directories.push(path.into()),
            Entry::File { .. } => files.push(path.into()),
            Entry::Link { target } => {
                links.insert(path.clone(), target.clone());
                files.push(path.into());
            }
        }
    }
    if !mountpoint.is_empty() {
        directories.push(mountpoint.into());
    }
}

/// `salt.utils.stringutils.is_hex`: what Python's `int(text, 16)` reads.
fn is_hexadecimal(text: &str) -> bool {
    let text = text.trim();
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = match text.get(..2) {
        Some("0x" | "0X") => {
            let rest = text.get(2..).unwrap_or_default();
            rest.strip_prefix('_').unwrap_or(rest)
        }
        _ => text,
    };
    // A single underscore may stand between two digits.
    !digits.is_empty()
        && digits
            .split('_')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::{is_hexadecimal, joined};

    #[test]
    fn numbers_are_those_of_python() {
        for text in ["a", "BEEF", "0x1f", "0x_1", " 12 ", "-1", "1_0", "deadbeef"] {
            assert!(is_hexadecimal(text), "{text}");
        }
        for text in ["", "g", "1__0", "_1", "0x", "master", "1_", "a b"] {
            assert!(!is_hexadecimal(text), "{text}");
        }
    }

    #[test]
    fn paths_are_joined_as_salt_joins_them() {
        for (base, path, expected) in [
            ("a", "b", "a/b"),
            ("a", "/b", "a/b"),
            ("a/b", "../c", "a/c"),
            ("a", "../../c", "../c"),
            ("", "c", "c"),
        ] {
            assert_eq!(joined(base, path), expected, "{base} {path}");
        }
    }
}

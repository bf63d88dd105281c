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

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use saltern_config::MasterConfig;

use self::options::{RefType, Remote};
use super::error::FilesError;
use super::found::Found;
use super::listing::{Listing, Paths};
use super::path::{Relative, Wanted, join, normalise};
use super::root::{Links, Root};
use crate::git::{Clones, Entry, Fetch, GitError, Oid, Refs, Tree};

/// The backend's name in answers.
pub(crate) const NAME: &str = "gitfs";

/// How many links are followed, one after the other.
const MOST_LINKS: usize = 100;

/// How many environments' lists are kept. Their names come from minions, as names of commits.
const KEPT_LISTINGS: usize = 256;

pub(crate) struct GitFs {
    remotes: Vec<Remote>,
    clones: Clones,
    /// Where stock would put a file; part of the answers.
    shown: String,
    cache: Mutex<Cache>,
}

/// What holds until the refs change.
#[derive(Default)]
struct Cache {
    /// One number of each remote.
    generations: Vec<u64>,
    environments: Arc<BTreeSet<String>>,
    listings: HashMap<String, Arc<Listing>>,
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
            cache: Mutex::default(),
        })
    }

    /// The fetches whose time has come.
    pub(crate) fn due(&self) -> Vec<Fetch> {
        self.clones.due()
    }

    /// Fetches the remotes whose time has come. Says whether anything is different.
    pub(crate) fn refresh(&self) -> bool {
        self.clones.refresh()
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
            *cache = Cache {
                environments: Arc::new(environments.collect()),
                generations,
                listings: HashMap::new(),
            };
        }
        cache
    }

    /// Looks for a file in all remotes, in their order.
    pub(crate) fn find(&self, wanted: &Wanted, saltenv: &str) -> Option<Found> {
        let path = wanted.path.as_str();
        if path.starts_with('/') {
            return None;
        }
        // Stock joins the path to that of its cache, and refuses one that leads out of there.
        Relative::parse(path).ok()?;
        self.remotes.iter().find_map(|remote| {
            let below = match remote.mountpoint(saltenv) {
                "" => path,
                mountpoint => path.strip_prefix(mountpoint)?.strip_prefix('/')?,
            };
            if !self.is_looked_into(remote, saltenv) {
                return None;
            }
            let below = below.trim_start_matches('/');
            let below = match remote.root(saltenv) {
                "" => below.to_owned(),
                root => joined(root, below),
            };
            let tree = tree(remote, saltenv)?;
            let (oid, mode) = file_at(&tree, below)?;
            self.found(remote, &oid, mode, path, saltenv)
        })
    }

    fn found(
        &self,
        remote: &Remote,
        oid: &Oid,
        mode: u32,
        path: &str,
        saltenv: &str,
    ) -> Option<Found> {
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(path, saltenv, %error, "a file of a git remote cannot be served");
        };
        let name = remote
            .clone
            .file(oid)
            .inspect_err(|error| failed(error))
            .ok()?;
        let stored = Relative::parse(&name).ok()?;
        let root = Root::open(&remote.clone.files()).ok()?;
        let stat = root
            .stat(&stored, Links::Never)
            .inspect_err(|error| failed(error))
            .ok()?;
        Some(Found {
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
        if let Some(listing) = self.cache().listings.get(saltenv) {
            return Ok(Arc::clone(listing));
        }
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        let mut links = BTreeMap::new();
        let before = self.cache().generations.clone();
        for remote in &self.remotes {
            if self.is_looked_into(remote, saltenv)
                && let Some(tree) = try_tree(remote, saltenv)?
            {
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
        // Refs that changed meanwhile make it a list of the past.
        if cache.generations == before {
            if cache.listings.len() >= KEPT_LISTINGS {
                cache.listings.clear();
            }
            cache
                .listings
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

/// The tree of an environment; one that cannot be listed is told in the log.
fn tree(remote: &Remote, saltenv: &str) -> Option<Arc<Tree>> {
    try_tree(remote, saltenv).unwrap_or_else(|error| {
        tracing::error!(saltenv, %error, "an environment of a git remote cannot be read");
        None
    })
}

fn try_tree(remote: &Remote, saltenv: &str) -> Result<Option<Arc<Tree>>, GitError> {
    if !remote.is_exposed(saltenv) {
        return Ok(None);
    }
    let Some(reference) = remote.reference(saltenv) else {
        return Ok(None);
    };
    let refs = remote.clone.refs();
    let fallback = (!remote.fallback.is_empty()).then_some(remote.fallback.as_str());
    let commit = commit(remote, &refs, reference)
        .or_else(|| fallback.and_then(|fallback| commit(remote, &refs, fallback)));
    commit.map(|commit| remote.clone.tree(&commit)).transpose()
}

/// The object of a branch, a tag or a commit, by the types that the remote has, in their order.
fn commit(remote: &Remote, refs: &Refs, reference: &str) -> Option<Oid> {
    remote.ref_types.iter().find_map(|ref_type| match ref_type {
        RefType::Branch => refs.branches.get(reference).cloned(),
        RefType::Tag => refs.tags.get(reference).cloned(),
        RefType::Sha => remote.clone.commit(reference),
    })
}

/// The file at a path, behind links in the place of its last part.
fn file_at(tree: &Tree, mut path: String) -> Option<(Oid, u32)> {
    for _ in 0..MOST_LINKS {
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
    let below = normalise(path);
    normalise(&join(&normalise(base), below.trim_start_matches('/')))
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

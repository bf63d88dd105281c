//! The `roots` backend: directories of this machine, several for each environment
//! (`salt/fileserver/roots.py`).
//!
//! An environment that is not configured is looked for in `__env__`, with its name put into the
//! roots. Stock puts in any name; here it must be plain parts, or the environment is empty.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use saltern_python::path::{join, normpath};
use saltern_wire::msgpack::Value;

use super::error::{FilesError, or_absent};
use super::found::Found;
use super::listing::{Listing, Listings, Paths, Purpose};
use super::options::{ANY_ENVIRONMENT, Options};
use super::path::{Relative, Wanted, is_below, is_plain_environment, real_path};
use super::root::{Links, Root, is_regular};
use super::tree::{Kind, MAX_DEPTH, MAX_ENTRIES, Tree, WalkError};

/// The backend's name in answers.
pub(crate) const NAME: &str = "roots";

pub(crate) struct Roots {
    options: Arc<Options>,
    listings: Listings,
}

impl Roots {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        Self {
            options,
            listings: Listings::default(),
        }
    }

    /// The environments, as they are configured.
    pub(crate) fn environments(&self) -> impl Iterator<Item = &str> {
        self.options
            .file_roots
            .iter()
            .map(|(name, _)| name.as_str())
    }

    /// Forgets the lists of these environments, of all for `None`; gives those of which
    /// there were any, sorted.
    pub(crate) fn forget_lists(&self, environments: Option<&[String]>) -> Vec<String> {
        self.listings.forget(environments)
    }

    /// The directories of an environment; `None` if there is no such environment.
    fn roots_of(&self, saltenv: &str) -> Option<Cow<'_, [String]>> {
        if let Some(roots) = self.options.roots(saltenv) {
            return Some(Cow::Borrowed(roots));
        }
        let roots = self.options.roots(ANY_ENVIRONMENT)?;
        if !is_plain_environment(saltenv) {
            return None;
        }
        let roots = roots
            .iter()
            .map(|root| root.replace(ANY_ENVIRONMENT, saltenv))
            .collect();
        Some(Cow::Owned(roots))
    }

    /// Looks for a file in all roots of an environment, in their order.
    pub(crate) fn find(&self, wanted: &Wanted, saltenv: &str) -> Result<Option<Found>, FilesError> {
        let Some((relative, roots)) = Relative::parse(&wanted.path)
            .ok()
            .zip(self.roots_of(saltenv))
        else {
            return Ok(None);
        };
        let Some(index) = wanted.index else {
            for root in roots.iter() {
                if let Some(found) = self.find_below(root, &relative, saltenv)? {
                    return Ok(Some(found));
                }
            }
            return Ok(None);
        };
        // Stock takes the root as it is written here, `__env__` and all.
        let written = self
            .options
            .roots(saltenv)
            .or_else(|| self.options.roots(ANY_ENVIRONMENT));
        let root = written.and_then(|written| written.get(python_index(index?, written.len())?));
        let Some(root) = root else {
            return Ok(None);
        };
        let found = self.find_below(root, &relative, saltenv)?;
        Ok(found.map(|found| Found {
            by_index: true,
            ..found
        }))
    }

    fn find_below(
        &self,
        root: &str,
        relative: &Relative,
        saltenv: &str,
    ) -> Result<Option<Found>, FilesError> {
        let links = self.options.links;
        let path = join(root, relative.as_str());
        let Some(opened) = or_absent(Root::open(Path::new(root)), "open", root)? else {
            return Ok(None);
        };
        let Some(stat) = or_absent(opened.stat(relative, links), "examine", &path)? else {
            return Ok(None);
        };
        if !is_regular(&stat) || self.options.ignore.matches(&path) {
            return Ok(None);
        }
        Ok(Some(Found {
            path,
            rel: relative.as_str().to_owned(),
            stat,
            git_mode: None,
            back: NAME,
            saltenv: saltenv.to_owned(),
            by_index: false,
            root: opened,
            relative: relative.clone(),
            links,
        }))
    }

    /// Serves a chunk. A query may have led elsewhere than the load's environment does; stock then
    /// sends the bytes only if the file lies in a root of that environment too, and answers with
    /// what it found if there is no such environment.
    pub(crate) fn serve(
        &self,
        found: &Found,
        saltenv: &str,
        loc: i64,
        gzip: Option<i64>,
    ) -> Result<Value, FilesError> {
        if found.by_index || found.saltenv != saltenv {
            let Some(roots) = self.roots_of(saltenv) else {
                return Ok(found.value());
            };
            let real = |path: &str| match self.options.links {
                Links::Follow => normpath(path),
                Links::Inside | Links::Never => {
                    real_path(&normpath(path)).to_string_lossy().into_owned()
                }
            };
            let path = real(&found.path);
            if !roots.iter().any(|root| is_below(&path, &real(root))) {
                return Ok(Value::map([("data", ""), ("dest", &found.rel)]));
            }
        }
        found.serve(loc, gzip, self.options.chunk)
    }

    /// The lists of an environment.
    pub(crate) fn listing(
        &self,
        saltenv: &str,
        now: SystemTime,
        purpose: Purpose,
    ) -> Result<Arc<Listing>, FilesError> {
        let Some(roots) = self.roots_of(saltenv) else {
            return Ok(Arc::default());
        };
        let configured = self.options.roots(saltenv).is_some();
        if !configured && roots.iter().all(|root| !Path::new(root).is_dir()) {
            return Ok(Arc::default());
        }
        let links = self.options.links;
        let keep = self.options.list_cache_time;
        let environments = self.options.file_roots.len();
        self.listings
            .get(saltenv, environments, keep, now, purpose, |old| {
                let mut old = old.into_iter();
                let is_first = old.len() == 0;
                let mut trees = Vec::with_capacity(roots.len());
                let mut changed = is_first;
                for root in roots.iter() {
                    let opened = or_absent(Root::open(Path::new(root)), "open", root)?;
                    let walked =
                        Tree::walk(old.next().unwrap_or_default(), opened.as_ref(), links, now);
                    let (tree, tree_changed) =
                        walked.map_err(|error| walk_error(error, saltenv))?;
                    changed |= tree_changed;
                    trees.push(tree);
                }
                let listing = changed.then(|| self.list(&roots, &trees));
                Ok((trees, listing))
            })
    }

    fn list(&self, roots: &[String], trees: &[Tree]) -> Listing {
        let mut files = Vec::new();
        let mut directories = Vec::new();
        let mut empty_directories = Vec::new();
        let mut links = BTreeMap::new();
        for (root, tree) in roots.iter().zip(trees) {
            for (directory, entries) in tree.directories() {
                for entry in entries {
                    let path = join(directory, &entry.name);
                    let is_link = matches!(entry.kind, Kind::Link { .. });
                    if (is_link && self.options.leaves_out_links)
                        || self.options.ignore.matches(&path)
                    {
                        continue;
                    }
                    if let Kind::Link { target, .. } = &entry.kind
                        && self.is_listed_link(root, &path, target)
                    {
                        links.insert(path.clone(), target.clone());
                    }
                    let is_empty = match entry.kind {
                        Kind::Link { empty, .. } => empty,
                        Kind::Directory => tree.is_empty(&path),
                        Kind::File => false,
                    };
                    let path: Box<str> = path.into();
                    if is_empty {
                        empty_directories.push(path.clone());
                    }
                    if entry.kind.is_directory() {
                        directories.push(path);
                    } else {
                        files.push(path);
                    }
                }
            }
        }
        Listing {
            files: Paths::new(files),
            directories: Paths::new(directories),
            empty_directories: Paths::new(empty_directories),
            links,
        }
    }

    /// Whether a link is one for `_symlink_list`. Where links are followed, stock lists only those
    /// that end in the root, by a rule that takes a target with `..` as seen from the link itself,
    /// not from its directory.
    fn is_listed_link(&self, root: &str, path: &str, target: &str) -> bool {
        if self.options.links != Links::Follow {
            return true;
        }
        let link = join(root, path);
        let joined = if target.starts_with("..") {
            join(&link, target)
        } else {
            let directory = link.rsplit_once('/').map_or("", |(directory, _)| directory);
            join(directory, target)
        };
        let Ok(root) = std::path::absolute(root) else {
            return false;
        };
        let Ok(joined) = std::path::absolute(normpath(&joined)) else {
            return false;
        };
        let root = real_path(&root.to_string_lossy());
        let end = real_path(&joined.to_string_lossy());
        match end.strip_prefix(&root) {
            // `relpath` gives a name that starts with two dots to a file called `..x` as well.
            Ok(inside) => !inside.to_string_lossy().starts_with(".."),
            Err(_) => false,
        }
    }
}

fn walk_error(error: WalkError, saltenv: &str) -> FilesError {
    let saltenv = saltenv.to_owned();
    match error {
        WalkError::TooManyEntries => FilesError::TooManyEntries {
            saltenv,
            limit: MAX_ENTRIES,
        },
        WalkError::LocalFault(code) => FilesError::io("list", &saltenv, code),
        WalkError::TooDeep => FilesError::TooDeep {
            saltenv,
            limit: MAX_DEPTH,
        },
    }
}

/// Python's index: -1 is the last.
fn python_index(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

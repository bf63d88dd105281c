//! The `minionfs` backend: files that minions pushed, served to other minions
//! (`salt/fileserver/minionfs.py`).
//!
//! Symlinks are never followed here, because what lies below is written on behalf of minions.
//! Stock joins what follows the minion's name to the directory as it is, so that `web1//etc/shadow`
//! serves the master's own file; here such a path is refused like any other absolute one. Stock
//! sends text as text; here bytes are bytes, which minions read alike.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use saltern_model::MinionId;
use saltern_python::path::join;
use saltern_wire::msgpack::Value;

use super::error::{FilesError, or_absent};
use super::found::Found;
use super::options::Options;
use super::path::{Relative, Wanted};
use super::root::{Links, Root, is_regular};
use super::tree::{Kind, MAX_ENTRIES, Tree, WalkError};

/// The backend's name in answers.
pub(crate) const NAME: &str = "minionfs";

pub(crate) struct MinionFs {
    options: Arc<Options>,
    /// Files of the last walk, by minion.
    trees: Mutex<HashMap<String, Tree>>,
}

impl MinionFs {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        Self {
            options,
            trees: Mutex::default(),
        }
    }

    /// The one environment that it serves.
    pub(crate) fn environment(&self) -> &str {
        &self.options.minionfs.environment
    }

    /// Looks for a file that a minion pushed.
    ///
    /// # Errors
    /// [`FilesError::Io`] where the master cannot look, for a reason of its own.
    pub(crate) fn find(&self, wanted: &Wanted, saltenv: &str) -> Result<Option<Found>, FilesError> {
        let Some((rel, minion, relative)) = self.pushed(wanted, saltenv) else {
            return Ok(None);
        };
        let directory = self.directory(minion.as_str());
        let shown = directory.to_string_lossy();
        let pushed = rel.split_once('/').map_or("", |(_, pushed)| pushed);
        let path = join(&shown, pushed);
        let Some(root) = or_absent(Root::open(&directory), "open", &shown)? else {
            return Ok(None);
        };
        let stat = root.stat(&relative, Links::Never);
        let Some(stat) = or_absent(stat, "examine", &path)? else {
            return Ok(None);
        };
        if !is_regular(&stat) || self.options.ignore.matches(&path) {
            return Ok(None);
        }
        Ok(Some(Found {
            path,
            rel,
            stat,
            git_mode: None,
            back: NAME,
            saltenv: saltenv.to_owned(),
            by_index: false,
            root,
            relative,
            links: Links::Never,
        }))
    }

    /// Resolves a path: the part below the mountpoint, the minion, and its file.
    fn pushed(&self, wanted: &Wanted, saltenv: &str) -> Option<(String, MinionId, Relative)> {
        let path = wanted.path.as_str();
        // Stock keeps a minion from handing out a top file.
        let is_top = path.rsplit('/').next() == Some("top.sls");
        if saltenv != self.environment() || is_top {
            return None;
        }
        // Stock cuts off as many characters as the mountpoint has, whatever they are.
        let mountpoint = self.options.minionfs.mountpoint.chars().count();
        let start = path
            .char_indices()
            .nth(mountpoint)
            .map_or(path.len(), |(at, _)| at);
        let rel = path.get(start..)?.trim_start_matches('/');
        let (minion, pushed) = rel.split_once('/')?;
        let minion = MinionId::parse(minion).ok()?;
        if !self.is_exposed(minion.as_str()) {
            return None;
        }
        let relative = Relative::parse(pushed).ok()?;
        Some((rel.to_owned(), minion, relative))
    }

    pub(crate) fn serve(
        &self,
        found: &Found,
        loc: i64,
        gzip: Option<i64>,
    ) -> Result<Value, FilesError> {
        found.serve(loc, gzip, self.options.chunk)
    }

    /// The pushed files, below the mountpoint. There are no lists of empty directories and links.
    pub(crate) fn files(
        &self,
        saltenv: &str,
        prefix: &str,
        now: SystemTime,
    ) -> Result<BTreeSet<Box<str>>, FilesError> {
        self.list(saltenv, prefix, now, |tree, below, found| {
            for (directory, entries) in tree.directories() {
                for entry in entries.iter().filter(|entry| entry.kind == Kind::File) {
                    let path = join(directory, &entry.name);
                    if is_at_or_below(&path, below) {
                        found(path, true);
                    }
                }
            }
        })
    }

    /// The directories of pushed files, below the mountpoint.
    pub(crate) fn directories(
        &self,
        saltenv: &str,
        prefix: &str,
        now: SystemTime,
    ) -> Result<BTreeSet<Box<str>>, FilesError> {
        self.list(saltenv, prefix, now, |tree, below, found| {
            for (directory, _) in tree.directories() {
                if !directory.is_empty() && is_at_or_below(directory, below) {
                    found(directory.to_owned(), false);
                }
            }
        })
    }

    /// Calls `pick` for each minion that is asked for. It says which paths there are, and whether
    /// the rules for ignored files hold for them.
    fn list(
        &self,
        saltenv: &str,
        prefix: &str,
        now: SystemTime,
        pick: impl Fn(&Tree, Option<&Relative>, &mut dyn FnMut(String, bool)),
    ) -> Result<BTreeSet<Box<str>>, FilesError> {
        let mut listed = BTreeSet::new();
        if saltenv != self.environment() {
            return Ok(listed);
        }
        let mountpoint = self.options.minionfs.mountpoint.as_str();
        let prefix = prefix.trim_matches('/');
        let prefix = match prefix.strip_prefix(mountpoint) {
            Some(rest) if !mountpoint.is_empty() && rest.starts_with('/') => {
                rest.trim_start_matches('/')
            }
            _ => prefix,
        };
        let (minions, below) = match prefix.split_once('/') {
            None if prefix.is_empty() => (self.minions()?, None),
            // A prefix that is no more than a minion finds nothing in stock.
            None => return Ok(listed),
            Some((minion, below)) => match (MinionId::parse(minion), Relative::parse(below)) {
                (Ok(minion), Ok(below)) => (vec![minion.as_str().to_owned()], Some(below)),
                _ => return Ok(listed),
            },
        };
        let mut trees = self.trees.lock();
        for minion in minions.iter().filter(|minion| self.is_exposed(minion)) {
            let root = or_absent(Root::open(&self.directory(minion)), "open", minion)?;
            let old = trees.remove(minion).unwrap_or_default();
            let tree = match Tree::walk(old, root.as_ref(), Links::Never, now) {
                Ok((tree, _)) => tree,
                Err(WalkError::LocalFault(code)) => {
                    return Err(FilesError::io("list", minion, code));
                }
                // That is the minion's doing: it alone is left out.
                Err(WalkError::TooManyEntries | WalkError::TooDeep) => {
                    tracing::warn!(%minion, "the files of a minion are too many or too deep to list");
                    continue;
                }
            };
            let mountpoint = join(mountpoint, minion);
            pick(&tree, below.as_ref(), &mut |path, may_be_ignored| {
                let path = join(&mountpoint, &path);
                if !(may_be_ignored && self.options.ignore.matches(&path)) {
                    listed.insert(path.into());
                }
            });
            if root.is_some() {
                trees.insert(minion.clone(), tree);
            }
            if listed.len() > MAX_ENTRIES {
                return Err(FilesError::TooManyEntries {
                    saltenv: saltenv.to_owned(),
                    limit: MAX_ENTRIES,
                });
            }
        }
        Ok(listed)
    }

    fn minions(&self) -> Result<Vec<String>, FilesError> {
        let directory = self.options.cachedir.join("minions");
        let shown = directory.to_string_lossy();
        let Some(entries) = or_absent(fs::read_dir(&directory), "list", &shown)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| FilesError::io("list", &shown, error))?;
            names.extend(entry.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn directory(&self, minion: &str) -> PathBuf {
        self.options
            .cachedir
            .join("minions")
            .join(minion)
            .join("files")
    }

    /// `check_whitelist_blacklist` of stock.
    fn is_exposed(&self, minion: &str) -> bool {
        let options = &self.options.minionfs;
        !options
            .blacklist
            .as_ref()
            .is_some_and(|list| list.matches(minion))
            && options
                .whitelist
                .as_ref()
                .is_none_or(|list| list.matches(minion))
    }
}

fn is_at_or_below(path: &str, below: Option<&Relative>) -> bool {
    below.is_none_or(|below| super::path::is_below(path, below.as_str()))
}

//! Cached directory walks: the next walk reads only directories that changed.
//!
//! The names in a directory cannot change without a change of the directory's times. So a second
//! walk asks for the times of each directory, and reads it only if they differ. A directory that
//! was changed right before it was read is read again, because a further change could bear the
//! same time. Links are looked at each time: what they point to has times of its own.
//!
//! The walk classifies as Python's `os.walk` does, which stock uses: a link to a directory is a
//! directory, everything else is a file, be it a pipe or a link to nothing. Two things differ: a
//! directory that contains itself through a link is not entered again (stock lists it forty times
//! over), and names that are not UTF-8 are left out (stock fails on them, and lists nothing).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Stat};

use super::error::is_local_fault;
use super::path::Relative;
use super::root::{Links, Root};

/// How deep a walk goes.
pub(crate) const MAX_DEPTH: usize = 128;

/// Maximum number of entries of a walk.
pub(crate) const MAX_ENTRIES: usize = 2_000_000;

/// For this long after a change a directory does not count as known.
const SETTLE: Duration = Duration::from_secs(2);

/// One walked directory tree.
#[derive(Default)]
pub(crate) struct Tree {
    /// By path; the root is the empty path.
    directories: HashMap<String, Directory>,
}

struct Directory {
    mark: Mark,
    /// Whether its times are old enough to be trusted.
    settled: bool,
    /// Whether it has no entry at all, not even one whose name is not UTF-8.
    empty: bool,
    entries: Vec<Entry>,
}

/// A name in a directory.
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    pub(crate) kind: Kind,
}

/// Kind of a directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No directory and no link.
    File,
    /// A directory.
    Directory,
    /// A link.
    Link {
        /// Its target.
        target: String,
        /// Whether it leads to a directory.
        directory: bool,
        /// Whether that directory has no entry.
        empty: bool,
    },
}

impl Kind {
    pub(crate) fn is_directory(&self) -> bool {
        matches!(
            self,
            Kind::Directory
                | Kind::Link {
                    directory: true,
                    ..
                }
        )
    }
}

/// Fingerprint of a directory's state.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// Why a walk was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkError {
    TooManyEntries,
    TooDeep,
    /// The master is at fault: what is there would be taken for gone.
    LocalFault(rustix::io::Errno),
}

impl WalkError {
    fn of_local_fault(error: &io::Error) -> Option<Self> {
        let code = error.raw_os_error().filter(|_| is_local_fault(error))?;
        Some(Self::LocalFault(rustix::io::Errno::from_raw_os_error(code)))
    }
}

/// Whether a change at `changed` (seconds since 1970) lies safely before `now`.
pub(crate) fn is_settled(changed: i64, now: SystemTime) -> bool {
    let Ok(changed) = u64::try_from(changed) else {
        return true;
    };
    now.duration_since(SystemTime::UNIX_EPOCH)
        .is_ok_and(|now| now > Duration::from_secs(changed) + SETTLE)
}

impl Tree {
    /// Walks the tree below `root`, which may be missing. Takes over from `old` what is still
    /// true, and says whether anything is different.
    pub(crate) fn walk(
        mut old: Tree,
        root: Option<&Root>,
        links: Links,
        now: SystemTime,
    ) -> Result<(Tree, bool), WalkError> {
        let mut walk = Walk {
            new: HashMap::with_capacity(old.directories.len()),
            old: &mut old.directories,
            links,
            now,
            entries: 0,
            changed: false,
        };
        if let Some(root) = root {
            walk.directory(root, None, &mut Vec::new())?;
        }
        let Walk { new, changed, .. } = walk;
        let changed = changed || !old.directories.is_empty();
        Ok((Tree { directories: new }, changed))
    }

    /// Every directory that was entered, with its path (the root is empty) and its entries.
    pub(crate) fn directories(&self) -> impl Iterator<Item = (&str, &[Entry])> {
        self.directories
            .iter()
            .map(|(path, directory)| (path.as_str(), directory.entries.as_slice()))
    }

    /// Whether the directory was entered and had no entry at all.
    pub(crate) fn is_empty(&self, path: &str) -> bool {
        self.directories
            .get(path)
            .is_some_and(|directory| directory.empty)
    }
}

struct Walk<'a> {
    old: &'a mut HashMap<String, Directory>,
    new: HashMap<String, Directory>,
    links: Links,
    now: SystemTime,
    entries: usize,
    changed: bool,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        root: &Root,
        path: Option<&Relative>,
        above: &mut Vec<(u64, u64)>,
    ) -> Result<(), WalkError> {
        if above.len() >= MAX_DEPTH {
            return Err(WalkError::TooDeep);
        }
        // What cannot be opened is a directory without entries, as for `os.walk`.
        let handle = match root.directory(path, self.links) {
            Ok(handle) => handle,
            Err(error) => return WalkError::of_local_fault(&error).map_or(Ok(()), Err),
        };
        let Ok(stat) = rustix::fs::fstat(&handle) else {
            return Ok(());
        };
        let mark = Mark::of(&stat);
        if above.contains(&(mark.device, mark.inode)) {
            return Ok(());
        }
        let name = path.map_or("", Relative::as_str);
        let known = self.old.remove(name);
        let directory = match known {
            Some(mut known) if known.settled && known.mark == mark => {
                self.refresh_links(root, path, &handle, &mut known.entries);
                known
            }
            known => {
                let (entries, empty) = match self.read(root, path, &handle) {
                    Ok(read) => read,
                    Err(error) => {
                        self.changed |= known.is_some();
                        return WalkError::of_local_fault(&error).map_or(Ok(()), Err);
                    }
                };
                let same = known.is_some_and(|known| {
                    known.empty == empty
                        && known.entries.len() == entries.len()
                        && known
                            .entries
                            .iter()
                            .zip(&entries)
                            .all(|(old, new)| old.name == new.name && old.kind == new.kind)
                });
                self.changed |= !same;
                Directory {
                    mark,
                    settled: is_settled(stat.st_ctime, self.now)
                        && is_settled(stat.st_mtime, self.now),
                    empty,
                    entries,
                }
            }
        };
        drop(handle);
        self.entries += directory.entries.len();
        if self.entries > MAX_ENTRIES {
            return Err(WalkError::TooManyEntries);
        }
        let below: Vec<Relative> = directory
            .entries
            .iter()
            .filter(|entry| match entry.kind {
                Kind::Directory => true,
                Kind::Link { directory, .. } => directory && self.links == Links::Follow,
                Kind::File => false,
            })
            .map(|entry| Relative::child(path, &entry.name))
            .collect();
        self.new.insert(name.to_owned(), directory);
        above.push((mark.device, mark.inode));
        for path in &below {
            self.directory(root, Some(path), above)?;
        }
        above.pop();
        Ok(())
    }

    /// Reads the entries, sorted by name, and whether there are none at all.
    fn read(
        &self,
        root: &Root,
        path: Option<&Relative>,
        handle: &OwnedFd,
    ) -> io::Result<(Vec<Entry>, bool)> {
        let mut entries = Vec::new();
        let mut empty = true;
        for entry in Dir::read_from(handle)? {
            let entry = entry?;
            let name = match entry.file_name().to_str() {
                Ok("." | "..") => continue,
                Ok(name) => name,
                Err(_) => {
                    empty = false;
                    tracing::warn!(
                        directory = path.map_or(".", Relative::as_str),
                        name = ?entry.file_name(),
                        "a file is not served because its name is not UTF-8"
                    );
                    continue;
                }
            };
            empty = false;
            if entries.len() >= MAX_ENTRIES {
                break;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map(|stat| FileType::from_raw_mode(stat.st_mode))?,
                known => known,
            };
            let kind = match kind {
                FileType::Directory => Kind::Directory,
                FileType::Symlink => match self.link(root, path, handle, name) {
                    Some(link) => link,
                    None => continue,
                },
                _ => Kind::File,
            };
            entries.push(Entry {
                name: name.into(),
                kind,
            });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((entries, empty))
    }

    /// Looks at a link; `None` if it is gone, or if its text is not UTF-8.
    fn link(
        &self,
        root: &Root,
        path: Option<&Relative>,
        handle: &OwnedFd,
        name: &str,
    ) -> Option<Kind> {
        let target = rustix::fs::readlinkat(handle, name, Vec::new()).ok()?;
        let target = target.into_string().ok()?;
        let directory = rustix::fs::statat(handle, name, AtFlags::empty())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        Some(Kind::Link {
            target,
            directory,
            empty: directory && self.is_empty_behind(root, &Relative::child(path, name)),
        })
    }

    fn is_empty_behind(&self, root: &Root, path: &Relative) -> bool {
        root.directory(Some(path), self.links)
            .and_then(|handle| Ok(Dir::read_from(&handle)?))
            .is_ok_and(|mut entries| {
                entries.all(|entry| {
                    entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
                })
            })
    }

    fn refresh_links(
        &mut self,
        root: &Root,
        path: Option<&Relative>,
        handle: &OwnedFd,
        entries: &mut [Entry],
    ) {
        for entry in entries {
            if !matches!(entry.kind, Kind::Link { .. }) {
                continue;
            }
            if let Some(link) = self.link(root, path, handle, &entry.name)
                && link != entry.kind
            {
                entry.kind = link;
                self.changed = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use saltern_base::clock::Clock;

    use super::*;

    fn paths(tree: &Tree) -> Vec<String> {
        let mut paths: Vec<String> = tree
            .directories()
            .flat_map(|(path, entries)| {
                entries
                    .iter()
                    .map(move |entry| saltern_python::path::join(path, &entry.name))
            })
            .collect();
        paths.sort();
        paths
    }

    fn walk(old: Tree, at: &Path, now: SystemTime) -> (Tree, bool) {
        Tree::walk(old, Root::open(at).ok().as_ref(), Links::Follow, now).unwrap()
    }

    /// Long after everything that this test does.
    fn later() -> SystemTime {
        Clock::system().now() + Duration::from_secs(3600)
    }

    #[test]
    fn second_walk_reads_changed_directories_only() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::create_dir_all(at.join("a/b")).unwrap();
        fs::write(at.join("a/one"), "").unwrap();
        symlink("b", at.join("a/link")).unwrap();
        let (tree, changed) = walk(Tree::default(), at, later());
        assert!(changed);
        assert_eq!(paths(&tree), ["a", "a/b", "a/link", "a/one"]);
        assert!(tree.is_empty("a/b") && tree.is_empty("a/link") && !tree.is_empty("a"));

        let (tree, changed) = walk(tree, at, later());
        assert!(!changed);

        fs::write(at.join("a/b/two"), "").unwrap();
        let (tree, changed) = walk(tree, at, later());
        assert!(changed);
        assert_eq!(
            paths(&tree),
            ["a", "a/b", "a/b/two", "a/link", "a/link/two", "a/one"]
        );

        fs::remove_dir_all(at.join("a")).unwrap();
        let (tree, changed) = walk(tree, at, later());
        assert!(changed);
        assert!(paths(&tree).is_empty());
        fs::remove_dir(at).unwrap();
        let (tree, changed) = walk(tree, at, later());
        assert!(changed);
        let (_, changed) = walk(tree, at, later());
        assert!(!changed);
    }

    #[test]
    fn recently_changed_directory_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::write(at.join("one"), "").unwrap();
        let now = Clock::system().now();
        let (tree, _) = walk(Tree::default(), at, now);
        // The same times, as if the second file had come within one tick of the clock.
        let times = fs::metadata(at).unwrap().modified().unwrap();
        fs::write(at.join("two"), "").unwrap();
        fs::File::open(at).unwrap().set_modified(times).unwrap();
        let (tree, changed) = walk(tree, at, now);
        assert!(changed);
        assert_eq!(paths(&tree), ["one", "two"]);
    }

    #[test]
    fn a_link_to_a_directory_above_ends_the_walk() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::create_dir(at.join("a")).unwrap();
        symlink("..", at.join("a/up")).unwrap();
        symlink(".", at.join("self")).unwrap();
        let (tree, _) = walk(Tree::default(), at, later());
        assert_eq!(paths(&tree), ["a", "a/up", "self"]);
    }

    #[test]
    fn retargeted_link_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::create_dir(at.join("root")).unwrap();
        symlink("../target", at.join("root/link")).unwrap();
        let (tree, _) = walk(Tree::default(), &at.join("root"), later());
        assert!(!tree.is_empty("link"));
        fs::create_dir(at.join("target")).unwrap();
        let (tree, changed) = walk(tree, &at.join("root"), later());
        assert!(changed && tree.is_empty("link"));
    }

    #[test]
    fn tree_beyond_the_depth_limit_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut at = directory.path().to_owned();
        for _ in 0..=MAX_DEPTH {
            at.push("d");
        }
        fs::create_dir_all(&at).unwrap();
        let root = Root::open(directory.path()).unwrap();
        let walked = Tree::walk(Tree::default(), Some(&root), Links::Follow, later());
        assert_eq!(walked.err(), Some(WalkError::TooDeep));
    }
}

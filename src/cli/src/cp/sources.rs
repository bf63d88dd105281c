//! The files that `salt-cp` copies, and where each goes on the minions, as `salt/cli/cp.py` finds both.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The files and directories below the sources.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sources {
    /// Files with their modes, in the order in which they were found.
    pub(super) files: Vec<(PathBuf, u32)>,
    /// Bytes of the files, at the time when they were found.
    pub(super) bytes: u64,
    /// Directories without entries.
    pub(super) empty: BTreeSet<PathBuf>,
}

/// A source that is not there, or that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// There is no such file.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// The system says something else.
    #[error("{} cannot be read: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

impl Sources {
    /// Collects the files below these paths.
    pub(super) fn find(paths: &[PathBuf]) -> Result<Self, SourceError> {
        let mut found = Self::default();
        let mut seen = HashSet::new();
        for path in paths {
            found.add(path, &mut seen)?;
        }
        Ok(found)
    }

    fn add(&mut self, path: &Path, seen: &mut HashSet<PathBuf>) -> Result<(), SourceError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => SourceError::Missing(path.to_path_buf()),
            _ => SourceError::Io {
                path: path.to_path_buf(),
                error,
            },
        };
        let about = fs::metadata(path).map_err(failed)?;
        if !about.is_dir() {
            // A source that is named twice is copied once.
            if !seen.insert(path.to_path_buf()) {
                return Ok(());
            }
            let mode = about.permissions().mode() & 0o7777;
            self.files.push((path.to_path_buf(), mode));
            self.bytes += about.len();
            return Ok(());
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            entries.push(entry.map_err(failed)?.path());
        }
        if entries.is_empty() {
            self.empty.insert(path.to_path_buf());
        }
        entries.sort_unstable();
        entries.iter().try_for_each(|entry| self.add(entry, seen))
    }

    /// Whether the destination has to be a directory.
    pub(super) fn need_directory(&self, destination: &str) -> bool {
        !self.empty.is_empty() || self.files.len() > 1 || destination.ends_with(['/', '\\'])
    }
}

/// The path on the minions: a source that was named goes to the destination, or into it; what lies in
/// a directory keeps its place there.
pub(super) fn remote_path(
    path: &Path,
    named: &[PathBuf],
    destination: &str,
    is_directory: bool,
) -> PathBuf {
    let into = |name: Option<&std::ffi::OsStr>| {
        name.map_or_else(
            || PathBuf::from(destination),
            |name| Path::new(destination).join(name),
        )
    };
    if named.iter().any(|source| source == path) {
        return match is_directory {
            true => into(path.file_name()),
            false => PathBuf::from(destination),
        };
    }
    let inside = named.iter().find_map(|source| {
        let rest = path.strip_prefix(source).ok()?;
        Some(into(source.file_name()).join(rest))
    });
    inside.unwrap_or_else(|| into(path.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_searched_and_empty_ones_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/b/empty")).unwrap();
        fs::write(root.join("a/one"), "1").unwrap();
        fs::write(root.join("a/b/two"), "2").unwrap();
        fs::set_permissions(root.join("a/one"), fs::Permissions::from_mode(0o4750)).unwrap();
        let found = Sources::find(&[root.join("a"), root.join("a/one")]).unwrap();
        let names: Vec<_> = found.files.iter().map(|(path, _)| path.clone()).collect();
        assert_eq!(names, [root.join("a/b/two"), root.join("a/one")]);
        assert_eq!(found.files[1].1, 0o4750);
        assert_eq!(found.bytes, 2);
        assert_eq!(found.empty, BTreeSet::from([root.join("a/b/empty")]));
        assert!(found.need_directory("/to"));
        let missing = Sources::find(&[root.join("none")]).unwrap_err();
        assert!(missing.to_string().ends_with("none does not exist"));
    }

    #[test]
    fn remote_paths_are_those_of_stock() {
        let named = [PathBuf::from("/src/dir"), PathBuf::from("/src/file")];
        for (path, is_directory, expected) in [
            ("/src/file", false, "/to"),
            ("/src/file", true, "/to/file"),
            ("/src/dir/x/y", true, "/to/dir/x/y"),
            ("/src/dir", true, "/to/dir"),
        ] {
            let remote = remote_path(Path::new(path), &named, "/to", is_directory);
            assert_eq!(remote, Path::new(expected), "{path}");
        }
    }
}

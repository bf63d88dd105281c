//! Fetches files and directories of minions: they push them to the master (`cp.push_dir`, which the option
//! `file_recv` allows), and from the master's cache they are copied to where they are wanted.
//!
//! Files that are fetched to another directory are pushed into one of their own and removed
//! afterwards, so that no file of an earlier push is fetched with them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process;

use saltern_base::clock::Clock;
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use super::{CopyTool, FAILED, file_name};
use crate::options::Ending;

/// Result of a source that a minion does not push.
const NOT_PUSHED: &str = "not pushed: there is no such file, the directory has no files or one that cannot \
                          be read, or the option file_recv of the master is not set";

/// Directory, below the files of a minion, for files that are fetched to another one.
const STAGING: &str = ".saltern-cp";

/// A file that cannot be copied out of the cache.
#[derive(Debug, thiserror::Error)]
enum TakeError {
    #[error("\"{}\" of the master's cache cannot be read: {error}", .path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("\"{}\" is not written: {error}", .path.display())]
    Write { path: PathBuf, error: io::Error },
}

impl CopyTool<'_> {
    /// The result of each source of each minion: `True`, or why not.
    pub(super) async fn fetch(&self, cachedir: &Path) -> Result<Value, Ending> {
        let mut results: BTreeMap<String, Vec<(Value, Value)>> = BTreeMap::new();
        self.bar.begin(self.command.sources.len() as u64);
        for name in &self.command.sources {
            let below = relative(name).ok_or_else(|| {
                let text = format!("\"{name}\" is no absolute path of a file or directory\n");
                Ending::failed(FAILED, text)
            })?;
            self.bar.name(file_name(name));
            for (id, result) in self.fetch_one(cachedir, name, &below).await? {
                let paths = results.entry(id).or_default();
                paths.push((name.as_str().into(), result));
            }
            self.bar.add(1);
        }
        let results = results.into_iter();
        Ok(Value::Map(
            results
                .map(|(id, paths)| (id.into(), Value::Map(paths)))
                .collect(),
        ))
    }

    async fn fetch_one(
        &self,
        cachedir: &Path,
        name: &str,
        below: &Path,
    ) -> Result<Vec<(String, Value)>, Ending> {
        let mut arguments = vec![Value::from(name)];
        let is_kept = self.command.destination.is_empty();
        let staging = match is_kept {
            true => below.to_path_buf(),
            false => {
                let staging = staging();
                arguments.push(Value::map([
                    ("__kwarg__", Value::from(true)),
                    ("upload_path", staging.display().to_string().into()),
                ]));
                staging
            }
        };
        let pushed = self.job("cp.push_dir", arguments).await?;
        let pushed = pushed.unwrap_or_default().into_iter();
        let results = pushed.map(|(id, value)| {
            let result = match value.as_bool() {
                Some(true) if is_kept => value,
                Some(true) => self.take(cachedir, &id, &staging, below),
                Some(false) => NOT_PUSHED.into(),
                None => value,
            };
            if !is_kept {
                discard(&files_of(cachedir, &id).map(|files| files.join(&staging)));
            }
            (id, result)
        });
        Ok(results.collect())
    }

    /// Copies what was pushed out of the cache.
    fn take(&self, cachedir: &Path, id: &str, staging: &Path, below: &Path) -> Value {
        let Some(files) = files_of(cachedir, id) else {
            return "its id is none".into();
        };
        let target = Path::new(&self.command.destination).join(id).join(below);
        match copy_tree(&files.join(staging), &target) {
            Ok(()) => true.into(),
            Err(error) => error.to_string().into(),
        }
    }
}

/// A directory that nothing was pushed into before.
fn staging() -> PathBuf {
    let time = Clock::system().unix_micros();
    Path::new(STAGING).join(format!("{time}-{}", process::id()))
}

/// The directory of what a minion pushed.
fn files_of(cachedir: &Path, id: &str) -> Option<PathBuf> {
    let id = MinionId::parse(id).ok()?;
    Some(cachedir.join("minions").join(id.as_str()).join("files"))
}

/// Removes what was copied; what cannot be removed is in nobody's way.
fn discard(staging: &Option<PathBuf>) {
    let Some(staging) = staging else { return };
    let _ = fs::remove_dir_all(staging).or_else(|_| fs::remove_file(staging));
    // Gone with the last copy that uses it.
    if let Some(parent) = staging.parent() {
        let _ = fs::remove_dir(parent);
    }
}

/// Copies a file, or a directory with all files below it; only what a push can have made.
fn copy_tree(source: &Path, target: &Path) -> Result<(), TakeError> {
    let unread = |error| TakeError::Read {
        path: source.to_path_buf(),
        error,
    };
    let kind = fs::symlink_metadata(source).map_err(unread)?.file_type();
    if kind.is_dir() {
        for entry in fs::read_dir(source).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            copy_tree(&entry.path(), &target.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if !kind.is_file() {
        return Ok(());
    }
    let mut from = fs::File::open(source).map_err(unread)?;
    let mut written = || {
        if let Some(directory) = target.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut to = fs::File::create(target)?;
        io::copy(&mut from, &mut to)
    };
    let unwritten = |error| TakeError::Write {
        path: target.to_path_buf(),
        error,
    };
    written().map(|_| ()).map_err(unwritten)
}

/// An absolute path below a directory; nothing for one that leads elsewhere.
fn relative(path: &str) -> Option<PathBuf> {
    let mut below = PathBuf::new();
    for component in Path::new(path).strip_prefix("/").ok()?.components() {
        match component {
            Component::Normal(name) => below.push(name),
            _ => return None,
        }
    }
    (below.components().count() > 0).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetched_path_stays_below_its_directory() {
        for (path, below) in [
            ("/etc/hosts", Some("etc/hosts")),
            ("/etc//hosts", Some("etc/hosts")),
            ("/etc/../hosts", None),
            ("etc/hosts", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(relative(path).as_deref(), below.map(Path::new), "{path:?}");
        }
    }

    #[test]
    fn tree_is_copied_without_links_and_then_discarded() {
        let folder = tempfile::tempdir().unwrap();
        let staging = folder.path().join(STAGING).join("1");
        fs::create_dir_all(staging.join("sub")).unwrap();
        fs::write(staging.join("sub/file"), "text").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", staging.join("link")).unwrap();
        let target = folder.path().join("to");
        copy_tree(&staging, &target).unwrap();
        assert_eq!(fs::read_to_string(target.join("sub/file")).unwrap(), "text");
        assert!(!target.join("link").exists());
        discard(&Some(staging));
        assert!(!folder.path().join(STAGING).exists());
        let missing = copy_tree(&folder.path().join("none"), &target).unwrap_err();
        assert!(missing.to_string().contains("cannot be read"), "{missing}");
    }
}

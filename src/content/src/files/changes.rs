//! Detects changes below `file_roots` since the last scan: the content of the event
//! `salt/fileserver/roots/update` (`update` in `salt/fileserver/roots.py`).
//!
//! The last scan is stored where stock stores it, in `cachedir/roots/mtime_map`, so that a change
//! while no master ran is reported, too. Modification times are compared, nothing is read. Links to
//! directories are not followed, as in stock, whatever `fileserver_followsymlinks` says.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use saltern_python::number::float_repr;
use saltern_store::files::{Create, read_text, write_atomic};

use super::error::FilesError;
use super::options::Options;
use super::tree::{MAX_DEPTH, MAX_ENTRIES};

/// More than the map of as many files as are looked at.
const MAP_BYTES: usize = 1 << 30;

/// Before the umask; stock's under its usual one.
const FILE_MODE: u32 = 0o644;

/// The differences between two looks; paths are those on disk, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// Files with another modification time.
    pub changed: Vec<String>,
    /// Files that are gone.
    pub removed: Vec<String>,
    /// Files that are new.
    pub added: Vec<String>,
}

impl FileChanges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty() && self.added.is_empty()
    }
}

/// Files by their path, with their modification time as stock writes it.
type Times = BTreeMap<String, String>;

/// Looks, compares with the last look, and keeps this one.
pub(super) fn look(options: &Options) -> Result<FileChanges, FilesError> {
    let now = walk(options)?;
    let path = options.cachedir.join("roots/mtime_map");
    let before = match read_text(&path, MAP_BYTES) {
        Ok(kept) => parse(kept.as_deref().unwrap_or_default()),
        Err(error) => {
            tracing::warn!(%error, "the last scan of file_roots cannot be read; all files count as new");
            Times::new()
        }
    };
    let changes = compare(&before, &now);
    if !changes.is_empty() {
        keep(&path, &now)?;
    }
    Ok(changes)
}

fn walk(options: &Options) -> Result<Times, FilesError> {
    let mut times = Times::new();
    for (saltenv, roots) in &options.file_roots {
        for root in roots {
            let mut waiting = vec![(PathBuf::from(root), 0)];
            while let Some((directory, depth)) = waiting.pop() {
                let deeper = take(&directory, options, &mut times);
                if times.len() > MAX_ENTRIES {
                    return Err(FilesError::TooManyEntries {
                        saltenv: saltenv.clone(),
                        limit: MAX_ENTRIES,
                    });
                }
                if depth == MAX_DEPTH && !deeper.is_empty() {
                    return Err(FilesError::TooDeep {
                        saltenv: saltenv.clone(),
                        limit: MAX_DEPTH,
                    });
                }
                waiting.extend(deeper.into_iter().map(|path| (path, depth + 1)));
            }
        }
    }
    Ok(times)
}

/// Takes the files of one directory; gives the directories in it. What cannot be looked at is
/// passed over, as in stock.
fn take(directory: &Path, options: &Options, times: &mut Times) -> Vec<PathBuf> {
    let mut deeper = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        // Of a link, what it points to.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if metadata.is_dir() {
            if !is_link {
                deeper.push(path);
            }
            continue;
        }
        // The file of the last look has a line for each file.
        let text = path.to_str().filter(|text| !text.contains('\n'));
        if let Some(text) = text.filter(|text| !options.ignore.matches(text)) {
            times.insert(text.to_owned(), time_of(&metadata));
        }
    }
    deeper
}

/// The time as Python writes it: a float, in the shortest form that reads back as the same one.
fn time_of(metadata: &fs::Metadata) -> String {
    let seconds = metadata.mtime() as f64 + 1e-9 * metadata.mtime_nsec() as f64;
    float_repr(seconds)
}

fn parse(text: &str) -> Times {
    let entries = text.lines().filter_map(|line| line.rsplit_once(':'));
    let entries = entries.map(|(path, time)| (path.to_owned(), time.to_owned()));
    entries.collect()
}

fn compare(before: &Times, now: &Times) -> FileChanges {
    let mut changes = FileChanges::default();
    for (path, time) in before {
        match now.get(path) {
            Some(same) if same == time => {}
            Some(_) => changes.changed.push(path.clone()),
            None => changes.removed.push(path.clone()),
        }
    }
    let is_new = |path: &&String| !before.contains_key(*path);
    changes.added = now.keys().filter(is_new).cloned().collect();
    changes
}

fn keep(path: &Path, times: &Times) -> Result<(), FilesError> {
    let mut text = String::new();
    for (path, time) in times {
        text.push_str(path);
        text.push(':');
        text.push_str(time);
        text.push('\n');
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)
            .map_err(|error| FilesError::io("make", &directory.to_string_lossy(), error))?;
    }
    let create = Create::PRIVATE.mode(FILE_MODE).derived();
    Ok(write_atomic(path, text.as_bytes(), create)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path) -> Options {
        fs::create_dir_all(dir.join("srv/deep")).unwrap();
        let text = format!(
            "root_dir: {0}\ncachedir: {0}/cache\nid: m\nfile_roots:\n  base: [{0}/srv]\n\
             file_ignore_glob: ['*.swp']\n",
            dir.display()
        );
        fs::write(dir.join("master"), text).unwrap();
        let loaded = saltern_config::load_master(dir).map_err(|errors| errors.to_string());
        Options::new(&loaded.unwrap().config).unwrap()
    }

    fn names(paths: &[String]) -> Vec<&str> {
        let names = paths.iter();
        let names = names.map(|path| path.rsplit('/').next().unwrap_or_default());
        names.collect()
    }

    #[test]
    fn each_scan_reports_changes_since_the_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        let srv = dir.path().join("srv");
        fs::write(srv.join("a.sls"), "a").unwrap();
        fs::write(srv.join("deep/b.sls"), "b").unwrap();
        fs::write(srv.join("c.swp"), "ignored").unwrap();
        std::os::unix::fs::symlink(dir.path(), srv.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", srv.join("dangling")).unwrap();

        let first = look(&options).unwrap();
        assert_eq!(names(&first.added), ["a.sls", "b.sls"]);
        assert!(look(&options).unwrap().is_empty());

        let file = fs::File::open(srv.join("a.sls")).unwrap();
        let later = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_500);
        file.set_modified(later).unwrap();
        fs::remove_file(srv.join("deep/b.sls")).unwrap();
        fs::write(srv.join("deep/d.sls"), "d").unwrap();
        let second = look(&options).unwrap();
        assert_eq!(names(&second.changed), ["a.sls"]);
        assert_eq!(names(&second.removed), ["b.sls"]);
        assert_eq!(names(&second.added), ["d.sls"]);
        let map = fs::read_to_string(dir.path().join("cache/roots/mtime_map")).unwrap();
        assert!(map.contains("/srv/a.sls:1.5\n"), "{map}");
    }
}

//! Grains and mines that were removed here, and of which the table of a cluster may have a row still: in a file, so that
//! a master that is killed meanwhile removes them when it is started again, and does not read the row.
//!
//! `cachedir/saltern/cluster_removals`: a line for each, with the version that no row of before is above, and one that
//! begins with `-` when it counts no longer. It does not
//! wait for the disk: what a loss of power takes of it is found by the keys that are gone.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use saltern_base::chain;
use saltern_model::MinionId;

use super::{DataKind, DataName, MinionDataStore};
use crate::error::{Result, StoreError};
use crate::files::{self, Create};

/// Room for some millions of them.
const MAX_FILE_LEN: usize = 1 << 28;

/// Begins a line that says that another one counts no longer.
const SETTLED: &str = "- ";

/// Lines that are of no use, beside as many as there are of use.
const MAX_SETTLED_LINES: usize = 1_024;

pub(super) struct Removals {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last version that a row has, once this master writes rows.
    last: Option<i64>,
    versions: BTreeMap<DataName, i64>,
    /// Lines in the file, also of what is settled.
    lines: usize,
    /// To append to.
    file: Option<File>,
    /// Bytes of the whole lines in the file, where behind them may be a part of one.
    torn_at: Option<u64>,
    /// The file lacks lines that could not be written.
    is_incomplete: bool,
}

impl State {
    fn append(&mut self, path: &Path, line: &str) -> Result<()> {
        let failed = |source| StoreError::io("write", path, source);
        if self.file.is_none() {
            if let Some(dir) = path.parent() {
                files::ensure_dir(dir, 0o700)?;
            }
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600);
            self.file = Some(options.open(path).map_err(failed)?);
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        // A part of a line would become one with the next.
        let end = match self.torn_at {
            Some(end) => file.set_len(end).map(|()| end),
            None => file.metadata().map(|metadata| metadata.len()),
        };
        let end = end.map_err(failed)?;
        self.torn_at = Some(end);
        file.write_all(line.as_bytes()).map_err(failed)?;
        self.torn_at = None;
        self.lines += line.lines().count();
        Ok(())
    }

    /// Writes the whole file anew.
    fn rewrite(&mut self, path: &Path) -> Result<()> {
        self.file = None;
        let lines = self.versions.iter().map(|(name, last)| line(name, *last));
        let text: String = lines.collect();
        match text.is_empty() {
            true => files::remove(path).map(|_| ()),
            false => files::write_atomic(path, text.as_bytes(), Create::PRIVATE.derived()),
        }?;
        self.lines = self.versions.len();
        (self.torn_at, self.is_incomplete) = (None, false);
        Ok(())
    }
}

impl Removals {
    pub(super) fn new(cachedir: &Path) -> Self {
        Self {
            path: cachedir.join("saltern").join("cluster_removals"),
            state: Mutex::default(),
        }
    }

    /// Reads those of a process before.
    fn read(&self) {
        let text = files::read_replaceable(&self.path, MAX_FILE_LEN);
        let text = text.unwrap_or_else(|error| {
            let error = chain(&error);
            tracing::warn!(error, "removed grains and mines may come back");
            None
        });
        let text = text.unwrap_or_default();
        // Without its end the last line is a part of one.
        let (whole, part) = match text.rsplit_once('\n') {
            Some((whole, part)) => (whole, part),
            None => ("", text.as_str()),
        };
        let mut state = self.state.lock();
        if !part.is_empty() {
            let end = text.len() - part.len();
            state.torn_at = Some(end as u64);
        }
        for line in whole.lines() {
            state.lines += 1;
            match line.strip_prefix(SETTLED) {
                Some(line) => {
                    if let Some((name, _)) = parsed(line) {
                        state.versions.remove(&name);
                    }
                }
                None => state.versions.extend(parsed(line)),
            }
        }
    }

    /// Notes one, once this master writes rows.
    pub(super) fn note(&self, name: &DataName) {
        let mut state = self.state.lock();
        let Some(last) = state.last else { return };
        if state.versions.insert(name.clone(), last) == Some(last) {
            return;
        }
        if let Err(error) = state.append(&self.path, &line(name, last)) {
            state.is_incomplete = true;
            let error = chain(&error);
            tracing::warn!(error, "removed grains or a mine may come back after a kill");
        }
    }

    fn version(&self, name: &DataName) -> Option<i64> {
        self.state.lock().versions.get(name).copied()
    }

    /// Forgets some that the table has.
    fn settle(&self, names: &[DataName]) -> Result<()> {
        let mut state = self.state.lock();
        let mut settled = Vec::new();
        for name in names {
            let removed = state.versions.remove_entry(name);
            settled.extend(removed);
        }
        if settled.is_empty() {
            return Ok(());
        }
        let is_small = state.lines <= 2 * state.versions.len() + MAX_SETTLED_LINES;
        // Requests wait for this lock: the whole is written once it is mostly of no use.
        let written = match is_small && !state.versions.is_empty() && !state.is_incomplete {
            true => {
                let lines = settled.iter().map(|(name, last)| line(name, *last));
                let lines: String = lines.map(|line| SETTLED.to_owned() + &line).collect();
                state.append(&self.path, &lines)
            }
            false => state.rewrite(&self.path),
        };
        if written.is_err() {
            // As the file has it, until the next time.
            state.versions.extend(settled);
        }
        written
    }
}

fn line(name: &DataName, last: i64) -> String {
    let kind = match name.kind {
        DataKind::Grains => "grains",
        DataKind::Mine => "mine",
    };
    format!("{last} {kind} {}\n", name.minion)
}

fn parsed(line: &str) -> Option<(DataName, i64)> {
    let (last, rest) = line.split_once(' ')?;
    let (kind, minion) = rest.split_once(' ')?;
    let kind = match kind {
        "grains" => DataKind::Grains,
        "mine" => DataKind::Mine,
        _ => return None,
    };
    let minion = MinionId::parse(minion).ok()?;
    Some((DataName { kind, minion }, last.parse().ok()?))
}

impl MinionDataStore {
    /// Reads what a process before had removed.
    pub(crate) fn read_removals(&self) {
        self.removals.read();
    }

    /// Notes the version of the next row, before its data is read.
    pub(crate) fn note_version(&self, version: i64) {
        self.removals.state.lock().last = Some(version);
    }

    /// Notes that rows are written from this version on: all that is there is below it, also where a table was restored
    /// from a backup.
    pub(crate) fn begin_versions(&self, first: i64) {
        let last = first.saturating_sub(1);
        let mut state = self.removals.state.lock();
        state.last = Some(last);
        for version in state.versions.values_mut() {
            *version = last.min(*version);
        }
    }

    /// Notes that a row has what is gone here.
    pub(crate) fn note_removal(&self, name: &DataName) {
        self.removals.note(name);
    }

    /// The version above which a row was written after the data had been removed here; `None` when it was not.
    pub(crate) fn removed_at(&self, name: &DataName) -> Option<i64> {
        self.removals.version(name)
    }

    /// All that was removed here, and that may have a row.
    pub(crate) fn removed(&self) -> Vec<DataName> {
        self.removals
            .state
            .lock()
            .versions
            .keys()
            .cloned()
            .collect()
    }

    /// Notes that rows are those of the files, as far as nothing was removed since.
    pub(crate) fn settle(&self, names: impl Iterator<Item = DataName>) {
        let names = names.filter(|name| !self.changed.has(name));
        let names: Vec<DataName> = names.collect();
        if let Err(error) = self.removals.settle(&names) {
            let error = chain(&error);
            tracing::warn!(
                error,
                "a list of removed grains and mines cannot be written"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn name(minion: &str) -> DataName {
        DataName {
            kind: DataKind::Mine,
            minion: MinionId::parse(minion).expect("an id"),
        }
    }

    fn opened(dir: &Path) -> Removals {
        let removals = Removals::new(dir);
        removals.read();
        removals.state.lock().last = Some(7);
        removals
    }

    /// Those of a process that is started now.
    fn read(dir: &Path) -> Vec<String> {
        let removals = opened(dir);
        let state = removals.state.lock();
        let names = state.versions.keys();
        names.map(|name| name.minion.to_string()).collect()
    }

    #[test]
    fn part_of_a_line_falsifies_neither_itself_nor_the_next() {
        for part in ["7 mi", "7 mine m1", "- 7 mine m2", "\n\n7"] {
            let dir = tempfile::tempdir().expect("a directory");
            opened(dir.path()).note(&name("m2"));
            let path = dir.path().join("saltern/cluster_removals");
            let before = fs::read_to_string(&path).expect("lines");
            fs::write(&path, before + part).expect("torn");
            opened(dir.path()).note(&name("m3"));
            assert_eq!(read(dir.path()), ["m2", "m3"], "{part}");
        }
    }

    #[test]
    fn line_that_cannot_be_written_is_in_the_file_once_there_is_room() {
        let dir = tempfile::tempdir().expect("a directory");
        let removals = opened(dir.path());
        for minion in ["m1", "m2", "m3", "m4"] {
            removals.note(&name(minion));
        }
        let full = || {
            let full = OpenOptions::new().append(true).open("/dev/full");
            removals.state.lock().file = Some(full.expect("a full disk"));
        };
        full();
        assert!(removals.settle(&[name("m1")]).is_err());
        assert_eq!(removals.version(&name("m1")), Some(7), "as in the file");
        full();
        removals.note(&name("m5"));
        assert_eq!(removals.version(&name("m5")), Some(7));
        removals.settle(&[name("m1"), name("m2")]).expect("settled");
        assert_eq!(read(dir.path()), ["m3", "m4", "m5"]);
    }
}

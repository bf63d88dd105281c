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
        match &mut self.file {
            Some(file) => file.write_all(line.as_bytes()).map_err(failed),
            None => Ok(()),
        }?;
        self.lines += line.lines().count();
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
        let lines = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        let mut state = self.state.lock();
        for line in lines {
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
        let mut settled = String::new();
        for name in names {
            if let Some(last) = state.versions.remove(name) {
                settled = settled + SETTLED + &line(name, last);
            }
        }
        if settled.is_empty() {
            return Ok(());
        }
        if state.versions.is_empty() {
            (state.file, state.lines) = (None, 0);
            files::remove(&self.path)?;
            return Ok(());
        }
        // Requests wait for this lock: the whole is written once it is mostly of no use.
        if state.lines <= 2 * state.versions.len() + MAX_SETTLED_LINES {
            return state.append(&self.path, &settled);
        }
        (state.file, state.lines) = (None, state.versions.len());
        let lines = state.versions.iter().map(|(name, last)| line(name, *last));
        let text: String = lines.collect();
        files::write_atomic(&self.path, text.as_bytes(), Create::PRIVATE.derived())
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

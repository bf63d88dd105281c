//! Makes the files of this machine those of the table, before anything reads them.
//!
//! The table is the truth: a file that differs is replaced, and one that it does not have is removed. An
//! empty table was never written by an owner that shares its state; it gets what this machine has.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use saltern_crypto::StateCipher;

use super::kind::{StateKind, StatePlaces};
use super::log::SharedState;
use super::row::{self, StateFile};
use super::{MAX_ROWS, StateTable};
use crate::error::{Result, StoreError};
use crate::files::{self, Create, Version};

/// The largest file that is shared.
const FILE_BYTES: usize = 4 << 20;

/// Outcome of a restoration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Rows of the table.
    pub rows: usize,
    /// Files that were written.
    pub written: usize,
    /// Files that were removed.
    pub removed: usize,
    /// Rows that could not be used.
    pub unusable: usize,
    /// Files that the table gets, because it was new.
    pub shared: usize,
}

/// Restores the files. `state` writes to the same table.
///
/// # Errors
/// The table cannot be read, or a file cannot be written: nothing may be served then.
pub fn restore(
    table: &dyn StateTable,
    cipher: &StateCipher,
    (places, state): (&StatePlaces, &SharedState),
) -> Result<Restored> {
    let mut restored = Restored::default();
    let mut present = HashSet::new();
    let mut last = None;
    loop {
        let rows = table.read_after(last.as_ref())?;
        let Some(end) = rows.last() else { break };
        last = Some(end.id);
        restored.rows += rows.len();
        for sealed in &rows {
            let file = match row::open(cipher, sealed) {
                Ok(file) => file,
                Err(error) => {
                    // Whoever it was about authenticates anew.
                    tracing::warn!(%error, "a row of the shared state cannot be used");
                    restored.unusable += 1;
                    continue;
                }
            };
            restored.written += usize::from(write(places, &file)?);
            present.insert((file.name.kind, file.name.name));
        }
        if rows.len() < MAX_ROWS {
            break;
        }
    }
    let is_new = restored.rows == 0;
    for kind in StateKind::ALL {
        for name in places.names(kind)? {
            let entry = (kind, name);
            if present.contains(&entry) {
                continue;
            }
            match is_new {
                true => restored.shared += usize::from(share(places, state, &entry)?),
                false => {
                    restored.removed += usize::from(files::remove(&places.file(kind, &entry.1)?)?);
                }
            }
        }
    }
    Ok(restored)
}

/// Writes a file unless it is there.
fn write(places: &StatePlaces, file: &StateFile) -> Result<bool> {
    let path = places.file(file.name.kind, &file.name.name)?;
    let is_same = match files::read(&path, FILE_BYTES) {
        Ok(Some(content)) => content == *file.content,
        // Whatever lies there is replaced.
        Ok(None) | Err(_) => false,
    };
    if !is_same {
        files::ensure_dir(&places.directory(file.name.kind), 0o700)?;
        files::write_atomic(&path, &file.content, Create::PRIVATE.derived())?;
    }
    let modified = Version::of(&path, false)?.map(|stat| stat.version.modified_micros());
    if modified != Some(file.modified) {
        set_modified(&path, file.modified)?;
    }
    Ok(!is_same)
}

/// Gives a file the time at which the other master wrote it: its age counts.
fn set_modified(path: &Path, modified: i64) -> Result<()> {
    let failed = |source| StoreError::io("set the time of", path, source);
    let file = File::options().write(true).open(path).map_err(failed)?;
    files::set_modified(&file, modified).map_err(failed)
}

/// Gives the table a file of this machine.
fn share(
    places: &StatePlaces,
    state: &SharedState,
    (kind, name): &(StateKind, String),
) -> Result<bool> {
    let path = places.file(*kind, name)?;
    let stat = Version::of(&path, false)?;
    let content = files::read(&path, FILE_BYTES);
    let (Some(stat), Ok(Some(content))) = (stat, content) else {
        // Gone, or nothing that this master ever wrote.
        return Ok(false);
    };
    state.put(*kind, name, (&content, stat.version.modified_micros()));
    if state.figures().pending > MAX_ROWS * 16 {
        state.flush()?;
    }
    Ok(true)
}

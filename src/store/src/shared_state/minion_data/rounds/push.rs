//! Rows that the active member writes.

use super::{
    Change, LAST_ROUND, MAX_LOOKS, MAX_WRITE_LEN, MAX_WRITES, Rounds, Standing, Subject,
    WRITE_INTERVAL, digest_of,
};
use crate::error::{Result, StoreError};
use crate::shared_state::minion_data::{DataWrite, MAX_DATA_LEN, number_of};
use crate::shared_state::{MAX_ROWS, RowPosition, row};

impl Rounds {
    /// Writes what differs from its row.
    pub(super) fn push(&mut self, standing: Standing, is_ending: &dyn Fn() -> bool) -> Result<()> {
        let mut writes = 0;
        let began = self.parts.clock.unix_micros();
        loop {
            let left = self.left();
            let batch = self.next_batch(standing)?;
            if !batch.is_empty() {
                if !self.write(batch)? {
                    // Another member is active, and this process is about to end.
                    return Ok(());
                }
                writes += 1;
            }
            let has_done_all = self.left() == left;
            let is_enough = match standing.is_last {
                true => self.is_over(Some(began), LAST_ROUND),
                false => writes == MAX_WRITES || is_ending(),
            };
            if has_done_all || is_enough {
                return Ok(());
            }
        }
    }

    /// Writes rows; whether this member is the active one.
    fn write(&mut self, batch: Vec<Change>) -> Result<bool> {
        let rows: Vec<DataWrite> = batch.iter().map(|change| change.write.clone()).collect();
        let Some(revision) = self.parts.table.write(&rows)? else {
            return Ok(false);
        };
        self.position = self.position.max(RowPosition::behind(revision));
        self.counts.written += batch.len() as u64;
        let now = self.parts.clock.unix_micros();
        let names = batch.iter().filter_map(|change| match &change.subject {
            Subject::Data(name, _) => Some(name.clone()),
            Subject::Forgotten(..) => None,
        });
        self.parts.store.settle(names);
        for change in batch {
            let version = change.write.row.version;
            match change.subject {
                Subject::Data(name, content) => {
                    self.dirty.remove(&name);
                    self.note(name, (version, &content), now);
                }
                Subject::Forgotten(minion, what) => self.note_forgotten(minion, what),
            }
        }
        Ok(true)
    }

    /// The next rows to be written, with their contents.
    fn next_batch(&mut self, standing: Standing) -> Result<Vec<Change>> {
        let now = self.parts.clock.unix_micros();
        let (mut done, mut unread, mut bytes) = (Vec::new(), Vec::new(), 0);
        let version = match self.next_version {
            Some(version) => version,
            None => self.parts.table.first_version()?,
        };
        let (mut batch, mut version) = self.forgotten_rows(version)?;
        if !batch.is_empty() {
            self.next_version = Some(version);
        }
        for name in &self.dirty {
            if batch.len() == MAX_ROWS || done.len() + unread.len() == MAX_LOOKS {
                break;
            }
            let known = self.known.get(name);
            let is_early = known.is_some_and(|known| {
                known.written > 0 && now.abs_diff(known.written) < WRITE_INTERVAL.unsigned_abs()
            });
            let is_early = is_early && !standing.is_last;
            // A removal waits for no turn.
            let removed_at = self.parts.store.removed_at(name);
            if is_early && removed_at.is_none() {
                continue;
            }
            // What is written after a removal is above it.
            if let Some(at) = removed_at.filter(|at| *at >= version) {
                version = at.saturating_add(1);
                self.next_version = Some(version);
            }
            // The table may have data of an owner before.
            let is_of_before = removed_at.is_some_and(|at| {
                let may_have_row = self.has_row(name) || !self.has_read_all();
                may_have_row && known.is_none_or(|known| known.version <= at)
            });
            self.parts.store.note_version(version);
            let content = match self.parts.store.packed(name) {
                Ok(content) if content.len() > MAX_DATA_LEN => {
                    self.counts.too_large += 1;
                    if let Some(times) = self.too_large.record() {
                        let (minion, bytes) = (&name.minion, content.len());
                        tracing::warn!(
                            %minion, bytes, times,
                            "grains or a mine are too large to be shared with the cluster"
                        );
                    }
                    if !is_of_before {
                        done.push(name.clone());
                        continue;
                    }
                    // The row is not to be.
                    Vec::new()
                }
                Ok(content) => content,
                // Nothing can be said of the file, but that the row is not to be.
                Err(error) if is_of_before => {
                    self.log_file_failure(&error);
                    Vec::new()
                }
                Err(error) => {
                    self.log_file_failure(&error);
                    if !error.is_damaged() {
                        // It may be readable soon, as when this process has too many files open.
                        unread.push(name.clone());
                        continue;
                    }
                    // When it is written the next time.
                    self.counts.damaged += 1;
                    if self.has_row(name) {
                        self.failed.insert(name.clone());
                    }
                    done.push(name.clone());
                    continue;
                }
            };
            let is_known = !content.is_empty() || self.has_read_all();
            if is_known && known.and_then(|known| known.digest) == digest_of(&content) {
                done.push(name.clone());
                continue;
            }
            if is_early && !content.is_empty() && !is_of_before {
                continue;
            }
            bytes += content.len();
            if bytes > MAX_WRITE_LEN && !batch.is_empty() {
                break;
            }
            let row = row::seal_kind(
                &self.parts.cipher,
                (number_of(name.kind), name.minion.as_str()),
                // That of the row, not of the file: no member has had it before.
                (now, &self.parts.writer.put_before(&content)),
                version,
            );
            let row = row.map_err(StoreError::Sealed)?;
            version += 1;
            self.next_version = Some(version);
            let is_tombstone = content.is_empty();
            batch.push(Change {
                subject: Subject::Data(name.clone(), content),
                write: DataWrite { row, is_tombstone },
            });
        }
        for name in done.iter().chain(&unread) {
            self.dirty.remove(name);
        }
        self.unread.extend(unread);
        self.parts.store.settle(done.into_iter());
        Ok(batch)
    }
}

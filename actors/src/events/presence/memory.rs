//! Saved presence: where each minion's last request came from, over a restart of the master.
//!
//! A minion that keeps its session sends nothing when it reconnects, so without this a new master
//! would have connections and no minions. One line for each minion: the time of its last request
//! (microseconds since 1970), its address, `+` if it was present, its id. The file is a hint and
//! no record: it is written once a round without `fsync`, and unreadable lines are skipped.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use saltern_model::MinionId;
use saltern_store::{StoreError, files};

/// Largest file that is read: a line has 300 bytes at most.
const MAX_FILE_BYTES: usize = 256 << 20;

/// Saved state of one minion.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) minion: MinionId,
    pub(super) heard: i64,
    pub(super) from: IpAddr,
    pub(super) was_present: bool,
}

/// Path of the file.
pub(super) fn path(cachedir: &Path) -> PathBuf {
    cachedir.join("saltern/presence")
}

/// Reads what was written last; empty without a file.
///
/// # Errors
/// When the file is there and cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<Memory>, StoreError> {
    let text = files::read_text(path, MAX_FILE_BYTES)?.unwrap_or_default();
    Ok(text.lines().filter_map(parse).collect())
}

/// Replaces the file.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(path: &Path, memories: &[Memory]) -> Result<(), StoreError> {
    let mut text = String::with_capacity(64 * memories.len());
    for memory in memories {
        let presence = if memory.was_present { '+' } else { '-' };
        let (heard, from, minion) = (memory.heard, memory.from, &memory.minion);
        text.push_str(&format!("{heard} {from} {presence} {minion}\n"));
    }
    if let Some(directory) = path.parent() {
        files::ensure_dir(directory, 0o700)?;
    }
    let create = files::Create::PRIVATE.derived();
    files::write_atomic(path, text.as_bytes(), create)
}

fn parse(line: &str) -> Option<Memory> {
    // The id comes last: it may have spaces in it.
    let mut words = line.splitn(4, ' ');
    let heard = words.next()?.parse().ok()?;
    let from = words.next()?.parse().ok()?;
    let was_present = match words.next()? {
        "+" => true,
        "-" => false,
        _ => return None,
    };
    let minion = MinionId::parse(words.next()?).ok()?;
    Some(Memory {
        minion,
        heard,
        from,
        was_present,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_memories_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        assert_eq!(read(&path).unwrap(), []);
        let memory = |id: &str, from: &str, was_present| Memory {
            minion: MinionId::parse(id).unwrap(),
            heard: 1_795_000_000_000_001,
            from: from.parse().unwrap(),
            was_present,
        };
        let memories = [
            memory("m1", "192.0.2.1", true),
            memory("a name with spaces ", "2001:db8::1", false),
        ];
        write(&path, &memories).unwrap();
        assert_eq!(read(&path).unwrap(), memories);
    }

    #[test]
    fn malformed_lines_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("presence");
        let text = "nonsense\n1 192.0.2.1 + m1\n1 192.0.2.1 ? m2\n1 here + m3\nx 192.0.2.1 - m4\n\
                    1 192.0.2.1 + a/b\n1 192.0.2.1 -";
        std::fs::write(&path, text).unwrap();
        let ids: Vec<String> = read(&path)
            .unwrap()
            .iter()
            .map(|memory| memory.minion.to_string())
            .collect();
        assert_eq!(ids, ["m1"]);
    }
}

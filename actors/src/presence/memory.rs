//! Where minions were last heard, over a restart of the master.
//!
//! A minion that keeps its session says nothing when it connects again, so without this a master
//! that was just started would know connections and no minions. A line a minion: when it was last
//! heard (microseconds since 1970), from where, `+` if it was present, its id. The file is a help
//! and no record: it is written once a round without waiting for the disk, and what cannot be read
//! in it is passed over.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use saltern_model::MinionId;
use saltern_store::{StoreError, files};

/// More than any site's: a line has 300 bytes at most.
const LARGEST: usize = 256 << 20;

/// What is remembered of one minion.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) minion: MinionId,
    pub(super) heard: i64,
    pub(super) from: IpAddr,
    pub(super) was_present: bool,
}

/// Where it is kept.
pub(super) fn path(cachedir: &Path) -> PathBuf {
    cachedir.join("saltern/presence")
}

/// What was written last; nothing if nothing was.
///
/// # Errors
/// When the file is there and cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<Memory>, StoreError> {
    let text = files::read_text(path, LARGEST)?.unwrap_or_default();
    Ok(text.lines().filter_map(parse).collect())
}

/// Replaces what was written before.
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
    fn what_is_written_is_read_again() {
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
    fn lines_that_make_no_sense_are_passed_over() {
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

//! Dead letters of the reactor: failed reactions, kept for inspection and replay.
//!
//! One file a letter, named by the time it was written, readable by the master's user only: events
//! may hold secrets. Their number is bounded; the oldest is dropped. They are not durable, so no
//! write waits for the disk.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_config::MasterConfig;
use saltern_wire::msgpack::{self, Dialect, Limits, pack};
use serde::{Deserialize, Serialize};

use crate::error::{Result, StoreError};
use crate::files::{self, Create};

/// Maximum number of letters.
const MAX_DEAD_LETTERS: usize = 1_000;

/// Maximum size of a letter, in bytes.
const LETTER_BYTES: usize = 2 << 20;

/// Digits of a name: microseconds since 1970 and a number.
const DIGITS: usize = 20;

/// A failed reaction: what happened, and what is needed to replay it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The tag of the event.
    pub tag: String,
    /// The file; `None` for a whole event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sls: Option<String>,
    /// The id of the reaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The type of the reaction, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub kind: Option<String>,
    /// Its function, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fun: Option<String>,
    /// Its outcome: `failed` or `lost`.
    pub what: String,
    /// Why.
    pub reason: String,
    /// When, in microseconds since 1970.
    pub time: i64,
    /// The key of the reaction among those of its id: its state,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// its position,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// and its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The data of the event, packed.
    #[serde(with = "msgpack::as_bytes")]
    pub data: Bytes,
}

/// Result of storing a letter.
#[derive(Debug)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Number of older ones that were dropped for it.
    pub evicted: u64,
}

/// Bounded directory of dead letters, the oldest dropped first.
pub struct DeadLetters {
    dir: PathBuf,
    clock: Clock,
    /// The names of all letters, oldest first.
    names: Mutex<VecDeque<String>>,
}

impl DeadLetters {
    /// The letters of a master, below its cache directory, which is made if it is not there.
    pub fn open(config: &MasterConfig, clock: Clock) -> Result<Self> {
        let dir = directory(config);
        files::ensure_dir(&dir, 0o700)?;
        let names = names(&dir)?.into();
        Ok(Self {
            dir,
            clock,
            names: Mutex::new(names),
        })
    }

    /// Stores a letter; drops the oldest one if there are too many.
    ///
    /// # Errors
    /// When it is too large, or cannot be written.
    pub fn put(&self, letter: &DeadLetter) -> Result<Kept> {
        let packed = pack(letter, Dialect::Bin);
        if packed.len() > LETTER_BYTES {
            return Err(StoreError::TooLarge {
                path: self.dir.clone(),
                limit: LETTER_BYTES,
            });
        }
        let mut names = self.names.lock();
        let mut number = u128::try_from(self.clock.unix_micros()).unwrap_or(0) * 10_000;
        let last = names.back().and_then(|name| name.parse::<u128>().ok());
        if let Some(last) = last {
            number = number.max(last + 1);
        }
        let name = format!("{number:0DIGITS$}");
        files::write_atomic(
            &files::child(&self.dir, &name)?,
            &packed,
            Create::PRIVATE.derived(),
        )?;
        names.push_back(name.clone());
        let mut evicted = 0;
        while names.len() > MAX_DEAD_LETTERS {
            if let Some(oldest) = names.pop_front() {
                files::remove(&files::child(&self.dir, &oldest)?)?;
                evicted += 1;
            }
        }
        Ok(Kept { name, evicted })
    }

    /// A letter; `None` when there is none of that name, or none that can be understood.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(&self, name: &str) -> Result<Option<DeadLetter>> {
        match is_name(name) {
            true => read(&files::child(&self.dir, name)?),
            false => Ok(None),
        }
    }

    /// The names of `limit` letters older than one, newest first, and how many there are in all.
    pub fn names(&self, before: Option<&str>, limit: usize) -> (Vec<String>, usize) {
        let names = self.names.lock();
        let older = names.iter().rev();
        let older = older.filter(|name| before.is_none_or(|before| name.as_str() < before));
        (older.take(limit).cloned().collect(), names.len())
    }

    /// Removes a letter; `false` when it was not there any more: of several concurrent removals
    /// exactly one returns `true`.
    ///
    /// # Errors
    /// When it cannot be removed; then it is still there.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let mut names = self.names.lock();
        let Some(at) = names.iter().position(|known| known == name) else {
            return Ok(false);
        };
        let was_there = files::remove(&files::child(&self.dir, name)?)?;
        names.remove(at);
        Ok(was_there)
    }
}

/// The letters of a configuration with their names, oldest first; what cannot be read is left out.
/// Read-only: nothing is made or changed.
///
/// # Errors
/// When the directory cannot be listed.
pub fn dead_letters(config: &MasterConfig) -> Result<Vec<(String, DeadLetter)>> {
    let dir = directory(config);
    let mut letters = Vec::new();
    for name in names(&dir)? {
        if let Some(letter) = read(&files::child(&dir, &name)?)? {
            letters.push((name, letter));
        }
    }
    Ok(letters)
}

fn directory(config: &MasterConfig) -> PathBuf {
    config.cachedir.join("saltern").join("dead_letters")
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    files::each_entry(dir, |name, _| {
        if is_name(name) {
            names.push(name.to_owned());
        }
    })?;
    names.sort();
    Ok(names)
}

fn read(path: &Path) -> Result<Option<DeadLetter>> {
    let Some(packed) = files::read(path, LETTER_BYTES)? else {
        return Ok(None);
    };
    Ok(msgpack::from_slice(&packed, &Limits::WIRE).ok())
}

/// Whether this may name a letter: digits, so that it names one file and no other place.
fn is_name(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn letters() -> (tempfile::TempDir, DeadLetters) {
        let dir = tempfile::tempdir().unwrap();
        let letters = DeadLetters {
            dir: dir.path().to_owned(),
            clock: Clock::system(),
            names: Mutex::default(),
        };
        (dir, letters)
    }

    #[test]
    fn letter_is_listed_read_and_removed_once() {
        let (_dir, letters) = letters();
        let letter = DeadLetter {
            tag: "a/b".to_owned(),
            number: Some(2),
            data: Bytes::from_static(b"\x81\xa1x\xff"),
            ..DeadLetter::default()
        };
        let name = letters.put(&letter).unwrap().name;
        assert_eq!(letters.get(&name).unwrap(), Some(letter));
        assert!(letters.remove(&name).unwrap());
        assert!(!letters.remove(&name).unwrap());
        assert_eq!(letters.get(&name).unwrap(), None);
        for wrong in [
            "",
            "../x",
            "1",
            "../../../../etc/passwd",
            "aaaaaaaaaaaaaaaaaaaa",
        ] {
            assert_eq!(letters.get(wrong).unwrap(), None);
            assert!(!letters.remove(wrong).unwrap());
        }
    }

    #[test]
    fn full_directory_drops_the_oldest_letter_and_is_private() {
        let (dir, letters) = letters();
        let put = |number: usize| {
            let time = i64::try_from(number).unwrap();
            let letter = DeadLetter {
                time,
                ..DeadLetter::default()
            };
            letters.put(&letter).unwrap()
        };
        let written: Vec<Kept> = (0..MAX_DEAD_LETTERS + 2).map(put).collect();
        assert_eq!(written.iter().map(|kept| kept.evicted).sum::<u64>(), 2);
        let written: Vec<String> = written.into_iter().map(|kept| kept.name).collect();
        let kept = names(dir.path()).unwrap();
        assert_eq!(kept, written[2..]);
        let (page, total) = letters.names(Some(&kept[5]), 2);
        assert_eq!(
            (page, total),
            (vec![kept[4].clone(), kept[3].clone()], 1_000)
        );
        let mode = std::fs::metadata(dir.path().join(&kept[0])).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn oversized_letter_is_refused() {
        let (dir, letters) = letters();
        let large = DeadLetter {
            reason: "x".repeat(LETTER_BYTES),
            ..DeadLetter::default()
        };
        assert!(letters.put(&large).is_err());
        assert!(names(dir.path()).unwrap().is_empty());
    }
}

//! Digests of files, each computed once for one state of a file.
//!
//! A state is the file's device, inode, size and both of its times. A file that was changed within
//! the last two seconds is not remembered: another change could leave all of these as they are.
//! Stock keeps its digests in files of the cache directory; nobody else reads those, so ours live
//! in memory and are gone with the process.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use md5::Md5;
use parking_lot::Mutex;
use saltern_base::hex;
use saltern_config::HashType;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::state::FileState;
use super::tree::is_settled;

/// Digests in one generation of the cache.
const MAX_REMEMBERED: usize = 200_000;

/// Bytes of one read.
const READ_BYTES: usize = 128 * 1024;

/// Computes and remembers digests.
pub(crate) struct Hashes {
    kind: HashType,
    known: Mutex<Generations>,
}

/// When the newer generation is full it becomes the older one, and the older one goes: what is
/// asked for again moves on.
#[derive(Default)]
struct Generations {
    newer: HashMap<FileState, Slot>,
    older: HashMap<FileState, Slot>,
}

/// Held while the digest is computed, so that a thousand minions that want it wait for one.
type Slot = Arc<Mutex<Option<Arc<str>>>>;

impl Generations {
    fn slot(&mut self, state: FileState) -> Slot {
        if let Some(slot) = self.newer.get(&state) {
            return Arc::clone(slot);
        }
        let slot = self.older.remove(&state).unwrap_or_default();
        if self.newer.len() >= MAX_REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(state, Arc::clone(&slot));
        slot
    }

    fn forget(&mut self, state: &FileState) {
        self.newer.remove(state);
        self.older.remove(state);
    }
}

impl Hashes {
    pub(crate) fn new(kind: HashType) -> Self {
        Self {
            kind,
            known: Mutex::default(),
        }
    }

    /// The name of the digest, as stock writes it.
    pub(crate) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// The digest of the file in lower-case hex.
    ///
    /// # Errors
    /// The system's, when the file cannot be read to its end.
    pub(crate) fn of(&self, file: &File, now: SystemTime) -> io::Result<Arc<str>> {
        let stat = rustix::fs::fstat(file)?;
        let state = FileState::of(&stat);
        let slot = self.known.lock().slot(state);
        let mut known = slot.lock();
        if let Some(hash) = &*known {
            return Ok(Arc::clone(hash));
        }
        let computed = digest(self.kind, file);
        let unchanged = rustix::fs::fstat(file).is_ok_and(|stat| FileState::of(&stat) == state);
        let settled = is_settled(stat.st_ctime, now) && is_settled(stat.st_mtime, now);
        match computed {
            Ok(hash) if unchanged && settled => {
                let hash: Arc<str> = hash.into();
                *known = Some(Arc::clone(&hash));
                Ok(hash)
            }
            other => {
                self.known.lock().forget(&state);
                other.map(Into::into)
            }
        }
    }
}

fn digest(kind: HashType, file: &File) -> io::Result<String> {
    match kind {
        HashType::Md5 => digest_with::<Md5>(file),
        HashType::Sha1 => digest_with::<Sha1>(file),
        HashType::Sha224 => digest_with::<Sha224>(file),
        HashType::Sha256 => digest_with::<Sha256>(file),
        HashType::Sha384 => digest_with::<Sha384>(file),
        HashType::Sha512 => digest_with::<Sha512>(file),
    }
}

fn digest_with<D: Digest>(file: &File) -> io::Result<String> {
    let mut hasher = D::new();
    let mut buffer = vec![0_u8; READ_BYTES];
    let mut offset = 0_u64;
    loop {
        let read = match rustix::io::pread(file, buffer.as_mut_slice(), offset) {
            Ok(read) => read,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        if read == 0 {
            break;
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        offset += read as u64;
    }
    Ok(hex(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use saltern_base::clock::Clock;

    use super::*;

    #[test]
    fn digests_match_known_vectors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("abc");
        fs::write(&path, "abc").unwrap();
        for (kind, start) in [
            (HashType::Md5, "900150983cd24fb0d6963f7d28e17f72"),
            (HashType::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (HashType::Sha224, "23097d223405d8228642a477bda255b32aadbce4"),
            (HashType::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a3"),
            (HashType::Sha384, "cb00753f45a35e8bb5a03d699ac65007272c32ab"),
            (HashType::Sha512, "ddaf35a193617abacc417349ae20413112e6fa4e"),
        ] {
            let hashes = Hashes::new(kind);
            let hash = hashes
                .of(&File::open(&path).unwrap(), SystemTime::UNIX_EPOCH)
                .unwrap();
            assert!(hash.starts_with(start), "{}: {hash}", hashes.name());
        }
    }

    #[test]
    fn digest_is_cached_once_the_file_is_unchanged_for_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let hashes = Hashes::new(HashType::Sha256);
        let now = Clock::system().now();
        let file = File::open(&path).unwrap();
        hashes.of(&file, now).unwrap();
        assert!(hashes.known.lock().newer.is_empty());
        let later = now + Duration::from_secs(60);
        let one = hashes.of(&file, later).unwrap();
        assert_eq!(hashes.known.lock().newer.len(), 1);
        fs::write(&path, "two").unwrap();
        assert_ne!(hashes.of(&File::open(&path).unwrap(), now).unwrap(), one);
    }
}

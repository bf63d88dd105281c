//! Names with a successful log-in, by address: bounded, the oldest forgotten first, and saved over a
//! restart.
//!
//! Names are kept as keyed digests, so that no list of a site's users lies on its disk. The file
//! begins with the key; one line for each name follows: its address and its digest. It is a hint
//! and no record: unreadable lines are skipped, and without it all names are unknown.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use saltern_store::{StoreError, files};

use super::Who;

/// Most names of one generation.
const MAX_NAMES: usize = 4_096;

/// Largest file that is read: a line has 64 bytes at most.
const MAX_FILE_BYTES: usize = 2 * MAX_NAMES * 64 + 64;

/// Keyed digest of names.
pub(super) struct NameDigest {
    key: String,
}

impl Default for NameDigest {
    fn default() -> Self {
        // As secret as those of a hash table: nobody can choose names with one digest.
        let [one, other] = [(); 2].map(|()| RandomState::new().hash_one(0));
        Self {
            key: format!("{one:016x}{other:016x}"),
        }
    }
}

impl NameDigest {
    pub(super) fn of(&self, name: &str) -> u64 {
        let mut digest = saltern_crypto::sha1_hex(format!("{}{name}", self.key).as_bytes());
        digest.truncate(16);
        u64::from_str_radix(&digest, 16).unwrap_or(0)
    }
}

/// Two sets, of which the older one is forgotten as a whole.
#[derive(Default)]
pub(super) struct ProvedNames {
    current: HashSet<Who>,
    previous: HashSet<Who>,
}

impl ProvedNames {
    pub(super) fn contains(&self, who: &Who) -> bool {
        self.current.contains(who) || self.previous.contains(who)
    }

    /// Whether it was not known to be of the latest.
    pub(super) fn remember(&mut self, who: Who) -> bool {
        if self.current.contains(&who) {
            return false;
        }
        if self.current.len() >= MAX_NAMES {
            self.previous = std::mem::take(&mut self.current);
        }
        self.current.insert(who)
    }

    /// The content of the file; the latest names come first.
    pub(super) fn to_text(&self, digest: &NameDigest) -> String {
        let mut text = format!("{}\n", digest.key);
        for Who { address, name } in self.current.iter().chain(&self.previous) {
            text.push_str(&format!("{address} {name:016x}\n"));
        }
        text
    }
}

/// Path of the file.
pub(crate) fn path(cachedir: &Path) -> PathBuf {
    cachedir.join("saltern/logins")
}

/// Reads what was written last.
///
/// # Errors
/// When the file is there and cannot be read.
pub(super) fn read(path: &Path) -> Result<(NameDigest, ProvedNames), StoreError> {
    let text = files::read_text(path, MAX_FILE_BYTES)?.unwrap_or_default();
    let mut lines = text.lines();
    let key = lines.next().filter(|key| key.len() == 32);
    let Some(key) = key.filter(|key| key.bytes().all(|byte| byte.is_ascii_hexdigit())) else {
        return Ok(Default::default());
    };
    let digest = NameDigest {
        key: key.to_owned(),
    };
    let mut names = lines.filter_map(parse);
    let mut generation = || names.by_ref().take(MAX_NAMES).collect();
    let names = ProvedNames {
        current: generation(),
        previous: generation(),
    };
    Ok((digest, names))
}

/// Replaces the file.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(path: &Path, text: &str) -> Result<(), StoreError> {
    if let Some(directory) = path.parent() {
        files::ensure_dir(directory, 0o700)?;
    }
    files::write_atomic(path, text.as_bytes(), files::Create::PRIVATE.derived())
}

fn parse(line: &str) -> Option<Who> {
    let (address, name) = line.split_once(' ')?;
    Some(Who {
        address: address.parse().ok()?,
        name: u64::from_str_radix(name, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn who(name: u64) -> Who {
        Who {
            address: IpAddr::from([10, 0, 0, 1]),
            name,
        }
    }

    #[test]
    fn proved_names_are_bounded_and_the_latest_are_kept() {
        let mut proved = ProvedNames::default();
        for name in 0..3 * MAX_NAMES as u64 {
            assert!(proved.remember(who(name)));
            assert!(proved.current.len() + proved.previous.len() <= 2 * MAX_NAMES);
        }
        assert!(!proved.remember(who(3 * MAX_NAMES as u64 - 1)));
        assert!(!proved.contains(&who(0)));
        assert!(proved.contains(&who(2 * MAX_NAMES as u64)));
    }

    #[test]
    fn written_names_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        let (digest, names) = read(&path).unwrap();
        assert!(names.current.is_empty(), "without a file");
        let mut names = ProvedNames::default();
        let far = Who {
            address: "2001:db8::".parse().unwrap(),
            name: digest.of("ana"),
        };
        for number in 0..MAX_NAMES as u64 {
            names.remember(who(number << 40));
        }
        names.remember(far);
        write(&path, &names.to_text(&digest)).unwrap();
        let (again, read) = read(&path).unwrap();
        assert_eq!(again.of("ana"), digest.of("ana"));
        assert_ne!(NameDigest::default().of("ana"), digest.of("ana"));
        assert!(read.contains(&far));
        assert_eq!((read.current.len(), read.previous.len()), (MAX_NAMES, 1));
    }

    #[test]
    fn malformed_lines_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logins");
        let key = "0123456789abcdef0123456789abcdef";
        let lines = "here 00\n10.0.0.1\n10.0.0.1 x\n10.0.0.1 05\n\n";
        for (first, found) in [(key, 1), ("too short", 0), ("", 0)] {
            std::fs::write(&path, format!("{first}\n{lines}")).unwrap();
            let (_, names) = read(&path).unwrap();
            assert_eq!(names.current.len(), found, "{first}");
            assert_eq!(names.contains(&who(5)), found == 1);
        }
    }
}

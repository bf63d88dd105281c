//! Automatic acceptance and rejection of new keys: `auto_accept`, `autosign_file`,
//! `autoreject_file`, `autosign_grains_dir`.
//!
//! The files are read anew when they change. A file that others may write to is ignored, as stock
//! does (`AutoKey.check_permissions` in `salt/daemons/masterapi.py`), because it would hand out
//! the right to join. Stubs in `minions_autosign/` are the PKI tree's business.

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dashmap::DashMap;
use saltern_python::expression::AnyOf;

/// Rule files longer than this are ignored.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The rules of one site.
pub struct Autosign {
    auto_accept: bool,
    autosign_file: Option<PathBuf>,
    autoreject_file: Option<PathBuf>,
    grains_dir: Option<PathBuf>,
    /// A group that may have write access to a rule file.
    permissive: bool,
    cache: DashMap<PathBuf, (Version, Arc<Lines>)>,
}

/// The options that the rules come from.
#[derive(Clone, Debug, Default)]
pub struct AutosignOptions {
    /// `auto_accept`.
    pub auto_accept: bool,
    /// `autosign_file`.
    pub autosign_file: Option<PathBuf>,
    /// `autoreject_file`.
    pub autoreject_file: Option<PathBuf>,
    /// `autosign_grains_dir`.
    pub grains_dir: Option<PathBuf>,
    /// `permissive_pki_access`.
    pub permissive_pki_access: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    mode: u32,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            mode: metadata.mode(),
        }
    }
}

struct Lines {
    texts: Vec<String>,
    patterns: AnyOf,
}

impl Autosign {
    /// Takes the options; reads no file yet.
    pub fn new(options: AutosignOptions) -> Self {
        Self {
            auto_accept: options.auto_accept,
            autosign_file: options.autosign_file,
            autoreject_file: options.autoreject_file,
            grains_dir: options.grains_dir,
            permissive: options.permissive_pki_access,
            cache: DashMap::new(),
        }
    }

    /// Whether a new key of this minion is to be rejected.
    pub fn rejects(&self, id: &str) -> bool {
        self.listed(self.autoreject_file.as_deref(), id)
    }

    /// Whether a new key of this minion is to be accepted by `auto_accept` or the autosign file.
    pub fn accepts(&self, id: &str) -> bool {
        self.auto_accept || self.listed(self.autosign_file.as_deref(), id)
    }

    /// Whether a new key is to be accepted because of the grains that came with it. `grains` gives
    /// the text of a grain as Python's `str()` would.
    pub fn accepts_grains(&self, grains: &[(String, String)]) -> bool {
        let Some(directory) = &self.grains_dir else {
            return false;
        };
        grains
            .iter()
            .filter(|(name, _)| is_file_name(name))
            .any(|(name, value)| {
                self.lines(&directory.join(name))
                    .is_some_and(|lines| lines.texts.contains(value))
            })
    }

    fn listed(&self, file: Option<&Path>, id: &str) -> bool {
        file.and_then(|file| self.lines(file))
            .is_some_and(|lines| lines.patterns.matches(id))
    }

    fn lines(&self, path: &Path) -> Option<Arc<Lines>> {
        let metadata = std::fs::metadata(path).ok()?;
        let version = Version::of(&metadata);
        if let Some(known) = self.cache.get(path)
            && known.0 == version
        {
            return Some(known.1.clone());
        }
        if !metadata.is_file()
            || metadata.size() > MAX_FILE_BYTES
            || !self.may_be_trusted(&metadata)
        {
            tracing::warn!(path = %path.display(), "rule file ignored: others may write to it, \
                or it is not a plain file of reasonable size");
            return None;
        }
        let lines = Arc::new(read_lines(path)?);
        self.cache.insert(path.to_owned(), (version, lines.clone()));
        Some(lines)
    }

    fn may_be_trusted(&self, metadata: &Metadata) -> bool {
        let others = metadata.mode() & 0o002 != 0;
        let group = metadata.mode() & 0o020 != 0;
        !others && (!group || (self.permissive && group_is_ours(metadata.gid())))
    }
}

/// Root may only rely on a group that root is a member of.
fn group_is_ours(gid: u32) -> bool {
    if !rustix::process::getuid().is_root() {
        return true;
    }
    let own = rustix::process::getgid().as_raw();
    let others = rustix::process::getgroups().unwrap_or_default();
    is_one_of(gid, own, others.iter().map(|group| group.as_raw()))
}

fn is_one_of(gid: u32, own: u32, mut others: impl Iterator<Item = u32>) -> bool {
    gid == own || others.any(|other| gid == other)
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

fn read_lines(path: &Path) -> Option<Lines> {
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    if let Err(error) = file.take(MAX_FILE_BYTES).read_to_string(&mut text) {
        tracing::warn!(path = %path.display(), %error, "rule file ignored: it cannot be read");
        return None;
    }
    let texts: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    let patterns = AnyOf::new(texts.iter().map(String::as_str));
    Some(Lines { texts, patterns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_rule_file_is_read_again_when_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("autosign.conf");
        let rules = Autosign::new(AutosignOptions {
            autosign_file: Some(file.clone()),
            ..AutosignOptions::default()
        });
        assert!(!rules.accepts("web-1"));
        write(&file, "# a comment\n\nweb-*\n", 0o644);
        assert!(rules.accepts("web-1"));
        assert!(!rules.accepts("# a comment"));
        assert!(!rules.accepts(""));
        write(&file, "db-[0-9]+\n", 0o644);
        assert!(!rules.accepts("web-1"));
        assert!(rules.accepts("db-12"));
        assert!(!rules.rejects("db-12"));
    }

    #[test]
    fn a_file_that_others_may_write_to_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("autosign.conf");
        let rules = Autosign::new(AutosignOptions {
            autosign_file: Some(file.clone()),
            autoreject_file: Some(file.clone()),
            ..AutosignOptions::default()
        });
        for mode in [0o666, 0o646, 0o664] {
            write(&file, "*\n", mode);
            assert!(!rules.accepts("m1"), "{mode:o}");
            assert!(!rules.rejects("m1"), "{mode:o}");
        }
        write(&file, "*\n", 0o600);
        assert!(rules.accepts("m1"));
    }

    #[test]
    fn reject_file_rejects_its_minions_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("autoreject.conf");
        write(&file, "bad-*\n", 0o644);
        let rules = Autosign::new(AutosignOptions {
            autoreject_file: Some(file),
            auto_accept: true,
            ..AutosignOptions::default()
        });
        assert!(rules.rejects("bad-1"));
        assert!(!rules.rejects("web-1"));
        assert!(rules.accepts("bad-1"), "rejecting is asked for beside it");
    }

    #[test]
    fn file_beyond_the_limit_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("autosign.conf");
        let rules = Autosign::new(AutosignOptions {
            autosign_file: Some(file.clone()),
            ..AutosignOptions::default()
        });
        let limit = usize::try_from(MAX_FILE_BYTES).unwrap();
        for (bytes, is_taken) in [(limit, true), (limit + 1, false)] {
            write(&file, &format!("m1\n#{}", "x".repeat(bytes - 4)), 0o644);
            assert_eq!(rules.accepts("m1"), is_taken, "{bytes}");
        }
    }

    #[test]
    fn file_of_a_foreign_group_is_ignored_even_where_groups_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("autosign.conf");
        write(&file, "*\n", 0o664);
        let accepts = |permissive_pki_access| {
            let rules = Autosign::new(AutosignOptions {
                autosign_file: Some(file.clone()),
                permissive_pki_access,
                ..AutosignOptions::default()
            });
            rules.accepts("m1")
        };
        assert!(!accepts(false));
        assert!(accepts(true));
        // Others than root can give a file to no foreign group, and may rely on any.
        if rustix::process::getuid().is_root() {
            std::os::unix::fs::chown(&file, None, Some(54_321)).unwrap();
            assert!(!accepts(true));
        }
    }

    #[test]
    fn group_is_the_own_one_or_one_of_the_others() {
        assert!(is_one_of(5, 5, [].into_iter()));
        assert!(is_one_of(6, 5, [7, 6].into_iter()));
        assert!(!is_one_of(8, 5, [7, 6].into_iter()));
    }

    #[test]
    fn name_of_a_grain_is_that_of_one_file() {
        for name in ["", ".", "..", "a/b", "/a", "a\0b"] {
            assert!(!is_file_name(name), "{name:?}");
        }
        for name in ["a", ".a", "..a", "a..b"] {
            assert!(is_file_name(name), "{name:?}");
        }
    }

    #[test]
    fn autosign_grains_match_exactly_and_never_leave_their_directory() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("uuid"), "# ours\n8d0d7a\n", 0o600);
        write(&dir.path().join("secret"), "x\n", 0o600);
        let inner = dir.path().join("grains");
        std::fs::create_dir(&inner).unwrap();
        write(&inner.join("uuid"), "8d0d7a\n", 0o600);
        let rules = Autosign::new(AutosignOptions {
            grains_dir: Some(inner),
            ..AutosignOptions::default()
        });
        let grain = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert!(rules.accepts_grains(&grain("uuid", "8d0d7a")));
        assert!(!rules.accepts_grains(&grain("uuid", "8d0d7b")));
        assert!(!rules.accepts_grains(&grain("../secret", "x")));
        assert!(!rules.accepts_grains(&[]));
    }
}

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
    let own = rustix::process::getgid().as_raw() == gid;
    own || rustix::process::getgroups().is_ok_and(|groups| groups.iter().any(|g| g.as_raw() == gid))
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

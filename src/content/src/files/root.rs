//! Opening files below a root, so that no path can lead out of it.
//!
//! The kernel keeps the promise: `openat2` with `RESOLVE_BENEATH` fails when any part of a path,
//! or of a symlink on the way, would leave the root, and no rename at the wrong moment changes
//! that. A kernel without `openat2` (before 5.6, or a sandbox that hides it) gets a walk from part
//! to part that takes no symlink. Nothing here decides who may read what.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::path::Relative;

/// Handling of symlinks on the way to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Follow them wherever they lead: users with write access below the root decide. The links of
    /// `/proc`, which lead into other processes, are not followed.
    Follow,
    /// Follow those that end below the root.
    Inside,
    /// Refuse them.
    Never,
}

/// An open directory below which files are opened.
pub struct Root {
    directory: OwnedFd,
    /// Whether to ask the kernel for `openat2`; tests turn it off.
    has_openat2: bool,
}

/// How often a lookup is tried again that the kernel gave up because of a rename at the same time.
const MAX_RACES: usize = 16;

impl Root {
    /// Opens the directory; `path` itself may be, or lead through, a symlink.
    ///
    /// # Errors
    /// The system's, such as not found or not a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self {
            directory,
            has_openat2: true,
        })
    }

    /// Opens an existing regular file for reading. Never blocks on a pipe, never touches a device.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for what is no regular file; `CrossesDevices` (`EXDEV`) for
    /// what lies outside.
    pub fn file(&self, path: &Relative, links: Links) -> io::Result<File> {
        // Opening a pipe or a device can have an effect, so the look comes first.
        require_regular(&self.stat(path, links)?)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = self.resolve(path, flags, links)?;
        require_regular(&rustix::fs::fstat(&file)?)?;
        Ok(File::from(file))
    }

    /// `stat` of a file or directory, links followed as `links` has it.
    ///
    /// # Errors
    /// The system's; `EXDEV` for what lies outside.
    pub fn stat(&self, path: &Relative, links: Links) -> io::Result<Stat> {
        let found = self.resolve(path, OFlags::PATH | OFlags::CLOEXEC, links)?;
        Ok(rustix::fs::fstat(&found)?)
    }

    /// Opens a directory to be read; the root itself is `None`.
    ///
    /// # Errors
    /// The system's; `EXDEV` for what lies outside.
    pub fn directory(&self, path: Option<&Relative>, links: Links) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match path {
            Some(path) => self.resolve(path, flags, links),
            None => Ok(rustix::fs::openat(
                &self.directory,
                ".",
                flags,
                Mode::empty(),
            )?),
        }
    }

    /// Opens a regular file for writing without cutting it; makes it, and the directories on the
    /// way, if they are not there. Takes no symlink.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for what is no regular file.
    pub fn file_to_write(&self, path: &Relative) -> io::Result<File> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let mut at = None;
        let mut parts = path.parts().peekable();
        while let Some(part) = parts.next() {
            let base = at.as_ref().unwrap_or(&self.directory);
            if parts.peek().is_some() {
                at = Some(directory_to_write(base, part)?);
                continue;
            }
            if let Ok(there) = rustix::fs::statat(base, part, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            {
                require_regular(&there)?;
            }
            let file = rustix::fs::openat(base, part, flags, Mode::from_raw_mode(0o644))?;
            require_regular(&rustix::fs::fstat(&file)?)?;
            return Ok(File::from(file));
        }
        Err(Errno::NOENT.into())
    }

    fn resolve(&self, path: &Relative, flags: OFlags, links: Links) -> io::Result<OwnedFd> {
        let how = match links {
            Links::Follow => ResolveFlags::NO_MAGICLINKS,
            Links::Inside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            Links::Never => {
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
            }
        };
        match self.openat2(path, flags, how) {
            Err(Errno::NOSYS) => self.resolve_by_hand(path, flags, links),
            // An absolute link, or one that leaves and comes back, may still end below.
            Err(Errno::XDEV) if links == Links::Inside => self.resolve_real(path, flags),
            done => Ok(done?),
        }
    }

    fn openat2(&self, path: &Relative, flags: OFlags, how: ResolveFlags) -> Result<OwnedFd, Errno> {
        if !self.has_openat2 {
            return Err(Errno::NOSYS);
        }
        let mut races = 0;
        loop {
            let opened =
                rustix::fs::openat2(&self.directory, path.as_str(), flags, Mode::empty(), how);
            match opened {
                Err(Errno::AGAIN) if races < MAX_RACES => races += 1,
                done => return done,
            }
        }
    }

    /// Without `openat2`.
    fn resolve_by_hand(&self, path: &Relative, flags: OFlags, links: Links) -> io::Result<OwnedFd> {
        match links {
            Links::Follow => Ok(rustix::fs::openat(
                &self.directory,
                path.as_str(),
                flags,
                Mode::empty(),
            )?),
            Links::Never => self.walk(path, flags),
            Links::Inside => match self.walk(path, flags) {
                Err(error) if is_link(&error) => self.resolve_real(path, flags),
                done => done,
            },
        }
    }

    /// From part to part, taking no symlink.
    fn walk(&self, path: &Relative, flags: OFlags) -> io::Result<OwnedFd> {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = None;
        let mut parts = path.parts().peekable();
        while let Some(part) = parts.next() {
            let base = at.as_ref().unwrap_or(&self.directory);
            if parts.peek().is_some() {
                at = Some(rustix::fs::openat(base, part, step, Mode::empty())?);
                continue;
            }
            let found = rustix::fs::openat(base, part, flags | OFlags::NOFOLLOW, Mode::empty())?;
            // With O_PATH the kernel hands out the link itself.
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
            return if kind == FileType::Symlink {
                Err(Errno::LOOP.into())
            } else {
                Ok(found)
            };
        }
        Err(Errno::NOENT.into())
    }

    /// Finds out where the path really ends, and opens that place without any link, if it is below
    /// the root. A change in between ends in an error, not outside.
    fn resolve_real(&self, path: &Relative, flags: OFlags) -> io::Result<OwnedFd> {
        let look = OFlags::PATH | OFlags::CLOEXEC;
        let end = self.resolve(path, look, Links::Follow)?;
        let root = real_path_of(&self.directory)?;
        let end = real_path_of(&end)?;
        let inside = end.strip_prefix(&root).map_err(|_| Errno::XDEV)?;
        let inside = std::str::from_utf8(inside.as_os_str().as_bytes()).map_err(|_| Errno::XDEV)?;
        if inside.is_empty() {
            return Ok(rustix::fs::openat(
                &self.directory,
                ".",
                flags,
                Mode::empty(),
            )?);
        }
        let inside = Relative::parse(inside).map_err(|_| Errno::XDEV)?;
        self.resolve(&inside, flags, Links::Never)
    }
}

/// Real path of an open file, as the kernel knows it.
fn real_path_of(file: &impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// Opens the directory `name`, made if it is not there.
fn directory_to_write(base: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(base, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(base, name, Mode::from_raw_mode(0o755)) {
                // Another request may have been quicker.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(rustix::fs::openat(base, name, flags, Mode::empty())?)
        }
        done => Ok(done?),
    }
}

fn is_link(error: &io::Error) -> bool {
    // A link in the middle of a path is "not a directory" to O_DIRECTORY with O_NOFOLLOW.
    matches!(
        Errno::from_io_error(error),
        Some(Errno::LOOP | Errno::NOTDIR)
    )
}

/// Whether this is a regular file.
pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn require_regular(stat: &Stat) -> io::Result<()> {
    if is_regular(stat) {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let at = tree.path();
        fs::create_dir_all(at.join("root/sub")).unwrap();
        fs::write(at.join("outside"), "outside").unwrap();
        fs::write(at.join("root/file"), "file").unwrap();
        fs::write(at.join("root/sub/deep"), "deep").unwrap();
        symlink("file", at.join("root/inside")).unwrap();
        symlink("sub", at.join("root/subdir")).unwrap();
        symlink(at.join("root/file"), at.join("root/absolute")).unwrap();
        symlink("../root/file", at.join("root/around")).unwrap();
        symlink("../outside", at.join("root/out")).unwrap();
        symlink(at, at.join("root/up")).unwrap();
        symlink("self", at.join("root/self")).unwrap();
        let pipe = at.join("root/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, pipe, FileType::Fifo, 0o666.into(), 0).unwrap();
        tree
    }

    fn content(root: &Root, path: &str, links: Links) -> io::Result<String> {
        let mut text = String::new();
        root.file(&Relative::parse(path).unwrap(), links)?
            .read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn links_are_followed_as_far_as_they_may() {
        let tree = tree();
        for has_openat2 in [true, false] {
            let mut root = Root::open(&tree.path().join("root")).unwrap();
            root.has_openat2 = has_openat2;
            for (path, text, follow, inside, never) in [
                ("file", "file", true, true, true),
                ("sub/deep", "deep", true, true, true),
                ("inside", "file", true, true, false),
                ("subdir/deep", "deep", true, true, false),
                ("absolute", "file", true, true, false),
                ("around", "file", true, true, false),
                ("out", "outside", true, false, false),
                ("up/outside", "outside", true, false, false),
                ("up/root/file", "file", true, true, false),
                ("self", "", false, false, false),
                ("sub", "", false, false, false),
                ("pipe", "", false, false, false),
                ("none", "", false, false, false),
            ] {
                for (links, works) in [
                    (Links::Follow, follow),
                    (Links::Inside, inside),
                    (Links::Never, never),
                ] {
                    let read = content(&root, path, links);
                    assert_eq!(read.is_ok(), works, "{path} {links:?}: {read:?}");
                    if let Ok(read) = read {
                        assert_eq!(read, text, "{path}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_root_may_be_a_link() {
        let tree = tree();
        symlink("root", tree.path().join("alias")).unwrap();
        let root = Root::open(&tree.path().join("alias")).unwrap();
        assert_eq!(content(&root, "absolute", Links::Inside).unwrap(), "file");
    }

    #[test]
    fn a_device_is_not_opened() {
        let root = Root::open(Path::new("/dev")).unwrap();
        assert!(content(&root, "null", Links::Follow).is_err());
    }

    #[test]
    fn writing_takes_no_link_and_makes_directories() {
        let tree = tree();
        let root = Root::open(&tree.path().join("root")).unwrap();
        let write = |path: &str| root.file_to_write(&Relative::parse(path).unwrap());
        assert!(write("new/deep/file").is_ok());
        assert!(tree.path().join("root/new/deep/file").is_file());
        for path in ["out", "inside", "up/x", "subdir/x", "pipe", "sub", "file/x"] {
            assert!(write(path).is_err(), "{path}");
        }
        assert_eq!(fs::read(tree.path().join("outside")).unwrap(), b"outside");
    }
}

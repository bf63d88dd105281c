//! `file.*`: access of pillars to the master's disk, reading only.
//!
//! As in stock these read with the rights of the master; authors of pillars are trusted with
//! them. Only functions that read are here; one that writes is unknown, and an error names
//! it. What is read, hashed and listed is bounded.

mod find;
mod paths;
mod read;
mod stats;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::render::functions::{CallArgs, CallError, Registry};

pub(crate) use read::hash;

/// The longest file that is read whole.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The longest file that is hashed.
const MAX_HASHED_BYTES: u64 = 1 << 30;
/// The most entries that a directory may list, or a search go through.
const MAX_ENTRIES: usize = 100_000;

/// Adds the functions.
pub(super) fn file(registry: &mut Registry) {
    read::add(registry);
    paths::add(registry);
    stats::add(registry);
    find::add(registry);
}

fn refused(text: impl Into<String>) -> CallError {
    CallError::Refused(text.into())
}

/// An error of the system as Python prints it.
fn io_error(error: &std::io::Error, path: &Path) -> CallError {
    let number = error.raw_os_error();
    let text = match number {
        Some(number) => {
            let text = rustix::io::Errno::from_raw_os_error(number).to_string();
            let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
            format!("[Errno {number}] {text}: '{}'", path.display())
        }
        None => format!("{error}: '{}'", path.display()),
    };
    CallError::Failed(text)
}

/// The path of a call, with `~` and `~user` replaced.
fn path_of(args: &CallArgs) -> Result<PathBuf, CallError> {
    Ok(PathBuf::from(expanded(&args.need_text(0, "path")?)))
}

/// Python's `expanduser`: a home that is not known leaves the text as it is.
fn expanded(text: &str) -> String {
    let Some(rest) = text.strip_prefix('~') else {
        return text.to_owned();
    };
    let (user, below) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    match super::users::home(user) {
        Some(home) => format!("{}{below}", home.trim_end_matches('/')),
        None => text.to_owned(),
    }
}

/// Opens a file to be read. Anything but a regular file is an error: a pipe without a writer or a
/// terminal would hold the thread for ever.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(rustix::io::Errno::ISDIR.into()),
        _ => Err(io::Error::other("it is no regular file")),
    }
}

/// Reads a file whole, if it is not too long.
pub(super) fn bytes_of(path: &Path) -> Result<Vec<u8>, CallError> {
    let file = open(path).map_err(|error| io_error(&error, path))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| io_error(&error, path))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(refused(format!(
            "the file \"{}\" has more than {MAX_FILE_BYTES} bytes",
            path.display()
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{bytes_of, hash, open};

    #[test]
    fn only_regular_files_are_read() {
        let top = tempfile::tempdir().expect("a directory");
        let pipe = top.path().join("pipe");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &pipe, FileType::Fifo, mode, 0).expect("a pipe");
        let file = top.path().join("file");
        fs::write(&file, "x").expect("a file");
        for path in [
            &pipe,
            &top.path().to_owned(),
            &Path::new("/dev/zero").to_owned(),
        ] {
            assert!(open(path).is_err(), "{}", path.display());
            assert!(bytes_of(path).is_err(), "{}", path.display());
            assert!(hash(path, "md5").is_err(), "{}", path.display());
        }
        assert!(bytes_of(&file).is_ok_and(|bytes| bytes == b"x"));
    }
}

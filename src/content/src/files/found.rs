//! A file that was found, and the answers about it.

use std::fs::File;
use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::Stat;
use saltern_wire::msgpack::Value;

use super::error::FilesError;
use super::path::Relative;
use super::root::{Links, Root};

/// A regular file below a root.
pub(crate) struct Found {
    /// The path on disk, as stock puts it together.
    pub(crate) path: String,
    /// The path as the minion knows it.
    pub(crate) rel: String,
    pub(crate) stat: Stat,
    /// The mode in git, where that is all of the status that is answered.
    pub(crate) git_mode: Option<u32>,
    /// The name of the backend that has it.
    pub(crate) back: &'static str,
    /// The environment in which it was found.
    pub(crate) saltenv: String,
    /// Whether a query named its root.
    pub(crate) by_index: bool,
    pub(crate) root: Root,
    pub(crate) relative: Relative,
    pub(crate) links: Links,
}

impl Found {
    /// The answer to `_file_find`.
    pub(crate) fn value(&self) -> Value {
        Value::map([
            ("path", Value::from(self.path.as_str())),
            ("rel", Value::from(self.rel.as_str())),
            ("stat", self.stat_value()),
            ("back", Value::from(self.back)),
        ])
    }

    /// `list(os.stat(…))`: mode, inode, device, links, uid, gid, size, and the times of access,
    /// change of content and change of state in whole seconds.
    /// Of a file in git only the mode.
    pub(crate) fn stat_value(&self) -> Value {
        if let Some(mode) = self.git_mode {
            return Value::Array(vec![Value::from(mode)]);
        }
        let stat = &self.stat;
        Value::Array(vec![
            Value::from(stat.st_mode),
            Value::from(stat.st_ino),
            Value::from(stat.st_dev),
            Value::from(stat.st_nlink),
            Value::from(stat.st_uid),
            Value::from(stat.st_gid),
            Value::from(stat.st_size),
            Value::from(stat.st_atime),
            Value::from(stat.st_mtime),
            Value::from(stat.st_ctime),
        ])
    }

    /// Opens it.
    pub(crate) fn open(&self) -> Result<File, FilesError> {
        self.root
            .file(&self.relative, self.links)
            .map_err(|error| FilesError::io("open", &self.path, error))
    }

    /// The answer to `_serve_file`: at most `chunk` bytes from `loc` on.
    pub(crate) fn serve(
        &self,
        loc: i64,
        gzip: Option<i64>,
        chunk: usize,
    ) -> Result<Value, FilesError> {
        let offset = u64::try_from(loc).map_err(|_| FilesError::Offset(loc))?;
        let data = read_at(&self.open()?, offset, chunk)
            .map_err(|error| FilesError::io("read", &self.path, error))?;
        let level = gzip.filter(|level| *level != 0 && !data.is_empty());
        let data = match level {
            Some(level) => compress(&data, level)?,
            None => data,
        };
        let mut entries = vec![
            (Value::from("data"), Value::Bin(Bytes::from(data))),
            (Value::from("dest"), Value::from(self.rel.as_str())),
        ];
        if let Some(level) = level {
            entries.push((Value::from("gzip"), Value::from(level)));
        }
        Ok(Value::Map(entries))
    }
}

/// The least that is read at once: files of `/proc` and the like say that they are empty.
const MIN_READ: u64 = 4096;

/// Reads up to `limit` bytes at `offset`; fewer only at the end of the file.
pub(crate) fn read_at(file: &File, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let expected = size.saturating_sub(offset).max(MIN_READ);
    let mut data = vec![0; limit.min(usize::try_from(expected).unwrap_or(limit))];
    let mut filled = 0;
    while let Some(rest) = data.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let Some(at) = offset
            .checked_add(filled as u64)
            .filter(|at| i64::try_from(*at).is_ok())
        else {
            break;
        };
        match rustix::io::pread(file, rest, at) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    data.truncate(filled);
    Ok(data)
}

/// One gzip member, as `salt.utils.gzip_util.compress` makes it but for the time of day in its
/// header.
fn compress(data: &[u8], level: i64) -> Result<Vec<u8>, FilesError> {
    let compression = match level {
        -1 => Compression::default(),
        0..=9 => Compression::new(level.unsigned_abs() as u32),
        _ => return Err(FilesError::GzipLevel(level)),
    };
    let mut encoder = GzEncoder::new(Vec::with_capacity(data.len() / 2), compression);
    encoder
        .write_all(data)
        .and_then(|()| encoder.finish())
        .map_err(|error| FilesError::io("compress", "a chunk", error))
}

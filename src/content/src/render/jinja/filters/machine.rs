//! Salt's filters that look at the master itself: files, programs, users.
//!
//! Those that reach the network (`http_query`, `dns_check`) are not here.

use std::path::Path;

use minijinja::value::Value;

use super::super::args::Bound;
use super::super::fault::{Fault, Outcome};
use super::super::text::str_of;
use super::super::value::{Entries, Key, Kind, dict, list, none};
use super::Row;
use super::digests::random_bytes;
use super::words::number_of;
use crate::render::functions::CallError;
use crate::render::modules::{file, users, which};

/// The most files that `list_files` gives.
const MAX_FILES: usize = 100_000;

pub(super) const FILTERS: &[Row] = &[
    (
        "file_hashsum",
        &["path", "form", "chunk_size"],
        |_, args| {
            let form = args.text(1, "sha256")?;
            let hash = file::hash(Path::new(&str_of(args.need(0)?)?), &form);
            let hash = hash.map_err(|error| match error {
                CallError::Refused(text) | CallError::Failed(text) => Fault::other(text),
            })?;
            Ok(Value::from(hash))
        },
    ),
    ("is_empty", &["filename"], |_, args| {
        let found = std::fs::metadata(str_of(args.need(0)?)?);
        Ok(Value::from(found.is_ok_and(|found| found.len() == 0)))
    }),
    ("is_text_file", &["fp_", "blocksize"], |_, args| {
        let start = start_of(args, 512)?;
        Ok(Value::from(start.is_some_and(|start| !is_binary(&start))))
    }),
    ("is_bin_file", &["path"], |_, args| {
        let start = start_of(args, 2048)?;
        Ok(Value::from(start.is_some_and(|start| is_binary(&start))))
    }),
    ("list_files", &["directory"], |py, args| {
        let start = args.need(0)?;
        if matches!(
            Kind::of(start),
            Kind::Bool(_) | Kind::Int(_) | Kind::Bytes(_)
        ) {
            // Stock takes a number for an open file, which is no directory.
            return Ok(list(vec![start.clone()]));
        }
        let all = below(&str_of(start)?)?;
        py.run.round(all.len())?;
        Ok(list(all.into_iter().map(Value::from).collect()))
    }),
    ("which", &["exe"], |_, args| {
        Ok(which(&str_of(args.need(0)?)?).map_or_else(none, Value::from))
    }),
    ("get_uid", &["user"], |_, args| {
        let user = args.need(0)?;
        if user.is_none() {
            return Ok(Value::from(rustix::process::geteuid().as_raw()));
        }
        Ok(users::uid(&str_of(user)?).map_or_else(none, Value::from))
    }),
    ("gen_mac", &["prefix"], |_, args| {
        let mut address = str_of(args.need(0)?)?;
        for byte in random_bytes(3)? {
            address.push_str(&format!(":{byte:02X}"));
        }
        Ok(Value::from(address))
    }),
    ("mysql_to_dict", &["data", "key"], |_, args| {
        mysql_to_dict(args)
    }),
];

/// The first bytes of a file; nothing if it cannot be read.
fn start_of(args: &Bound, bytes: usize) -> Outcome<Option<Vec<u8>>> {
    use std::io::Read as _;
    let path = str_of(args.need(0)?)?;
    if !Path::new(&path).is_file() {
        return Ok(None);
    }
    let mut start = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(bytes as u64).read_to_end(&mut start));
    Ok(read.ok().map(|_| start))
}

/// Whether bytes are no text: there is a NUL, or nearly a third is not printable
/// (`is_binary` in `salt/utils/stringutils.py`).
fn is_binary(bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return false;
    }
    if bytes.contains(&0) {
        return true;
    }
    let is_text = |byte: &&u8| matches!(byte, 32..=127 | b'\n' | b'\r' | b'\t' | 12 | 8);
    let texts = bytes.iter().filter(is_text).count();
    let others = bytes.len() - texts;
    others as f64 / bytes.len() as f64 > 0.30
}

/// A path and all that lies below it, sorted where stock has no order.
fn below(start: &str) -> Outcome<Vec<String>> {
    let mut all = vec![start.to_owned()];
    let mut waiting = vec![std::path::PathBuf::from(start)];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            all.push(path.to_string_lossy().into_owned());
            if all.len() > MAX_FILES {
                return Err(Fault::limit(format!("more than {MAX_FILES} files")));
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(path);
            }
        }
    }
    all.sort();
    Ok(all)
}

/// The table that `mysql` prints, as mappings by the value of one column.
fn mysql_to_dict(args: &Bound) -> Outcome<Value> {
    let key = str_of(args.need(1)?)?;
    let mut headers: Vec<String> = Vec::new();
    let mut rows = Entries::new();
    for line in super::super::ops::items(args.need(0)?)? {
        let line = str_of(&line)?;
        if line.is_empty() || line.starts_with('+') {
            continue;
        }
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        if headers.len() < 2 {
            headers = cells;
            continue;
        }
        let mut row = Entries::new();
        // The first and the last cell are outside of the table's frame.
        let inside = headers.len().saturating_sub(1);
        for (header, cell) in headers.iter().zip(&cells).take(inside).skip(1) {
            let cell = number_of(&Value::from(cell.as_str()))?;
            row.insert(Key::text(header), (Value::from(header.as_str()), cell));
        }
        let name = row.get(&Key::text(&key)).map(|(_, value)| value.clone());
        let name = name.ok_or_else(|| Fault::other(format!("'{key}'")))?;
        rows.insert(Key::of(&name)?, (name, dict(row)));
    }
    Ok(dict(rows))
}

//! Status of files: `file.stats`, `file.lstat`, `file.get_mode`, owners.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use saltern_wire::msgpack::Value;

use super::{MAX_ENTRIES, path_of, refused};
use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::modules::users;

type Called = Result<Value, CallError>;

pub(super) fn add(registry: &mut Registry) {
    registry.add("file.stats", |args| {
        let path = path_of(&args)?;
        let form = args.text(1, "hash_type").filter(|form| !form.is_empty());
        stats(&path, form, args.flag(2, "follow_symlinks", true))
    });
    registry.add("file.get_mode", |args| {
        field(&args, "follow_symlinks", "mode")
    });
    for (name, field_name) in [
        ("file.get_user", "user"),
        ("file.get_uid", "uid"),
        ("file.get_group", "group"),
        ("file.get_gid", "gid"),
    ] {
        registry.add(name, move |args| {
            field(&args, "follow_symlinks", field_name)
        });
    }
    registry.add("file.lstat", |args| {
        let path = path_of(&args)?;
        if !path.is_absolute() {
            return Err(refused("Path to file must be absolute."));
        }
        Ok(fs::symlink_metadata(&path).map_or_else(|_| Value::Map(Vec::new()), |it| lstat(&it)))
    });
    registry.add("file.is_hardlink", |args| {
        let found = fs::symlink_metadata(path_of(&args)?);
        Ok(Value::Bool(found.is_ok_and(|it| it.nlink() > 1)))
    });
    registry.add("file.diskusage", |args| disk_usage(&path_of(&args)?));
    registry.add("file.user_to_uid", |args| {
        let user = args.need(0, "user")?;
        Ok(match user.as_str() {
            Some(name) => users::uid(name).map_or_else(|| Value::from(""), Value::from),
            None => user.clone(),
        })
    });
    registry.add("file.uid_to_user", |args| {
        Ok(match args.need(0, "uid")?.as_i64() {
            Some(uid) => named(users::user_name(uid), uid),
            None => Value::from(""),
        })
    });
    registry.add("file.group_to_gid", |args| {
        let group = args.need(0, "group")?;
        Ok(match group.as_str() {
            Some(name) => users::gid(name).map_or_else(|| Value::from(""), Value::from),
            None => group.clone(),
        })
    });
    registry.add("file.gid_to_group", |args| {
        Ok(match args.need(0, "gid")?.as_i64() {
            Some(gid) => named(users::group_name(gid), gid),
            None => Value::from(""),
        })
    });
}

/// A name, or the number of what has none.
fn named(name: Option<String>, id: i64) -> Value {
    name.map_or(Value::Int(id), Value::from)
}

/// The path with all links followed, as far as it is there.
pub(super) fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

fn field(args: &CallArgs, follow: &str, name: &str) -> Called {
    let found = stats(&path_of(args)?, None, args.flag(1, follow, true))?;
    Ok(found.get(name).cloned().unwrap_or_else(|| Value::from("")))
}

fn seconds(whole: i64, nanos: i64) -> Value {
    Value::Float(whole as f64 + nanos as f64 * 1e-9)
}

fn stats(path: &Path, form: Option<String>, follow: bool) -> Called {
    let found = if follow {
        fs::metadata(path).or_else(|_| fs::symlink_metadata(path))
    } else {
        fs::symlink_metadata(path)
    };
    let found = found.map_err(|_| refused(format!("Path not found: {}", path.display())))?;
    let id = |id: u32| Value::Int(i64::from(id));
    let mut fields = vec![
        ("inode", Value::Uint(found.ino())),
        ("uid", id(found.uid())),
        ("gid", id(found.gid())),
        (
            "group",
            named(users::group_name(found.gid().into()), found.gid().into()),
        ),
        (
            "user",
            named(users::user_name(found.uid().into()), found.uid().into()),
        ),
        ("atime", seconds(found.atime(), found.atime_nsec())),
        ("mtime", seconds(found.mtime(), found.mtime_nsec())),
        ("ctime", seconds(found.ctime(), found.ctime_nsec())),
        ("size", Value::Uint(found.size())),
        (
            "mode",
            Value::from(format!("{:04o}", found.mode() & 0o7777)),
        ),
    ];
    if let Some(form) = form {
        fields.push(("sum", Value::from(super::read::hash(path, &form)?)));
    }
    let target = if follow {
        real(path)
    } else {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    };
    fields.push(("type", Value::from(kind(&found))));
    fields.push(("target", Value::from(target.to_string_lossy().into_owned())));
    Ok(Value::map(fields))
}

fn kind(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    match kind {
        _ if kind.is_dir() => "dir",
        _ if kind.is_char_device() => "char",
        _ if kind.is_block_device() => "block",
        _ if kind.is_symlink() => "link",
        _ if kind.is_fifo() => "pipe",
        _ if kind.is_socket() => "socket",
        _ => "file",
    }
}

fn lstat(found: &Metadata) -> Value {
    Value::map([
        ("st_atime", seconds(found.atime(), found.atime_nsec())),
        ("st_ctime", seconds(found.ctime(), found.ctime_nsec())),
        ("st_gid", Value::Int(i64::from(found.gid()))),
        ("st_mode", Value::Int(i64::from(found.mode()))),
        ("st_mtime", seconds(found.mtime(), found.mtime_nsec())),
        ("st_nlink", Value::Uint(found.nlink())),
        ("st_size", Value::Uint(found.size())),
        ("st_uid", Value::Int(i64::from(found.uid()))),
    ])
}

/// The bytes of all files below a path; a file with several names counts once.
fn disk_usage(path: &Path) -> Called {
    if let Ok(found) = fs::metadata(path)
        && found.is_file()
    {
        return Ok(Value::Uint(found.size()));
    }
    let mut total: u64 = 0;
    let mut seen = std::collections::HashSet::new();
    let mut waiting = vec![path.to_owned()];
    let mut count = 0;
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            count += 1;
            if count > MAX_ENTRIES {
                return Err(refused(format!(
                    "there are more than {MAX_ENTRIES} entries below \"{}\"",
                    path.display()
                )));
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            } else if let Ok(found) = fs::metadata(entry.path())
                && found.is_file()
                && seen.insert(found.ino())
            {
                total = total.saturating_add(found.size());
            }
        }
    }
    Ok(Value::Uint(total))
}

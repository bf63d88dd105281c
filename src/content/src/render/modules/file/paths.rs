//! Paths as texts, and tests of existence: `file.join`, `file.file_exists`, `file.readdir` and
//! their relatives.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::Access;
use saltern_python::path::{dirname, join, normpath};
use saltern_wire::msgpack::Value;

use super::{MAX_ENTRIES, io_error, path_of, refused};
use crate::render::functions::{CallArgs, CallError, Registry};

type Called = Result<Value, CallError>;

pub(super) fn add(registry: &mut Registry) {
    let mut predicate = |name: &str, test: fn(&Path) -> bool| {
        registry.add(name, move |args| Ok(Value::Bool(test(&path_of(&args)?))));
    };
    predicate("file.file_exists", Path::is_file);
    predicate("file.directory_exists", Path::is_dir);
    predicate("file.is_link", Path::is_symlink);
    predicate("file.is_blkdev", |path| {
        fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    });
    predicate("file.is_chrdev", |path| {
        fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_char_device())
    });
    predicate("file.is_fifo", |path| {
        fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_fifo())
    });
    registry.add("file.path_exists_glob", |args| {
        let found = super::find::globbed(&path_of(&args)?.to_string_lossy())?;
        Ok(Value::Bool(!found.is_empty()))
    });
    registry.add("file.access", |args| access(&args));
    registry.add("file.basename", |args| {
        let path = args.need_text(0, "path")?;
        Ok(Value::from(path.rsplit('/').next().unwrap_or_default()))
    });
    registry.add("file.dirname", |args| {
        let path = args.need_text(0, "path")?;
        Ok(Value::from(dirname(&path)))
    });
    registry.add("file.join", |args| {
        let first = args.need_text(0, "a")?;
        let joined = (1..args.positional.len()).try_fold(first, |path, index| {
            Ok(join(&path, &args.need_text(index, "a")?))
        })?;
        Ok(Value::from(joined))
    });
    registry.add("file.normpath", |args| {
        let path = args.need_text(0, "path")?;
        Ok(Value::from(normpath(&path)))
    });
    registry.add("file.pardir", |_| Ok(Value::from("..")));
    registry.add("file.readdir", |args| readdir(&args));
    registry.add("file.readlink", |args| readlink(&args));
}

/// `file.access`: what this process may do with a file.
fn access(args: &CallArgs) -> Called {
    let path = path_of(args)?;
    if !path.is_absolute() {
        return Err(refused("Path to link must be absolute."));
    }
    let mode = match args.need(1, "mode")? {
        Value::Str(mode) => match mode.as_str() {
            "f" => Access::EXISTS,
            "r" => Access::READ_OK,
            "w" => Access::WRITE_OK,
            "x" => Access::EXEC_OK,
            _ => return Err(refused("Invalid mode specified.")),
        },
        Value::Int(0) => Access::EXISTS,
        Value::Int(4) => Access::READ_OK,
        Value::Int(2) => Access::WRITE_OK,
        Value::Int(1) => Access::EXEC_OK,
        _ => return Err(refused("Invalid mode specified.")),
    };
    Ok(Value::Bool(rustix::fs::access(&path, mode).is_ok()))
}

/// `file.readdir`: the names in a directory behind `.` and `..`. Stock's order is the disk's, ours
/// is sorted.
fn readdir(args: &CallArgs) -> Called {
    let path = path_of(args)?;
    if !path.is_absolute() {
        return Err(refused("Dir path must be absolute."));
    }
    if !path.is_dir() {
        let name = path.display();
        return Err(refused(format!(
            "A valid directory was not specified: {name}"
        )));
    }
    let entries = fs::read_dir(&path).map_err(|error| io_error(&error, &path))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| io_error(&error, &path))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
        if names.len() > MAX_ENTRIES {
            return Err(refused(format!(
                "the directory \"{}\" has more than {MAX_ENTRIES} entries",
                path.display()
            )));
        }
    }
    names.sort();
    let all = [".", ".."].into_iter().map(str::to_owned).chain(names);
    Ok(Value::Array(all.map(Value::from).collect()))
}

fn readlink(args: &CallArgs) -> Called {
    let path = path_of(args)?;
    let name = path.display();
    if !path.is_absolute() {
        return Err(refused(format!("Path to link must be absolute: {name}")));
    }
    if !path.is_symlink() {
        return Err(refused(format!("A valid link was not specified: {name}")));
    }
    let target = if args.flag(1, "canonicalize", false) {
        super::stats::real(&path)
    } else {
        fs::read_link(&path).map_err(|error| refused(error.to_string()))?
    };
    Ok(Value::from(target.to_string_lossy().into_owned()))
}

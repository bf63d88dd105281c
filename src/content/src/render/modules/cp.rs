//! `cp.*` over the master's own file server, for pillars: only the functions that read.
//!
//! Stock copies files to a cache of the master and gives the path of the copy. There is no such
//! cache here, so functions that give a path or write a file are not there.

use std::sync::Arc;

use saltern_wire::msgpack::{Limits, Value, decode};

use crate::files::FileServer;
use crate::render::functions::{CallArgs, CallError, Registry};

/// The longest file that a template may have as a text.
const MAX_FILE_BYTES: usize = 16 << 20;

/// Adds `cp.get_file_str`, `cp.get_url`, `cp.hash_file`, `cp.hash_file_str`, `cp.stat_file`,
/// `cp.envs`, `cp.list_master`, `cp.list_master_dirs`, `cp.list_master_symlinks` and
/// `cp.list_states`. `saltenv` is the environment of calls that name none.
pub(super) fn cp(registry: &mut Registry, files: Arc<FileServer>, saltenv: &str) {
    let saltenv: Arc<str> = Arc::from(if saltenv.is_empty() { "base" } else { saltenv });
    let mut add = |name: &str, function: fn(&FileServer, &str, &CallArgs) -> Called| {
        let (files, saltenv) = (files.clone(), saltenv.clone());
        registry.add(name, move |args| function(&files, &saltenv, &args));
    };
    add("cp.get_file_str", |files, saltenv, args| {
        let saltenv = environment(args, 1, saltenv);
        text(files, &args.need_text(0, "path")?, &saltenv)
    });
    add("cp.get_url", |files, saltenv, args| {
        let url = args.need_text(0, "path")?;
        if !matches!(args.get(1, "dest"), Some(Value::Nil)) {
            return Err(refused("cp.get_url", "write a file; only dest=None works"));
        }
        text(files, &url, &environment(args, 2, saltenv))
    });
    add("cp.hash_file", |files, saltenv, args| {
        let saltenv = environment(args, 1, saltenv);
        let Some(path) = path_of(&args.need_text(0, "path")?)? else {
            return Ok(Value::Map(Vec::new()));
        };
        files.file_hash(&path, &saltenv).map_err(failed)
    });
    add("cp.stat_file", |files, saltenv, args| {
        let saltenv = environment(args, 1, saltenv);
        let octal = args.flag(2, "octal", true);
        let Some(path) = path_of(&args.need_text(0, "path")?)? else {
            return Ok(Value::from(""));
        };
        let stat = files.file_hash_and_stat(&path, &saltenv).map_err(failed)?;
        let mode = stat
            .as_array()
            .and_then(|both| both.get(1)?.as_array()?.first()?.as_i64());
        Ok(match mode {
            None => Value::from(""),
            Some(mode) if octal => Value::from(format!("{:04o}", mode & 0o777)),
            Some(mode) => Value::Int(mode),
        })
    });
    add("cp.envs", |files, _, _| Ok(files.file_envs()));
    add("cp.list_master", |files, saltenv, args| {
        let (saltenv, prefix) = listed(args, saltenv);
        unpack(&files.file_list(&saltenv, &prefix).map_err(failed)?)
    });
    add("cp.list_master_dirs", |files, saltenv, args| {
        let (saltenv, prefix) = listed(args, saltenv);
        unpack(&files.dir_list(&saltenv, &prefix).map_err(failed)?)
    });
    add("cp.list_master_symlinks", |files, saltenv, args| {
        let (saltenv, prefix) = listed(args, saltenv);
        files.symlink_list(&saltenv, &prefix).map_err(failed)
    });
    add("cp.list_states", |files, saltenv, args| {
        let saltenv = environment(args, 0, saltenv);
        states(&unpack(&files.file_list(&saltenv, "").map_err(failed)?)?)
    });
}

type Called = Result<Value, CallError>;

fn failed(error: impl std::fmt::Display) -> CallError {
    CallError::Failed(error.to_string())
}

fn refused(function: &str, what: &str) -> CallError {
    CallError::Refused(format!("\"{function}\" cannot {what}"))
}

/// The environment of a call: by position, by name, or the one of the rendering.
fn environment(args: &CallArgs, index: usize, default: &str) -> String {
    args.text(index, "saltenv")
        .filter(|saltenv| !saltenv.is_empty())
        .unwrap_or_else(|| default.to_owned())
}

fn listed(args: &CallArgs, saltenv: &str) -> (String, String) {
    let prefix = args.text(1, "prefix").unwrap_or_default();
    (environment(args, 0, saltenv), prefix)
}

/// The path of a `salt://` url or a plain path below the root; `None` for other urls, which only
/// stock fetches.
fn path_of(url: &str) -> Result<Option<String>, CallError> {
    if let Some(path) = url.strip_prefix("salt://") {
        return Ok(Some(path.to_owned()));
    }
    match url.split_once("://") {
        None => Ok(Some(url.to_owned())),
        Some((scheme, _)) => Err(refused("cp", &format!("fetch a \"{scheme}\" url"))),
    }
}

/// A file as text; `False` if it is not there.
fn text(files: &FileServer, url: &str, saltenv: &str) -> Called {
    let Some(path) = path_of(url)? else {
        return Ok(Value::Bool(false));
    };
    match files.read(&path, saltenv, MAX_FILE_BYTES).map_err(failed)? {
        None => Ok(Value::Bool(false)),
        Some(bytes) => String::from_utf8(bytes.into())
            .map(Value::from)
            .map_err(|_| CallError::Failed(format!("the file \"{url}\" is not UTF-8"))),
    }
}

/// A list of the file server, which comes packed.
pub(super) fn unpack(packed: &[u8]) -> Called {
    decode(packed, &Limits::default()).map_err(failed)
}

/// The names of the SLS files among the files of an environment, sorted.
fn states(paths: &Value) -> Called {
    let mut names: Vec<String> = paths
        .as_array()
        .unwrap_or_default()
        .iter()
        .filter_map(|path| path.as_str()?.strip_suffix(".sls"))
        .map(|path| path.strip_suffix("/init").unwrap_or(path).replace('/', "."))
        .collect();
    names.sort();
    Ok(Value::Array(names.into_iter().map(Value::from).collect()))
}

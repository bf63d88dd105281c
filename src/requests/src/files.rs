//! The commands of the file server: `_file_envs`, `_file_find`, `_file_hash`,
//! `_file_hash_and_stat`, `_file_list`, `_file_list_emptydirs`, `_dir_list`, `_symlink_list`,
//! `_serve_file`, and `_file_recv`, by which a minion pushes a file.
//!
//! Only the arguments are taken out of the load here; `content` interprets them. A load that lacks
//! one gets stock's empty answer, a failure its empty text (`salt/fileserver/__init__.py`).

use std::sync::Arc;

use bytes::Bytes;
use saltern_content::files::{
    FileServer, FilesError, no_hash, no_hash_and_stat, nothing_found, nothing_served,
};
use saltern_wire::msgpack::{Dialect, MapView, RawValue, Value, encode};

use crate::envelope::Sealed;
use crate::{Finished, Outcome, Services, reply};

/// The commands, named as on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileCommand {
    Envs,
    Find,
    Hash,
    HashAndStat,
    List,
    ListEmptyDirs,
    DirList,
    SymlinkList,
    Serve,
    Receive,
}

/// Answers a command of the file server: beside the workers if it needs a process of git, which
/// minions can ask for at any rate.
pub(crate) fn handle(command: FileCommand, sealed: Sealed, services: &Arc<Services>) -> Outcome {
    count_hostile_path(&sealed, services);
    if is_at_once(command, &sealed.load, &services.content.files) {
        return Outcome::reply(reply(command, &sealed, services));
    }
    let services = Arc::clone(services);
    Outcome::later(move || Finished {
        reply: reply(command, &sealed, &services),
        events: Vec::new(),
    })
}

fn is_at_once(command: FileCommand, load: &MapView, files: &FileServer) -> bool {
    let (path, saltenv) = place(load);
    match command {
        FileCommand::Envs | FileCommand::Receive => true,
        FileCommand::Find | FileCommand::Hash | FileCommand::HashAndStat | FileCommand::Serve => {
            path.is_none_or(|path| files.finds_at_once(path, saltenv.unwrap_or("base")))
        }
        FileCommand::List
        | FileCommand::ListEmptyDirs
        | FileCommand::DirList
        | FileCommand::SymlinkList => saltenv.is_none_or(|saltenv| files.lists_at_once(saltenv)),
    }
}

/// Answers a file server command. A fault of the master's own gets no answer of the file server:
/// the minion would take an empty one for a missing file. Without one it sends the request again,
/// and fails in the end.
fn reply(command: FileCommand, sealed: &Sealed, services: &Services) -> Bytes {
    match answer(command, sealed, services) {
        Ok(answer) => sealed.answer.seal(&answer),
        Err(error) => {
            let reason: &dyn std::error::Error = &error;
            complain!(services, cmd = sealed.command_name(), minion = %sealed.minion, reason, "request failed");
            match error.is_local_fault() {
                true => reply::no_answer(),
                false => sealed.answer.seal(&packed(&Value::from(""))),
            }
        }
    }
}

fn count_hostile_path(sealed: &Sealed, services: &Services) {
    let (path, saltenv) = place(&sealed.load);
    let (Some(path), Some(saltenv)) = (path, saltenv) else {
        return;
    };
    if let Some(refusal) = FileServer::refusal(path, saltenv) {
        services.metrics.refuse("file_path");
        complain!(
            services,
            cmd = sealed.command_name(), minion = %sealed.minion, reason = %refusal,
            "a path that leads out of its root"
        );
    }
}

/// `path` and `saltenv` of a load.
fn place(load: &MapView) -> (Option<&str>, Option<&str>) {
    (load.str("path"), load.str("saltenv"))
}

fn packed(value: &Value) -> Bytes {
    encode(value, Dialect::Raw).into()
}

fn answer(command: FileCommand, sealed: &Sealed, services: &Services) -> Result<Bytes, FilesError> {
    let files = &services.content.files;
    let load = &sealed.load;
    let (path, saltenv) = place(load);
    let both = path.zip(saltenv);
    let prefix = load.str("prefix").unwrap_or_default();
    let value = match command {
        FileCommand::Envs => files.file_envs(),
        FileCommand::Find => match path {
            Some(path) => files.file_find(path, saltenv.unwrap_or("base"))?,
            None => nothing_found(),
        },
        FileCommand::Hash => match both {
            Some((path, saltenv)) => files.file_hash(path, saltenv)?,
            None => no_hash(),
        },
        FileCommand::HashAndStat => match both {
            Some((path, saltenv)) => files.file_hash_and_stat(path, saltenv)?,
            None => no_hash_and_stat(),
        },
        FileCommand::Serve => serve(both, load, files)?,
        FileCommand::Receive => {
            let is_taken = receive(sealed, files)?;
            if !is_taken {
                services.metrics.refuse("file_recv");
                complain!(services, minion = %sealed.minion, "a pushed file was not taken");
            }
            Value::Bool(is_taken)
        }
        FileCommand::SymlinkList => match saltenv {
            Some(saltenv) => files.symlink_list(saltenv, prefix)?,
            None => Value::Map(Vec::new()),
        },
        FileCommand::List | FileCommand::ListEmptyDirs | FileCommand::DirList => {
            let Some(saltenv) = saltenv else {
                return Ok(packed(&Value::Array(Vec::new())));
            };
            // Packed by the file server already.
            return match command {
                FileCommand::List => files.file_list(saltenv, prefix),
                FileCommand::DirList => files.dir_list(saltenv, prefix),
                _ => files.file_list_emptydirs(saltenv, prefix),
            };
        }
    };
    Ok(packed(&value))
}

fn serve(
    both: Option<(&str, &str)>,
    load: &MapView,
    files: &FileServer,
) -> Result<Value, FilesError> {
    let loc = load.get("loc").and_then(RawValue::as_i64);
    let gzip = load.get("gzip").and_then(RawValue::as_i64);
    match (both, loc) {
        (Some((path, saltenv)), Some(loc)) => files.serve_file(path, saltenv, loc, gzip),
        _ => Ok(nothing_served()),
    }
}

fn receive(sealed: &Sealed, files: &FileServer) -> Result<bool, FilesError> {
    let load = &sealed.load;
    let parts = load.get("path").and_then(RawValue::as_array);
    let loc = load.get("loc").and_then(RawValue::as_i64);
    let data = load.get("data").and_then(RawValue::as_bytes);
    let (Some(parts), Some(loc), Some(data)) = (parts, loc, data) else {
        return Ok(false);
    };
    let names: Option<Vec<&str>> = parts.iter().map(RawValue::as_str).collect();
    match names {
        Some(names) => files.receive(&sealed.minion, &names, loc, data),
        None => Ok(false),
    }
}

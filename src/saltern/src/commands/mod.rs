//! The sub-commands, one file each.

pub(crate) mod arguments;
pub(crate) mod audit;
pub(crate) mod batch;
pub(crate) mod check_config;
pub(crate) mod cluster;
pub(crate) mod cmd;
pub(crate) mod complete;
pub(crate) mod cp;
pub(crate) mod debug;
pub(crate) mod doctor;
#[cfg(feature = "documents")]
pub(crate) mod documents;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod follow;
pub(crate) mod key;
pub(crate) mod log_level;
pub(crate) mod maintenance;
pub(crate) mod master;
pub(crate) mod minions;
pub(crate) mod pam_check;
pub(crate) mod python_parts;
pub(crate) mod reactor;
#[cfg(test)]
mod reference_tests;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod sql;
pub(crate) mod syndics;
pub(crate) mod top;

pub(crate) use saltern_base::chain;
use saltern_base::exit::Exit;
use saltern_base::stdio;
pub(crate) use saltern_base::stdio::say;
use saltern_config::{Loaded, Severity, is_of_process, load_for_tools, load_master};
use saltern_model::Jid;

use crate::ConfigArgument;

/// Prints a record as one line of JSON.
pub(crate) fn say_json<T: serde::Serialize + ?Sized>(record: &T) {
    match serde_json::to_string(record) {
        Ok(line) => say(&(line + "\n")),
        Err(error) => complain(&chain(&error)),
    }
}

/// Prints one line to standard error.
pub(crate) fn complain(text: &str) {
    stdio::complain(&format!("saltern: {text}"));
}

/// Reads a jid, or prints what is wrong with it.
pub(crate) fn jid_of(text: &str) -> Result<Jid, Exit> {
    Jid::parse(text).map_err(|error| {
        complain(&chain(&error));
        Exit::Usage
    })
}

/// Loads the master's configuration, or prints everything that is wrong with it.
pub(crate) fn load_config(argument: &ConfigArgument) -> Result<Loaded, Exit> {
    load_master(&argument.config).map_err(|errors| {
        complain(&errors.to_string());
        Exit::Usage
    })
}

/// Loads the configuration for a command beside the master: what keeps a master from starting does
/// not keep the command from asking one that runs. Says so of what the files have wrong.
pub(crate) fn load_for_tool(argument: &ConfigArgument) -> Result<Loaded, Exit> {
    let loaded = load_for_tools(&argument.config).map_err(|errors| {
        complain(&errors.to_string());
        errors.exit()
    })?;
    let errors = loaded.findings.iter();
    let mut errors = errors.filter(|one| one.severity == Severity::Error && !is_of_process(one));
    if let Some(first) = errors.next() {
        let more = match errors.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        complain(&format!(
            "the configuration has an error{more}, and no master would start with it; going on \
             without: {first}"
        ));
    }
    Ok(loaded)
}

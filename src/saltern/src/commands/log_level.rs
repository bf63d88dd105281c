//! `saltern log-level`: what the running master logs, and a change of it until the configuration is
//! read again (SIGHUP) or the master is started anew.

use std::collections::BTreeMap;

use saltern_base::exit::Exit;
use saltern_client::control;
use saltern_config::LogLevel;
use saltern_model::control::{ControlRequest, CurrentLevels};
use serde::Serialize;

use super::{chain, complain, load_for_tool, say, say_json};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// The level for the console and the log file, or "reset" for what the configuration says.
    /// Without it the levels are printed.
    #[arg(value_parser = level)]
    level: Option<String>,
    /// Only for lines of this part of the program, as "saltern_actors::front::mworker".
    module: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Takes back what was changed.
const RESET: &str = "reset";

/// A word of a command line that is no log level: the text names those that are.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnknownLevel {
    /// A level is expected.
    #[error("{}", LogLevel::NAMES)]
    Level,
    /// A level or [`RESET`] is expected.
    #[error("{}, or \"{RESET}\"", LogLevel::NAMES)]
    LevelOrReset,
}

fn level(word: &str) -> Result<String, UnknownLevel> {
    let is_known = word == RESET || LogLevel::from_name(word).is_some();
    match is_known {
        true => Ok(word.to_owned()),
        false => Err(UnknownLevel::LevelOrReset),
    }
}

/// 0 when the master has answered.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let request = match arguments.level.as_deref() {
        None => ControlRequest::LogLevels,
        Some(RESET) => ControlRequest::ResetLogLevels,
        Some(level) => ControlRequest::SetLogLevel {
            level: level.to_owned(),
            target: arguments.module.clone(),
        },
    };
    match control::ask(&loaded.config.sock_dir, &request) {
        Ok(levels) => {
            match arguments.json {
                true => say_json(&LevelsReport::of(&levels)),
                false => say(&text(&levels)),
            }
            Exit::Ok
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Unavailable
        }
    }
}

/// A line each: `console LEVEL`, `file LEVEL`, and each target with a level of its own.
fn text(levels: &CurrentLevels) -> String {
    let mut text = format!("console {}\n", levels.console);
    text.push_str(&match &levels.file {
        Some(level) => format!("file {level}\n"),
        None => "file: none is open\n".to_owned(),
    });
    for (target, level) in &levels.targets {
        text.push_str(&format!("{target} {level}\n"));
    }
    text
}

/// Output of `--json`: console, file (null where none is open) and targets in one object.
#[derive(Serialize)]
struct LevelsReport<'a> {
    console: &'a str,
    file: Option<&'a str>,
    #[serde(flatten)]
    targets: BTreeMap<&'a str, &'a str>,
}

impl<'a> LevelsReport<'a> {
    fn of(levels: &'a CurrentLevels) -> Self {
        let targets = levels.targets.iter();
        Self {
            console: &levels.console,
            file: levels.file.as_deref(),
            targets: targets
                .map(|(target, level)| (target.as_str(), level.as_str()))
                .collect(),
        }
    }
}

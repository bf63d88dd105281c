//! `saltern log-level`: what the running master logs, and a change of it until the configuration is
//! read again (SIGHUP) or the master is started anew.

use saltern_actors::control;
use saltern_base::exit::Exit;
use saltern_config::LogLevel;

use super::{chain, complain, load_for_tool, say};
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

fn level(word: &str) -> Result<String, String> {
    let is_known = word == RESET || LogLevel::from_name(word).is_some();
    match is_known {
        true => Ok(word.to_owned()),
        false => Err(format!("{}, or \"{RESET}\"", LogLevel::NAMES)),
    }
}

/// 0 when the master has answered.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let words = [arguments.level.as_deref(), arguments.module.as_deref()];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    let line = format!("log-level {}", words.join(" "));
    match control::ask(&loaded.config.sock_dir, &line) {
        Ok(levels) => {
            say(&match arguments.json {
                true => as_json(&levels),
                false => levels,
            });
            Exit::Ok
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Unavailable
        }
    }
}

/// Lines of a place and its level as one object.
fn as_json(levels: &str) -> String {
    let levels = levels.lines().filter_map(|line| line.split_once(' '));
    let levels: serde_json::Map<_, _> = levels
        .map(|(place, level)| (place.to_owned(), level.trim().into()))
        .collect();
    format!("{}\n", serde_json::Value::from(levels))
}

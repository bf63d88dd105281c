//! `saltern run FUNCTION [ARGS]`: runs a function of the master and prints what it returns, as
//! stock's `salt-run` does. Unlike there, the function runs in the master.

use std::io::IsTerminal;
use std::time::Duration;

use clap::ValueEnum;
use saltern_base::exit::Exit;
use saltern_client::{ClientConfig, LocalClient, RunnerRequest};
use saltern_output::{OutputOptions, Outputter, json, render};
use saltern_wire::msgpack::Value;

use super::{chain, complain, load_for_tool, say};
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// How to print what is returned.
    #[arg(long, value_name = "FORM", default_value = "nested")]
    out: Form,
    /// Seconds to wait for the end; without it, however long it takes.
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print without colours.
    #[arg(long)]
    no_color: bool,
    /// The function, such as `jobs.list_jobs`.
    function: String,
    /// Its arguments, read as YAML; `name=value` is an argument with a name. What begins with a
    /// hyphen is an option wherever it stands; after `--` it is an argument.
    arguments: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    Nested,
    Json,
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    logging::start_plain(tracing_subscriber::filter::LevelFilter::WARN);
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let client = LocalClient::new(ClientConfig::from(&loaded.config));
    let request = request(arguments);
    match actix_rt::System::new().block_on(client.call(&request)) {
        Ok(returned) => {
            say(&format!("{}\n", shown(&returned.value, arguments)));
            if is_trimmed(&returned.value) {
                complain(
                    "parts are missing (VALUE_TRIMMED), because what is returned has more than \
                     max_event_size bytes: ask for less, with limit=NUMBER for instance",
                );
            }
            if returned.retcode == 0 {
                Exit::Ok
            } else {
                Exit::Failure
            }
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Failure
        }
    }
}

/// Whether the event bus left something out (`salt/utils/dicttrim.py`).
fn is_trimmed(value: &Value) -> bool {
    match value {
        Value::Str(text) => text == "VALUE_TRIMMED",
        Value::Map(entries) => entries.iter().any(|(_, value)| is_trimmed(value)),
        _ => false,
    }
}

fn request(arguments: &Arguments) -> RunnerRequest {
    let mut arg = super::typed(&arguments.arguments);
    let is_named = |value: &Value| value.get("__kwarg__").and_then(Value::as_bool) == Some(true);
    let mut kwarg = match arg.pop_if(|last| is_named(last)) {
        Some(Value::Map(named)) => named,
        _ => Vec::new(),
    };
    kwarg.retain(|(name, _)| name.as_str() != Some("__kwarg__"));
    RunnerRequest {
        fun: arguments.function.clone(),
        arg,
        kwarg,
        timeout: arguments.timeout.map(Duration::from_secs),
    }
}

/// The value; one that names its outputter is the data behind it.
fn shown(value: &Value, arguments: &Arguments) -> String {
    let named = value.get("outputter").and_then(Value::as_str);
    let data = named.and_then(|_| value.get("data")).unwrap_or(value);
    match arguments.out {
        Form::Json => json(data),
        Form::Nested => {
            let options =
                OutputOptions::new(!arguments.no_color && std::io::stdout().is_terminal());
            render(data, Outputter::for_name(named), &options)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    #[test]
    fn unknown_options_are_refused_in_any_position() {
        let parse = |words: &[&str]| {
            let words = ["saltern", "run"].iter().chain(words);
            crate::Arguments::try_parse_from(words).is_ok()
        };
        assert!(parse(&[
            "jobs.list_jobs",
            "limit=-1",
            "--",
            "-1",
            "--async"
        ]));
        assert!(parse(&["jobs.list_jobs", "--out", "json", "a", "-t", "3"]));
        for option in ["-1", "--async", "-b"] {
            assert!(!parse(&["jobs.list_jobs", "a", option]), "{option}");
            assert!(!parse(&[option, "jobs.list_jobs"]), "{option}");
        }
    }
}

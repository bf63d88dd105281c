//! `saltern run FUNCTION [ARGS]`: runs a function of the master and prints what it returns. What it does
//! is in `saltern-cli`, which `salt-run` shares; here are its arguments.

use std::process::{ExitCode, Termination};
use std::time::Duration;

use saltern_cli::options::{RunCommand, RunOptions};

use super::arguments::CommonArguments;
use super::load_for_tool;
use crate::logging;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  saltern run jobs.list_jobs limit=20         the newest jobs
  saltern run manage.status --out json        as JSON, and nothing else on standard output
  saltern run state.orchestrate orch.deploy   an orchestration; its progress on standard error
  saltern run --doc jobs                      what the functions of a module do
  saltern run --async fileserver.update       begin it, and do not wait

Without a running master, functions that need the job database or Python only run here.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Seconds to wait for the end; without it, however long it takes.
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print the documentation of the function, or of a module.
    #[arg(short, long)]
    doc: bool,
    /// Begin the function and do not wait for its end.
    #[arg(long = "async")]
    no_wait: bool,
    /// The function, such as `jobs.list_jobs`.
    #[arg(required_unless_present = "doc")]
    function: Option<String>,
    /// Its arguments, read as YAML; `name=value` is an argument with a name. What begins with a
    /// hyphen is an option wherever it stands; after `--` it is an argument.
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    logging::start_plain(tracing_subscriber::filter::LevelFilter::WARN);
    let loaded = match load_for_tool(&arguments.common.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit.report(),
    };
    let wait = arguments.timeout.map(Duration::from_secs);
    let command = RunCommand {
        options: RunOptions {
            output: arguments.common.print.options(),
            eauth: arguments.common.login.options(),
            doc: Some(arguments.doc),
            is_async: Some(arguments.no_wait),
            ..RunOptions::default()
        },
        function: arguments.function,
        arguments: arguments.arguments,
        no_parse: Vec::new(),
    };
    saltern_cli::run::call(&loaded.config, command, wait)
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
            "--batch"
        ]));
        assert!(parse(&["jobs.list_jobs", "--out", "json", "a", "-t", "3"]));
        assert!(parse(&["--doc"]) && !parse(&[]));
        for option in ["-1", "--batch", "-b"] {
            assert!(!parse(&["jobs.list_jobs", "a", option]), "{option}");
            assert!(!parse(&[option, "jobs.list_jobs"]), "{option}");
        }
    }
}

//! The `saltern` program: arguments, logging, signals and start-up, nothing else.
//!
//! One file a sub-command under `commands`; each gives the process exit code.

#[cfg(feature = "jemalloc")]
mod allocator;
mod commands;
mod logging;
mod preflight;
mod privileges;
mod reload;
mod service_manager;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Termination};

use clap::{Parser, Subcommand};
use saltern_base::exit::Exit;

/// A drop-in Salt master with its tools.
#[derive(Parser)]
#[command(name = "saltern", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the master.
    Master(commands::master::Arguments),
    /// Check a configuration: errors, warnings, and options that this release does not honour.
    CheckConfig(commands::check_config::Arguments),
    /// Run a function on minions and print what they return.
    Cmd(commands::cmd::Arguments),
    /// Run a function of the master, such as jobs.list_jobs, and print what it returns.
    Run(commands::run::Arguments),
    /// Accept, reject, delete and show the keys of minions; rotate the master's own key.
    #[command(alias = "keys")]
    Key(commands::key::Arguments),
    /// Copy files to minions, or fetch them from there.
    Cp(commands::cp::Arguments),
    /// Test the reactions to an event, or list and replay failed ones (dead letters).
    Reactor(commands::reactor::Arguments),
    /// Follow a batch that the master drives.
    Batch(commands::batch::Arguments),
    /// Print stored events (event_return: saltern), or follow the event bus live.
    Events(commands::events::Arguments),
    /// Show who had the master do what, from where and with what verdict; verify that no row changed.
    Audit(commands::audit::Arguments),
    /// Show the state of a job: which minions returned, which are missing, and why.
    Explain(commands::explain::Arguments),
    /// Show all of a job: the returns so far, those to come, and why minions are silent.
    Follow(commands::follow::Arguments),
    /// List minions by target and condition, with grains, presence and last job; runs no job.
    Minions(commands::minions::Arguments),
    /// Watch jobs, minions, workers, queues and events of the running master, live.
    Top(commands::top::Arguments),
    /// Make one PAM log-in for the master, which starts this.
    #[command(name = saltern_policy::eauth::CHECK_COMMAND, hide = true)]
    PamCheck,
    /// Print the words that a shell completes another with.
    #[command(hide = true)]
    Complete(commands::complete::Arguments),
    /// Write the manual pages and the shells' completions, for packages.
    #[cfg(feature = "documents")]
    #[command(hide = true)]
    Documents(commands::documents::Arguments),
    /// List the jobs of the option schedule, with their next runs and errors.
    Schedule(commands::schedule::Arguments),
    /// Print the metrics of the running master in Prometheus' text format.
    Metrics(ConfigArgument),
    /// Diagnose the master, running or stopped: findings, each with a remedy.
    Doctor(commands::doctor::Arguments),
    /// Show the masters above the running master and the syndics below it.
    Syndics(commands::syndics::Arguments),
    /// List the maintenance tasks of the running master, or run one now.
    Maintenance(commands::maintenance::Arguments),
    /// Make the tables of a cluster of masters in PostgreSQL, or show its members.
    Cluster(commands::cluster::Arguments),
    /// Check, make and purge the tables of job caches in SQL databases.
    Sql(commands::sql::Arguments),
    /// Show or change the log levels of the running master.
    LogLevel(commands::log_level::Arguments),
    /// Inspect the running master, or (test builds) inject faults.
    Debug(commands::debug::Arguments),
}

/// The directory or file of the master's configuration.
#[derive(clap::Args)]
pub(crate) struct ConfigArgument {
    /// The configuration directory, or its file "master"; without it SALT_CONFIG_DIR, as with stock.
    #[arg(
        short = 'c',
        long = "config-dir",
        value_name = "DIR",
        default_value_os_t = config_dir()
    )]
    pub(crate) config: PathBuf,
}

/// The configuration directory where no argument names one.
fn config_dir() -> PathBuf {
    let named = std::env::var_os("SALT_CONFIG_DIR").filter(|name| !name.is_empty());
    named.map_or_else(|| PathBuf::from("/etc/salt"), PathBuf::from)
}

fn main() -> ExitCode {
    saltern_base::panic_hook::install(|| saltern_supervise::current_actor().map(|a| a.to_string()));
    match stock_command() {
        Some(code) => code,
        None => own_command(std::env::args_os().collect()),
    }
}

/// Runs the command of stock that the program is called as, by a link of that name.
fn stock_command() -> Option<ExitCode> {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next()?;
    let name = Path::new(&program).file_name()?.to_str()?;
    match name {
        "salt" => Some(saltern_cli::salt::main(words.collect())),
        "salt-cp" => Some(saltern_cli::cp::main(words.collect())),
        "salt-key" => Some(saltern_cli::key::main(words.collect())),
        "salt-master" => Some(salt_master(words.collect())),
        "salt-run" => Some(saltern_cli::run::main(words.collect())),
        _ => None,
    }
}

fn salt_master(words: Vec<String>) -> ExitCode {
    match commands::master::Arguments::of_stock(words) {
        Ok(arguments) => commands::master::run(&arguments).report(),
        Err(ending) => ending.finish(),
    }
}

fn own_command(words: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let exit = match error.use_stderr() {
                true => Exit::Usage,
                false => Exit::Ok,
            };
            return exit.report();
        }
    };
    let exit = match arguments.command {
        Command::Cmd(arguments) => return commands::cmd::run(arguments),
        Command::Run(arguments) => return commands::run::run(arguments),
        Command::Key(arguments) => return commands::key::run(arguments),
        Command::Cp(arguments) => return commands::cp::run(arguments),
        Command::Master(arguments) => commands::master::run(&arguments),
        Command::CheckConfig(arguments) => commands::check_config::run(&arguments),
        Command::Reactor(arguments) => commands::reactor::run(&arguments),
        Command::Batch(arguments) => commands::batch::run(&arguments),
        Command::Events(arguments) => commands::events::run(&arguments),
        Command::Audit(arguments) => commands::audit::run(&arguments),
        Command::Explain(arguments) => commands::explain::run(&arguments),
        Command::Follow(arguments) => commands::follow::run(&arguments),
        Command::Minions(arguments) => commands::minions::run(arguments),
        Command::Complete(arguments) => {
            commands::complete::run(&arguments, <Arguments as clap::CommandFactory>::command())
        }
        Command::Top(arguments) => commands::top::run(&arguments),
        Command::PamCheck => commands::pam_check::run(),
        #[cfg(feature = "documents")]
        Command::Documents(arguments) => {
            commands::documents::run(&arguments, <Arguments as clap::CommandFactory>::command())
        }
        Command::Schedule(arguments) => commands::schedule::run(&arguments),
        Command::Metrics(config) => commands::debug::metrics(&config),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Syndics(arguments) => commands::syndics::run(&arguments),
        Command::Maintenance(arguments) => commands::maintenance::run(&arguments),
        Command::Cluster(arguments) => commands::cluster::run(&arguments),
        Command::Sql(arguments) => commands::sql::run(&arguments),
        Command::LogLevel(arguments) => commands::log_level::run(&arguments),
        Command::Debug(arguments) => commands::debug::run(&arguments),
    };
    exit.report()
}

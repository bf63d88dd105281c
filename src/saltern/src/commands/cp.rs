//! `saltern cp TARGET SOURCE… DESTINATION`: copies files to minions, or fetches them from there. What it does
//! is in `saltern-cli`, which `salt-cp` shares; here are its arguments.

use std::process::{ExitCode, Termination};

use saltern_base::exit::Exit;
use saltern_cli::cp::Direction;
use saltern_cli::options::{CopyCommand, CopyOptions, TargetText, TargetType};
use tracing_subscriber::filter::LevelFilter;

use super::arguments::{PrintArguments, TargetKinds};
use super::{complain, load_for_tool};
use crate::{ConfigArgument, logging};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  saltern cp 'web*' site.conf /etc/nginx/conf.d/     one file
  saltern cp -C 'G@os:Debian' tree/ /srv/            a directory with all it contains
  saltern cp --fetch 'web*' /var/log/syslog logs/    into logs/<minion>/var/log/syslog
  saltern cp --fetch 'web*' /etc/nginx conf/         a directory, into conf/<minion>/etc/nginx
  saltern cp --fetch web1 /etc/hosts                 into the cache of the master only

Files are sent to minions in parts, so their size does not matter; their modes are kept. Minions may
push files only if the master's option file_recv is set, each as large as file_recv_max_size allows;
of what they push, modes and empty directories are not kept.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    #[command(flatten)]
    print: PrintArguments,
    #[command(flatten)]
    kind: TargetKinds,
    /// Seconds to wait for the minions.
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Do not compress.
    #[arg(short = 'n', long)]
    no_compression: bool,
    /// Fetch files of minions, in place of copying to them.
    #[arg(long)]
    fetch: bool,
    /// The target: an expression for minions.
    target: String,
    /// The files and directories to copy; the last path is the destination.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    logging::start_plain(LevelFilter::WARN);
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit.report(),
    };
    let direction = match arguments.fetch {
        true => Direction::FromMinions,
        false => Direction::ToMinions,
    };
    let Some(command) = command(arguments) else {
        complain("say what is copied and where to: saltern cp TARGET SOURCE... DESTINATION");
        return Exit::Usage.report();
    };
    saltern_cli::cp::copy(&loaded.config, command, direction)
}

/// As `salt-cp -C` has it; nothing without a source.
fn command(arguments: Arguments) -> Option<CopyCommand> {
    let (sources, destination) = match arguments.paths.as_slice() {
        // What is fetched may stay in the master's cache.
        [source] if arguments.fetch => (vec![source.clone()], String::new()),
        [sources @ .., destination] if !sources.is_empty() => {
            (sources.to_vec(), destination.clone())
        }
        _ => return None,
    };
    let target_type = arguments.kind.selected();
    let target = match target_type {
        Some(TargetType::List) => {
            TargetText::List(arguments.target.split(',').map(str::to_owned).collect())
        }
        _ => TargetText::Text(arguments.target),
    };
    Some(CopyCommand {
        options: CopyOptions {
            output: arguments.print.options(),
            timeout: arguments.timeout.map(i64::from),
            chunked: Some(true),
            gzip: Some(!arguments.no_compression),
            ..CopyOptions::default()
        },
        target_type,
        target,
        sources,
        destination,
    })
}

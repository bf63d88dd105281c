//! The `saltern-lab` program: native minions and load for trials and measurements of a master.
//!
//! One file a sub-command; each gives the process exit code. No package ships it: a master needs
//! none of this, and a site's minions are stock's.

mod bench;
mod bench_cluster;
mod bench_store;
mod hostile_syndic;
mod minion;
mod swarm;
mod terminal;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use saltern_base::exit::Exit;
use saltern_config::{Loaded, load_master};

use crate::terminal::complain;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Native minions and benchmarks for a Salt master.
#[derive(Parser)]
#[command(name = "saltern-lab", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the small native minion.
    Minion(minion::Arguments),
    /// Run many native minions in one process.
    Swarm(swarm::Arguments),
    /// Lie to a master above as an accepted syndic: minions that there are not, and forged returns.
    HostileSyndic(hostile_syndic::Arguments),
    /// Measure a master on this machine with a swarm of minions.
    Bench(bench::Arguments),
    /// Fill a job database and measure queries to it.
    BenchStore(bench_store::Arguments),
    /// Measure how fast several masters can write to and follow one PostgreSQL.
    BenchCluster(bench_cluster::Arguments),
}

/// The master's configuration file.
#[derive(clap::Args)]
struct ConfigArgument {
    /// The configuration directory, or its file "master".
    #[arg(
        short = 'c',
        long = "config-dir",
        value_name = "DIR",
        default_value = "/etc/salt"
    )]
    config: PathBuf,
}

impl ConfigArgument {
    /// Loads the master's configuration, or prints everything that is wrong with it.
    fn load(&self) -> Result<Loaded, Exit> {
        load_master(&self.config).map_err(|errors| {
            complain(&errors.to_string());
            Exit::Usage
        })
    }
}

fn main() -> Exit {
    saltern_base::panic_hook::install(|| None);
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            };
        }
    };
    match arguments.command {
        Command::Minion(arguments) => minion::run(&arguments),
        Command::Swarm(arguments) => swarm::run(arguments),
        Command::HostileSyndic(arguments) => hostile_syndic::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::BenchStore(arguments) => bench_store::run(&arguments),
        Command::BenchCluster(arguments) => bench_cluster::run(&arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_of_all_commands_are_consistent() {
        super::Arguments::command().debug_assert();
    }
}

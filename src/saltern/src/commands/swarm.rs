//! `saltern swarm`: many native minions in one process.

use std::net::SocketAddr;
use std::sync::Arc;

use saltern_base::exit::Exit;
use saltern_minion::swarm::{Swarm, SwarmConfig, SwarmStats};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

use super::minion::stop_on_signal;
use super::{chain, complain, say};
use crate::{logging, privileges};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many minions.
    #[arg(long, default_value_t = 100)]
    minions: usize,
    /// The master's request port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4506")]
    master: SocketAddr,
    /// Ids are PREFIX-0, PREFIX-1, …
    #[arg(long, default_value = "swarm")]
    prefix: String,
    /// How many different key pairs they share.
    #[arg(long, default_value_t = 1)]
    keys: usize,
    /// Keep the key pairs here, so that a later swarm is known to the master.
    #[arg(long, value_name = "DIR")]
    pki_dir: Option<std::path::PathBuf>,
    /// How many sign in at a time.
    #[arg(long, default_value_t = 64)]
    parallel: usize,
}

pub(crate) fn run(arguments: Arguments) -> Exit {
    logging::start_plain(LevelFilter::INFO);
    privileges::raise_open_files(4 * arguments.minions as u64 + 1024);
    let mut config = SwarmConfig::new(arguments.minions, arguments.master);
    config.prefix = arguments.prefix;
    config.keys = arguments.keys;
    config.pki_dir = arguments.pki_dir;
    config.parallel = arguments.parallel;
    actix_rt::System::new().block_on(async {
        let stats = Arc::new(SwarmStats::default());
        let swarm = match Swarm::start(config, stats).await {
            Ok(swarm) => swarm,
            Err(error) => {
                complain(&chain(&error));
                return Exit::Failure;
            }
        };
        say(&format!(
            "{} minions are signed in; stop them with Ctrl-C\n",
            swarm.len()
        ));
        let stop = CancellationToken::new();
        stop_on_signal(stop.clone());
        swarm.run(stop).await;
        Exit::Ok
    })
}

//! `saltern-lab swarm`: many native minions in one process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use saltern_base::exit::Exit;
use saltern_base::{chain, open_files};
use saltern_minion::swarm::{Acknowledged, History, SteadyReturns, Swarm, SwarmConfig, SwarmStats};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

use crate::minion::stop_on_signal;
use crate::terminal::{complain, say, start_logging};

/// Stock's default of `minion_jid_queue_hwm`.
const STOCK_JID_QUEUE: usize = 100;

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
    /// Also return without pause, this many returns at a time, for synthetic jobs.
    #[arg(long, value_name = "IN_FLIGHT")]
    returns: Option<usize>,
    /// Maximum rate of these returns, a second.
    #[arg(long, value_name = "PER_SECOND", requires = "returns")]
    rate: Option<u32>,
    /// Length of the text that they return.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    value_size: usize,
    /// Write down each return that the master acknowledged: jid, minion, function, SHA-256 of the
    /// value.
    #[arg(long, value_name = "FILE")]
    acknowledged: Option<std::path::PathBuf>,
    /// Write down what each minion did, a JSON object a line; the minions remember as many jobs as stock's.
    #[arg(long, value_name = "FILE")]
    history: Option<std::path::PathBuf>,
    /// Send the grains of this machine, each minion with its own id, so that the master can target by them.
    #[arg(long)]
    grains: bool,
    /// Initial delay before a minion subscribes again.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    reconnect: u64,
}

impl Arguments {
    fn steady(&self) -> Option<SteadyReturns> {
        Some(SteadyReturns {
            in_flight: self.returns?,
            per_second: self.rate,
            bytes: self.value_size,
        })
    }

    fn stats(&self) -> std::io::Result<SwarmStats> {
        let stats = match &self.acknowledged {
            Some(path) => Acknowledged::create(path).map(SwarmStats::writing_to)?,
            None => SwarmStats::default(),
        };
        Ok(match &self.history {
            Some(path) => stats.with_history(History::create(path)?),
            None => stats,
        })
    }
}

pub(crate) fn run(arguments: Arguments) -> Exit {
    start_logging(LevelFilter::INFO);
    open_files::raise(4 * arguments.minions as u64 + 1024);
    let stats = match arguments.stats() {
        Ok(stats) => Arc::new(stats),
        Err(error) => {
            complain(&format!("cannot write down what is acknowledged: {error}"));
            return Exit::CannotCreate;
        }
    };
    let steady = arguments.steady();
    let mut config = SwarmConfig::new(arguments.minions, arguments.master);
    config.reconnect = Duration::from_millis(arguments.reconnect);
    if arguments.history.is_some() {
        config.jid_queue = STOCK_JID_QUEUE;
    }
    config.grains = arguments.grains;
    config.prefix = arguments.prefix;
    config.keys = arguments.keys;
    config.pki_dir = arguments.pki_dir;
    config.parallel = arguments.parallel;
    actix_rt::System::new().block_on(async {
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
        match steady {
            Some(steady) => {
                tokio::join!(
                    swarm.run(stop.clone()),
                    swarm.return_steadily(&steady, &stop)
                );
            }
            None => swarm.run(stop).await,
        }
        Exit::Ok
    })
}

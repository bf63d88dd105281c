//! `saltern-lab minion`: the small native minion.

use std::path::PathBuf;

use saltern_base::chain;
use saltern_base::exit::Exit;
use saltern_channel::MinionConfig;
use saltern_minion::Minion;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

use crate::terminal::{complain, start_logging};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration directory, or its file "minion".
    #[arg(
        short = 'c',
        long = "config-dir",
        value_name = "DIR",
        default_value = "/etc/salt"
    )]
    config: PathBuf,
    /// Say more.
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    start_logging(if arguments.verbose {
        LevelFilter::DEBUG
    } else {
        LevelFilter::INFO
    });
    let loaded = match MinionConfig::load(&arguments.config) {
        Ok(loaded) => loaded,
        Err(error) => {
            complain(&chain(&error));
            return Exit::Usage;
        }
    };
    for finding in &loaded.findings {
        tracing::warn!("{}: {}: {}", finding.place, finding.option, finding.message);
    }
    actix_rt::System::new().block_on(async {
        let stop = CancellationToken::new();
        stop_on_signal(stop.clone());
        match Minion::new(loaded.config).run(stop).await {
            Ok(()) => Exit::Ok,
            Err(error) => {
                complain(&chain(&error));
                Exit::Failure
            }
        }
    })
}

/// Cancels `stop` when the process is asked to end.
pub(crate) fn stop_on_signal(stop: CancellationToken) {
    actix_rt::spawn(async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) else {
            return;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
}

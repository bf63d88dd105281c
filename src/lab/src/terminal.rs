//! Output of the program: results, errors, log lines.

use std::io::IsTerminal as _;

use saltern_base::stdio;
pub(crate) use saltern_base::stdio::say;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

/// Prints one line to standard error.
pub(crate) fn complain(text: &str) {
    stdio::complain(&format!("saltern-lab: {text}"));
}

/// Starts logging to standard error, in colours on a terminal.
pub(crate) fn start_logging(level: LevelFilter) {
    let mut layer = fmt::layer().with_writer(std::io::stderr);
    if !std::io::stderr().is_terminal() {
        layer.set_ansi(false);
    }
    let log = tracing_subscriber::registry().with(layer.with_filter(level));
    // Fails only when called twice, and then the first one goes on.
    let _ = log.try_init();
}

//! Where log lines go: to standard error at `log_level`, and to `log_file` at
//! `log_level_logfile`, each in its own format.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_config::{LogLevel, MasterConfig};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::log_format::PythonFormat;

/// Starts logging for a master.
///
/// # Errors
/// The log file cannot be opened.
pub(crate) fn start(config: &MasterConfig, level: Option<LogLevel>) -> std::io::Result<()> {
    let clock = Clock::system();
    let console_format =
        PythonFormat::new(&config.log_fmt_console, &config.log_datefmt, clock.clone());
    let console = fmt::layer()
        .event_format(console_format)
        .with_writer(std::io::stderr)
        .with_filter(filter(level.unwrap_or(config.log_level)));
    let file_filter = filter(config.log_level_logfile);
    let file = match file_filter {
        LevelFilter::OFF => None,
        wanted => {
            let format =
                PythonFormat::new(&config.log_fmt_logfile, &config.log_datefmt_logfile, clock);
            let file = open(Path::new(&config.log_file))?;
            let layer = fmt::layer().event_format(format).with_ansi(false);
            Some(layer.with_writer(Arc::new(file)).with_filter(wanted))
        }
    };
    install(Registry::default().with(console).with(file));
    Ok(())
}

/// Starts plain logging for the other commands.
pub(crate) fn start_plain(level: LevelFilter) {
    let layer = fmt::layer().with_writer(std::io::stderr).with_filter(level);
    install(Registry::default().with(layer));
}

fn install(subscriber: impl tracing::Subscriber + Send + Sync) {
    // Fails only when called twice, and then the first one goes on.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Log files may hold ids and addresses: others may not read them.
fn open(path: &Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o640)
        .open(path)
}

/// Salt's levels; `profile`, `trace` and `garbage` are finer than anything here.
pub(crate) fn filter(level: LogLevel) -> LevelFilter {
    match level.name() {
        "quiet" => LevelFilter::OFF,
        "critical" | "error" => LevelFilter::ERROR,
        "warning" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" | "profile" => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

//! Where log lines go: to standard error at `log_level`, and to `log_file` at
//! `log_level_logfile`, each in its own format.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_config::{LogLevel, MasterConfig};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::log_format::PythonFormat;

/// The levels of a master's log, to be changed while it runs.
pub(crate) struct Levels {
    console: SetLevel,
    /// Nothing where no log file is open.
    file: Option<SetLevel>,
}

type SetLevel = Box<dyn Fn(LevelFilter) + Send>;

impl Levels {
    /// Logs to standard error at this level from now on.
    pub(crate) fn set_console(&self, level: LogLevel) {
        (self.console)(filter(level));
    }

    /// Logs to the log file at this level from now on; `false` if none was opened at the start.
    pub(crate) fn set_file(&self, level: LogLevel) -> bool {
        if let Some(set) = &self.file {
            set(filter(level));
        }
        self.file.is_some()
    }
}

/// A filter, and what changes it.
fn adjustable<S>(level: LevelFilter) -> (reload::Layer<LevelFilter, S>, SetLevel)
where
    S: tracing::Subscriber + 'static,
{
    let (layer, handle) = reload::Layer::new(level);
    // Fails only when the subscriber is gone, and it lasts as long as the process.
    let set = move |level| _ = handle.reload(level);
    (layer, Box::new(set))
}

/// Starts logging for a master.
///
/// # Errors
/// The log file cannot be opened.
pub(crate) fn start(config: &MasterConfig, level: Option<LogLevel>) -> std::io::Result<Levels> {
    let clock = Clock::system();
    let console_format =
        PythonFormat::new(&config.log_fmt_console, &config.log_datefmt, clock.clone());
    let (console_filter, set_console) = adjustable(filter(level.unwrap_or(config.log_level)));
    let console = fmt::layer()
        .event_format(console_format)
        .with_writer(std::io::stderr)
        .with_filter(console_filter);
    let (file_filter, set_file) = adjustable(filter(config.log_level_logfile));
    let has_file = filter(config.log_level_logfile) != LevelFilter::OFF;
    let file = match has_file {
        false => None,
        true => {
            let format =
                PythonFormat::new(&config.log_fmt_logfile, &config.log_datefmt_logfile, clock);
            let file = open(Path::new(&config.log_file))?;
            let layer = fmt::layer().event_format(format).with_ansi(false);
            Some(layer.with_writer(Arc::new(file)).with_filter(file_filter))
        }
    };
    install(Registry::default().with(console).with(file));
    Ok(Levels {
        console: set_console,
        file: has_file.then_some(set_file),
    })
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

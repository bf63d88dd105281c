//! Sinks of log lines: standard error (or the journal behind it) at `log_level`, and `log_file` at
//! `log_level_logfile`, each in its own form.
//!
//! One layer does it all, so that an event is read once and a level that changes while the master
//! runs changes in one place.

mod file;
mod journal;
mod json;
mod levels;
mod line;
mod repeats;
mod text;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_config::{LevelOptions, LogFormat, LogLevel, LogOptions};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry, fmt};

use self::file::LogFile;
use self::journal::Journal;
pub(crate) use self::levels::Levels;
use self::line::LogLine;
use self::repeats::Repeats;
use self::text::PythonFormat;

/// Starts logging for a master; `level` was given as an argument.
///
/// # Errors
/// The log file cannot be opened.
pub(crate) fn start(
    options: &LogOptions,
    levels: &LevelOptions,
    level: Option<LogLevel>,
) -> std::io::Result<Arc<Levels>> {
    let file_level = levels.file_level;
    let levels = Arc::new(Levels::new(levels, level));
    let form = |format: &str, date: &str| match options.format {
        LogFormat::Json => Form::Json,
        LogFormat::Text => Form::Text(PythonFormat::new(format, date, &options.jid)),
    };
    let file = match file_level {
        LogLevel::Quiet => None,
        _ => Some((
            form(&options.file_line, &options.file_date),
            LogFile::open(
                Path::new(&options.file),
                options.rotate_at,
                options.rotated_files,
            )?,
        )),
    };
    let journal = match options.format {
        // JSON lines are read from the stream.
        LogFormat::Json => None,
        LogFormat::Text => Journal::of_standard_error(),
    };
    install(Registry::default().with(Log {
        levels: levels.clone(),
        clock: Clock::system(),
        repeats: Repeats::default(),
        file_failures: LogThrottle::new(LOG_INTERVAL),
        journal,
        console: form(&options.console_line, &options.console_date),
        file,
    }));
    Ok(levels)
}

/// Starts plain logging for the other commands, in colours on a terminal.
pub(crate) fn start_plain(level: LevelFilter) {
    let mut layer = fmt::layer().with_writer(std::io::stderr);
    if !std::io::stderr().is_terminal() {
        layer.set_ansi(false);
    }
    install(Registry::default().with(layer.with_filter(level)));
}

fn install(subscriber: impl Subscriber + Send + Sync) {
    // Fails only when called twice, and then the first one goes on.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// A log file that takes nothing is logged at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Format of a line.
enum Form {
    Text(PythonFormat),
    Json,
}

impl Form {
    fn of(&self, line: &LogLine) -> String {
        match self {
            Self::Text(format) => format.form(line),
            Self::Json => json::form(line),
        }
    }
}

/// Tracing layer that writes to standard error or the journal, and to the log file.
struct Log {
    levels: Arc<Levels>,
    clock: Clock,
    repeats: Repeats,
    file_failures: LogThrottle,
    journal: Option<Journal>,
    console: Form,
    /// Nothing where no log file is asked for.
    file: Option<(Form, LogFile)>,
}

impl Log {
    fn is_wanted(&self, metadata: &Metadata<'_>) -> bool {
        let takers = self.levels.takers(metadata);
        takers.console || (takers.file && self.file.is_some())
    }

    fn to_console(&self, line: &LogLine) {
        if let Some(journal) = &self.journal
            && journal.write(line).is_ok()
        {
            return;
        }
        // There is no other place to say that this one is gone.
        let _ = std::io::stderr().write_all(self.console.of(line).as_bytes());
    }

    /// To standard error, because a line about the log cannot go through the log.
    fn complain(&self, error: &std::io::Error) {
        if let Some(lines) = self.file_failures.record() {
            let text = format!("the log file misses {lines} lines: {error}\n");
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.is_wanted(metadata) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.is_wanted(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.levels.most())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(left_out) = self.repeats.admit(event.metadata()) else {
            return;
        };
        let line = LogLine::new(event, self.clock.unix_micros(), left_out);
        let takers = self.levels.takers(event.metadata());
        if takers.console {
            self.to_console(&line);
        }
        if takers.file
            && let Some((form, file)) = &self.file
            && let Err(error) = file.write(&form.of(&line))
        {
            self.complain(&error);
        }
    }
}

#[cfg(test)]
mod tests;

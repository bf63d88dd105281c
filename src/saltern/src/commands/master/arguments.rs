//! The arguments of `saltern master`, and of `salt-master`, which takes stock's.

use std::io;
use std::path::PathBuf;

use saltern_cli::options::{Ending, MasterOptions, read};
use saltern_config::{LevelOptions, LogLevel, MasterConfig};

use crate::ConfigArgument;
use crate::commands::log_level::UnknownLevel;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) config: ConfigArgument,
    /// Log to standard error at this level, whatever the configuration says.
    #[arg(short = 'l', long, value_name = "LEVEL", value_parser = log_level)]
    pub(super) log_level: Option<LogLevel>,
    /// Log file, whatever the configuration says.
    #[arg(long, value_name = "FILE")]
    pub(super) log_file: Option<String>,
    /// Level of the log file.
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    pub(super) log_file_level: Option<LogLevel>,
    /// Run as this user, whatever the configuration says.
    #[arg(short, long, value_name = "NAME")]
    pub(super) user: Option<String>,
    /// File for the process id, whatever the configuration says.
    #[arg(long, value_name = "FILE")]
    pub(super) pid_file: Option<PathBuf>,
    /// Run in the background: ends when the master serves, or cannot be started.
    #[arg(short, long)]
    pub(super) daemon: bool,
    /// The process that such a command leaves in the background.
    #[arg(long, hide = true, conflicts_with = "daemon")]
    pub(super) in_background: bool,
}

impl Arguments {
    /// `salt-master` with a command line of stock's, without the name of the program.
    ///
    /// # Errors
    /// A report to print instead of starting the master.
    pub(crate) fn of_stock(words: Vec<String>) -> Result<Self, Ending> {
        let options = read::<MasterOptions>(words, io::stdin().lock())?.options;
        // The parser takes no other names.
        let level = |name: Option<&str>| name.and_then(LogLevel::from_name);
        Ok(Self {
            config: ConfigArgument {
                config: options.config.directory(),
            },
            log_level: level(options.logging.level),
            log_file: options.logging.file,
            log_file_level: level(options.logging.file_level),
            user: options.user,
            pid_file: options.pid_file.map(PathBuf::from),
            daemon: options.daemon == Some(true),
            in_background: false,
        })
    }

    /// Puts what was asked for here in place of what the configuration says.
    pub(super) fn apply(&self, config: &mut MasterConfig) {
        if let Some(file) = &self.log_file {
            config.log.file.clone_from(file);
        }
        if let Some(user) = &self.user {
            config.user.clone_from(user);
        }
        if let Some(file) = &self.pid_file {
            config.pidfile.clone_from(file);
        }
    }

    /// The levels of the log, with what was asked for here.
    pub(super) fn levels(&self, configured: &LevelOptions) -> LevelOptions {
        let mut levels = configured.clone();
        if let Some(level) = self.log_file_level {
            levels.file_level = level;
        }
        levels
    }
}

fn log_level(name: &str) -> Result<LogLevel, UnknownLevel> {
    LogLevel::from_name(name).ok_or(UnknownLevel::Level)
}

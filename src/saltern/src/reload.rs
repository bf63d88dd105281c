//! SIGHUP: reads the configuration again and has the running master follow it as far as it can.
//!
//! A configuration with an error is refused as a whole, and the old one stays. Of the others each
//! changed option is logged in one line: applied, or needs a restart. What can be applied is
//! said by the row of the option (`saltern_config::options`).

use std::path::PathBuf;
use std::sync::Arc;

use saltern_actors::Master;
use saltern_base::blocking;
use saltern_config::{
    LevelOptions, Loaded, LogLevel, MasterConfig, Reload, load_master, reload_of,
};

use crate::commands::chain;
use crate::commands::master::log_findings;
use crate::logging::Levels;
use crate::preflight;

/// Reloads the configuration on SIGHUP and applies what can change at run time.
pub(crate) struct Reloader {
    path: PathBuf,
    /// Configuration at the start: it holds for everything that cannot be followed.
    started: Arc<MasterConfig>,
    /// Whether other users of this machine were admitted then.
    admitted_users: bool,
    /// Whether a log file is open, for which only a start looks.
    has_log_file: bool,
    /// Configuration that was read last: it holds for everything else.
    current: Arc<MasterConfig>,
    levels: Arc<Levels>,
    /// The levels of the last reading.
    read_levels: LevelOptions,
}

impl Reloader {
    pub(crate) fn new(path: PathBuf, started: Arc<MasterConfig>, levels: Arc<Levels>) -> Self {
        let read_levels = started.followed().log_levels.clone();
        Self {
            path,
            current: started.clone(),
            admitted_users: admits_users(&started),
            has_log_file: read_levels.file_level != LogLevel::Quiet,
            started,
            levels,
            read_levels,
        }
    }

    /// Reads and follows.
    pub(crate) async fn reload(&mut self, master: &Master) {
        let path = self.path.clone();
        let read = move || {
            load_master(&path).map(|mut loaded| {
                // Findings of a next start; an error there refuses nothing here.
                loaded.findings.extend(preflight::parts(&loaded.config));
                loaded
            })
        };
        let read = blocking::run(read).await;
        let loaded = match read {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(errors)) => {
                tracing::error!(
                    "the configuration was not taken over, the old one stays: {errors}"
                );
                return;
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(error, "the configuration was not read");
                return;
            }
        };
        self.take(loaded, master).await;
    }

    async fn take(&mut self, loaded: Loaded, master: &Master) {
        let config = Arc::new(loaded.config);
        if config.salt_compat != self.started.salt_compat {
            // It decides what the other options mean.
            tracing::warn!("salt_compat: needs a restart; nothing else was taken over");
            return;
        }
        if let Err(error) = master.follow(config.clone()).await {
            tracing::error!(
                "the configuration was not taken over, the old one stays: {}",
                chain(&error)
            );
            return;
        }
        log_findings(&loaded.findings);
        self.set_levels(&config);
        let changed = self.current.changed(&config);
        let is_new_reactor = |option: &str| option == "reactor" && !master.follow_reactor(&config);
        for option in changed {
            match reload_of(&option) {
                Reload::InEffect if is_new_reactor(&option) => {
                    tracing::warn!("{option}: needs a restart, for there was no reactor");
                }
                Reload::InEffect => tracing::info!("{option}: now in effect"),
                Reload::NoEffect => tracing::info!("{option}: changed, and has no effect here"),
                Reload::NeedsRestart => {}
            }
        }
        // Also what an earlier reading has changed: it is not in effect still.
        for option in self.started.changed(&config) {
            if reload_of(&option) == Reload::NeedsRestart {
                tracing::warn!("{option}: needs a restart");
            }
        }
        if admits_users(&config) && !self.admitted_users {
            tracing::warn!(
                "the event sockets and the job cache are opened to other users by a restart only"
            );
        }
        tracing::info!("the configuration was read again");
        self.current = config;
    }

    fn set_levels(&mut self, config: &MasterConfig) {
        let after = config.followed().log_levels.clone();
        let before = std::mem::replace(&mut self.read_levels, after.clone());
        if before.level != after.level && self.levels.is_fixed() {
            tracing::warn!("log_level: the level that was given as argument stays");
        }
        // Logged once, and not with every reload.
        let is_newly_wanted =
            before.file_level == LogLevel::Quiet && after.file_level != LogLevel::Quiet;
        if is_newly_wanted && !self.has_log_file {
            tracing::warn!("log_level_logfile: needs a restart, for no log file is open");
        }
        self.levels.follow(&after);
    }
}

/// Whether users of this machine other than the master's may do something.
pub(crate) fn admits_users(config: &MasterConfig) -> bool {
    let followed = config.followed();
    followed.publisher_acl().is_set() || followed.external_auth().is_set()
}

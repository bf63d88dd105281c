//! Lanes: the kinds of helpers, each with a pool of its own.

use std::time::Duration;

use saltern_config::MasterConfig;

/// A kind of work with helpers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Log-ins.
    LogIn,
    /// Work that pillars and top files wait for. A helper does one thing after the other itself.
    Pillar,
    /// Returners. Each consumer has one call in flight, and so one helper.
    Returner,
    /// Functions that users run. Each call has a process of its own, as in stock: what it loads and changes
    /// ends with it.
    Runner,
}

impl Lane {
    pub(crate) const ALL: [Self; 4] = [Self::LogIn, Self::Pillar, Self::Returner, Self::Runner];

    /// Its name in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LogIn => "log_in",
            Self::Pillar => "pillar",
            Self::Returner => "returner",
            Self::Runner => "runner",
        }
    }

    /// Most helpers at a time.
    pub(crate) fn processes(self, config: &MasterConfig) -> usize {
        match self {
            Self::LogIn | Self::Pillar => config.python_bridge.processes,
            Self::Returner => {
                let returners = &config.returners;
                let caches = returners.job_cache.iter().chain(&returners.ext_job_cache);
                let names = returners
                    .events_elsewhere()
                    .chain(caches.map(String::as_str));
                let in_python = names.filter(|name| returners.sql_store(name).is_none());
                in_python.count().max(1)
            }
            Self::Runner => config.python_bridge.runners,
        }
    }

    /// The longest time of a call, waiting and the start of a helper included.
    pub(crate) fn time(self, config: &MasterConfig) -> Duration {
        match self {
            Self::LogIn | Self::Pillar | Self::Returner => config.python_bridge.timeout,
            Self::Runner => config.python_bridge.runner_timeout,
        }
    }

    /// Whether a helper makes a process for each call.
    pub(crate) fn forks(self) -> bool {
        self == Self::Runner
    }
}

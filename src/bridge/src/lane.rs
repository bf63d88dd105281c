//! The two kinds of helpers.

use std::time::Duration;

use saltern_config::MasterConfig;

/// A kind of work with helpers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// What pillars and top files wait for. A helper does one thing after the other itself.
    Pillar,
    /// What users run. Each call has a process of its own, as in stock: what it loads and changes
    /// ends with it.
    Runner,
}

impl Lane {
    pub(crate) const ALL: [Self; 2] = [Self::Pillar, Self::Runner];

    /// Its name in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pillar => "pillar",
            Self::Runner => "runner",
        }
    }

    /// Most helpers at a time.
    pub(crate) fn processes(self, config: &MasterConfig) -> usize {
        match self {
            Self::Pillar => config.python_bridge.processes,
            Self::Runner => config.python_bridge.runners,
        }
    }

    /// The longest time of a call, waiting and the start of a helper included.
    pub(crate) fn time(self, config: &MasterConfig) -> Duration {
        match self {
            Self::Pillar => config.python_bridge.timeout,
            Self::Runner => config.python_bridge.runner_timeout,
        }
    }

    /// Whether a helper makes a process for each call.
    pub(crate) fn forks(self) -> bool {
        self == Self::Runner
    }
}

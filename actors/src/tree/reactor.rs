//! Start of the reactor and the runners of its functions, where a reactor is asked for.

use std::sync::Arc;

use saltern_automation::reactor::ReactorOptions;
use saltern_supervise::{Budget, Reserved};

use super::{CoreActors, Plan};
use crate::automation::reactor::{self, ReactionQueue, Reactor};
use crate::functions::runner::{RunMetrics, RunQueue};

impl Plan {
    /// Starts the reactor of this queue. Its functions have threads of their own: however many
    /// events there are, users and minions have theirs.
    pub(super) fn start_reactor(
        &self,
        reserved: Reserved<Reactor>,
        queue: &Arc<ReactionQueue>,
        metrics: &RunMetrics,
        first: u32,
        (core, budget): (&CoreActors, Budget),
    ) {
        let Some(options) = ReactorOptions::read(&self.config) else {
            return;
        };
        let most = options.most_waiting;
        let python = RunQueue::new("python_reactor", most, metrics);
        let runs = RunQueue::before(&python, "reactor", most, metrics);
        let pool = self.supervisor_of_runners("reactions", budget);
        let processes = u32::try_from(self.config.python_bridge.runners / 2).unwrap_or(1);
        let last = first.saturating_add(options.threads);
        self.start_runners_of(&runs, first..last, &pool, (core, budget));
        let numbers = last..last.saturating_add(processes.max(1));
        self.start_runners_of(&python, numbers, &pool, (core, budget));
        let seed = reactor::Seed {
            queue: queue.clone(),
            services: core.services.clone(),
            reactions: self.reactions.clone(),
            begin_job: core.tracker.clone().recipient(),
            runs,
            store: core.store.clone().recipient(),
            bus: core.bus.clone().recipient(),
        };
        let thread = self.on_patient_thread("reactor");
        self.root.start_reserved(reserved, thread, seed, 0);
    }
}

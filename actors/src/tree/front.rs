//! Start of the request path: the router, the workers, and the actors for slow work.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use parking_lot::Mutex;
use saltern_supervise::{Budget, Child, ChildSpec, Reserved, Supervisor};
use saltern_wire::port::ReqListener;

use super::{CoreActors, Plan};
use crate::automation::reactor::Reactor;
use crate::automation::scheduler::{self, ScheduleMetrics, Scheduler};
use crate::content::render_queue::RenderQueue;
use crate::content::renderer::{self, Renderer};
use crate::front::carry_out::Sinks;
use crate::front::login_worker::{self, LoginWorker};
use crate::front::logins::{Logins, proved};
use crate::front::mworker::{self, MWorker};
use crate::front::req_router::{self, ReqRouter};
use crate::functions::peer_calls::{self, PeerCallMetrics, PeerCalls};
use crate::functions::runner::{self, RunMetrics, RunQueue, Runner};
use crate::shared::window::Windows;

impl Plan {
    /// Starts the workers and, last of all, the router, which opens the request port. Gives the
    /// queue of the runners.
    pub(super) fn start_front(
        &self,
        (router, peer_calls, reactor): (
            Reserved<ReqRouter>,
            Reserved<PeerCalls>,
            Reserved<Reactor>,
        ),
        requests: ReqListener,
        core: &CoreActors,
    ) -> Arc<RunQueue> {
        let count = self.config.worker_threads;
        let budget = Budget::new(100, Duration::from_secs(60));
        let (renderings, wheels) = self.start_renderers(core, budget);
        let (runs, peer_runs) = self.start_runners(reactor, core, budget);
        let peer_calls = self.start_peer_calls(peer_calls, core, peer_runs, renderings.clone());
        let login_workers = reserve::<LoginWorker>(login_worker::THREADS);
        let sinks = Sinks {
            begin_job: core.tracker.clone().recipient(),
            begin_batch: core.batches.clone().recipient(),
            take_return: core.tracker.clone().recipient(),
            take_leaves: core.tracker.clone().recipient(),
            take_answer: core.tracker.clone().recipient(),
            take_verdicts: core.tracker.clone().recipient(),
            audit: core.store.clone().recipient(),
            bus: core.bus.clone().recipient(),
            peer_calls: peer_calls.recipient(),
            renderings,
            wheels,
            runs,
            logins: Logins::new(
                login_workers.iter().map(Reserved::recipient).collect(),
                Some(proved::path(&self.config.cachedir)),
                &self.registry,
            ),
        };
        self.start_login_workers(login_workers, &sinks, budget);
        let runs = sinks.runs.clone();
        let pool = self.root.supervisor("workers", budget);
        let seed = mworker::Seed {
            services: core.services.clone(),
            sinks,
            metrics: mworker::WorkerMetrics::new(&self.registry),
        };
        let workers = (0..count)
            .map(|number| {
                let instance = u32::try_from(number + 1).unwrap_or(u32::MAX);
                let spec = self.on_thread(&format!("worker-{instance}"));
                let spec = spec.with_budget(budget);
                let worker: Addr<MWorker> = pool.start_child(spec, seed.clone(), instance);
                worker.recipient()
            })
            .collect();
        let seed = req_router::Seed {
            workers: Arc::new(workers),
            windows: Windows::new(count, MWorker::WINDOW, router.recipient()),
            backlog: self.config.saltern_request_backlog,
            auth_backlog: self.config.saltern_auth_backlog,
            metrics: req_router::RouterMetrics::new(&self.registry),
            listener: Arc::new(Mutex::new(Some((
                requests,
                self.requests_closed.clone().drop_guard(),
            )))),
            stop: self.stop.clone(),
        };
        let spec = self.on_thread("requests");
        self.root.start_reserved(router, spec, seed, 0);
        runs
    }

    pub(super) fn start_scheduler(&self, core: &CoreActors, runs: Arc<RunQueue>) {
        let seed = scheduler::Seed {
            services: core.services.clone(),
            schedule: self.schedule.clone(),
            history: self.scheduled.clone(),
            runs,
            metrics: ScheduleMetrics::new(&self.registry),
        };
        let _: Addr<Scheduler> = self.root.start_child(ChildSpec::permanent(), seed, 0);
    }

    /// Starts the renderers, with a budget like the workers': they too handle input from outside.
    pub(super) fn start_renderers(
        &self,
        core: &CoreActors,
        budget: Budget,
    ) -> (Arc<RenderQueue>, Arc<RenderQueue>) {
        let pool = self.root.supervisor("renderers", budget);
        let addresses =
            |reserved: &[Reserved<Renderer>]| reserved.iter().map(Reserved::recipient).collect();
        let of_minions = reserve(self.config.saltern_render_threads);
        let of_users = reserve(renderer::WHEEL_THREADS);
        let renderings = RenderQueue::new(
            self.config.saltern_render_backlog,
            addresses(&of_minions),
            &self.registry,
        );
        let wheels = RenderQueue::of_wheels(addresses(&of_users), &self.registry);
        let mut instance = 0_u32;
        let mut start =
            |name: &str, reserved: Vec<Reserved<Renderer>>, queue: &Arc<RenderQueue>| {
                for (number, reserved) in (1..).zip(reserved) {
                    instance += 1;
                    let seed = renderer::Seed {
                        queue: queue.clone(),
                        bus: core.bus.clone().recipient(),
                    };
                    let spec = self.on_patient_thread(&format!("{name}-{number}"));
                    pool.start_reserved(reserved, spec.with_budget(budget), seed, instance);
                }
            };
        start("render", of_minions, &renderings);
        start("wheel", of_users, &wheels);
        (renderings, wheels)
    }

    /// Starts the runners of the master's functions, for users and for minions, with a budget like
    /// the workers': they handle their input.
    pub(super) fn start_runners(
        &self,
        reactor: Reserved<Reactor>,
        core: &CoreActors,
        budget: Budget,
    ) -> (Arc<RunQueue>, Arc<RunQueue>) {
        let pool = self.supervisor_of_runners("runners", budget);
        let metrics = RunMetrics::new(&self.registry);
        let count = u32::try_from(self.config.python_bridge.runners).unwrap_or(u32::MAX);
        let mut first = 1_u32;
        let mut start = |queue: &Arc<RunQueue>, count: u32| {
            let numbers = first..first.saturating_add(count);
            first = numbers.end;
            self.start_runners_of(queue, numbers, &pool, (core, budget));
        };
        let mut of = |asker, in_python, count| {
            let most = runner::MAX_WAITING;
            let python = RunQueue::new(in_python, most, &metrics);
            let queue = RunQueue::before(&python, asker, most, &metrics);
            start(&queue, runner::THREADS);
            start(&python, count);
            queue
        };
        // However many calls of minions there are, some of the processes are reserved for users.
        let of_minions = (count / 2).max(1);
        let queues = (
            of("users", "python", count),
            of("minions", "python_minions", of_minions),
        );
        if let Some(queue) = &self.reactor {
            self.start_reactor(reactor, queue, &metrics, first, (core, budget));
        }
        queues
    }

    pub(super) fn supervisor_of_runners(&self, name: &'static str, budget: Budget) -> Supervisor {
        self.root.supervisor(name, budget)
    }

    /// Starts the runners of one queue, with these numbers.
    pub(super) fn start_runners_of(
        &self,
        queue: &Arc<RunQueue>,
        numbers: Range<u32>,
        pool: &Supervisor,
        (core, budget): (&CoreActors, Budget),
    ) {
        let seed = runner::Seed {
            queue: queue.clone(),
            bus: core.bus.clone().recipient(),
            take_return: core.tracker.clone().recipient(),
            store: core.store.clone().recipient(),
        };
        for instance in numbers {
            let spec = self.on_patient_thread(&format!("run-{instance}"));
            let _: Addr<Runner> =
                pool.start_child(spec.with_budget(budget), seed.clone(), instance);
        }
    }

    pub(super) fn start_peer_calls(
        &self,
        reserved: Reserved<PeerCalls>,
        core: &CoreActors,
        runs: Arc<RunQueue>,
        renderings: Arc<RenderQueue>,
    ) -> Addr<PeerCalls> {
        let seed = peer_calls::Seed {
            begin_job: core.tracker.clone().recipient(),
            ends: self.ends.clone(),
            runs,
            renderings,
            numbers: Arc::default(),
            metrics: PeerCallMetrics::new(&self.registry),
        };
        let spec = self.on_thread("peers");
        self.root.start_reserved(reserved, spec, seed, 0)
    }

    /// Starts the login workers, with a budget like the workers': they handle unauthenticated
    /// input.
    fn start_login_workers(
        &self,
        login_workers: Vec<Reserved<LoginWorker>>,
        sinks: &Sinks,
        budget: Budget,
    ) {
        let pool = self.root.supervisor("login_workers", budget);
        let seed = login_worker::Seed {
            logins: sinks.logins.clone(),
            sinks: sinks.clone(),
        };
        for (instance, reserved) in (1_u32..).zip(login_workers) {
            let spec = self.on_patient_thread(&format!("door-{instance}"));
            pool.start_reserved(reserved, spec.with_budget(budget), seed.clone(), instance);
        }
    }
}

/// Addresses of the members of a pool that is started later.
fn reserve<A: Child>(count: usize) -> Vec<Reserved<A>> {
    (0..count).map(|_| Reserved::new()).collect()
}

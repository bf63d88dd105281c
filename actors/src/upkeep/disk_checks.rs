//! Consistency checks of what is on disk and cached in memory too: minion data, file lists, keys.
//! Also removes expired tokens, and publishes for other programs: changed files, the list of keys,
//! the limit of open files.
//!
//! Other programs change all of these (`salt-key`, `salt-run cache.clear_*`, editors of states),
//! and a full check costs a `stat` for each file. That is done here, on a thread of low priority,
//! once each round of maintenance, so that no request has to. Requests notice most changes
//! themselves; this finds what no request has asked for.
//!
//! Data of a minion whose key has vanished is purged, as stock's `salt-key` does; 3008's leaves
//! the mine behind, which the next owner of the name would answer with. See `orphaned_data`.

mod database_check;
pub(crate) mod file_events;
mod master_key;
mod open_files;
mod orphaned_data;

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Recipient};
use saltern_base::metrics::{IntCounter, IntGauge, Registry, counter, gauge};
use saltern_requests::Services;
use saltern_store::{Housekeeping, JobQueries, StoreError};
use saltern_supervise::Child;

use crate::messages::MaintenanceTask;
use crate::messages::{Fire, Look, LookOver, Persist};
use crate::shared::priority::give_way;
use crate::upkeep::maintenance::round;
use crate::upkeep::maintenance_tasks::{MaintenanceTasks, TaskError};
use database_check::DatabaseCheck;
use file_events::FileEvents;
use master_key::RecordedRotation;
use open_files::OpenFiles;
use orphaned_data::OrphanedData;

/// Below all others: nothing waits for it.
const NICENESS: i32 = 10;

/// Seed of upkeep.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) maintenance_tasks: Arc<MaintenanceTasks>,
    pub(crate) bus: Recipient<Fire>,
    /// Used by this actor only.
    pub(crate) jobs: Arc<dyn Housekeeping>,
    pub(crate) store: Recipient<Persist>,
    pub(crate) metrics: UpkeepMetrics,
}

/// Metrics of upkeep.
#[derive(Clone)]
pub(crate) struct UpkeepMetrics {
    changed: IntCounter,
    known: IntGauge,
    forgotten: IntCounter,
    /// The soft limit.
    open_files: IntGauge,
}

impl UpkeepMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            changed: counter(
                registry,
                "saltern_minion_data_changed_outside_total",
                "Minions whose cached grains or pillar another program changed.",
            ),
            known: gauge(
                registry,
                "saltern_minion_data_minions",
                "Minions with cached grains.",
            ),
            forgotten: counter(
                registry,
                "saltern_minions_forgotten_total",
                "Minions whose data was removed because their key was gone.",
            ),
            open_files: gauge(
                registry,
                "saltern_open_files_limit",
                "How many files the master may have open.",
            ),
        }
    }
}

/// Actor that checks the disk.
pub(crate) struct Upkeep {
    seed: Seed,
    orphaned_data: OrphanedData,
    file_events: Option<FileEvents>,
    open_files: OpenFiles,
    database_check: DatabaseCheck,
    rotation: RecordedRotation,
}

impl Child for Upkeep {
    type Seed = Seed;

    const NAME: &'static str = "upkeep";
    const MAILBOX: usize = 2;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            orphaned_data: OrphanedData::default(),
            file_events: FileEvents::of_site(&seed.services),
            open_files: OpenFiles::default(),
            database_check: DatabaseCheck::default(),
            rotation: RecordedRotation::default(),
        }
    }
}

impl Actor for Upkeep {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        give_way(NICENESS);
        self.expect();
        // So that the first target after a start finds all data cached.
        context.notify(LookOver(Look::Due));
    }
}

impl Handler<LookOver> for Upkeep {
    type Result = ();

    fn handle(&mut self, LookOver(look): LookOver, _: &mut Self::Context) {
        let is_meant = |task: MaintenanceTask| match look {
            Look::Due => true,
            Look::Only(only) => only == task,
        };
        if is_meant(MaintenanceTask::OrphanedData) {
            self.forget_former_minions();
        }
        if is_meant(MaintenanceTask::MinionData) {
            self.look_over_minion_data();
        }
        if is_meant(MaintenanceTask::Tokens) {
            self.simple(MaintenanceTask::Tokens, |services| {
                let swept = services.users.tokens.sweep();
                swept.map(|_| ()).map_err(TaskError::of)
            });
        }
        if is_meant(MaintenanceTask::Nonces) {
            self.simple(MaintenanceTask::Nonces, |services| {
                let sessions = &services.minions.sessions;
                sessions.sweep_nonces();
                sessions.sha1.flush(services.clock.unix());
                Ok(())
            });
        }
        if is_meant(MaintenanceTask::FileLists) {
            self.simple(MaintenanceTask::FileLists, |services| {
                let listed = services.content.files.refresh_lists();
                listed.map_err(TaskError::of)
            });
        }
        if is_meant(MaintenanceTask::KeyCache) && writes_key_cache(&self.seed.services) {
            self.simple(MaintenanceTask::KeyCache, |services| {
                let written = services.keys.pki.write_key_cache();
                written.map(|_| ()).map_err(TaskError::of)
            });
        }
        if is_meant(MaintenanceTask::FileEvents) {
            self.tell_file_events(look != Look::Due);
        }
        if is_meant(MaintenanceTask::MasterKey) {
            self.look_at_master_key();
        }
        if is_meant(MaintenanceTask::OpenFiles) {
            self.look_at_open_files();
        }
        if is_meant(MaintenanceTask::DatabaseCheck) {
            let (jobs, check) = (&*self.seed.jobs, &mut self.database_check);
            let maintenance_tasks = &self.seed.maintenance_tasks;
            maintenance_tasks.run(MaintenanceTask::DatabaseCheck, || check.look(jobs));
        }
        if is_meant(MaintenanceTask::Highstates) {
            self.simple(MaintenanceTask::Highstates, |services| {
                // One of its own: requests do not wait for it.
                let jobs = services.jobs.reader.another().map_err(TaskError::of)?;
                read_highstates(services, &*jobs).map_err(TaskError::of)
            });
        }
    }
}

/// Steps in which a round reads returns of highstates; the rest is left to the next one.
const STEPS: usize = 200;

/// Keeps the last highstate of each minion.
fn read_highstates(services: &Services, jobs: &dyn JobQueries) -> Result<(), StoreError> {
    let highstates = &services.jobs.highstates;
    highstates.catch_up(jobs, STEPS)?;
    highstates.save(services.keys.pki.accepted()?.sorted())
}

/// `key_cache: sched`; no other value does anything in stock's master.
fn writes_key_cache(services: &Services) -> bool {
    services.config.key_cache() == Some("sched")
}

impl Upkeep {
    /// Registers the tasks that are run here.
    fn expect(&self) {
        let maintenance_tasks = &self.seed.maintenance_tasks;
        let round = round(&self.seed.services);
        for task in [
            MaintenanceTask::OrphanedData,
            MaintenanceTask::MinionData,
            MaintenanceTask::Tokens,
            MaintenanceTask::Nonces,
            MaintenanceTask::FileLists,
            MaintenanceTask::MasterKey,
            MaintenanceTask::OpenFiles,
            MaintenanceTask::DatabaseCheck,
            MaintenanceTask::Highstates,
        ] {
            maintenance_tasks.expect(task, round);
        }
        if writes_key_cache(&self.seed.services) {
            maintenance_tasks.expect(MaintenanceTask::KeyCache, round);
        }
        if let Some(events) = &self.file_events {
            maintenance_tasks.expect(MaintenanceTask::FileEvents, events.interval().max(round));
        }
    }

    fn simple(&self, task: MaintenanceTask, work: impl FnOnce(&Services) -> Result<(), TaskError>) {
        let services = &self.seed.services;
        self.seed.maintenance_tasks.run(task, || work(services));
    }

    fn look_at_master_key(&mut self) {
        let (services, store) = (&self.seed.services, &self.seed.store);
        let rotation = &mut self.rotation;
        self.seed
            .maintenance_tasks
            .run(MaintenanceTask::MasterKey, || {
                let record = |row| store.try_send(Persist::row(row)).is_ok();
                rotation.look(services, record).map_err(TaskError::of)?;
                let compared = services.keys.master.compare_with_disk(&services.config);
                compared.map_err(TaskError::of)
            });
    }

    fn look_over_minion_data(&self) {
        let metrics = &self.seed.metrics;
        self.simple(MaintenanceTask::MinionData, |services| {
            let data = &services.minions.data;
            let looked = data.refresh();
            let looked = looked.and_then(|changed| Ok((changed, data.known()?)));
            // Also after a failure: what could be read is cached.
            services.targeting.refresh();
            let (changed, known) = looked.map_err(TaskError::of)?;
            metrics.changed.inc_by(changed as u64);
            metrics.known.set(known.len() as i64);
            Ok(())
        });
    }

    fn forget_former_minions(&mut self) {
        let (services, metrics) = (&self.seed.services, &self.seed.metrics);
        // Taken out, so that after a panic it starts anew.
        let mut orphaned_data = std::mem::take(&mut self.orphaned_data);
        let kept = &mut self.orphaned_data;
        self.seed
            .maintenance_tasks
            .run(MaintenanceTask::OrphanedData, || {
                let forgotten = orphaned_data.forget(services);
                *kept = orphaned_data;
                let forgotten = forgotten.map_err(TaskError::of)?;
                metrics.forgotten.inc_by(forgotten as u64);
                Ok(())
            });
    }

    fn tell_file_events(&mut self, is_asked_for: bool) {
        let Some(events) = &mut self.file_events else {
            return;
        };
        if !(events.is_due() || is_asked_for) {
            return;
        }
        let (services, bus) = (&self.seed.services, &self.seed.bus);
        self.seed
            .maintenance_tasks
            .run(MaintenanceTask::FileEvents, || {
                let event = events.look(services)?;
                let sent = event.map_or(Ok(()), |event| bus.try_send(Fire(vec![event])));
                sent.map_err(|_| TaskError::BusFull)
            });
    }

    fn look_at_open_files(&mut self) {
        let (services, gauge) = (&self.seed.services, &self.seed.metrics.open_files);
        let open_files = &mut self.open_files;
        self.seed
            .maintenance_tasks
            .run(MaintenanceTask::OpenFiles, || {
                let accepted = services.keys.pki.accepted();
                let accepted = accepted.map_err(TaskError::of)?.len() as u64;
                let limit = open_files::limit();
                gauge.set(i64::try_from(limit.soft).unwrap_or(i64::MAX));
                open_files.look(accepted, limit, services.config.max_open_files);
                Ok(())
            });
    }
}

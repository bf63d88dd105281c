//! Start of what the master does by itself: upkeep, remotes, maintenance.

use std::sync::Arc;

use actix::Addr;
use saltern_store::Housekeeping;
use saltern_supervise::{ChildSpec, Reserved};

use super::{Connections, CoreActors, Plan};
use crate::content::remotes::{self, Remotes, RemotesMetrics};
use crate::upkeep::disk_checks::{self, Upkeep, UpkeepMetrics};
use crate::upkeep::maintenance::{self, Maintenance};
use crate::upkeep::sql_purge::SqlPurge;

impl Plan {
    pub(super) fn start_upkeep(
        &self,
        core: &CoreActors,
        jobs: Arc<dyn Housekeeping>,
    ) -> Addr<Upkeep> {
        let seed = disk_checks::Seed {
            services: core.services.clone(),
            maintenance_tasks: self.maintenance_tasks.clone(),
            bus: core.bus.clone().recipient(),
            jobs,
            store: core.store.clone().recipient(),
            metrics: UpkeepMetrics::new(&self.registry),
        };
        let spec = self.on_patient_thread("upkeep");
        self.root.start_child(spec, seed, 0)
    }

    pub(super) fn start_remotes(&self, core: &CoreActors) -> Addr<Remotes> {
        let seed = remotes::Seed {
            services: core.services.clone(),
            maintenance_tasks: self.maintenance_tasks.clone(),
            bus: core.bus.clone().recipient(),
            metrics: RemotesMetrics::new(&self.registry),
        };
        let spec = self.on_patient_thread("remotes");
        self.root.start_child(spec, seed, 0)
    }

    pub(super) fn start_maintenance(
        &self,
        reserved: Reserved<Maintenance>,
        core: CoreActors,
        (upkeep, remotes): (Addr<Upkeep>, Addr<Remotes>),
        connections: Connections,
    ) {
        let seed = maintenance::Seed {
            maintenance_tasks: self.maintenance_tasks.clone(),
            services: core.services,
            bus: core.bus.recipient(),
            begin_job: core.tracker.clone().recipient(),
            questions: core.publisher.recipient(),
            subscribers: connections.subscribers,
            feeds_syndics: self.config.order_masters(),
            tracker: core.tracker.recipient(),
            store: core.store.recipient(),
            mirror: core.mirror.map(Addr::recipient),
            sql_purge: SqlPurge::new(&self.config, &self.clock, &self.maintenance_tasks),
            upkeep: upkeep.recipient(),
            remotes: remotes.recipient(),
            presence: connections.presence,
            known_networks: connections.known_networks,
            rotation: connections.rotation,
            held_from: {
                let view = self.syndic_view.clone();
                Arc::new(move |keep, oldest| view.held_from(keep, oldest))
            },
        };
        let spec = ChildSpec::permanent();
        self.root.start_reserved(reserved, spec, seed, 0);
    }
}

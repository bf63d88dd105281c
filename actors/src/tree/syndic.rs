//! Start of the syndic: an uplink for each master above, their outboxes, and the one for all.

use std::collections::BTreeSet;
use std::sync::Arc;

use actix::{Addr, Recipient};
use saltern_base::chain;
use saltern_channel::MinionConfig;
use saltern_requests::Services;
use saltern_store::jobs::JobQueries;
use saltern_store::{EarlyJobs, JobFollower, StoreError};
use tokio::sync::{Mutex, Notify};

use super::{MasterParts, Plan, bus_limits};
use crate::events::bus::Bus;
use crate::events::event_publisher::EventPublisher;
use crate::messages::{Accept, Fire, RowsCommitted};
use crate::syndic::metrics::SyndicMetrics;
use crate::syndic::outbox::{
    self, OutboxCounts, OutboxQueue, OutboxSettings, Recipients, SyndicOutbox,
};
use crate::syndic::uplink::{self, SyndicIdentity, SyndicUplink, file_name};
use crate::syndic::upper::Upper;
use crate::syndic::upward_events::UpwardEvents;
use crate::syndic::upward_verdicts::UpwardVerdicts;

/// The outbox of returns that no master above asked for, as a label.
const ANY: &str = "any";

/// The parts of a syndic that can fail to open.
pub(super) struct SyndicParts {
    identity: Arc<SyndicIdentity>,
    uppers: Vec<OpenUpper>,
    any: OpenOutbox,
}

struct OpenUpper {
    upper: Arc<Upper>,
    reader: Arc<dyn JobQueries>,
    outbox: OpenOutbox,
}

struct OpenOutbox {
    recipients: Recipients,
    follower: JobFollower,
    reader: Arc<dyn JobQueries>,
    wake: Arc<Notify>,
}

/// Names the files of an outbox.
fn purpose_of(name: &str) -> String {
    format!("syndic_{}", file_name(name))
}

impl OpenOutbox {
    fn new(
        parts: &MasterParts,
        (name, recipients): (&str, Recipients),
    ) -> Result<Self, StoreError> {
        let purpose = purpose_of(name);
        let reader = parts.database.queries.another()?;
        Ok(Self {
            recipients,
            follower: JobFollower::open(&parts.config, (&purpose, name), reader)?,
            reader: parts.database.queries.another()?,
            wake: Arc::new(Notify::new()),
        })
    }
}

impl SyndicParts {
    /// Opens the syndic of the configuration, if this process is one.
    pub(super) fn open(parts: &MasterParts) -> Result<Option<Self>, StoreError> {
        let config = &parts.config;
        let options = &config.syndic;
        if !options.is_native() {
            return Ok(None);
        }
        let root = config.root_dir.display().to_string();
        let directory = config.conf_file.parent().unwrap_or(&config.root_dir);
        let minion = match MinionConfig::load_for_syndic(directory, &root) {
            Ok(minion) => minion,
            Err(error) => {
                let error = chain(&error);
                tracing::error!(error, "there is no syndic: its identity cannot be read");
                return Ok(None);
            }
        };
        let identity = SyndicIdentity::new(minion, options.masters.len() > 1);
        let names: BTreeSet<String> = options.masters.iter().map(|it| it.name.clone()).collect();
        let any = OpenOutbox::new(parts, (ANY, Recipients::Any(names)))?;
        let uppers = options.masters.iter().map(|master| {
            let recipients = Recipients::Upper(master.name.clone());
            let outbox = OpenOutbox::new(parts, (&master.name, recipients))?;
            let connected = vec![outbox.wake.clone(), any.wake.clone()];
            let early = EarlyJobs::open(config, &purpose_of(&master.name), &*outbox.reader)?;
            Ok(OpenUpper {
                upper: Arc::new(Upper::new(master.clone(), connected, early)),
                reader: parts.database.queries.another()?,
                outbox,
            })
        });
        Ok(Some(Self {
            identity: Arc::new(identity),
            uppers: uppers.collect::<Result<_, StoreError>>()?,
            any,
        }))
    }
}

/// Uplinks that are not started yet: they publish through what is started behind the outboxes.
pub(super) struct Uplinks {
    identity: Arc<SyndicIdentity>,
    uppers: Vec<(Arc<Upper>, Arc<dyn JobQueries>)>,
    metrics: SyndicMetrics,
}

impl Plan {
    /// Starts the outboxes, which follow the store.
    pub(super) fn start_outboxes(
        &self,
        syndic: SyndicParts,
        services: &Arc<Services>,
        bus: &Addr<EventPublisher>,
    ) -> (Uplinks, Vec<Recipient<RowsCommitted>>) {
        let metrics = SyndicMetrics::new(&self.registry);
        let SyndicParts {
            identity,
            uppers,
            any,
        } = syndic;
        let all: Vec<Arc<Upper>> = uppers.iter().map(|it| it.upper.clone()).collect();
        let start = Start {
            plan: self,
            services,
            identity: &identity,
            bus: bus.clone().recipient(),
            metrics: &metrics,
        };
        let mut outboxes = vec![start.outbox(ANY, any, all, 0)];
        let mut waiting = Vec::new();
        for (instance, open) in (1_u32..).zip(uppers) {
            let name = open.upper.name().to_owned();
            let to = vec![open.upper.clone()];
            outboxes.push(start.outbox(&name, open.outbox, to, instance));
            self.syndic_view.add_upper(open.upper.clone());
            waiting.push((open.upper, open.reader));
        }
        let uplinks = Uplinks {
            identity,
            uppers: waiting,
            metrics,
        };
        (uplinks, outboxes)
    }

    /// Starts the uplinks.
    pub(super) fn start_uplinks(
        &self,
        uplinks: Uplinks,
        services: &Arc<Services>,
        heard: &Arc<Bus>,
        router: &Recipient<Accept>,
    ) {
        let metrics = uplinks.metrics;
        for (instance, (upper, reader)) in (1_u32..).zip(uplinks.uppers) {
            let labels = [upper.name(), "dropped"];
            let dropped = metrics.events.with_label_values(&labels);
            let limits = bus_limits(&self.config);
            let events = Arc::new(UpwardEvents::new(self.config.syndic.mode, limits, dropped));
            heard.tap(events.clone());
            let labels = [upper.name(), "dropped"];
            let dropped = metrics.verdicts.with_label_values(&labels);
            let verdicts = Arc::new(UpwardVerdicts::new(dropped));
            if self.config.syndic.inventory {
                heard.tap(verdicts.clone());
            }
            let seed = uplink::Seed {
                upper,
                identity: uplinks.identity.clone(),
                events,
                verdicts,
                services: services.clone(),
                reader,
                router: router.clone(),
                metrics: metrics.clone(),
                problems: outbox::problems(),
            };
            // It reads files of keys and the database.
            let spec = self.on_patient_thread(&format!("syndic-{instance}"));
            let _: Addr<SyndicUplink> = self.root.start_child(spec, seed, instance);
        }
    }
}

/// Parts that all outboxes are started with.
struct Start<'a> {
    plan: &'a Plan,
    services: &'a Arc<Services>,
    identity: &'a Arc<SyndicIdentity>,
    bus: Recipient<Fire>,
    metrics: &'a SyndicMetrics,
}

impl Start<'_> {
    fn outbox(
        &self,
        name: &str,
        open: OpenOutbox,
        uppers: Vec<Arc<Upper>>,
        instance: u32,
    ) -> Recipient<RowsCommitted> {
        let config = &self.plan.config;
        let options = &config.syndic;
        let settings = OutboxSettings {
            recipients: open.recipients,
            mode: options.mode,
            master_id: config.master_id().map(str::to_owned),
            remembered_jobs: options.remembered_jobs,
            keep: options.keep,
            keep_returns: options.keep_returns,
        };
        let counts = Arc::<parking_lot::Mutex<OutboxCounts>>::default();
        self.plan.syndic_view.add_outbox(name, counts.clone());
        let queue = OutboxQueue::new(settings, open.follower, open.reader);
        let seed = outbox::Seed {
            name: name.to_owned(),
            queue: Arc::new(Mutex::new(queue)),
            stream: i64::from(instance > 0),
            uppers,
            failover: options.failover,
            backoff: Arc::default(),
            identity: self.identity.clone(),
            gather: options.gather,
            wake: open.wake,
            services: self.services.clone(),
            bus: self.bus.clone(),
            metrics: self.metrics.clone(),
            counts,
            problems: outbox::problems(),
        };
        // It blocks on reads of the database.
        let spec = self.plan.on_patient_thread(&format!("outbox-{instance}"));
        let outbox: Addr<SyndicOutbox> = self.plan.root.start_child(spec, seed, instance);
        outbox.recipient()
    }
}

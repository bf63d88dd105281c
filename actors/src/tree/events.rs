//! Start of the bus and its subscribers and clients: event returners and engines; and of the trace
//! exporter.

use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Recipient};
use parking_lot::Mutex;
use saltern_config::{OWN_EVENTS, PythonBridge};
use saltern_requests::Services;
use saltern_supervise::Budget;
use tokio_util::sync::CancellationToken;

use super::Plan;
use crate::automation::engine::{self, Engine, EngineMetrics};
use crate::events::bus::Bus;
use crate::events::call_steps::CallSteps;
use crate::events::event_publisher::{self, EventPublisher};
use crate::events::event_return::{
    self, EventReturn, EventReturnMetrics, EventTable, PythonReturner, Sink, SqlReturner,
};
use crate::events::event_sockets::EventSockets;
use crate::jobs::job_store::JobStore;
use crate::messages::Greet;
use crate::operator::metric_aliases::MetricAliases;
use crate::operator::trace_exporter::{self, Destination, ExporterMetrics, TraceExporter};

impl Plan {
    /// Starts the trace exporter, where the configuration asks for it; before all others, so that
    /// it ends after all spans have.
    pub(super) fn start_trace_exporter(&self, services: &Services) {
        let (Some(tracer), Some(options)) = (&services.tracer, &self.config.tracing) else {
            return;
        };
        if !options.is_exported {
            return;
        }
        let environment = |name: &str| std::env::var(name).ok();
        let seed = trace_exporter::Seed {
            tracer: tracer.clone(),
            destination: Arc::new(Destination::of(&self.config, options, environment)),
            metrics: ExporterMetrics::new(&self.registry),
        };
        let spec = self.on_patient_thread("traces");
        let _: Addr<TraceExporter> = self.root.start_child(spec, seed, 0);
    }

    pub(super) fn start_bus(
        &self,
        services: &Services,
        events: EventSockets,
        greeter: Recipient<Greet>,
    ) -> (Addr<EventPublisher>, Arc<Bus>) {
        let config = &self.config;
        let queue = super::bus_limits(config);
        let clock = services.clock.clone();
        let bus = Bus::new(config.salt_compat, queue, clock, &self.registry);
        if let Some(reactor) = &self.reactor {
            bus.tap(reactor.clone());
        }
        bus.tap(Arc::new(CallSteps {
            calls: services.runners.running_calls().clone(),
            clock: services.clock.clone(),
        }));
        if let Some(names) = MetricAliases::new(config.metrics_compat, &self.clock, &self.registry)
        {
            bus.tap(Arc::new(names));
        }
        let seed = event_publisher::Seed {
            bus: bus.clone(),
            sockets: Arc::new(Mutex::new(Some(events))),
            greeter,
            door: Arc::default(),
            batches: self.batches.clone(),
            stop_taking: self.stop.clone(),
            stop: CancellationToken::new(),
            requests_closed: self.requests_closed.clone(),
        };
        let publisher = self.root.start_child(self.on_thread("bus"), seed, 0);
        (publisher, bus)
    }

    /// Starts the event returners in Python and those of SQL databases. They get the events of all
    /// other actors, to the end.
    pub(super) fn start_event_returns(
        &self,
        services: &Services,
        (publisher, bus): (&Addr<EventPublisher>, &Arc<Bus>),
        metrics: &EventReturnMetrics,
    ) {
        let (config, bridge) = (&self.config, &services.bridge);
        for (instance, name) in (1..).zip(config.returners.events_elsewhere()) {
            let sink: Box<dyn Sink> = match self.sql_writer(name) {
                Some(Ok(writer)) => Box::new(SqlReturner::new(writer)),
                Some(Err(error)) => {
                    tracing::error!(%error, "event_return: events cannot be returned");
                    continue;
                }
                None => {
                    let returner = PythonReturner::new(name, bridge);
                    if let Some(error) = returner.refusal() {
                        tracing::error!(%error, "event_return: events cannot be returned");
                        if config.python_bridge.python == PythonBridge::Off {
                            continue;
                        }
                    }
                    Box::new(returner)
                }
            };
            let bus = (bus, publisher.clone().recipient());
            let metrics = metrics.clone();
            let seed = event_return::Seed::new(name, sink, config, bus, metrics);
            let spec = self.on_thread(&format!("events-{instance}"));
            let _: Addr<EventReturn> = self.root.start_child(spec, seed, instance);
        }
    }

    /// Starts the returner for the job database, where the site or the API keeps events. Ends
    /// before the database does.
    pub(super) fn start_event_table(
        &self,
        (publisher, bus): (&Addr<EventPublisher>, &Arc<Bus>),
        store: &Addr<JobStore>,
        metrics: EventReturnMetrics,
    ) {
        let config = &self.config;
        let is_for_api = self.event_feed.is_some();
        let mut returners = config.returners.events.iter();
        if !is_for_api && !returners.any(|name| name == OWN_EVENTS) {
            return;
        }
        let store = store.clone().recipient();
        let table = Box::new(EventTable::new(store, self.clock.clone()));
        let bus = (bus, publisher.clone().recipient());
        let seed = if is_for_api {
            event_return::Seed::of_all_events(OWN_EVENTS, table, config, bus, metrics)
        } else {
            event_return::Seed::new(OWN_EVENTS, table, config, bus, metrics)
        };
        let _: Addr<EventReturn> = self.root.start_child(self.on_thread("events-0"), seed, 0);
    }

    /// Starts the engines of the site, last of all: they are clients of everything else.
    pub(super) fn start_engines(
        &self,
        services: Arc<Services>,
        bus: &Addr<EventPublisher>,
        heard: &Arc<Bus>,
    ) {
        if self.config.engines.is_empty() {
            return;
        }
        let budget = Budget::new(100, Duration::from_secs(60));
        let pool = self.root.supervisor("engines", budget);
        let metrics = EngineMetrics::new(&self.registry);
        let http = self.http.of("webhook");
        for (instance, engine) in (1_u32..).zip(&self.config.engines) {
            let seed = engine::Seed {
                engine: Arc::new(engine.clone()),
                services: services.clone(),
                bus: bus.clone().recipient(),
                heard: heard.clone(),
                metrics: metrics.clone(),
                http: http.clone(),
                stop: self.stop.child_token(),
            };
            // It blocks on programs that it starts and ends.
            let spec = self.on_patient_thread(&format!("engine-{instance}"));
            let spec = spec.with_budget(budget);
            let _: Addr<Engine> = pool.start_child(spec, seed, instance);
        }
    }
}

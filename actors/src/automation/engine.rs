//! Actor of one engine of `engines:`: runs it as long as the master runs, restarts it when it
//! ends, and gives it up when that happens too often.
//!
//! An engine is the site's own, so its failures, panics included, are charged to a restart budget
//! of its own and never to that of the tree: giving it up harms nothing else. Stock restarts an
//! engine that has ended within ten seconds, for ever.
//!
//! The engines themselves are in the files below: `script`, `listen` (stock's `test`), `webhook`,
//! and `python` for all others. All fire through the bus and wait for it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Recipient, ResponseActFuture, WrapFuture,
};
use futures_util::FutureExt;
use saltern_automation::engines;
use saltern_base::blocking::BlockingError;
use saltern_base::chain;
use saltern_base::metrics::{
    IntCounterVec, IntGauge, IntGaugeVec, Registry, counter_vec, gauge_vec,
};
use saltern_bridge::BridgeError;
use saltern_config::{EngineConfig, EngineKind};
use saltern_http::HttpMeters;
use saltern_model::Event;
use saltern_requests::Services;
use saltern_supervise::{Budget, Child, Record};
use saltern_wire::port::TlsError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::events::bus::Bus;
use crate::messages::Fire;

mod group;
mod line_reader;
mod listen;
mod pace;
mod python;
mod script;
mod webhook;

/// Longest back-off before a restart.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Seed of an engine.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) engine: Arc<EngineConfig>,
    pub(crate) services: Arc<Services>,
    pub(crate) bus: Recipient<Fire>,
    /// The bus, for the engine that listens.
    pub(crate) heard: Arc<Bus>,
    pub(crate) metrics: EngineMetrics,
    /// HTTP meters, shared by all webhooks.
    pub(crate) http: HttpMeters,
    /// Cancelled when the master stops; this engine's own.
    pub(crate) stop: CancellationToken,
}

impl Seed {
    /// Fires an event, and waits until it is on the bus.
    async fn fire(&self, event: Event) {
        match self.bus.send(Fire(vec![event])).await {
            Ok(()) => count(&self.metrics.events, &self.engine.name),
            Err(_) => {
                tracing::warn!(engine = self.engine.name, "an event of an engine was lost");
            }
        }
    }
}

/// Metrics of the engines, labelled by their configured names.
#[derive(Clone)]
pub(crate) struct EngineMetrics {
    running: IntGaugeVec,
    failures: IntCounterVec,
    given_up: IntCounterVec,
    events: IntCounterVec,
}

impl EngineMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let counted = |name, help| counter_vec(registry, name, help, &["engine"]);
        Self {
            running: gauge_vec(
                registry,
                "saltern_engines_running",
                "Engines that run, by name.",
                &["engine"],
            ),
            failures: counted(
                "saltern_engine_failures_total",
                "Times that an engine has ended by itself.",
            ),
            given_up: counted(
                "saltern_engines_given_up_total",
                "Engines that are not started again.",
            ),
            events: counted("saltern_engine_events_total", "Events fired by engines."),
        }
    }
}

fn count(counter: &IntCounterVec, engine: &str) {
    counter.with_label_values(&[engine]).inc();
}

/// Why an engine has ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    /// The command is no command line.
    #[error("the command cannot be split into words")]
    Words,
    /// The program does not start, or cannot be watched.
    #[error("\"{program}\" cannot be run")]
    Program {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// The port cannot be bound.
    #[error("cannot listen on \"{address}\"")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The Python helper failed.
    #[error(transparent)]
    Python(#[from] BridgeError),
    /// No thread waits for the helper, or that one panicked.
    #[error(transparent)]
    Blocking(#[from] BlockingError),
    /// Its function returned, which no engine's should.
    #[error("it returned")]
    Returned,
    /// A bug of ours.
    #[error("it panicked")]
    Panicked,
}

/// Actor that supervises one engine.
pub(crate) struct Engine {
    seed: Seed,
    record: Record,
    /// Cancelled when the current run is over.
    run: Option<CancellationToken>,
}

impl Child for Engine {
    type Seed = Seed;

    const NAME: &'static str = "engine";
    const MAILBOX: usize = 4;

    fn build(seed: &Seed) -> Self {
        let config = &seed.services.config;
        let budget = Budget::new(
            config.saltern_engine_restarts,
            config.saltern_engine_restart_window,
        );
        Self {
            seed: seed.clone(),
            record: Record::new(budget).with_longest_delay(MAX_PAUSE),
            run: None,
        }
    }

    /// The stop of the master cancels every engine already, unless the tree gives up; this waits
    /// for the end.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        self.seed.stop.cancel();
        let over = self.run.clone()?;
        let gone = async move { over.cancelled().await };
        Some(Box::pin(actix::fut::wrap_future(gone)))
    }
}

impl Actor for Engine {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.begin(context);
    }
}

impl Engine {
    fn begin(&mut self, context: &mut Context<Self>) {
        if self.seed.stop.is_cancelled() {
            return;
        }
        let over = CancellationToken::new();
        self.run = Some(over.clone());
        let name = &self.seed.engine.name;
        tracing::info!(engine = name, "an engine starts");
        let running = Running::new(self.seed.metrics.running.with_label_values(&[name]));
        let seed = self.seed.clone();
        let run = AssertUnwindSafe(async move { run(&seed).await }).catch_unwind();
        let ended = run.into_actor(self).map(move |end, engine, context| {
            drop(running);
            over.cancel();
            engine.run = None;
            engine.ended(end.unwrap_or(Err(Ended::Panicked)), context);
        });
        context.spawn(ended);
    }

    fn ended(&mut self, end: Result<(), Ended>, context: &mut Context<Self>) {
        let engine = self.seed.engine.name.as_str();
        if self.seed.stop.is_cancelled() {
            return;
        }
        let error = chain(&end.err().unwrap_or(Ended::Returned));
        count(&self.seed.metrics.failures, engine);
        let now = Instant::now();
        if !self.record.charge(now) {
            return self.give_up(&error, context);
        }
        let pause = self.record.back_off(now);
        let pause_ms = pause.as_millis();
        tracing::warn!(
            engine,
            error,
            pause_ms,
            "an engine has ended; it is started again"
        );
        context.run_later(pause, |engine, context| engine.begin(context));
    }

    fn give_up(&mut self, error: &str, context: &mut Context<Self>) {
        let engine = self.seed.engine.name.as_str();
        tracing::error!(
            engine,
            error,
            "an engine is given up: it has ended too often"
        );
        count(&self.seed.metrics.given_up, engine);
        let event = engines::given_up(&self.seed.services, engine, error);
        let bus = self.seed.bus.clone();
        let fired = async move {
            // Without a bus there is no subscriber.
            let _ = bus.send(Fire(vec![event])).await;
        };
        context.spawn(fired.into_actor(self));
    }
}

/// Keeps the gauge of running engines up for as long as it lives.
struct Running(IntGauge);

impl Running {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Runs an engine until the master stops, or it ends itself.
async fn run(seed: &Seed) -> Result<(), Ended> {
    match &seed.engine.kind {
        EngineKind::Script(script) => script::run(seed, script).await,
        EngineKind::Test => listen::run(seed).await,
        EngineKind::Webhook(hook) => webhook::run(seed, hook).await,
        EngineKind::Python { module, options } => python::run(seed, module, options).await,
    }
}

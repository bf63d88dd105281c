//! salt-exporter's metrics with a minion in a label: with it where the site asks for it
//! (`saltern_metrics_minion_labels`), else for all minions together.

use std::collections::HashSet;

use parking_lot::Mutex;
use prometheus::{GaugeVec, Opts};
use saltern_base::clock::Clock;
use saltern_base::metrics::{IntCounterVec, Registry, counter_vec};
use saltern_model::Event;
use saltern_wire::msgpack::{Limits, MapView};

/// Minions with series of their own; further ones are not counted here.
const MAX_MINIONS: usize = 10_000;

/// The function and the state whose result is exposed (salt-exporter's defaults).
const STATUS_OF: (&str, &str) = ("state.highstate", "highstate");

/// The metrics, by minion or for all of them.
pub(super) struct OfMinions {
    labelled: bool,
    clock: Clock,
    responses: IntCounterVec,
    status: GaugeVec,
    heartbeat: GaugeVec,
    last_response: GaugeVec,
    /// Minions with series.
    known: Mutex<HashSet<String>>,
}

impl OfMinions {
    pub(super) fn new(labelled: bool, clock: &Clock, registry: &Registry) -> Self {
        let labels = |others: &[&'static str]| -> Vec<&'static str> {
            let minion = labelled.then_some("minion");
            minion.into_iter().chain(others.iter().copied()).collect()
        };
        let gauges = |name: &str, help: &str, others: &[&'static str]| {
            let gauges = GaugeVec::new(Opts::new(name, help), &labels(others));
            let gauges = gauges.expect("a valid metric name");
            registry
                .register(Box::new(gauges.clone()))
                .expect("a metric name is registered once");
            gauges
        };
        Self {
            labelled,
            clock: clock.clone(),
            responses: counter_vec(
                registry,
                "salt_responses_total",
                "Returns of all kinds.",
                &labels(&["success"]),
            ),
            status: gauges(
                "salt_function_status",
                "Whether the last highstate succeeded: 0 or 1.",
                &["function", "state"],
            ),
            heartbeat: gauges(
                "salt_health_last_heartbeat",
                "When the last status beacon came, in seconds since 1970.",
                &[],
            ),
            last_response: gauges(
                "salt_responses_last_received_response",
                "When the last return came, in seconds since 1970.",
                &[],
            ),
            known: Mutex::default(),
        }
    }

    /// A return came; `names` are its function and state.
    pub(super) fn returned(&self, minion: &str, names: (&str, &str), is_well: bool) {
        let Some(minion) = self.label(minion) else {
            return;
        };
        let with = |others: &[&'static str]| -> Vec<String> {
            let minion = minion.iter().map(|minion| (*minion).to_owned());
            let others = others.iter().map(|other| (*other).to_owned());
            minion.chain(others).collect()
        };
        let success = if is_well { "true" } else { "false" };
        self.responses.with_label_values(&with(&[success])).inc();
        self.last_response
            .with_label_values(&with(&[]))
            .set(self.now());
        if names == STATUS_OF {
            let status = self
                .status
                .with_label_values(&with(&[STATUS_OF.0, STATUS_OF.1]));
            status.set(f64::from(u8::from(is_well)));
        }
    }

    /// A beacon (`salt/beacon/<minion>/<beacon>/…`) or a change of a key (`salt/key`).
    pub(super) fn hear(&self, event: &Event) {
        let mut parts = event.tag.as_str().split('/').skip(1);
        match (parts.next(), parts.next(), parts.next()) {
            (Some("beacon"), Some(minion), Some("status")) => self.beat(minion),
            (Some("key"), None, None) if self.labelled => {
                // Every event was checked when it was made.
                let Ok(data) = MapView::parse(event.data.bytes().clone(), &Limits::WIRE) else {
                    return;
                };
                let Some(minion) = data.str("id") else { return };
                match data.str("act") {
                    // As in salt-exporter: a minion that never sends a beacon shows, too.
                    Some("accept" | "accepted") => self.beat(minion),
                    Some("delete" | "reject" | "rejected") => self.forget(minion),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn beat(&self, minion: &str) {
        if let Some(minion) = self.label(minion) {
            let labels: Vec<&str> = minion.into_iter().collect();
            self.heartbeat.with_label_values(&labels).set(self.now());
        }
    }

    /// The value of the label, as far as there is that label; `None` beyond the bound.
    fn label<'a>(&self, minion: &'a str) -> Option<Option<&'a str>> {
        if !self.labelled {
            return Some(None);
        }
        let mut known = self.known.lock();
        let is_known = known.contains(minion)
            || (known.len() < MAX_MINIONS && known.insert(minion.to_owned()));
        is_known.then_some(Some(minion))
    }

    fn forget(&self, minion: &str) {
        if !self.known.lock().remove(minion) {
            return;
        }
        // A series that does not exist need not be removed.
        for success in ["true", "false"] {
            let _ = self.responses.remove_label_values(&[minion, success]);
        }
        let _ = self
            .status
            .remove_label_values(&[minion, STATUS_OF.0, STATUS_OF.1]);
        let _ = self.heartbeat.remove_label_values(&[minion]);
        let _ = self.last_response.remove_label_values(&[minion]);
    }

    fn now(&self) -> f64 {
        self.clock.unix() as f64
    }
}

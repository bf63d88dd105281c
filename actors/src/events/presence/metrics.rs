//! Presence gauges, counted at scrape time.

use std::sync::Weak;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};
use saltern_base::metrics::Registry;
use tokio::time::Instant;

use super::Presence;

/// Registers the presence gauges.
///
/// # Panics
/// When the registry has them already.
pub(super) fn register(registry: &Registry, presence: Weak<Presence>) {
    let gauges = |name: &str, help: &str, label: &str| {
        IntGaugeVec::new(Opts::new(name, help), &[label]).expect("a valid metric name")
    };
    let counted = Counted {
        presence,
        minions: gauges(
            "saltern_minions",
            "Minions with an accepted key, by presence state.",
            "standing",
        ),
        subscribers: gauges(
            "saltern_subscribers",
            "Connections of the publish port: tied to a minion, known by their address only, or \
             of strangers.",
            "tie",
        ),
    };
    registry
        .register(Box::new(counted))
        .expect("a metric name is registered once");
}

struct Counted {
    presence: Weak<Presence>,
    minions: IntGaugeVec,
    subscribers: IntGaugeVec,
}

impl Collector for Counted {
    fn desc(&self) -> Vec<&Desc> {
        [self.minions.desc(), self.subscribers.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(presence) = self.presence.upgrade() else {
            return Vec::new();
        };
        let counts = presence.table.lock().counts(Instant::now());
        let set = |gauges: &IntGaugeVec, label: &str, count: usize| {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            gauges.with_label_values(&[label]).set(count);
        };
        set(&self.minions, "known", counts.known);
        set(&self.minions, "connected", counts.connected);
        set(&self.minions, "stale", counts.stale);
        set(&self.minions, "away", counts.away);
        set(&self.subscribers, "tied", counts.tied);
        set(&self.subscribers, "address", counts.untied);
        set(&self.subscribers, "stranger", counts.strangers);
        [self.minions.collect(), self.subscribers.collect()].concat()
    }
}

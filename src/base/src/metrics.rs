//! Helpers that register Prometheus metrics.
//!
//! Metrics are built from a registry that is handed in, never from a global, so that two masters
//! in one test process do not share a counter. Registering one name twice is a mistake in the
//! program and panics at start-up, before any port is open.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
pub use prometheus::{
    Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};
use prometheus::{HistogramOpts, Opts};

/// Upper bounds, in seconds, that suit everything between a hash and a slow disk.
pub const SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];

fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> C {
    registry
        .register(Box::new(metric.clone()))
        .expect("a metric name is registered once");
    metric
}

/// A counter. `name` ends in `_total`.
pub fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    register(
        registry,
        IntCounter::new(name, help).expect("a valid metric name"),
    )
}

/// A family of counters. `name` ends in `_total`; label values come from closed sets.
pub fn counter_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let metric = IntCounterVec::new(Opts::new(name, help), labels).expect("a valid metric name");
    register(registry, metric)
}

/// A gauge of whole numbers.
pub fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register(
        registry,
        IntGauge::new(name, help).expect("a valid metric name"),
    )
}

/// A family of gauges.
pub fn gauge_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    let metric = IntGaugeVec::new(Opts::new(name, help), labels).expect("a valid metric name");
    register(registry, metric)
}

/// Gauges collected lazily at scrape time: `look` sets them when the registry is gathered, never
/// before. It runs on the thread that gathers, and must not block.
pub fn gauge_on_scrape(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    look: impl Fn(&IntGaugeVec) + Send + Sync + 'static,
) {
    let gauges = IntGaugeVec::new(Opts::new(name, help), labels).expect("a valid metric name");
    let look = Box::new(look);
    registry
        .register(Box::new(GaugeOnScrape { gauges, look }))
        .expect("a metric name is registered once");
}

struct GaugeOnScrape {
    gauges: IntGaugeVec,
    look: Box<dyn Fn(&IntGaugeVec) + Send + Sync>,
}

impl Collector for GaugeOnScrape {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.look)(&self.gauges);
        self.gauges.collect()
    }
}

/// A histogram with the given upper bounds.
pub fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    register(
        registry,
        Histogram::with_opts(opts).expect("a valid metric name"),
    )
}

/// A family of histograms with the given upper bounds.
pub fn histogram_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> HistogramVec {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    register(
        registry,
        HistogramVec::new(opts, labels).expect("a valid metric name"),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[test]
    fn gauge_on_scrape_has_the_value_at_scrape_time() {
        let registry = Registry::new();
        let length = Arc::new(AtomicI64::new(1));
        let seen = length.clone();
        gauge_on_scrape(&registry, "queue_length", "Length.", &[], move |gauges| {
            let length = seen.load(Ordering::Relaxed);
            gauges.with_label_values::<&str>(&[]).set(length);
        });
        let value = || registry.gather()[0].get_metric()[0].get_gauge().get_value();
        assert_eq!(value(), 1.0);
        length.store(7, Ordering::Relaxed);
        assert_eq!(value(), 7.0);
    }
}

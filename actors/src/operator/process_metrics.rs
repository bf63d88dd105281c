//! Process metrics by the names that Prometheus' client libraries use, and the build. Read at
//! scrape time.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntGauge};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use saltern_base::clock::Clock;
use saltern_base::metrics::{Registry, gauge, gauge_vec};
use saltern_model::Compat;

/// Registers the metrics of this process.
///
/// # Panics
/// When the registry has them already.
pub(crate) fn register(registry: &Registry, clock: &Clock, compat: Compat) {
    let compat = compat.to_string();
    gauge_vec(
        registry,
        "saltern_build_info",
        "1; the labels say which build this is, and whose tools it serves.",
        &["version", "salt_compat"],
    )
    .with_label_values(&[env!("CARGO_PKG_VERSION"), compat.as_str()])
    .set(1);
    gauge(
        registry,
        "process_start_time_seconds",
        "When the master started, in seconds since 1970.",
    )
    .set(clock.unix_micros() / 1_000_000);
    let max_fds = gauge(
        registry,
        "process_max_fds",
        "How many files this process may have open.",
    );
    // `None`: as many as the system has.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    max_fds.set(i64::try_from(limit).unwrap_or(i64::MAX));
    let valid = "a valid metric name";
    let gauge = |name: &str, help: &str| IntGauge::new(name, help).expect(valid);
    let collector = ProcessCollector {
        cpu: Counter::new(
            "process_cpu_seconds_total",
            "Processor time that this process has used, in seconds.",
        )
        .expect(valid),
        open_fds: gauge("process_open_fds", "Files that this process has open."),
        resident: gauge(
            "process_resident_memory_bytes",
            "Memory of this process that is in RAM.",
        ),
        size: gauge(
            "process_virtual_memory_bytes",
            "Address space of this process.",
        ),
        threads: gauge("process_threads", "Threads of this process."),
    };
    registry
        .register(Box::new(collector))
        .expect("a metric name is registered once");
}

struct ProcessCollector {
    cpu: Counter,
    open_fds: IntGauge,
    resident: IntGauge,
    size: IntGauge,
    threads: IntGauge,
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = [&self.open_fds, &self.resident, &self.size, &self.threads];
        let gauges = gauges.into_iter().flat_map(Collector::desc);
        self.cpu.desc().into_iter().chain(gauges).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        // Two concurrent scrapes may see each other's value: it never goes back.
        self.cpu.inc_by((used - self.cpu.get()).max(0.0));
        if let Some(open) = open_files() {
            self.open_fds.set(open);
        }
        // Without /proc the gauges keep their last values.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let fields = [
            (&self.resident, "VmRSS:", 1024),
            (&self.size, "VmSize:", 1024),
            (&self.threads, "Threads:", 1),
        ];
        for (gauge, name, unit) in fields {
            if let Some(value) = field(&status, name) {
                gauge.set(value.saturating_mul(unit));
            }
        }
        let gauges = [&self.open_fds, &self.resident, &self.size, &self.threads];
        let gauges = gauges.into_iter().flat_map(Collector::collect);
        self.cpu.collect().into_iter().chain(gauges).collect()
    }
}

/// Linux reports the number in one call since 6.2; before, the directory is read.
fn open_files() -> Option<i64> {
    const DIRECTORY: &str = "/proc/self/fd";
    match std::fs::metadata(DIRECTORY).ok()?.len() {
        0 => i64::try_from(std::fs::read_dir(DIRECTORY).ok()?.count()).ok(),
        open => i64::try_from(open).ok(),
    }
}

/// The number in a line of `/proc/self/status`.
fn field(status: &str, name: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_those_of_this_process() {
        let registry = Registry::new();
        register(&registry, &Clock::system(), Compat::V3008);
        let value = |name: &str| {
            let families = registry.gather();
            let family = families.iter().find(|family| family.name() == name);
            let metric = &family.expect("registered").get_metric()[0];
            metric.get_gauge().get_value() + metric.get_counter().get_value()
        };
        let before = value("process_open_fds");
        let file = std::fs::File::open("/proc/self/status").expect("a file");
        assert!(value("process_open_fds") >= before.min(4.0));
        drop(file);
        assert!(value("process_threads") >= 1.0);
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 1e6 && resident < value("process_virtual_memory_bytes"));
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_cpu_seconds_total") > 0.0);
        assert!(value("process_start_time_seconds") > 1.7e9);
    }
}

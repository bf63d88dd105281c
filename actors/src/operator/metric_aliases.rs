//! The same counters under other exporters' names (`metrics_compat`), so that existing dashboards
//! go on: those of salt-exporter, which reads the event bus, and those that 3008 sends by
//! OpenTelemetry, as they look in Prometheus.
//!
//! Four of salt-exporter's have a minion in a label (`metric_aliases/of_minions.rs`): they are
//! aggregated over all minions, without that label, unless the site asks for it. Times under
//! 3008's names are not in its milliseconds.

mod of_minions;

use std::collections::HashSet;

use parking_lot::Mutex;
use prometheus::proto::{MetricFamily, MetricType};
use saltern_base::clock::Clock;
use saltern_base::metrics::{Gauge, IntCounterVec, Registry, counter_vec};
use saltern_config::MetricsCompat;
use saltern_model::Event;
use saltern_wire::msgpack::{Limits, MapView, RawValue};

use crate::events::bus::Tap;
use of_minions::OfMinions;

/// Functions and states are user input: label values beyond this many distinct ones are aggregated
/// as `other`.
const MAX_NAMES: usize = 200;

/// The label value of all others.
const OTHER: &str = "other";

/// Counts the events of the bus under other names.
pub(crate) struct MetricAliases {
    exporter: Option<Exporter>,
    otel: Option<Otel>,
    /// The label values in use.
    known: Mutex<HashSet<(String, String)>>,
}

/// salt-exporter's (`internal/metrics/registry.go`).
struct Exporter {
    new_jobs: IntCounterVec,
    expected: IntCounterVec,
    function_responses: IntCounterVec,
    scheduled: IntCounterVec,
    of_minions: OfMinions,
    duration: prometheus::GaugeVec,
}

/// 3008's (`salt/master.py`, `salt/utils/event.py`).
struct Otel {
    published: IntCounterVec,
    completed: IntCounterVec,
    fired: IntCounterVec,
}

impl MetricAliases {
    /// Registers the families that are asked for; `None` if none is.
    pub(crate) fn new(asked: MetricsCompat, clock: &Clock, registry: &Registry) -> Option<Self> {
        (asked.salt_exporter || asked.opentelemetry).then(|| Self {
            exporter: asked
                .salt_exporter
                .then(|| Exporter::new(asked.minion_labels, clock, registry)),
            otel: asked.opentelemetry.then(|| Otel::new(registry)),
            known: Mutex::default(),
        })
    }

    fn count(&self, event: &Event) {
        let tag = event.tag.as_str();
        if let Some(otel) = &self.otel {
            let (prefix, _) = self.bounded(tag_prefix(tag), "");
            otel.fired.with_label_values(&[&prefix]).inc();
        }
        let mut parts = tag.split('/');
        let (first, module, _, what) = (parts.next(), parts.next(), parts.next(), parts.next());
        let module = match (first, module) {
            (Some("salt"), Some(module @ ("job" | "run"))) => module,
            (Some("salt"), Some("beacon" | "key")) => {
                if let Some(exporter) = &self.exporter {
                    exporter.of_minions.hear(event);
                }
                return;
            }
            _ => return,
        };
        // Every event was checked when it was made; one that is no map does not count.
        let Ok(data) = MapView::parse(event.data.bytes().clone(), &Limits::WIRE) else {
            return;
        };
        match what {
            Some("new") => self.begun(&data, module == "job"),
            Some("ret") => self.returned(&data, module == "job"),
            _ => {}
        }
    }

    fn begun(&self, data: &MapView, is_job: bool) {
        let (fun, state) = self.names(data);
        if let Some(exporter) = &self.exporter {
            let labels = [fun.as_str(), state.as_str()];
            exporter.new_jobs.with_label_values(&labels).inc();
            let minions = data.get("minions").and_then(RawValue::as_array);
            let minions = minions.map_or(0, |minions| minions.len()) as u64;
            exporter.expected.with_label_values(&labels).inc_by(minions);
        }
        if let Some(otel) = self.otel.as_ref().filter(|_| is_job) {
            otel.published.with_label_values(&[&fun]).inc();
        }
    }

    fn returned(&self, data: &MapView, is_job: bool) {
        let (fun, state) = self.names(data);
        let success = data.get("success").and_then(RawValue::as_bool);
        if let Some(exporter) = &self.exporter {
            let is_scheduled = data.str("schedule").is_some_and(|name| !name.is_empty());
            let retcode = data.get("retcode").and_then(RawValue::as_i64);
            let is_well = success.unwrap_or(false) && !(is_scheduled && retcode != Some(0));
            let success = word(is_well);
            let counter = match is_scheduled {
                true => &exporter.scheduled,
                false => &exporter.function_responses,
            };
            counter.with_label_values(&[&fun, &state, success]).inc();
            let minion = data.str("id").unwrap_or_default();
            exporter
                .of_minions
                .returned(minion, (&fun, &state), is_well);
            let took = (!state.is_empty()).then(|| state_seconds(data)).flatten();
            if let Some(took) = took {
                let duration = exporter.duration.with_label_values(&[&fun, &state]);
                duration.set(took);
            }
        }
        if let Some(otel) = self.otel.as_ref().filter(|_| is_job) {
            let success = word(success.unwrap_or(true));
            otel.completed.with_label_values(&[&fun, success]).inc();
        }
    }

    /// The labels `function` and `state` of an event.
    fn names(&self, data: &MapView) -> (String, String) {
        let fun = data.str("fun").unwrap_or_default();
        self.bounded(fun, &state_of(fun, data))
    }

    fn bounded(&self, name: &str, state: &str) -> (String, String) {
        let names = (name.to_owned(), state.to_owned());
        let mut known = self.known.lock();
        if known.contains(&names) || (known.len() < MAX_NAMES && known.insert(names.clone())) {
            return names;
        }
        (OTHER.to_owned(), String::new())
    }
}

impl Tap for MetricAliases {
    fn hear(&self, event: &Event) {
        self.count(event);
    }
}

impl Exporter {
    fn new(minion_labels: bool, clock: &Clock, registry: &Registry) -> Self {
        let counters =
            |name: &str, help: &str, labels: &[&str]| counter_vec(registry, name, help, labels);
        let named = ["function", "state"];
        let ended = ["function", "state", "success"];
        let opts = prometheus::Opts::new(
            "salt_job_duration_seconds",
            "How long the states of the last such return took together.",
        );
        let duration = prometheus::GaugeVec::new(opts, &named).expect("a valid metric name");
        registry
            .register(Box::new(duration.clone()))
            .expect("a metric name is registered once");
        Self {
            new_jobs: counters("salt_new_job_total", "Jobs that began.", &named),
            expected: counters(
                "salt_expected_responses_total",
                "Minions that these jobs are for.",
                &named,
            ),
            function_responses: counters(
                "salt_function_responses_total",
                "Returns of jobs.",
                &ended,
            ),
            scheduled: counters(
                "salt_scheduled_job_return_total",
                "Returns of jobs that minions began by their schedule.",
                &ended,
            ),
            of_minions: OfMinions::new(minion_labels, clock, registry),
            duration,
        }
    }
}

impl Otel {
    fn new(registry: &Registry) -> Self {
        let counters =
            |name: &str, help: &str, labels: &[&str]| counter_vec(registry, name, help, labels);
        Self {
            published: counters("salt_jobs_published_total", "Jobs that began.", &["fun"]),
            completed: counters(
                "salt_jobs_completed_total",
                "Returns of jobs.",
                &["fun", "success"],
            ),
            fired: counters(
                "salt_events_fired_total",
                "Events put on the bus, by the beginning of their tag.",
                &["tag_prefix"],
            ),
        }
    }
}

fn word(success: bool) -> &'static str {
    if success { "true" } else { "false" }
}

/// The first part of a tag that is not "salt" (`_event_tag_prefix` in `salt/utils/event.py`).
fn tag_prefix(tag: &str) -> &str {
    let mut parts = tag.trim_matches('/').split('/');
    let first = parts.next().unwrap_or_default();
    let part = if first == "salt" {
        parts.next().unwrap_or(first)
    } else {
        first
    };
    if part.is_empty() { OTHER } else { part }
}

/// States that a job of the state modules applies (`ExtractState` in salt-exporter).
fn state_of(fun: &str, data: &MapView) -> String {
    let key = match fun {
        "state.highstate" => return "highstate".to_owned(),
        "state.sls" | "state.apply" => "mods",
        "state.single" => "fun",
        _ => return String::new(),
    };
    let arguments = ["arg", "fun_args"]
        .into_iter()
        .filter_map(|name| data.get(name)?.as_array())
        .find(|arguments| !arguments.is_empty());
    match arguments.as_deref() {
        Some([first, ..]) => match first.as_map() {
            Some(named) => named.str(key).unwrap_or_default().to_owned(),
            None => first.as_str().unwrap_or_default().to_owned(),
        },
        _ if fun == "state.apply" => "highstate".to_owned(),
        _ => String::new(),
    }
}

/// The durations of all states of a return together; their unit is the millisecond.
fn state_seconds(data: &MapView) -> Option<f64> {
    let states = data.get("return")?.as_map()?;
    let took: Option<Vec<f64>> = states
        .iter()
        .map(|(_, state)| state.as_map()?.get("duration")?.as_f64())
        .collect();
    let took = took.filter(|took| !took.is_empty())?;
    Some(took.iter().sum::<f64>() / 1000.0)
}

/// Adds the salt-exporter family that can be computed from what was gathered.
pub(crate) fn add_salt_exporter(families: &mut Vec<MetricFamily>) {
    let keys = families
        .iter()
        .find(|family| family.name() == "saltern_keys");
    let accepted = keys.into_iter().flat_map(|keys| keys.get_metric());
    let accepted = accepted.filter(|metric| {
        let mut labels = metric.get_label().iter();
        labels.any(|label| label.value() == "accepted")
    });
    // The sum of no numbers is -0.
    let accepted = accepted.fold(0.0, |sum, metric| sum + metric.get_gauge().get_value());
    families.extend(single(
        "salt_health_minions_total",
        "Minions with an accepted key.",
        accepted,
    ));
}

/// Families that differ from those of 3008's exporter in the name only.
const RENAMED: [(&str, &str); 2] = [
    ("saltern_authentications_total", "salt_auth_attempts_total"),
    ("process_open_fds", "salt_process_open_fds"),
];

/// Adds the 3008 families that can be computed from what was gathered.
pub(crate) fn add_opentelemetry(families: &mut Vec<MetricFamily>) {
    let mut added = Vec::new();
    for family in families.iter() {
        let name = family.name();
        if let Some((_, theirs)) = RENAMED.iter().find(|(ours, _)| *ours == name) {
            let mut renamed = family.clone();
            renamed.set_name((*theirs).to_owned());
            added.push(renamed);
        }
        let value = |label: Option<&str>| -> f64 {
            let metrics = family.get_metric().iter();
            let labelled = metrics.filter(|metric| {
                let mut pairs = metric.get_label().iter();
                label.is_none_or(|label| pairs.any(|pair| pair.value() == label))
            });
            labelled.map(|metric| metric.get_gauge().get_value()).sum()
        };
        match name {
            "saltern_minions" => added.extend(single(
                "salt_master_connected_minions_count",
                "Minions that are connected.",
                value(Some("connected")),
            )),
            "saltern_requests_waiting" => added.extend(single(
                "salt_master_workers_queue_depth",
                "Requests that wait for a worker.",
                value(None),
            )),
            "saltern_request_handling_seconds" => added.push(handled(family)),
            _ => {}
        }
    }
    families.extend(added);
}

/// A gauge without labels.
fn single(name: &str, help: &str, value: f64) -> Vec<MetricFamily> {
    use prometheus::core::Collector;
    let gauge = Gauge::new(name, help).expect("a valid metric name");
    gauge.set(value);
    gauge.collect()
}

/// The number of requests in a histogram of their times, by command.
fn handled(times: &MetricFamily) -> MetricFamily {
    let metrics = times.get_metric().iter().map(|metric| {
        let mut count = prometheus::proto::Metric::from_label(metric.get_label().to_vec());
        let mut counter = prometheus::proto::Counter::default();
        counter.set_value(metric.get_histogram().get_sample_count() as f64);
        count.set_counter(counter);
        count
    });
    let metrics = metrics.collect();
    let mut family = MetricFamily::default();
    family.set_name("salt_master_requests_handled_total".to_owned());
    family.set_help("Requests that workers have handled.".to_owned());
    family.set_field_type(MetricType::COUNTER);
    family.set_metric(metrics);
    family
}

#[cfg(test)]
mod tests {
    use super::*;
    use saltern_model::{Packed, Tag};
    use saltern_wire::msgpack::{Dialect, Value, encode};

    const BOTH: MetricsCompat = MetricsCompat {
        salt_exporter: true,
        opentelemetry: true,
        minion_labels: false,
    };

    fn names(asked: MetricsCompat, registry: &Registry) -> Option<MetricAliases> {
        let start = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000);
        MetricAliases::new(asked, &Clock::manual(start), registry)
    }

    fn fire(names: &MetricAliases, tag: &str, data: Value) {
        names.count(&Event {
            tag: Tag::parse(tag).expect("a tag"),
            data: Packed::new(encode(&data, Dialect::Bin)),
        });
    }

    fn text(registry: &Registry) -> String {
        let mut families = registry.gather();
        add_opentelemetry(&mut families);
        add_salt_exporter(&mut families);
        prometheus::TextEncoder::new()
            .encode_to_string(&families)
            .expect("text")
    }

    #[test]
    fn jobs_are_counted_under_both_exporters_names() {
        let registry = Registry::new();
        let names = names(BOTH, &registry).expect("asked for");
        let minions = Value::Array(vec!["m1".into(), "m2".into()]);
        let arg = Value::Array(vec!["web".into()]);
        let job = Value::map([
            ("fun", Value::from("state.apply")),
            ("minions", minions),
            ("arg", arg.clone()),
        ]);
        fire(&names, "salt/job/20260102030405000001/new", job);
        let state = Value::map([("duration", 250.0)]);
        let ret = Value::map([
            ("fun", Value::from("state.apply")),
            ("fun_args", arg),
            ("success", true.into()),
            ("return", Value::map([("a", state.clone()), ("b", state)])),
        ]);
        fire(&names, "salt/job/20260102030405000001/ret/m1", ret);
        fire(&names, "my/own/event", Value::map([("a", 1_i64)]));
        let text = text(&registry);
        for line in [
            "salt_new_job_total{function=\"state.apply\",state=\"web\"} 1\n",
            "salt_expected_responses_total{function=\"state.apply\",state=\"web\"} 2\n",
            "salt_function_responses_total{function=\"state.apply\",state=\"web\",success=\"true\"} 1\n",
            "salt_responses_total{success=\"true\"} 1\n",
            "salt_job_duration_seconds{function=\"state.apply\",state=\"web\"} 0.5\n",
            "salt_jobs_published_total{fun=\"state.apply\"} 1\n",
            "salt_jobs_completed_total{fun=\"state.apply\",success=\"true\"} 1\n",
            "salt_events_fired_total{tag_prefix=\"job\"} 2\n",
            "salt_events_fired_total{tag_prefix=\"my\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} {text}");
        }
    }

    /// A highstate and a beacon of `m1`, a ping of `m2`.
    fn of_two_minions(asked: MetricsCompat) -> String {
        let registry = Registry::new();
        let names = names(asked, &registry).expect("asked for");
        let ret = |id: &str, fun: &str, success: bool| {
            Value::map([
                ("fun", Value::from(fun)),
                ("id", id.into()),
                ("success", success.into()),
            ])
        };
        let tag = "salt/job/20260102030405000001/ret/m";
        fire(&names, tag, ret("m1", "state.highstate", false));
        fire(&names, tag, ret("m2", "test.ping", true));
        let beacon = Value::map([("id", "m1")]);
        fire(&names, "salt/beacon/m1/status/2026", beacon.clone());
        fire(&names, "salt/beacon/m9/load/2026", beacon);
        let key = |act: &str, id: &str| Value::map([("act", act), ("id", id)]);
        fire(&names, "salt/key", key("accept", "m3"));
        fire(&names, "salt/key", key("delete", "m2"));
        text(&registry)
    }

    #[test]
    fn salt_exporter_minions_are_summed_by_default() {
        let text = of_two_minions(BOTH);
        for line in [
            "salt_responses_total{success=\"true\"} 1\n",
            "salt_responses_total{success=\"false\"} 1\n",
            "salt_function_status{function=\"state.highstate\",state=\"highstate\"} 0\n",
            "salt_health_last_heartbeat 1000\n",
            "salt_responses_last_received_response 1000\n",
            "salt_health_minions_total 0\n",
        ] {
            assert!(text.contains(line), "{line} {text}");
        }
        assert!(!text.contains("minion=\""), "{text}");
    }

    #[test]
    fn salt_exporter_minions_have_their_label_when_configured() {
        let text = of_two_minions(MetricsCompat {
            minion_labels: true,
            ..BOTH
        });
        for line in [
            "salt_responses_total{minion=\"m1\",success=\"false\"} 1\n",
            "salt_function_status{function=\"state.highstate\",minion=\"m1\",state=\"highstate\"} 0\n",
            "salt_health_last_heartbeat{minion=\"m1\"} 1000\n",
            "salt_health_last_heartbeat{minion=\"m3\"} 1000\n",
            "salt_responses_last_received_response{minion=\"m1\"} 1000\n",
        ] {
            assert!(text.contains(line), "{line} {text}");
        }
        // Its key is gone.
        assert!(!text.contains("minion=\"m2\""), "{text}");
        assert!(!text.contains("minion=\"m9\""), "{text}");
    }

    #[test]
    fn distinct_label_values_are_bounded() {
        let registry = Registry::new();
        let names = names(BOTH, &registry).expect("asked for");
        for number in 0..2 * MAX_NAMES {
            let job = Value::map([("fun", format!("made.up_{number}").as_str())]);
            fire(&names, "salt/job/20260102030405000001/new", job);
        }
        let text = text(&registry);
        assert!(text.matches("salt_new_job_total{").count() <= MAX_NAMES + 1);
        assert!(text.contains("salt_new_job_total{function=\"other\",state=\"\"} "));
    }

    #[test]
    fn gathered_families_are_exposed_under_other_names() {
        let registry = Registry::new();
        counter_vec(
            &registry,
            "saltern_authentications_total",
            "A.",
            &["result"],
        )
        .with_label_values(&["accept"])
        .inc();
        let times = saltern_base::metrics::histogram_vec(
            &registry,
            "saltern_request_handling_seconds",
            "T.",
            &["cmd"],
            &[1.0],
        );
        times.with_label_values(&["_return"]).observe(0.5);
        let text = text(&registry);
        assert!(
            text.contains("salt_auth_attempts_total{result=\"accept\"} 1\n"),
            "{text}"
        );
        let handled = "salt_master_requests_handled_total{cmd=\"_return\"} 1\n";
        assert!(text.contains(handled), "{text}");
    }

    #[test]
    fn no_compat_option_registers_nothing() {
        assert!(names(MetricsCompat::default(), &Registry::new()).is_none());
    }
}

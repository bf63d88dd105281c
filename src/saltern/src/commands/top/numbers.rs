//! The master's metrics as the screen needs them: what stands now, and how fast it grows.
//!
//! Reads Prometheus' text format as far as the master writes it. Buckets are passed over.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use tokio::time::Instant;

/// One sample of the metrics.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    at: Instant,
    /// By name and labels as they are written, such as `saltern_keys{state="accepted"}`.
    values: BTreeMap<String, f64>,
}

/// More series are passed over; the master's own are a few hundred.
const MAX_SERIES: usize = 10_000;

impl Sample {
    pub(super) fn parse(text: &str, at: Instant) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let name = series.split('{').next()?;
            if name.ends_with("_bucket") {
                return None;
            }
            Some((series.to_owned(), value.parse().ok()?))
        });
        Self {
            at,
            values: values.take(MAX_SERIES).collect(),
        }
    }

    fn get(&self, series: &str) -> Option<f64> {
        self.values.get(series).copied()
    }

    /// The series of a metric: the labels with their braces, nothing of one without labels, and the
    /// value.
    fn family<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let from = self
            .values
            .range::<str, _>((Bound::Included(name), Bound::Unbounded));
        let near = from.take_while(move |(series, _)| series.starts_with(name));
        near.filter_map(move |(series, value)| {
            let labels = series.strip_prefix(name)?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, *value))
        })
    }
}

/// The latest sample, and the one before it.
#[derive(Default)]
pub(super) struct Numbers {
    now: Option<Sample>,
    before: Option<Sample>,
}

impl Numbers {
    pub(super) fn take(&mut self, sample: Sample) {
        self.before = self.now.replace(sample);
    }

    /// The next sample is of another process: no rate is computed from it.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_known(&self) -> bool {
        self.now.is_some()
    }

    /// The value of one series.
    pub(super) fn get(&self, series: &str) -> Option<f64> {
        self.now.as_ref()?.get(series)
    }

    /// All series of a metric together; nothing when there is none.
    pub(super) fn sum(&self, name: &str) -> Option<f64> {
        let mut values = self.family(name).map(|(_, value)| value).peekable();
        values.peek()?;
        Some(values.sum())
    }

    /// The series of a metric by their labels, as they are written.
    pub(super) fn family<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.now.iter().flat_map(move |sample| sample.family(name))
    }

    /// How much a series grew in a second; nothing before the second look, or when it fell, because
    /// the master was started anew.
    pub(super) fn rate(&self, series: &str) -> Option<f64> {
        self.growth(|sample| sample.get(series))
    }

    /// The same of all series of a metric together.
    pub(super) fn rate_of_all(&self, name: &str) -> Option<f64> {
        self.growth(|sample| Some(sample.family(name).map(|(_, value)| value).sum()))
    }

    fn growth(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let (now, before) = (self.now.as_ref()?, self.before.as_ref()?);
        let passed = now.at.saturating_duration_since(before.at);
        let grown = value(now)? - value(before)?;
        (passed > Duration::ZERO && grown >= 0.0).then(|| grown / passed.as_secs_f64())
    }

    /// The value of one label of a metric's only series.
    pub(super) fn label<'a>(&'a self, name: &'a str, label: &str) -> Option<&'a str> {
        let (labels, _) = self.now.as_ref()?.family(name).next()?;
        let (_, from) = labels.split_once(&format!("{label}=\""))?;
        from.split('"').next()
    }
}

/// The values of the labels, without their names: `in zeromq` of `{direction="in",transport="zeromq"}`.
pub(super) fn said(labels: &str) -> String {
    let parts: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "# HELP saltern_returns_total Returns.\n\
        saltern_returns_total 10\n\
        saltern_actor_up{actor=\"mworker\"} 2\n\
        saltern_requests_total{class=\"auth\"} 1\n\
        saltern_requests_total{class=\"minion\"} 5\n\
        saltern_requests_total_seconds 9\n\
        saltern_x_bucket{le=\"1\"} 4\n\
        saltern_build_info{salt_compat=\"3008\",version=\"0.1.0\"} 1\n\
        garbled\n";

    fn second() -> String {
        FIRST.replace("returns_total 10", "returns_total 30")
    }

    #[test]
    fn series_are_found_by_name_and_labels_and_summed() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.sum("saltern_requests_total"), None);
        numbers.take(Sample::parse(FIRST, Instant::now()));
        assert_eq!(numbers.get("saltern_returns_total"), Some(10.0));
        assert_eq!(numbers.sum("saltern_requests_total"), Some(6.0));
        let labels: Vec<_> = numbers.family("saltern_requests_total").collect();
        assert_eq!(
            labels,
            [(r#"{class="auth"}"#, 1.0), (r#"{class="minion"}"#, 5.0)]
        );
        assert_eq!(numbers.get(r#"saltern_x_bucket{le="1"}"#), None);
        let label = |label| numbers.label("saltern_build_info", label);
        assert_eq!(
            (label("version"), label("salt_compat")),
            (Some("0.1.0"), Some("3008"))
        );
        assert_eq!(said(r#"{direction="in",transport="zeromq"}"#), "in zeromq");
    }

    #[test]
    fn rate_is_growth_between_samples_and_none_after_restart() {
        let start = Instant::now();
        let mut numbers = Numbers::default();
        numbers.take(Sample::parse(FIRST, start));
        assert_eq!(numbers.rate("saltern_returns_total"), None);
        numbers.take(Sample::parse(&second(), start + Duration::from_secs(2)));
        assert_eq!(numbers.rate("saltern_returns_total"), Some(10.0));
        assert_eq!(numbers.rate_of_all("saltern_requests_total"), Some(0.0));
        numbers.take(Sample::parse(FIRST, start + Duration::from_secs(3)));
        assert_eq!(numbers.rate("saltern_returns_total"), None);
    }
}

//! The masters above: whether the native syndic is connected to them, and what it had to drop.

use super::{Diagnosis, Finding};

/// The series of a metric: the value of their first label, and their own.
fn series<'a>(metrics: &'a str, name: &str) -> Vec<(&'a str, f64)> {
    let of_line = |line: &'a str| {
        let rest = line.strip_prefix(name)?.strip_prefix('{')?;
        let (labels, value) = rest.rsplit_once("} ")?;
        let label = labels.split('"').nth(1)?;
        Some((label, value.trim().parse().ok()?))
    };
    metrics.lines().filter_map(of_line).collect()
}

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let Some(running) = &diagnosis.running else {
        return Vec::new();
    };
    of_metrics(&running.metrics)
}

fn of_metrics(metrics: &str) -> Vec<Finding> {
    let connected = series(metrics, "saltern_syndic_connected").into_iter();
    let cut_off = connected
        .filter(|(_, value)| *value == 0.0)
        .map(|(master, _)| {
            Finding::new(
                format!("the syndic is not connected to the master above \"{master}\""),
                "\"saltern syndics\" says why; returns for it wait in the job database",
            )
        });
    let dropped = series(metrics, "saltern_syndic_returns_dropped_total").into_iter();
    let dropped = dropped.filter(|(_, value)| *value > 0.0).map(|(outbox, value)| {
        Finding::new(
            format!("{value} returns for \"{outbox}\" did not go up and never will"),
            "the log names them; see saltern_syndic_keep_seconds and saltern_syndic_keep_returns",
        )
    });
    cut_off.chain(dropped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn master_above_that_is_cut_off_and_dropped_returns_are_found() {
        let metrics = "saltern_syndic_connected{master=\"one:4506\"} 1\n\
                       saltern_syndic_connected{master=\"two:4506\"} 0\n\
                       saltern_syndic_returns_dropped_total{outbox=\"any\",reason=\"age\"} 3\n";
        let found = of_metrics(metrics);
        let found: Vec<&str> = found.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(
            found,
            [
                "the syndic is not connected to the master above \"two:4506\"",
                "3 returns for \"any\" did not go up and never will"
            ]
        );
        assert!(of_metrics("saltern_syndics 0\n").is_empty());
    }
}

//! Quotas that a running master has enforced since its start: what it refused or left out.

use super::{Diagnosis, Finding, Running};

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    diagnosis.running.as_ref().map_or_else(Vec::new, findings)
}

/// A metric, the problem when it is above 0, and the remedy.
const QUOTAS: [(&str, &str, &str); 4] = [
    (
        "saltern_reports_refused_total",
        "returns that no job expects were refused, because a minion had spent its quota of the day",
        "the log names the minion: look at its schedule and its calls of salt-call, or raise \
         saltern_max_reports and saltern_max_report_bytes",
    ),
    (
        "saltern_grains_cut_total",
        "grains of a minion were too large to be kept whole, and targets do not find those left out",
        "the log names the minion: look at its grains",
    ),
    (
        "saltern_authentications_total{result=\"keys_full\"}",
        "keys were not kept, because too many wait to be accepted or were refused",
        "accept or delete keys with salt-key, or raise saltern_max_pending",
    ),
    (
        "saltern_store_rows_removed_total{reason=\"size\"}",
        "jobs were removed before their time, because the job database had reached its bound",
        "raise saltern_keep_jobs_size, at most half of the disk is taken, or keep jobs for a \
         shorter time (keep_jobs_seconds)",
    ),
];

fn findings(running: &Running) -> Vec<Finding> {
    let found = QUOTAS.iter().filter_map(|(metric, what, advice)| {
        let count = running.metric(metric).filter(|count| *count > 0.0)?;
        Some(Finding::new(format!("{count} times {what}"), *advice))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spent_quota_is_named_with_its_count() {
        let running = |metrics: &str| Running {
            maintenance_tasks: Vec::new(),
            metrics: metrics.to_owned(),
        };
        let none = "saltern_reports_refused_total 0\nsaltern_grains_cut_total 0\n\
                    saltern_authentications_total{result=\"pend\"} 7\n";
        assert!(findings(&running(none)).is_empty());
        let spent = "saltern_reports_refused_total 3\nsaltern_grains_cut_total 1\n\
                     saltern_authentications_total{result=\"keys_full\"} 2\n\
                     saltern_store_rows_removed_total{reason=\"size\"} 500\n";
        let found = findings(&running(spent));
        assert_eq!(found.len(), 4);
        assert!(found[0].what.starts_with("3 times returns"));
    }
}

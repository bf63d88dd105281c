//! Maintenance tasks of the running master that are late or failed.

use super::super::maintenance::TaskStatus;
use super::{Diagnosis, Finding};

/// Tolerated delay of a run, in seconds.
const GRACE: i64 = 60;

/// Tolerated number of intervals without a run, while its actor is busy.
const ROUNDS: i64 = 3;

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let running = diagnosis.running.iter();
    let maintenance_tasks = running.flat_map(|running| &running.maintenance_tasks);
    maintenance_tasks
        .filter_map(|maintenance| finding(maintenance, diagnosis.now))
        .collect()
}

fn finding(maintenance: &TaskStatus, now: i64) -> Option<Finding> {
    let name = &maintenance.name;
    if !maintenance.is_ok() {
        let what = format!(
            "\"{name}\" failed when it was last done: {}",
            maintenance.result
        );
        let advice = format!("put that in order; then: saltern maintenance run {name}");
        return Some(Finding::new(what, advice));
    }
    let late = now.saturating_sub(maintenance.began?);
    let patience = maintenance
        .every
        .saturating_mul(ROUNDS)
        .saturating_add(GRACE);
    (late > patience).then(|| {
        let every = maintenance.every;
        let what = format!("\"{name}\" was last done {late} s ago, and should be every {every} s");
        Finding::new(what, "look for what holds the master up: saltern metrics")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_or_failed_task_is_found() {
        let finding = |line: &str| {
            let maintenance = TaskStatus::parse(line).unwrap();
            finding(&maintenance, 1_000).map(|finding| finding.what)
        };
        assert_eq!(finding("tokens\t60\t800\t0.1\t5\t0\tok"), None);
        assert_eq!(finding("tokens\t60\tnever\t0.0\t0\t0\tok"), None);
        assert!(
            finding("tokens\t60\t700\t0.1\t5\t0\tok").is_some_and(|it| it.contains("300 s ago"))
        );
        assert!(
            finding("tokens\t60\t990\t0.1\t5\t1\tno disk").is_some_and(|it| it.contains("no disk"))
        );
    }
}

//! Maintenance tasks of the running master that are late or failed.

use saltern_model::control::TaskStatus;

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
    let name = &maintenance.task;
    if !maintenance.is_ok {
        let what = format!(
            "\"{name}\" failed when it was last done: {}",
            maintenance.result
        );
        let advice = format!("put that in order; then: saltern maintenance run {name}");
        return Some(Finding::new(what, advice));
    }
    let late = now.saturating_sub(maintenance.last_run?);
    let every = i64::try_from(maintenance.every).unwrap_or(i64::MAX);
    let patience = every.saturating_mul(ROUNDS).saturating_add(GRACE);
    (late > patience).then(|| {
        let what = format!("\"{name}\" was last done {late} s ago, and should be every {every} s");
        Finding::new(what, "look for what holds the master up: saltern metrics")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_or_failed_task_is_found() {
        let finding = |last_run: Option<i64>, result: &str| {
            let task = TaskStatus {
                every: 60,
                failures: 0,
                is_ok: result == "ok",
                last_run,
                result: result.to_owned(),
                runs: 5,
                task: "tokens".to_owned(),
                took: 0.1,
            };
            finding(&task, 1_000).map(|finding| finding.what)
        };
        assert_eq!(finding(Some(800), "ok"), None);
        assert_eq!(finding(None, "ok"), None);
        assert!(finding(Some(700), "ok").is_some_and(|it| it.contains("300 s ago")));
        assert!(finding(Some(990), "no disk").is_some_and(|it| it.contains("no disk")));
    }
}

//! Whether the master may open as many files as its minions need, by stock's rule: four for each
//! accepted one.

use nix::sys::resource::{Resource, getrlimit};

use super::{Diagnosis, Finding};

/// Descriptors of the limit for each minion.
const EACH: f64 = 4.0;

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let config = &diagnosis.loaded.config;
    let accepted = std::fs::read_dir(config.pki_dir.join("minions"));
    let accepted = accepted.map_or(0, |entries| entries.flatten().count());
    let limit = match &diagnosis.running {
        Some(running) => running.metric("saltern_open_files_limit"),
        // What the next master can have, if it is started as this program was.
        None => getrlimit(Resource::RLIMIT_NOFILE)
            .ok()
            .map(|(soft, hard)| hard.min(config.max_open_files).max(soft) as f64),
    };
    limit
        .and_then(|limit| finding(accepted, limit))
        .into_iter()
        .collect()
}

fn finding(accepted: usize, limit: f64) -> Option<Finding> {
    (accepted as f64 * EACH > limit).then(|| {
        let what = format!("{limit} open files are few for {accepted} accepted minions");
        let advice = "raise max_open_files, and LimitNOFILE where the master is started";
        Finding::new(what, advice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_files_a_minion_are_enough() {
        assert!(finding(250, 1_000.0).is_none());
        assert!(finding(251, 1_000.0).is_some());
    }
}

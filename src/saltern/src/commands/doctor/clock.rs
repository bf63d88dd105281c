//! Whether the clock can be right: it is not before this program was written, and nothing that the
//! master keeps comes from the future; and whether the minions' clocks agree with it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use saltern_store::minion_clocks::wrong_clocks;

use super::{Diagnosis, Finding};

/// 2026-01-01 00:00:00 UTC: this program is younger.
const BEGINNING: i64 = 1_767_225_600;

/// The most minions that are named.
const MAX_NAMES: usize = 10;

/// Tolerated skew of file servers' clocks, in seconds.
const GRACE: i64 = 60;

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let now = diagnosis.now;
    let advice =
        "set the clock; if it is right now and was ahead before, touch what has a time to come";
    if now < BEGINNING {
        let what = "the clock says that it is before 2026";
        return vec![Finding::new(what, advice).error()];
    }
    let config = &diagnosis.loaded.config;
    let kept = [
        config.saltern_job_database.clone(),
        config.cachedir.join("saltern/shared_key"),
    ];
    let written = kept.iter().filter_map(|path| {
        let written = std::fs::metadata(path).ok()?.mtime();
        (written > now.saturating_add(GRACE)).then(|| {
            let ahead = written.saturating_sub(now);
            let what = format!("\"{}\" was written {ahead} s from now", path.display());
            Finding::new(what, advice)
        })
    });
    let mut findings: Vec<Finding> = written.collect();
    findings.extend(of_minions(&config.cachedir.join("saltern")));
    findings
}

/// One finding for all minions whose requests show another time.
fn of_minions(private_dir: &Path) -> Option<Finding> {
    let clocks = match wrong_clocks(private_dir) {
        Ok(clocks) => clocks,
        Err(error) => {
            let what = format!("what is known of the minions' clocks cannot be read: {error}");
            return Some(Finding::new(
                what,
                "let the master's user read its cachedir",
            ));
        }
    };
    let shown = clocks.iter().take(MAX_NAMES);
    let names: Vec<String> = shown.map(|(id, skew)| format!("{id} {skew:+} s")).collect();
    (!clocks.is_empty()).then(|| {
        let (count, names) = (clocks.len(), names.join(", "));
        let what = format!("the clocks of minions differ from this one ({count}): {names}");
        Finding::new(
            what,
            "set their clocks, or this one if it is nearly all of them",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::diagnosis;
    use super::*;

    #[test]
    fn wrong_clocks_of_minions_are_named() {
        let (_dir, diagnosis) = diagnosis("");
        let path = diagnosis.loaded.config.cachedir.join("saltern");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("minion_clocks"), "-7200 late\n90000 early\n").unwrap();
        let what = &check(&diagnosis)[0].what;
        assert!(what.contains("(2): late -7200 s, early +90000 s"), "{what}");
    }

    #[test]
    fn files_from_the_future_are_found() {
        let (_dir, mut diagnosis) = diagnosis("");
        let path = diagnosis.loaded.config.cachedir.join("saltern");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("shared_key"), "").unwrap();
        assert!(check(&diagnosis).is_empty());
        diagnosis.now -= 3_600;
        assert!(check(&diagnosis)[0].what.contains("shared_key"));
        diagnosis.now = 0;
        assert!(check(&diagnosis)[0].what.contains("before 2026"));
    }
}

//! Whether there is a Python for what only Python can run.

use super::super::python_parts;
use super::{Diagnosis, Finding};

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let missing = python_parts::missing(&diagnosis.loaded.config, &diagnosis.loaded.findings);
    let finding = missing.map(|why| {
        let what = format!("parts of the configuration need Python, and nothing runs it: {why}");
        let advice = "set python_bridge, or take them out; saltern check-config names them";
        Finding::new(what, advice)
    });
    finding.into_iter().collect()
}

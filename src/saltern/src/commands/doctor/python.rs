//! Whether there is a Python for what only Python can run.

use super::super::python_parts;
use super::{Complaint, Patient};

pub(super) fn check(patient: &Patient) -> Vec<Complaint> {
    let missing = python_parts::missing(&patient.loaded.config, &patient.loaded.findings);
    let complaint = missing.map(|why| {
        let what = format!("parts of the configuration need Python, and nothing runs it: {why}");
        let advice = "set python_bridge, or take them out; saltern check-config names them";
        Complaint::new(what, advice)
    });
    complaint.into_iter().collect()
}

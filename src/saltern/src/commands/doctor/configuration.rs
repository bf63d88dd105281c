//! What the check of the configuration found: errors and warnings, as `saltern check-config` tells
//! them beside what is only good to know.

use saltern_config::{Finding, Severity, is_of_process};

use super::{Complaint, Patient};
use crate::preflight;

pub(super) fn check(patient: &Patient) -> Vec<Complaint> {
    let config = &patient.loaded.config;
    let mut findings = patient.loaded.findings.clone();
    findings.extend(preflight::user(config));
    if !patient.may_run {
        findings.extend(preflight::parts(config));
        findings.extend(preflight::missing(config));
    }
    // Of what the files of another user may not be used for by this one nothing follows.
    let is_ours = |finding: &&Finding| !(patient.may_run && is_of_process(finding));
    // What needs Python has a check of its own.
    let wrong = findings.iter().filter(is_ours);
    let wrong = wrong.filter(|it| it.severity != Severity::Info && !it.needs_python);
    wrong
        .map(|finding| {
            let advice = "correct the configuration; saltern check-config prints all findings";
            Complaint::new(finding.to_string(), advice).with(finding.severity)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::patient;
    use super::*;

    #[test]
    fn warnings_are_told_and_hints_are_not() {
        let (_dir, wrong) = patient("wroker_threads: 3\n");
        let complaints = check(&wrong);
        assert!(
            complaints[0].what.contains("wroker_threads"),
            "{}",
            complaints[0].what
        );
        assert_eq!(complaints[0].severity, Severity::Warning);
        let (_dir, bad_edit) = patient("timeout: soon\n");
        assert_eq!(check(&bad_edit)[0].severity, Severity::Error);
        let (_dir, hint) = patient("mworker_niceness: 3\n");
        assert!(check(&hint).is_empty());
    }
}

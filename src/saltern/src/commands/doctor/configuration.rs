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
            Complaint::new(finding.to_string(), advice(&finding.option)).with(finding.severity)
        })
        .collect()
}

fn advice(option: &str) -> &'static str {
    match option {
        "pki_dir" => {
            "ask as the master's user if that is a matter of permission; else bring the key back from \
             a backup: with a new one no minion would trust this master"
        }
        "user" => "correct the option user, or make the account",
        "interface" => "set interface to an address of this machine",
        _ => "correct the configuration; saltern check-config prints all findings",
    }
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
    #[test]
    fn damaged_key_and_unknown_user_are_errors_with_a_remedy() {
        let (_dir, stopped) = patient("");
        assert!(check(&stopped).is_empty(), "a first start makes the key");
        let pki = stopped.loaded.config.pki_dir.clone();
        assert!(!pki.exists(), "nothing is made");
        std::fs::create_dir_all(&pki).unwrap();
        std::fs::write(pki.join("master.pem"), "-----BEGIN RSA PRIV").unwrap();
        let (_dir, unknown) = patient("user: nobody-has-this-name\n");
        for (patient, named, remedy) in [
            (stopped, "master.pem", "backup"),
            (unknown, "nobody-has-this-name", "make the account"),
        ] {
            let found = check(&patient);
            let of_it = found.iter().find(|found| found.what.contains(named));
            let of_it = of_it.unwrap_or_else(|| panic!("nothing about {named}"));
            assert_eq!(of_it.severity, Severity::Error);
            assert!(of_it.advice.contains(remedy), "{}", of_it.advice);
        }
    }
}

//! Findings of the configuration check: its errors and warnings, without the hints that
//! `saltern check-config` also prints.

use saltern_config::{Finding as ConfigFinding, Severity, is_of_process};

use super::{Diagnosis, Finding};
use crate::preflight;

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    let config = &diagnosis.loaded.config;
    let mut findings = diagnosis.loaded.findings.clone();
    findings.extend(preflight::user(config));
    if !diagnosis.may_run {
        findings.extend(preflight::parts(config));
        findings.extend(preflight::missing(config));
    }
    // Of what the files of another user may not be used for by this one nothing follows.
    let is_ours =
        |config_finding: &&ConfigFinding| !(diagnosis.may_run && is_of_process(config_finding));
    // What needs Python has a check of its own.
    let wrong = findings.iter().filter(is_ours);
    let wrong = wrong.filter(|it| it.severity != Severity::Info && !it.needs_python);
    wrong
        .map(|config_finding| {
            Finding::new(config_finding.to_string(), advice(&config_finding.option))
                .with(config_finding.severity)
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
    use super::super::tests::diagnosis;
    use super::*;

    #[test]
    fn warnings_are_findings_and_hints_are_not() {
        let (_dir, wrong) = diagnosis("wroker_threads: 3\n");
        let findings = check(&wrong);
        assert!(
            findings[0].what.contains("wroker_threads"),
            "{}",
            findings[0].what
        );
        assert_eq!(findings[0].severity, Severity::Warning);
        let (_dir, bad_edit) = diagnosis("timeout: soon\n");
        assert_eq!(check(&bad_edit)[0].severity, Severity::Error);
        let (_dir, hint) = diagnosis("mworker_niceness: 3\n");
        assert!(check(&hint).is_empty());
    }
    #[test]
    fn damaged_key_and_unknown_user_are_errors_with_a_remedy() {
        let (_dir, stopped) = diagnosis("");
        assert!(check(&stopped).is_empty(), "a first start makes the key");
        let pki = stopped.loaded.config.pki_dir.clone();
        assert!(!pki.exists(), "nothing is made");
        std::fs::create_dir_all(&pki).unwrap();
        std::fs::write(pki.join("master.pem"), "-----BEGIN RSA PRIV").unwrap();
        let (_dir, unknown) = diagnosis("user: nobody-has-this-name\n");
        for (diagnosis, named, remedy) in [
            (stopped, "master.pem", "backup"),
            (unknown, "nobody-has-this-name", "make the account"),
        ] {
            let found = check(&diagnosis);
            let of_it = found.iter().find(|found| found.what.contains(named));
            let of_it = of_it.unwrap_or_else(|| panic!("nothing about {named}"));
            assert_eq!(of_it.severity, Severity::Error);
            assert!(of_it.advice.contains(remedy), "{}", of_it.advice);
        }
    }
}

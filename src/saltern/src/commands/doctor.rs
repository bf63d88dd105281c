//! `saltern doctor`: diagnoses a master, running or stopped; each finding has a remedy.
//!
//! A running master is asked at its control socket; everything else is read from the disk, and
//! nothing is changed. Where no master runs, whatever would prevent its start is an error.
//! One file a subject below `doctor`, each with a line in [`CHECKS`].

mod clock;
mod cluster;
mod configuration;
mod database;
mod descriptors;
mod disk;
mod fips;
mod keys;
mod maintenance_tasks;
mod minion_keys;
mod ports;
mod python;
mod quotas;
mod start;
mod syndic;

use std::io::ErrorKind;
use std::path::Path;

use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_client::control::{self, ControlError};
use saltern_config::{Loaded, Severity, load_for_tools};
use saltern_model::control::TaskStatus;
use saltern_model::query::DoctorFinding;
use serde::Serialize;

use super::{chain, load_for_tool, say, say_json};
use crate::{ConfigArgument, privileges};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgument,
}

/// Subject of the checks: one master and its state.
struct Diagnosis {
    loaded: Loaded,
    /// Metrics and tasks of the running master; `None` for a stopped one.
    running: Option<Running>,
    /// Whether that is not known, because this user may not ask.
    may_run: bool,
    /// Seconds since 1970.
    now: i64,
}

/// Answers of a running master.
struct Running {
    maintenance_tasks: Vec<TaskStatus>,
    /// Prometheus' text format.
    metrics: String,
}

impl Running {
    /// The value of a metric without labels.
    fn metric(&self, name: &str) -> Option<f64> {
        let lines = self.metrics.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.next()?.trim().parse().ok()
    }
}

/// A problem with its remedy.
struct Finding {
    /// The problem, in lower case and without a final period.
    what: String,
    /// The remedy, likewise.
    advice: String,
    severity: Severity,
}

impl Finding {
    /// A warning: something does not work as it should, or soon will not.
    fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            advice: advice.into(),
            severity: Severity::Warning,
        }
    }

    /// The same as an error: the master cannot start, or refuses work.
    fn error(self) -> Self {
        self.with(Severity::Error)
    }

    /// The same as a note: good to know, nothing is lost.
    fn note(self) -> Self {
        self.with(Severity::Info)
    }

    fn with(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }
}

/// How a severity is called, in text and JSON.
fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

/// A check: returns the findings about its subject.
type Check = fn(&Diagnosis) -> Vec<Finding>;

/// The subjects, in the order of the report.
const CHECKS: &[(&str, Check)] = &[
    ("configuration", configuration::check),
    ("start", start::check),
    ("ports", ports::check),
    ("maintenance", maintenance_tasks::check),
    ("disk", disk::check),
    ("database", database::check),
    ("cluster", cluster::check),
    ("keys", keys::check),
    ("minion_keys", minion_keys::check),
    ("descriptors", descriptors::check),
    ("clock", clock::check),
    ("fips", fips::check),
    ("python", python::check),
    ("quotas", quotas::check),
    ("syndic", syndic::check),
];

/// 0 without errors and warnings, else 1; 64 or 66 when the configuration does not say which master
/// is meant.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let loaded = match load_for_tool(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let mut found = Vec::new();
    let mut may_run = false;
    let running = match ask(&loaded) {
        Ok(running) => Some(running),
        Err(ControlError::Socket(error)) if error.kind() == ErrorKind::PermissionDenied => {
            may_run = true;
            let what = format!("whether a master runs cannot be asked: {error}");
            let advice = "ask again as root or as the master's user";
            found.push(("control", Finding::new(what, advice)));
            None
        }
        Err(ControlError::Socket(_)) => None,
        Err(error @ ControlError::Busy) => {
            may_run = true;
            found.push(("control", Finding::new(chain(&error), "ask again")));
            None
        }
        Err(error) => {
            let advice = "use the program of the release that runs";
            found.push(("control", Finding::new(chain(&error), advice)));
            None
        }
    };
    // Root may ask at the socket, too; everything else is checked as the master's user. A process
    // that may not become that user is a finding (`start`), and so is a missing user
    // (`configuration`).
    let _ = privileges::become_user(&loaded.config.user);
    let diagnosis = Diagnosis {
        loaded,
        running,
        may_run,
        now: Clock::system().unix(),
    };
    for (subject, check) in CHECKS {
        let findings = check(&diagnosis).into_iter();
        found.extend(findings.map(|finding| (*subject, finding)));
    }
    let is_running = match may_run {
        true => None,
        false => Some(diagnosis.running.is_some()),
    };
    let has_error = found.iter().any(|(_, one)| one.severity == Severity::Error);
    if is_running == Some(false) && !has_error {
        found.push(("start", start::nothing_is_in_the_way()));
    }
    found.sort_by_key(|(_, finding)| finding.severity);
    match arguments.json {
        true => say_json(&Report::of(is_running, &found)),
        false => say(&as_text(is_running, &found)),
    }
    match found.iter().all(|(_, one)| one.severity == Severity::Info) {
        true => Exit::Ok,
        false => Exit::Failure,
    }
}

/// The running master's findings on its own configuration, for `/v1/health`.
pub(crate) fn of_this_master(config: &Path) -> Vec<DoctorFinding> {
    let loaded = match load_for_tools(config) {
        Ok(loaded) => loaded,
        Err(errors) => {
            let advice = "mend it before the master is started again";
            let found = [(
                "configuration",
                Finding::new(errors.to_string(), advice).error(),
            )];
            return found.map(as_reported).into();
        }
    };
    let running = ask(&loaded);
    let mut found = Vec::new();
    if let Err(error) = &running {
        let advice = "see whether the directory of its sockets is still there";
        found.push(("control", Finding::new(chain(error), advice)));
    }
    let diagnosis = Diagnosis {
        loaded,
        running: running.ok(),
        // It does run, whatever its control socket says.
        may_run: true,
        now: Clock::system().unix(),
    };
    for (subject, check) in CHECKS {
        let findings = check(&diagnosis).into_iter();
        found.extend(findings.map(|finding| (*subject, finding)));
    }
    found.sort_by_key(|(_, finding)| finding.severity);
    found.into_iter().map(as_reported).collect()
}

fn as_reported((subject, finding): (&str, Finding)) -> DoctorFinding {
    DoctorFinding {
        subject: subject.to_owned(),
        severity: word(finding.severity).to_owned(),
        finding: finding.what,
        advice: finding.advice,
    }
}

/// Errors, warnings and notes.
fn counts(found: &[(&str, Finding)]) -> [usize; 3] {
    [Severity::Error, Severity::Warning, Severity::Info].map(|severity| {
        found
            .iter()
            .filter(|(_, one)| one.severity == severity)
            .count()
    })
}

fn ask(loaded: &Loaded) -> Result<Running, ControlError> {
    let sock_dir = &loaded.config.sock_dir;
    Ok(Running {
        maintenance_tasks: control::maintenance_tasks(sock_dir)?,
        metrics: control::metrics(sock_dir)?,
    })
}

fn as_text(is_running: Option<bool>, found: &[(&str, Finding)]) -> String {
    let mut text = match is_running {
        Some(true) => "The master is running.\n".to_owned(),
        Some(false) => "No master is running for this configuration.\n".to_owned(),
        None => "Whether a master is running is not known.\n".to_owned(),
    };
    for (subject, finding) in found {
        let (severity, what) = (word(finding.severity), &finding.what);
        let advice = &finding.advice;
        text.push_str(&format!("{severity}: {subject}: {what}\n    {advice}\n"));
    }
    if found.is_empty() {
        text.push_str("Nothing is wrong.\n");
    } else {
        let counts = counts(found);
        let words = ["error", "warning", "note"].into_iter().zip(counts);
        let counts: Vec<String> = words
            .map(|(word, count)| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
            .collect();
        text.push_str(&format!("{}\n", counts.join(", ")));
    }
    text
}

/// Output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    errors: usize,
    findings: Vec<FindingReport<'a>>,
    notes: usize,
    /// Null where that is not known.
    running: Option<bool>,
    warnings: usize,
}

#[derive(Serialize)]
struct FindingReport<'a> {
    advice: &'a str,
    finding: &'a str,
    severity: &'static str,
    subject: &'a str,
}

impl<'a> Report<'a> {
    fn of(running: Option<bool>, found: &'a [(&str, Finding)]) -> Self {
        let [errors, warnings, notes] = counts(found);
        let finding = |(subject, finding): &'a (&str, Finding)| FindingReport {
            advice: &finding.advice,
            finding: &finding.what,
            severity: word(finding.severity),
            subject,
        };
        Self {
            errors,
            findings: found.iter().map(finding).collect(),
            notes,
            running,
            warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stopped master of an empty directory.
    pub(super) fn diagnosis(options: &str) -> (tempfile::TempDir, Diagnosis) {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("root_dir: {}\nid: m\n{options}", dir.path().display());
        std::fs::write(dir.path().join("master"), text).unwrap();
        let loaded = saltern_config::load_for_tools(dir.path());
        let diagnosis = Diagnosis {
            loaded: loaded.map_err(|errors| errors.to_string()).unwrap(),
            running: None,
            may_run: false,
            now: Clock::system().unix(),
        };
        (dir, diagnosis)
    }

    #[test]
    fn findings_are_printed_with_their_remedies() {
        let found = [("disk", Finding::new("it is full", "make room"))];
        let text = as_text(Some(false), &found);
        assert!(
            text.contains("warning: disk: it is full\n    make room\n"),
            "{text}"
        );
        assert!(text.ends_with("\n0 errors, 1 warning, 0 notes\n"), "{text}");
        let read = serde_json::to_value(Report::of(Some(true), &found)).unwrap();
        assert_eq!(read["running"], true);
        assert_eq!(read["warnings"], 1);
        assert_eq!(read["findings"][0]["severity"], "warning");
        assert_eq!(read["findings"][0]["advice"], "make room");
        assert!(as_text(Some(true), &[]).contains("Nothing is wrong"));
    }

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let running = Running {
            maintenance_tasks: Vec::new(),
            metrics: "# HELP a b\na_b 1\na{x=\"y\"} 2\na 3.5\n".to_owned(),
        };
        assert_eq!(running.metric("a"), Some(3.5));
        assert_eq!(running.metric("b"), None);
    }
}

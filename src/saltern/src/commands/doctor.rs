//! `saltern doctor`: what is wrong with a master, running or stopped, and what to do about it.
//!
//! A running master is asked at its control socket; everything else is looked at on the disk, and
//! nothing is changed anywhere. One file a subject below `doctor`; whoever adds one adds a line to
//! [`CHECKS`].

mod clock;
mod configuration;
mod database;
mod descriptors;
mod disk;
mod duties;
mod keys;
mod ports;
mod python;

use saltern_actors::control::{self, ControlError};
use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_config::Loaded;
use serde_json::json;

use super::duty::Told;
use super::{chain, load_config, say};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgument,
}

/// Whom the checks look at.
struct Patient {
    loaded: Loaded,
    /// What the running master says of itself; nothing of one that does not run.
    running: Option<Running>,
    /// Seconds since 1970.
    now: i64,
}

/// What a running master says of itself.
struct Running {
    duties: Vec<Told>,
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

/// Something that is wrong.
struct Complaint {
    /// What is wrong, in lower case and without a final period.
    what: String,
    /// What to do about it, likewise.
    advice: String,
}

impl Complaint {
    fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            advice: advice.into(),
        }
    }
}

/// A check gives what is wrong with its subject.
type Check = fn(&Patient) -> Vec<Complaint>;

/// The subjects, in the order in which they are told.
const CHECKS: &[(&str, Check)] = &[
    ("configuration", configuration::check),
    ("ports", ports::check),
    ("duties", duties::check),
    ("disk", disk::check),
    ("database", database::check),
    ("keys", keys::check),
    ("descriptors", descriptors::check),
    ("clock", clock::check),
    ("python", python::check),
];

/// 0 when nothing is wrong, 1 when something is; 64 for a configuration that cannot be read.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let loaded = match load_config(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let mut found = Vec::new();
    let running = match ask(&loaded) {
        Ok(running) => Some(running),
        Err(ControlError::Socket(_)) => None,
        Err(error @ ControlError::Refused(_)) => {
            let advice = "use the program of the release that runs";
            found.push(("control", Complaint::new(chain(&error), advice)));
            None
        }
    };
    let patient = Patient {
        loaded,
        running,
        now: Clock::system().unix(),
    };
    for (subject, check) in CHECKS {
        let complaints = check(&patient).into_iter();
        found.extend(complaints.map(|complaint| (*subject, complaint)));
    }
    let is_running = patient.running.is_some();
    say(&match arguments.json {
        true => as_json(is_running, &found),
        false => as_text(is_running, &found),
    });
    match found.is_empty() {
        true => Exit::Ok,
        false => Exit::Failure,
    }
}

fn ask(loaded: &Loaded) -> Result<Running, ControlError> {
    let ask = |question| control::ask(&loaded.config.sock_dir, question);
    Ok(Running {
        duties: ask("duties")?.lines().filter_map(Told::parse).collect(),
        metrics: ask("metrics")?,
    })
}

fn as_text(is_running: bool, found: &[(&str, Complaint)]) -> String {
    let mut text = match is_running {
        true => "The master is running.\n".to_owned(),
        false => "No master is running for this configuration.\n".to_owned(),
    };
    for (subject, Complaint { what, advice }) in found {
        text.push_str(&format!("{subject}: {what}\n    {advice}\n"));
    }
    if found.is_empty() {
        text.push_str("Nothing is wrong.\n");
    }
    text
}

fn as_json(is_running: bool, found: &[(&str, Complaint)]) -> String {
    let findings: Vec<_> = found
        .iter()
        .map(|(subject, complaint)| {
            json!({
                "subject": subject,
                "finding": complaint.what,
                "advice": complaint.advice,
            })
        })
        .collect();
    format!("{}\n", json!({"running": is_running, "findings": findings}))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stopped master of an empty directory.
    pub(super) fn patient(options: &str) -> (tempfile::TempDir, Patient) {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("root_dir: {}\nid: m\n{options}", dir.path().display());
        std::fs::write(dir.path().join("master"), text).unwrap();
        let loaded = saltern_config::load_master(dir.path());
        let patient = Patient {
            loaded: loaded.map_err(|errors| errors.to_string()).unwrap(),
            running: None,
            now: Clock::system().unix(),
        };
        (dir, patient)
    }

    #[test]
    fn what_is_found_is_told_with_what_to_do() {
        let found = [("disk", Complaint::new("it is full", "make room"))];
        assert!(as_text(false, &found).contains("disk: it is full\n    make room\n"));
        let read: serde_json::Value = serde_json::from_str(&as_json(true, &found)).unwrap();
        assert_eq!(read["running"], true);
        assert_eq!(read["findings"][0]["advice"], "make room");
        assert!(as_text(true, &[]).contains("Nothing is wrong"));
    }

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let running = Running {
            duties: Vec::new(),
            metrics: "# HELP a b\na_b 1\na{x=\"y\"} 2\na 3.5\n".to_owned(),
        };
        assert_eq!(running.metric("a"), Some(3.5));
        assert_eq!(running.metric("b"), None);
    }
}

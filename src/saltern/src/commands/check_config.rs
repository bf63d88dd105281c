//! `saltern check-config`: reads a configuration as the master would, and lists options that are
//! wrong, unknown, or not honoured by this release.

mod explain;

use saltern_base::exit::Exit;
use saltern_config::{Finding, MasterConfig, Reading, Severity, read_master, render_findings};
use serde::Serialize;

use super::{python_parts, say, say_json};
use crate::{ConfigArgument, preflight};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print what was found as JSON.
    #[arg(long, conflicts_with = "explain")]
    json: bool,
    /// Say what an option means, its default, which lines of Salt have it, and what this master
    /// does with it; more than once for several.
    #[arg(long, value_name = "OPTION")]
    explain: Vec<String>,
    #[command(flatten)]
    config: ConfigArgument,
}

/// 0 when all is as it is asked for; 1 with warnings; 64 with errors, and 66 where a file cannot be
/// read.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    if !arguments.explain.is_empty() {
        return explain::run(&arguments.explain);
    }
    let Reading {
        config,
        mut findings,
        unreadable,
    } = read_whole(arguments);
    match arguments.json {
        true => say_json(&Report::of(&findings)),
        false => {
            let python = python_parts::describe(&config, &findings);
            let (jobs, cluster) = (job_cache(&config), cluster(&config));
            say(&format!(
                "{}{python}{jobs}{cluster}",
                as_text(&mut findings)
            ));
        }
    }
    match worst(&findings) {
        Some(Severity::Error) if unreadable => Exit::NoInput,
        Some(Severity::Error) => Exit::Usage,
        Some(Severity::Warning) => Exit::Failure,
        Some(Severity::Info) | None => Exit::Ok,
    }
}

/// The treatment of the previous master's jobs at the first start.
fn job_cache(config: &MasterConfig) -> String {
    let jobs = config.cachedir.join("jobs");
    let has_jobs = std::fs::read_dir(&jobs).is_ok_and(|mut entries| entries.next().is_some());
    if config.saltern_cluster.is_some() || config.saltern_job_database.exists() || !has_jobs {
        return String::new();
    }
    format!(
        "The jobs of the job cache in \"{}\" are read into the job database by the first start.\n",
        jobs.display()
    )
}

/// The cluster that this master is a member of.
fn cluster(config: &MasterConfig) -> String {
    let Some(cluster) = &config.saltern_cluster else {
        return String::new();
    };
    let hosts = cluster.servers.iter().map(|server| server.host.as_str());
    format!(
        "This master (\"{}\") is a member of the cluster \"{}\" on {}; the jobs are there, and one of its \
         masters is active. All of them need the same keys in pki_dir.\n",
        config.id,
        cluster.name,
        hosts.collect::<Vec<_>>().join(", "),
    )
}

/// The configuration and all findings about it.
fn read_whole(arguments: &Arguments) -> Reading {
    let mut reading = read_master(&arguments.config.config);
    if reading.is_whole() {
        preflight::look_further(&reading.config, &mut reading.findings);
    }
    reading
}

fn worst(findings: &[Finding]) -> Option<Severity> {
    findings.iter().map(|finding| finding.severity).min()
}

fn as_text(findings: &mut [Finding]) -> String {
    match findings.is_empty() {
        true => "The configuration is in order; everything in it is honoured.\n".to_owned(),
        false => render_findings(findings),
    }
}

/// Output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    errors: usize,
    findings: Vec<FindingReport<'a>>,
    hints: usize,
    /// Whether a master starts with this configuration.
    starts: bool,
    warnings: usize,
}

/// A finding; what is not known of it is null.
#[derive(Serialize)]
struct FindingReport<'a> {
    file: Option<&'a str>,
    line: Option<u32>,
    message: &'a str,
    needs_python: bool,
    option: Option<&'a str>,
    refuses_start: bool,
    severity: &'static str,
    suggestion: Option<&'a str>,
}

impl<'a> Report<'a> {
    fn of(findings: &'a [Finding]) -> Self {
        let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
        Self {
            errors: count(Severity::Error),
            findings: findings.iter().map(FindingReport::of).collect(),
            hints: count(Severity::Info),
            starts: !findings.iter().any(Finding::refuses_start),
            warnings: count(Severity::Warning),
        }
    }
}

impl<'a> FindingReport<'a> {
    fn of(finding: &'a Finding) -> Self {
        let known = |text: &'a str| (!text.is_empty()).then_some(text);
        Self {
            file: known(&finding.file),
            line: (finding.line > 0).then_some(finding.line),
            message: &finding.message,
            needs_python: finding.needs_python,
            option: known(&finding.option),
            refuses_start: finding.refuses_start(),
            severity: match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Info => "hint",
            },
            suggestion: finding.suggestion.as_deref(),
        }
    }
}

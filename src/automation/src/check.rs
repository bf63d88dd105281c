//! Checks, before a start, of what the reactor and the schedule of a configuration do; it opens,
//! creates or fetches nothing.

use std::path::Path;

use saltern_base::clock::Clock;
use saltern_config::{Finding, MasterConfig, Severity};
use saltern_content::files::FileServer;
use saltern_content::reactions;
use saltern_runners::{RunnerOf, runner_of};

use crate::reactor::{self, Reading};
use crate::schedule::Schedule;

/// The most reactor references that are looked for.
const MAX_REFERENCES: usize = 1_000;

/// Findings about the reactor and the schedule of a configuration. An error is a value that the
/// start of the reactor refuses.
pub fn check(config: &MasterConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = reactor::limits(config) {
        let problem = error.problem();
        findings.push(config.finding(Severity::Error, "saltern_reactor_limits", problem));
    }
    reactions(config, &mut findings);
    schedule(config, &mut findings);
    findings
}

/// Reactor rules that have no effect.
fn reactions(config: &MasterConfig, findings: &mut Vec<Finding>) {
    for problem in Reading::quietly(config).problems() {
        findings.push(config.finding(Severity::Warning, "reactor", problem.clone()));
    }
}

/// Files of reactor rules that do not exist at this moment. A master starts without them, and looks
/// for them with each event, so only an explicit check reports them.
pub fn missing_reactions(config: &MasterConfig, clock: &Clock) -> Vec<Finding> {
    let files = FileServer::new(config, clock.clone()).ok();
    // Files from remotes may be fetched later.
    let is_remote = config.gitfs_remotes().is_set();
    let is_served = |reference: &str| {
        is_remote
            || files
                .as_ref()
                .is_none_or(|files| reactions::is_served(reference, files))
    };
    let reading = Reading::quietly(config);
    let references = reading.references().take(MAX_REFERENCES);
    let missing = references.filter_map(|reference| match reactions::find(reference) {
        Err(error) => Some(error.to_string()),
        Ok(_) => (!is_served(reference)).then(|| format!("there is no file \"{reference}\"")),
    });
    missing
        .map(|message| config.finding(Severity::Warning, "reactor", message))
        .collect()
}

/// Findings about the schedule, and jobs whose function does not exist.
fn schedule(config: &MasterConfig, findings: &mut Vec<Finding>) {
    let (schedule, of_schedule) = Schedule::of_site(config);
    findings.extend(of_schedule);
    for job in schedule.jobs() {
        let (name, function) = (&job.name, &job.function);
        let (severity, message, needs_python) = match runner_of(function) {
            RunnerOf::BuiltIn => continue,
            RunnerOf::Withheld(reason) => (
                Severity::Warning,
                format!("job \"{name}\": no user may run \"{function}\": {reason}"),
                false,
            ),
            RunnerOf::Site if !has_runner_module(config, function) => (
                Severity::Warning,
                format!(
                    "job \"{name}\": \"{function}\" is no runner function of Salt, nor is there a \
                     module of the site's own of that name"
                ),
                false,
            ),
            RunnerOf::Site | RunnerOf::Python => (
                Severity::Info,
                format!(
                    "job \"{name}\": \"{function}\" is not built in and needs Python \
                     (python_bridge)"
                ),
                true,
            ),
        };
        let finding = config.finding(severity, "schedule", message);
        findings.push(Finding {
            needs_python,
            ..finding
        });
    }
}

/// Whether the site has a runner module of its own for a function.
fn has_runner_module(config: &MasterConfig, function: &str) -> bool {
    let module = function.split('.').next().unwrap_or_default();
    if module.is_empty() || module.contains(['/', '\0']) {
        return false;
    }
    let extensions = config.extension_modules();
    let extensions = extensions.map_or_else(|| config.cachedir.join("extmods"), Into::into);
    let mut places = vec![extensions.join("runners")];
    places.extend(config.runner_dirs().texts().map(Into::into));
    let modules = config.module_dirs();
    places.extend(modules.texts().map(|it| Path::new(it).join("runners")));
    places
        .iter()
        .any(|place| place.join(format!("{module}.py")).is_file() || place.join(module).is_dir())
}

//! Preflight checks: errors that prevent a start, and options that would have no effect, in one
//! answer for `saltern check-config`, `saltern doctor` and the start itself.
//!
//! The configuration is read first ([`read_master`](saltern_config::read_master)); what is asked
//! here are the parts that use it, by the functions that open them. Nothing is made or changed.

use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_bridge::{Bridge, python_pillar_files};
use saltern_config::{Finding, MasterConfig, Severity};

use crate::commands::{chain, python_parts};
use crate::privileges;

/// Findings of a master's parts on a configuration that was read, as the user of this process.
pub(crate) fn parts(config: &MasterConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (option, problem) in privileges::unusable_directories(config) {
        findings.push(config.finding(Severity::Error, option, problem));
    }
    for (option, error) in saltern_actors::check_tls(config) {
        findings.push(config.finding(Severity::Error, option, chain(&error)));
    }
    for (option, error) in saltern_actors::check_addresses(config) {
        let message = match option {
            "interface" => format!("cannot listen on {}: {error}", config.interface),
            _ => error.to_string(),
        };
        findings.push(config.finding(Severity::Error, option, message));
    }
    findings.extend(saltern_requests::check(config, &Clock::system()));
    findings.extend(saltern_automation::check(config));
    findings
}

/// Directories and files that are named and are not there at this moment; a start does not look.
pub(crate) fn missing(config: &MasterConfig) -> Vec<Finding> {
    let mut findings = saltern_config::missing_roots(config);
    findings.extend(saltern_automation::missing_reactions(
        config,
        &Clock::system(),
    ));
    findings
}

/// Whether the user of the configuration can be had.
pub(crate) fn user(config: &MasterConfig) -> Option<Finding> {
    let error = privileges::account(&config.user).err()?;
    Some(config.finding(Severity::Error, "user", chain(&error)))
}

/// Turns findings about what only Python can run into errors where nothing runs it, and adds those
/// about modules and pillars of the site's own.
pub(crate) fn python(config: &MasterConfig, findings: &mut Vec<Finding>) {
    let files = python_pillar_files(config);
    let modules = python_parts::modules(config);
    let is_needed = findings.iter().any(|finding| finding.needs_python);
    let has_gitfs = keeps_stock_clones(config);
    if !is_needed && !has_gitfs && files.is_empty() && modules.is_empty() {
        return;
    }
    let Err(reason) = Bridge::new(config).python() else {
        return;
    };
    let reason = reason.to_string();
    for finding in findings.iter_mut().filter(|finding| finding.needs_python) {
        finding.severity = Severity::Error;
        let is_reported = finding.message.contains("python_bridge is off");
        if !is_reported && !finding.message.contains(&reason) {
            finding
                .message
                .push_str(&format!("; nothing runs it: {reason}"));
        }
    }
    let mut add = |severity, option, message: String| {
        let finding = config.finding(severity, option, message);
        findings.push(Finding {
            needs_python: true,
            ..finding
        });
    };
    if has_gitfs {
        let message = format!(
            "gitfs is served to minions, but stock's salt-run (state.orchestrate, fileserver.*) reads \
             clones of its own in cachedir/gitfs, which only Salt can keep up to date; nothing runs \
             it: {reason}"
        );
        // It matters only where the option was set explicitly.
        let severity = match config.is_written(GITFS_FOR_SALT_RUN) {
            true => Severity::Warning,
            false => Severity::Info,
        };
        add(severity, GITFS_FOR_SALT_RUN, message);
    }
    for (file, renderers) in files {
        let (file, renderers) = (file.display(), renderers.join(", "));
        let message = format!("\"{file}\" needs Python ({renderers}); nothing runs it: {reason}");
        add(Severity::Error, "pillar_roots", message);
    }
    for (place, names) in modules {
        let (place, names) = (place.display(), names.join(", "));
        let message = format!("{names} in \"{place}\" need Python; nothing runs it: {reason}");
        add(Severity::Warning, "extension_modules", message);
    }
}

const GITFS_FOR_SALT_RUN: &str = "saltern_gitfs_for_salt_run";

/// Whether the clones that stock's own programs read are to be kept up to date for them.
fn keeps_stock_clones(config: &MasterConfig) -> bool {
    config.saltern_gitfs_for_salt_run
        && config.gitfs_remotes().is_set()
        && config
            .fileserver_backend()
            .texts()
            .any(|name| matches!(name, "git" | "gitfs"))
}

/// All findings at once, for commands that start no master, checked as the user of the
/// configuration. Options with an error already get no second finding.
///
/// From here on this process is that user.
pub(crate) fn look_further(config: &MasterConfig, findings: &mut Vec<Finding>) {
    let mut more: Vec<Finding> = user(config).into_iter().collect();
    if more.is_empty() {
        // A process that may not become that user has a finding of its own and checks as itself.
        let _ = privileges::become_user(&config.user);
    }
    more.extend(parts(config));
    more.extend(missing(config));
    let is_known = |option: &str| {
        let mut known = findings.iter();
        known.any(|known| known.option == option && known.severity == Severity::Error)
    };
    more.retain(|finding| !is_known(&finding.option));
    findings.extend(more);
    python(config, findings);
    saltern_config::sort_findings(findings);
}

/// How a start ends that a finding refuses.
pub(crate) fn exit_of(finding: &Finding) -> Exit {
    match finding.option.as_str() {
        "ssl" | "saltern_metrics_ssl" | "pki_dir" => Exit::NoInput,
        "interface" | "saltern_metrics_address" => Exit::Unavailable,
        "user" => Exit::NoPermission,
        _ => Exit::Usage,
    }
}

#[cfg(test)]
mod tests;

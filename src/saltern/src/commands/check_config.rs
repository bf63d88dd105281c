//! `saltern check-config`: reads a configuration as the master would, and says which parts of it
//! are wrong, unknown, or not honoured by this release.

use saltern_base::exit::Exit;
use saltern_config::{Finding, MasterConfig, Severity, render_findings};
use saltern_requests::Schedule;

use super::{chain, load_config, python_parts, say};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
}

/// 0 when the master would start; 64 when it would not.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let mut loaded = match load_config(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    loaded.findings.extend(tls(&loaded.config));
    loaded.findings.extend(Schedule::of_site(&loaded.config).1);
    let found = render_findings(&loaded.findings);
    if found.is_empty() {
        say("The configuration is in order; everything in it is honoured.\n");
    } else {
        say(&found);
    }
    say(&python_parts::describe(&loaded.config, &loaded.findings));
    let wrong = loaded
        .findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    if wrong { Exit::Usage } else { Exit::Ok }
}

/// What is wrong with the files that options like `ssl` name: reading the configuration does not
/// open them.
fn tls(config: &MasterConfig) -> Option<Finding> {
    let (option, error) = saltern_actors::check_tls(config).err()?;
    let mark = &config.raw(option)?.mark;
    Some(Finding {
        severity: Severity::Error,
        file: mark.file.to_string(),
        line: mark.line,
        option: option.to_owned(),
        message: chain(&error),
        suggestion: None,
        needs_python: false,
    })
}

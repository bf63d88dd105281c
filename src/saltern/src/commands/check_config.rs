//! `saltern check-config`: reads a configuration as the master would, and says which parts of it
//! are wrong, unknown, or not honoured by this release.

use saltern_base::exit::Exit;
use saltern_config::{Severity, render_findings};

use super::{load_config, say};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
}

/// 0 when the master would start; 64 when it would not.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let loaded = match load_config(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let found = render_findings(&loaded.findings);
    if found.is_empty() {
        say("The configuration is in order; everything in it is honoured.\n");
    } else {
        say(&found);
    }
    let wrong = loaded
        .findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    if wrong { Exit::Usage } else { Exit::Ok }
}

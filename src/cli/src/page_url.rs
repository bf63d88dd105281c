//! Addresses of the console's pages, for our own command lines: standard error names the page that shows
//! the same as the command, where the master serves the console.

use saltern_config::MasterConfig;

use crate::console::complain;

/// Prints the address of a job's page.
pub fn report_job(config: &MasterConfig, jid: &str) {
    report(config, &format!("jobs/{jid}"));
}

/// Prints the address of the page of a function that runs on the master: an orchestration has one of
/// its own.
pub(crate) fn report_call(config: &MasterConfig, function: &str, jid: &str) {
    match function.starts_with("state.") {
        true => report(config, &format!("orchestrations/{jid}")),
        false => report_job(config, jid),
    }
}

fn report(config: &MasterConfig, page: &str) {
    if let Some(url) = config.net_api.console_page(page) {
        complain(&format!("in the console: {url}"));
    }
}

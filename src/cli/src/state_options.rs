//! Options of the outputter of states: `state_…` of the configuration and of the command line.

use saltern_config::MasterConfig;
use saltern_config::yaml::Node;
use saltern_output::{StateOptions, StateOutput, Tabular};
use saltern_requests::yaml_value;

use crate::options::OutputOptions;

/// Reads them; the command line counts before the configuration.
pub(crate) fn state_options(options: &OutputOptions, config: &MasterConfig) -> StateOptions {
    let mut state = StateOptions::default();
    let configured = |name: &str| config.command_default(name);
    let flag = |name: &str, default: bool| configured(name).map_or(default, Node::is_truthy);
    let text = |name: &str| configured(name).and_then(Node::as_str);
    if let Some(output) = options.state_output.as_deref().or(text("state_output")) {
        state.output = StateOutput::parse(output);
    }
    // Stock keeps any other text, and a text that is not empty counts as true.
    state.verbose = match options.state_verbose.as_deref() {
        Some("False" | "false" | "") => false,
        Some(_) => true,
        None => flag("state_verbose", state.verbose),
    };
    state.diff = flag("state_output_diff", state.diff);
    state.profile = flag("state_output_profile", state.profile);
    state.percent = flag("state_output_pct", state.percent);
    state.compress_ids = flag("state_compress_ids", state.compress_ids);
    state.tabular = match (text("state_tabular"), flag("state_tabular", false)) {
        (Some(format), _) if !format.is_empty() => Tabular::Format(format.to_owned()),
        (_, true) => Tabular::Aligned,
        _ => Tabular::Off,
    };
    if let Some(exclude) = configured("state_output_exclude") {
        state.exclude = yaml_value(exclude);
    }
    if let Some(terse) = configured("state_output_terse") {
        state.terse = yaml_value(terse);
    }
    state
}

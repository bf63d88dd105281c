//! The master's configuration, as a command reads it.

use saltern_config::{MasterConfig, Severity, is_of_process, load_for_tools};

use crate::console::complain;
use crate::options::{ConfigOptions, Ending};

/// Reads the configuration. What keeps a master from starting does not keep a command from working:
/// an option that is wrong has its default, with a line on standard error.
///
/// # Errors
/// It is not certain which master is meant.
pub(crate) fn load(options: &ConfigOptions) -> Result<MasterConfig, Ending> {
    let loaded = load_for_tools(&options.directory())
        .map_err(|errors| Ending::failed(errors.exit() as u8, format!("{errors}\n")))?;
    let mut errors = loaded
        .findings
        .iter()
        .filter(|one| one.severity == Severity::Error && !is_of_process(one));
    if let Some(first) = errors.next() {
        complain(&format!(
            "[WARNING ] The configuration has an error: {first}"
        ));
    }
    Ok(loaded.config)
}

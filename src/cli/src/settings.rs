//! The master's configuration, as a command reads it.

use std::env;
use std::path::PathBuf;

use saltern_config::{MasterConfig, Severity, is_of_process, load_for_user};

use crate::console::complain;
use crate::options::{ConfigOptions, Ending};

/// Exit code of stock's commands for a configuration that cannot be read.
const USAGE: u8 = 64;

/// Reads the configuration. What keeps a master from starting does not keep a command from working:
/// an option that is wrong has its default, with a line on standard error.
///
/// # Errors
/// It is not certain which master is meant.
pub(crate) fn load(options: &ConfigOptions) -> Result<MasterConfig, Ending> {
    let loaded = load_for_user(&options.directory(), client_file().as_deref())
        .map_err(|errors| Ending::failed(USAGE, format!("{errors}\n")))?;
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

/// The options of the calling user: `SALT_CLIENT_CONFIG`, or `saltrc` in `~/.config/salt`, or `~/.saltrc`
/// where that directory is not there. Nothing without such a file.
fn client_file() -> Option<PathBuf> {
    let named = env::var_os("SALT_CLIENT_CONFIG").map(PathBuf::from);
    let file = named.or_else(|| {
        let home = env::var_os("HOME").map(PathBuf::from)?;
        let config = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let directory = config.unwrap_or_else(|| home.join(".config")).join("salt");
        Some(match directory.is_dir() {
            true => directory.join("saltrc"),
            false => home.join(".saltrc"),
        })
    });
    file.filter(|path| path.is_file())
}

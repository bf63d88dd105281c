//! Master and minion configuration files: `option: value` lines, as a person would write them.

use std::path::Path;

/// The options of one configuration file, in order; a later value replaces an earlier one.
#[derive(Clone, Default)]
pub struct Config(Vec<(String, String)>);

impl Config {
    /// Sets an option; the value is YAML, in one line or as an indented block.
    pub fn set(&mut self, option: &str, value: impl ToString) -> &mut Self {
        self.0.retain(|(name, _)| name != option);
        self.0.push((option.to_owned(), value.to_string()));
        self
    }

    /// The value of an option that was set.
    pub fn get(&self, option: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == option)
            .map(|(_, value)| value.as_str())
    }

    /// Writes the file, and the directory it is in.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let lines: String = self
            .0
            .iter()
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect();
        std::fs::write(path, lines)
    }
}

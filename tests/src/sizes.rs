//! Sizes of tests, which `tests/run.sh` sets for each of its tiers.

use anyhow::{Context, Result};

/// The size that this environment variable has, or else the default.
///
/// # Errors
/// It is no number.
pub fn size(variable: &str, default: usize) -> Result<usize> {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{variable} is {text:?}, not a number")),
        Err(_) => Ok(default),
    }
}

//! Environments of the file server and of the pillar.

use std::fmt;
use std::sync::Arc;

/// A validated saltenv or pillarenv name, safe to use as one file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaltEnv(Arc<str>);

/// Why a text is not an environment name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not an environment name")]
pub struct SaltEnvError(String);

impl SaltEnv {
    /// Checks `text` and makes it an environment name. Slashes are allowed, because git branches
    /// have them; a part that is empty, `.` or `..` is not.
    pub fn parse(text: &str) -> Result<Self, SaltEnvError> {
        let bad_part = |part: &str| part.is_empty() || part == "." || part == "..";
        let bad_char = |c: char| c == '\\' || c.is_control();
        if text.len() > 255 || text.contains(bad_char) || text.split('/').any(bad_part) {
            return Err(SaltEnvError(text.chars().take(64).collect()));
        }
        Ok(Self(Arc::from(text)))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SaltEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SaltEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_environment_names_are_refused() {
        for good in ["base", "prod", "feature/x", "__env__", "v1.2"] {
            assert!(SaltEnv::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "..", "a/../b", "/etc", "a\0", "a\\b", "a//b"] {
            assert!(SaltEnv::parse(bad).is_err(), "{bad:?}");
        }
    }
}

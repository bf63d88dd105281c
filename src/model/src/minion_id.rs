//! The name of a minion, safe to use as one file name.

use std::fmt;
use std::sync::Arc;

/// A validated minion id; cheap to clone.
///
/// The rules are those of stock `valid_id` (`salt/utils/verify.py`): no `/`, no `\`, no NUL, and
/// the name must stay inside the directory that it is joined to. Longer than a file name may be is
/// refused here too, because stock would fail when it writes the key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinionId(Arc<str>);

/// Why a text is not a minion id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing at all.
    #[error("a minion id may not be empty")]
    Empty,
    /// More bytes than a file name can have.
    #[error("a minion id may have at most 255 bytes, this one has {0}")]
    TooLong(usize),
    /// A path separator, a NUL byte or another control character.
    #[error("a minion id may not contain {0:?}")]
    Character(char),
    /// `.` or `..`, which name a directory.
    #[error("a minion id may not be \"{0}\"")]
    Relative(String),
}

impl MinionId {
    /// The most bytes that one file name can have on Linux.
    pub const MAX_BYTES: usize = 255;

    /// Checks `text` and makes it a minion id.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if text.is_empty() {
            return Err(IdError::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(IdError::TooLong(text.len()));
        }
        if let Some(bad) = text
            .chars()
            .find(|c| matches!(c, '/' | '\\') || c.is_control())
        {
            return Err(IdError::Character(bad));
        }
        if text == "." || text == ".." {
            return Err(IdError::Relative(text.to_owned()));
        }
        Ok(Self(Arc::from(text)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for MinionId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for MinionId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MinionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MinionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unsafe_minion_ids_are_refused() {
        for good in [
            "m1",
            "web-01.example.com",
            "a b",
            "größe",
            "..a",
            "a..",
            "[x]",
            "*",
        ] {
            assert!(MinionId::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "../a",
            "a\\b",
            "a\0b",
            "a\nb",
            "/etc/passwd",
        ] {
            assert!(MinionId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(MinionId::parse(&"x".repeat(255)).is_ok());
        assert_eq!(
            MinionId::parse(&"x".repeat(256)),
            Err(IdError::TooLong(256))
        );
    }

    proptest! {
        #[test]
        fn minion_id_never_leaves_its_directory(text in ".*") {
            if let Ok(id) = MinionId::parse(&text) {
                let joined = std::path::Path::new("/pki").join(id.as_str());
                prop_assert_eq!(joined.parent(), Some(std::path::Path::new("/pki")));
                prop_assert_eq!(joined.file_name().and_then(|n| n.to_str()), Some(id.as_str()));
            }
        }
    }
}

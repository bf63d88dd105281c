//! The branches and tags of a clone, as the last fetch left them.

use std::collections::BTreeMap;

/// The name of an object: 40 or 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Oid(Box<str>);

impl Oid {
    /// The full name of an object; `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_name = matches!(text.len(), 40 | 64) && is_hex(text);
        is_name.then(|| Self(text.to_ascii_lowercase().into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Branches and tags with the objects that they name.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Refs {
    pub(crate) branches: BTreeMap<String, Oid>,
    pub(crate) tags: BTreeMap<String, Oid>,
}

/// Format of git's output that [`Refs::parse`] reads.
pub(super) const FORMAT: &str = "--format=%(objectname) %(refname)";

impl Refs {
    /// Reads what `git for-each-ref` prints.
    pub(super) fn parse(printed: &str) -> Self {
        let mut refs = Self::default();
        for line in printed.lines() {
            let Some((oid, name)) = line.split_once(' ') else {
                continue;
            };
            let Some(oid) = Oid::parse(oid) else { continue };
            if let Some(name) = name.strip_prefix("refs/remotes/origin/") {
                refs.branches.insert(name.to_owned(), oid);
            } else if let Some(name) = name.strip_prefix("refs/tags/") {
                refs.tags.insert(name.to_owned(), oid);
            }
        }
        // That is the remote's choice of a branch and no branch of its own.
        refs.branches.remove("HEAD");
        refs
    }
}

#[cfg(test)]
mod tests {
    use super::{Oid, Refs};

    #[test]
    fn refs_are_parsed_into_branches_and_tags() {
        let oid = "0123456789abcdef0123456789abcdef01234567";
        let printed = format!(
            "{oid} refs/remotes/origin/feature/x\n{oid} refs/remotes/origin/HEAD\n\
             {oid} refs/tags/v1\n{oid} refs/heads/no\nnonsense\nz refs/tags/no\n"
        );
        let refs = Refs::parse(&printed);
        assert_eq!(refs.branches.keys().collect::<Vec<_>>(), ["feature/x"]);
        assert_eq!(refs.tags.keys().collect::<Vec<_>>(), ["v1"]);
    }

    #[test]
    fn only_a_full_object_id_is_an_object() {
        for text in ["", "-x", "0123", "HEAD", &"g".repeat(40), &"0".repeat(41)] {
            assert_eq!(Oid::parse(text), None, "{text}");
        }
    }
}

//! The tree of a commit, as a list in memory.
//!
//! Submodules are not part of it, nor are names that are not UTF-8: a minion could not ask for
//! them.

use std::collections::BTreeMap;

use super::refs::Oid;

/// The most entries of a tree.
pub(super) const MAX_ENTRIES: usize = 2_000_000;

/// The longest target of a symlink; the system has none longer.
pub(super) const MAX_TARGET_LENGTH: usize = 4096;

/// Entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory,
    File {
        oid: Oid,
        /// Type and permissions, as `st_mode` has them.
        mode: u32,
    },
    Link {
        target: String,
    },
}

/// Entries of a tree, by path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    entries: BTreeMap<Box<str>, Entry>,
}

/// A link whose target is still to be read.
pub(super) struct Unread {
    path: Box<str>,
    pub(super) oid: Oid,
}

impl Tree {
    /// Entry at a path, which must be written as git writes it.
    pub(crate) fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// The entries below a directory, with paths from there on; the whole tree for an empty path.
    pub(crate) fn below(&self, directory: &str) -> impl Iterator<Item = (&str, &Entry)> {
        let prefix = match directory {
            "" => String::new(),
            directory => format!("{directory}/"),
        };
        let start: Box<str> = prefix.clone().into();
        self.entries
            .range(start..)
            .map_while(move |(path, entry)| Some((path.strip_prefix(&*prefix)?, entry)))
    }

    /// Reads what `git ls-tree -r -t -z` prints; `None` if it is more than a tree may have. Links
    /// are put in by [`Tree::links`].
    pub(super) fn parse(printed: &[u8]) -> Option<(Self, Vec<Unread>)> {
        let mut tree = Self::default();
        let mut links = Vec::new();
        for line in printed.split(|byte| *byte == 0) {
            let Ok(line) = std::str::from_utf8(line) else {
                tracing::warn!("a name in a git tree is not UTF-8, and is left out");
                continue;
            };
            let Some((head, path)) = line.split_once('\t') else {
                continue;
            };
            let mut head = head.split(' ');
            let mode = head
                .next()
                .and_then(|mode| u32::from_str_radix(mode, 8).ok());
            let kind = head.next();
            let oid = head.next().and_then(Oid::parse);
            let (Some(mode), Some(oid)) = (mode, oid) else {
                continue;
            };
            match (kind, mode) {
                (Some("tree"), _) => {
                    tree.entries.insert(path.into(), Entry::Directory);
                }
                (Some("blob"), 0o120_000) => links.push(Unread {
                    path: path.into(),
                    oid,
                }),
                (Some("blob"), _) => {
                    tree.entries.insert(path.into(), Entry::File { oid, mode });
                }
                _ => {}
            }
            if tree.entries.len() + links.len() > MAX_ENTRIES {
                return None;
            }
        }
        Some((tree, links))
    }

    /// Puts links in, whose targets are what `git cat-file --batch` printed for them.
    pub(super) fn links(&mut self, links: Vec<Unread>, mut printed: &[u8]) {
        for link in links {
            let Some(at) = printed.iter().position(|byte| *byte == b'\n') else {
                return;
            };
            let (head, rest) = printed.split_at(at);
            let size = std::str::from_utf8(head)
                .ok()
                .and_then(|head| head.rsplit(' ').next()?.parse::<usize>().ok());
            let Some(size) = size else {
                // It is missing; nothing follows its head.
                printed = rest.get(1..).unwrap_or_default();
                continue;
            };
            let content = rest.get(1..=size).unwrap_or_default();
            printed = rest.get(size + 2..).unwrap_or_default();
            if size <= MAX_TARGET_LENGTH
                && let Ok(target) = std::str::from_utf8(content)
            {
                let target = target.to_owned();
                self.entries.insert(link.path, Entry::Link { target });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Tree};

    const OID: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn tree_is_parsed_from_ls_tree() {
        let listed = format!(
            "040000 tree {OID}\ta\0100644 blob {OID}\ta/b\0100755 blob {OID}\ta.c\0\
             120000 blob {OID}\tl\0120000 blob {OID}\tm\0160000 commit {OID}\tsub\0"
        );
        let (mut tree, links) = Tree::parse(listed.as_bytes()).expect("a small tree");
        tree.links(
            links,
            format!("{OID} missing\n{OID} blob 3\na/b\n").as_bytes(),
        );
        assert_eq!(tree.get("a"), Some(&Entry::Directory));
        assert_eq!(tree.get("l"), None);
        let target = "a/b".to_owned();
        assert_eq!(tree.get("m"), Some(&Entry::Link { target }));
        assert_eq!(tree.get("sub"), None);
        let below = |path| tree.below(path).map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(below("a"), ["b"]);
        assert_eq!(below(""), ["a", "a.c", "a/b", "m"]);
        assert_eq!(below("a/b"), [""; 0]);
    }
}

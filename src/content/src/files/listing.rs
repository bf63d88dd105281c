//! Cache of the file lists of one environment.
//!
//! A list is made by a walk and then serves every request for `fileserver_list_cache_time`. After
//! that the next request walks again, which reads only directories that changed; meanwhile others
//! get the list that is there. A walk ahead of requests only makes the next one short: the time
//! counts from a request, as in stock, so that a new file is seen. Lists are sorted, so the part
//! below a prefix is one slice, and a whole list is packed once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use saltern_wire::msgpack::{Dialect, Encoder};

use super::error::FilesError;
use super::tree::Tree;

/// Maximum number of environments beside the configured ones. Their names come from minions, by way
/// of `__env__`.
const MAX_OTHER_ENVIRONMENTS: usize = 256;

/// A sorted list of paths without duplicates.
#[derive(Default)]
pub(crate) struct Paths {
    paths: Vec<Box<str>>,
    packed: OnceLock<Bytes>,
}

impl Paths {
    pub(crate) fn new(mut paths: Vec<Box<str>>) -> Self {
        paths.sort_unstable();
        paths.dedup();
        Self {
            paths,
            packed: OnceLock::new(),
        }
    }

    /// Paths that start with `prefix`, as text: `web` finds `website/x` too, as in stock.
    pub(crate) fn below(&self, prefix: &str) -> &[Box<str>] {
        let start = self.paths.partition_point(|path| **path < *prefix);
        let rest = self.paths.get(start..).unwrap_or_default();
        let end = rest.partition_point(|path| path.starts_with(prefix));
        rest.get(..end).unwrap_or_default()
    }

    /// The same as a packed list.
    pub(crate) fn packed_below(&self, prefix: &str) -> Bytes {
        if prefix.is_empty() {
            self.packed.get_or_init(|| pack(&self.paths)).clone()
        } else {
            pack(self.below(prefix))
        }
    }
}

/// A packed list, in the dialect of all replies.
pub(crate) fn pack(paths: &[Box<str>]) -> Bytes {
    let bytes: usize = paths.iter().map(|path| path.len() + 5).sum();
    let mut out = Vec::with_capacity(bytes + 5);
    let mut encoder = Encoder::new(&mut out, Dialect::Raw);
    encoder.array(paths.len());
    for path in paths {
        encoder.str(path);
    }
    out.into()
}

/// Listing of one environment.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) files: Paths,
    pub(crate) directories: Paths,
    pub(crate) empty_directories: Paths,
    /// Target of each link, as it is written in the link.
    pub(crate) links: BTreeMap<String, String>,
}

/// The purpose of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An answer, which then serves others too.
    Answer,
    /// To have less to read when an answer is wanted.
    Ahead,
}

/// The lists of all environments.
#[derive(Default)]
pub(crate) struct Listings {
    environments: Mutex<HashMap<String, Arc<Environment>>>,
}

#[derive(Default)]
struct Environment {
    /// The lists, and when they were made for an answer.
    current: RwLock<Option<(Arc<Listing>, Option<SystemTime>)>>,
    /// Results of the last walk, one for each root. Locked during a walk.
    trees: Mutex<Vec<Tree>>,
}

impl Listings {
    /// The lists of an environment, at most `keep` old. `walk` takes what the last walk found and
    /// returns what it finds now, with new lists if anything is different.
    pub(crate) fn get(
        &self,
        saltenv: &str,
        configured: usize,
        keep: Duration,
        now: SystemTime,
        purpose: Purpose,
        walk: impl FnOnce(Vec<Tree>) -> Result<(Vec<Tree>, Option<Listing>), FilesError>,
    ) -> Result<Arc<Listing>, FilesError> {
        let environment = self.environment(saltenv, configured);
        let fresh = |keep: Duration| {
            environment
                .current
                .read()
                .as_ref()
                .filter(|(_, at)| {
                    let age = at.and_then(|at| now.duration_since(at).ok());
                    age.is_some_and(|age| age < keep)
                })
                .map(|(listing, _)| Arc::clone(listing))
        };
        if let Some(listing) = fresh(keep) {
            return Ok(listing);
        }
        let mut trees = match environment.trees.try_lock() {
            Some(trees) => trees,
            None => {
                if let Some(stale) = fresh(keep.saturating_mul(2)) {
                    return Ok(stale);
                }
                environment.trees.lock()
            }
        };
        // Somebody else may have walked while this request waited.
        if let Some(listing) = fresh(keep) {
            return Ok(listing);
        }
        let (walked, changed) = match walk(std::mem::take(&mut *trees)) {
            Ok(walked) => walked,
            Err(error) => {
                // The trees are gone, so the next walk must make a list whatever it finds.
                *environment.current.write() = None;
                return Err(error);
            }
        };
        *trees = walked;
        let mut current = environment.current.write();
        let listing = match (changed, current.take()) {
            (Some(listing), _) => Arc::new(listing),
            (None, Some((listing, _))) => listing,
            (None, None) => Arc::default(),
        };
        let at = (purpose == Purpose::Answer).then_some(now);
        *current = Some((Arc::clone(&listing), at));
        Ok(listing)
    }

    /// Forgets the lists of these environments, of all for `None`; gives the environments
    /// that had any, sorted. The result of a walk in progress is not stored.
    pub(crate) fn forget(&self, wanted: Option<&[String]>) -> Vec<String> {
        let mut environments = self.environments.lock();
        let is_meant = |name: &String| wanted.is_none_or(|wanted| wanted.contains(name));
        let mut names: Vec<String> = environments
            .keys()
            .filter(|it| is_meant(it))
            .cloned()
            .collect();
        environments.retain(|name, _| !is_meant(name));
        names.sort_unstable();
        names
    }

    fn environment(&self, saltenv: &str, configured: usize) -> Arc<Environment> {
        let mut environments = self.environments.lock();
        if let Some(known) = environments.get(saltenv) {
            return Arc::clone(known);
        }
        if environments.len() >= configured + MAX_OTHER_ENVIRONMENTS {
            environments.clear();
        }
        Arc::clone(environments.entry(saltenv.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn paths_below_a_prefix_start_with_it(
            paths in proptest::collection::vec("[ab/é]{1,4}", 0..30),
            prefix in "[ab/é]{0,3}",
        ) {
            let list = Paths::new(paths.iter().map(|path| path.as_str().into()).collect());
            let mut expected: Vec<&str> = paths
                .iter()
                .map(String::as_str)
                .filter(|path| path.starts_with(&prefix))
                .collect();
            expected.sort_unstable();
            expected.dedup();
            let found: Vec<&str> = list.below(&prefix).iter().map(|path| &**path).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn list_is_cached_for_its_time_only() {
        let listings = Listings::default();
        let keep = Duration::from_secs(20);
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let walks = std::cell::Cell::new(0);
        let walk = |at: SystemTime, purpose: Purpose| {
            listings
                .get("base", 1, keep, at, purpose, |trees| {
                    walks.set(walks.get() + 1);
                    Ok((trees, Some(Listing::default())))
                })
                .unwrap()
        };
        let ask = |at: SystemTime| walk(at, Purpose::Answer);
        let first = ask(start);
        assert!(Arc::ptr_eq(&first, &ask(start + Duration::from_secs(19))));
        assert_eq!(walks.get(), 1);
        ask(start + keep);
        assert_eq!(walks.get(), 2);
        // A list from the future is not trusted.
        ask(start);
        assert_eq!(walks.get(), 3);
        // One made ahead does not keep a request from looking, nor the other way round.
        walk(start + keep, Purpose::Ahead);
        assert_eq!(walks.get(), 4);
        ask(start + keep);
        assert_eq!(walks.get(), 5);
        walk(start + keep, Purpose::Ahead);
        assert_eq!(walks.get(), 5);
    }

    #[test]
    fn unknown_environments_are_bounded() {
        let listings = Listings::default();
        for number in 0..2_000 {
            listings.environment(&format!("env{number}"), 1);
        }
        assert!(listings.environments.lock().len() <= MAX_OTHER_ENVIRONMENTS + 1);
    }
}

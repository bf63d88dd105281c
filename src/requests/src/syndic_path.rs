//! Masters that publications go through: each master of ours names itself and those above it in the
//! signed answer to `_auth` (`saltern_syndic_path`), so a syndic knows the path to the top.
//!
//! A publication that comes through a master whose path has this one in it goes in a circle; one whose
//! path is too long would go through more masters than a tree has. Both are refused by the syndic.
//! Stock's masters name nobody: behind one of these the path is not visible. A path is learnt when the
//! syndic signs in, so what changes further up is known after the next sign-in.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use saltern_config::MasterConfig;
use saltern_crypto::public_random;

/// Most masters that a publication may go through, this one included.
const MAX_MASTERS: usize = 8;

/// Between the name of a master and what makes it unique.
const SEPARATOR: char = '#';

/// Why nothing that a master above publishes is published here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRefusal {
    /// This master is above that master.
    Loop,
    /// There would be more than eight masters.
    TooDeep,
}

/// The masters above this one.
pub struct SyndicPaths {
    is_on: bool,
    /// This process: its name, and random digits.
    own: String,
    master_id: Option<String>,
    /// By the name of the master above: it, and those above it.
    above: RwLock<BTreeMap<String, Vec<String>>>,
}

impl SyndicPaths {
    /// None is known yet.
    pub fn new(config: &MasterConfig) -> Self {
        let master_id = config.master_id().map(str::to_owned);
        let name = master_id.as_ref().unwrap_or(&config.id);
        let number = u128::from_be_bytes(public_random());
        Self {
            is_on: config.order_masters() && (config.syndic.frames || config.syndic.inventory),
            own: format!("{name}{SEPARATOR}{number:032x}"),
            master_id,
            above: RwLock::default(),
        }
    }

    /// This master and those above it by the longest path, where masters of ours agree on anything. A
    /// path from which this master publishes nothing does not count.
    pub(crate) fn agreement(&self) -> Option<Vec<String>> {
        self.is_on.then(|| {
            let above = self.above.read();
            let usable = above
                .values()
                .filter(|path| self.refusal_of(path).is_none());
            let longest = usable.max_by_key(|path| path.len());
            let above = longest.into_iter().flatten().take(MAX_MASTERS);
            std::iter::once(&self.own).chain(above).cloned().collect()
        })
    }

    /// Takes over what a master above names.
    pub fn learn(&self, upper: &str, path: &[String]) {
        let is_known = |known: &Vec<String>| known == path;
        if self.above.read().get(upper).is_some_and(is_known) {
            return;
        }
        self.above.write().insert(upper.to_owned(), path.to_vec());
    }

    /// Why nothing is published that comes from this master above.
    pub fn refusal(&self, upper: &str) -> Option<PathRefusal> {
        let above = self.above.read();
        self.refusal_of(above.get(upper)?)
    }

    fn refusal_of(&self, path: &[String]) -> Option<PathRefusal> {
        if path.iter().any(|master| self.is_own(master)) {
            return Some(PathRefusal::Loop);
        }
        (path.len() >= MAX_MASTERS).then_some(PathRefusal::TooDeep)
    }

    fn is_own(&self, master: &str) -> bool {
        let name = master.rsplit_once(SEPARATOR).map(|(name, _)| name);
        master == self.own || (self.master_id.is_some() && name == self.master_id.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(master_id: Option<&str>) -> SyndicPaths {
        SyndicPaths {
            is_on: true,
            own: format!("{}#0", master_id.unwrap_or("same")),
            master_id: master_id.map(str::to_owned),
            above: RwLock::default(),
        }
    }

    fn names(count: usize) -> Vec<String> {
        (1..=count)
            .map(|number| format!("m{number}#{number}"))
            .collect()
    }

    #[test]
    fn path_with_this_master_is_a_loop_and_ninth_master_is_too_deep() {
        let refusal = |master_id: Option<&str>, path: &[String]| {
            let paths = paths(master_id);
            paths.learn("top", path);
            paths.refusal("top")
        };
        let with = |name: &str| vec!["m1#1".to_owned(), name.to_owned(), "m2#2".to_owned()];
        for (master_id, path, expected) in [
            (None, names(0), None),
            (None, names(7), None),
            (None, names(8), Some(PathRefusal::TooDeep)),
            (None, with("same#0"), Some(PathRefusal::Loop)),
            (None, with("same#1"), None),
            (Some("own"), with("own#1"), Some(PathRefusal::Loop)),
            (Some("own"), with("owner#1"), None),
        ] {
            assert_eq!(
                refusal(master_id, &path),
                expected,
                "{master_id:?} {path:?}"
            );
        }
        assert_eq!(paths(None).refusal("unknown"), None);
    }

    #[test]
    fn masters_below_learn_the_longest_path() {
        let paths = paths(None);
        assert_eq!(paths.agreement().unwrap(), ["same#0"]);
        paths.learn("one", &names(1));
        paths.learn("two", &names(2));
        assert_eq!(paths.agreement().unwrap(), ["same#0", "m1#1", "m2#2"]);
        paths.learn("two", &names(0));
        assert_eq!(paths.agreement().unwrap(), ["same#0", "m1#1"]);
        paths.learn("one", &names(20));
        assert_eq!(paths.agreement().unwrap(), ["same#0"], "it is refused");
        paths.learn("one", &names(7));
        assert_eq!(paths.agreement().unwrap().len(), 8);
        paths.learn("one", &["m1#1".to_owned(), "same#0".to_owned()]);
        assert_eq!(paths.agreement().unwrap(), ["same#0"], "a circle");
    }
}

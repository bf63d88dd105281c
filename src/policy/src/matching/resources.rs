//! The resources of minions (3008): what a minion manages and answers for, such as network devices.
//!
//! A resource has a name of its own, returns as if it were a minion, and is found by `T@`, by its
//! bare name, by its grains, and by a wildcard that matches its minion (`CkMinions` in
//! `salt/utils/minions.py`, `salt/utils/resource_registry.py`). It has no key, so no other engine
//! finds it, and `not` is the difference from the minions alone.

use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use super::bits::Bits;
use crate::target::Resolved;

/// One registered resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name, without the type.
    pub id: MinionId,
    /// Its type, such as `ssh`.
    pub kind: String,
    /// The minion that manages it.
    pub owner: MinionId,
    /// Its grains, if the minion sent them.
    pub grains: Option<Value>,
}

/// Registered resources at one moment.
#[derive(Clone, Debug, Default)]
pub struct Inventory(Vec<Resource>);

impl Inventory {
    /// Takes the resources in any order.
    pub fn new(mut resources: Vec<Resource>) -> Self {
        resources.sort_by(|one, other| one.id.cmp(&other.id).then(one.kind.cmp(&other.kind)));
        Self(resources)
    }

    /// Whether nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Minions and resources in one sorted list, as one search sees them.
pub(super) struct Universe<'a> {
    /// Resources whose minions are among the candidates.
    resources: Vec<&'a Resource>,
    pub(super) ids: Vec<MinionId>,
    /// The minions among them.
    minions: Bits,
}

impl<'a> Universe<'a> {
    /// `minions` must be sorted. A resource under the name of a minion is none, and one whose minion
    /// is no candidate, because its key is gone, cannot be reached and counts as unknown.
    pub(super) fn new(inventory: &'a Inventory, minions: &[MinionId]) -> Self {
        let is_minion = |id: &MinionId| minions.binary_search(id).is_ok();
        let resources = inventory.0.iter();
        let resources: Vec<&Resource> = resources
            .filter(|resource| is_minion(&resource.owner))
            .collect();
        let names = resources.iter().map(|resource| &resource.id);
        let mut ids = minions.to_vec();
        ids.extend(names.filter(|id| !is_minion(id)).cloned());
        ids.sort_unstable();
        ids.dedup();
        let minions = Bits::of(ids.len(), |at| ids.get(at).is_some_and(is_minion));
        Self {
            resources,
            ids,
            minions,
        }
    }

    /// Every minion.
    pub(super) fn minions(&self) -> Bits {
        self.minions.clone()
    }

    /// Takes the resources out of a set.
    pub(super) fn only_minions(&self, mut set: Bits) -> Bits {
        set.intersect(&self.minions);
        set
    }

    /// Names that a list did not find among the minions may be those of resources.
    pub(super) fn found_among_missing(&self, mut resolved: Resolved) -> Resolved {
        let is_resource = |name: &str| {
            let at = self.ids.binary_search_by(|id| id.as_str().cmp(name)).ok();
            at.and_then(|at| self.ids.get(at)).cloned()
        };
        resolved.missing.retain(|name| match is_resource(name) {
            Some(id) => {
                resolved.minions.push(id);
                false
            }
            None => true,
        });
        resolved
    }

    /// `T@type` and `T@type:id`.
    pub(super) fn named(&self, pattern: &str) -> Bits {
        let (kind, id) = match pattern.split_once(':') {
            Some((kind, id)) if !id.is_empty() => (kind, Some(id)),
            Some((kind, _)) => (kind, None),
            None => (pattern, None),
        };
        self.those(|resource| {
            resource.kind == kind && id.is_none_or(|id| id == resource.id.as_str())
        })
    }

    /// Resources whose grains match.
    pub(super) fn with_grains(&self, matches: impl Fn(&Value) -> bool) -> Bits {
        self.those(|resource| resource.grains.as_ref().is_some_and(&matches))
    }

    /// Resources that the minions in `set` manage.
    pub(super) fn managed_by(&self, set: &Bits) -> Bits {
        self.those(|resource| {
            self.position(&resource.owner)
                .is_some_and(|at| set.contains(at))
        })
    }

    fn those(&self, is_wanted: impl Fn(&Resource) -> bool) -> Bits {
        let mut found = Bits::none(self.ids.len());
        for resource in self.resources.iter().filter(|resource| is_wanted(resource)) {
            // One under the name of a minion stays out.
            if let Some(at) = self
                .position(&resource.id)
                .filter(|at| !self.minions.contains(*at))
            {
                found.insert(at);
            }
        }
        found
    }

    fn position(&self, id: &MinionId) -> Option<usize> {
        self.ids.binary_search(id).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use saltern_model::{Changed, Compat, DataChanges, Target, TargetType};

    use super::*;
    use crate::matching::{MatchOptions, MinionData, Nodegroups, Site};
    use crate::target::Targeting;
    use crate::target::testing::Fleet;

    /// Both minions are known; no grains but the role of m1.
    struct Data;

    impl MinionData for Data {
        fn grains(&self, id: &MinionId) -> Option<Arc<Value>> {
            let role = if id.as_str() == "m1" { "core" } else { "none" };
            Some(Arc::new(Value::map([("role", role)])))
        }

        fn pillar(&self, _: &MinionId) -> Option<Arc<Value>> {
            None
        }

        fn known(&self) -> Arc<[MinionId]> {
            [id("m1"), id("m2")].into()
        }

        fn changes(&self, _: Option<u64>) -> DataChanges {
            DataChanges {
                generation: 1,
                changed: Changed::Everything,
            }
        }
    }

    fn id(text: &str) -> MinionId {
        MinionId::parse(text).expect("an id")
    }

    fn resource(name: &str, kind: &str, owner: &str, role: Option<&str>) -> Resource {
        Resource {
            id: id(name),
            kind: kind.to_owned(),
            owner: id(owner),
            grains: role.map(|role| Value::map([("role", role)])),
        }
    }

    fn targeting(compat: Compat) -> Targeting {
        let site = Site::new(compat, Nodegroups::default(), Some(Arc::new(Data)));
        let targeting = Targeting::of(site);
        let inventory = Inventory::new(vec![
            resource("sw1", "switch", "m1", Some("core")),
            resource("sw2", "switch", "m2", Some("edge")),
            resource("host", "esx", "m2", None),
            // Its minion has no accepted key.
            resource("lost", "switch", "gone", Some("core")),
            // An impostor under the name of a minion.
            resource("m1", "switch", "m2", Some("edge")),
        ]);
        let set = targeting.set_resources(|| Ok::<_, ()>(inventory));
        assert_eq!(set, Ok(()));
        targeting
    }

    fn found(targeting: &Targeting, kind: TargetType, text: &str, merges: bool) -> String {
        let options = MatchOptions {
            merges_resources: merges,
            ..MatchOptions::default()
        };
        let target = Target::Expression(kind, text.to_owned());
        let fleet = Fleet(vec![id("m1"), id("m2")]);
        let resolved = targeting.resolve_with(&target, &fleet, &options);
        let resolved = resolved.expect("a target that can be used");
        let ids: Vec<&str> = resolved.minions.iter().map(MinionId::as_str).collect();
        match resolved.missing.as_slice() {
            [] => ids.join(","),
            missing => format!("{}|{}", ids.join(","), missing.join(",")),
        }
    }

    #[test]
    fn resources_are_found_as_in_3008() {
        use TargetType::{Compound, Glob, Grain, GrainPcre, Ipcidr, List, Pcre};
        let table = [
            (Compound, "T@switch", "sw1,sw2"),
            (Compound, "T@switch:sw2", "sw2"),
            (Compound, "T@switch:", "sw1,sw2"),
            (Compound, "T@switch:ghost", ""),
            (Compound, "T@router", ""),
            (Compound, "T@esx or m1", "host,m1"),
            (Compound, "T@switch and G@role:core", "sw1"),
            (Compound, "not m1", "m2"),
            (Compound, "m*", "m1,m2"),
            (Compound, "sw1 or L@host,ghost", "host,sw1|ghost"),
            (Glob, "*", "host,m1,m2,sw1,sw2"),
            (Glob, "m1", "m1"),
            (Glob, "m[1]", "m1,sw1"),
            (Glob, "sw*", ""),
            (Glob, "sw1", "sw1"),
            (List, "m1,sw2,ghost", "m1,sw2|ghost"),
            (Grain, "role:core", "m1,sw1"),
            (Grain, "role:edge", "sw2"),
            (GrainPcre, "role:co.e", "m1,sw1"),
            (Compound, "T@switch:lost or L@lost", "|lost"),
            (Glob, "lost", ""),
            (List, "lost", "|lost"),
            (Pcre, ".*", "m1,m2"),
            (Ipcidr, "10.0.0.0/8", ""),
        ];
        let newest = targeting(Compat::V3008);
        for (kind, text, expected) in table {
            assert_eq!(found(&newest, kind, text, false), expected, "{kind} {text}");
        }
        assert_eq!(found(&newest, Glob, "*", true), "m1,m2", "state.apply");
        let older = targeting(Compat::V3007);
        assert_eq!(found(&older, Glob, "*", false), "m1,m2");
        assert_eq!(found(&older, Compound, "T@switch", false), "");
    }
}

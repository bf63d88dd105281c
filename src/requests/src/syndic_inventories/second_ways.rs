//! Second ways of minions that are below two syndics: which are kept, and which is the route.

use std::collections::HashSet;

use saltern_model::MinionId;

use super::{Announced, BelowSyndic, InventoryPart, KeyDigest, State};

/// A minion that a syndic announces although it is below another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Duplicate {
    pub(crate) minion: MinionId,
    /// The syndic that jobs for it go by.
    pub(crate) first: MinionId,
    /// Words of the second syndic on it, see [`Announced`].
    pub(crate) is_away: bool,
    pub(crate) key: Option<KeyDigest>,
}

impl Duplicate {
    /// The entry of a syndic for a minion that is below `first`.
    pub(crate) fn new(announced: &Announced, first: MinionId) -> Self {
        Self {
            minion: announced.id.clone(),
            first,
            is_away: announced.away.is_some(),
            key: announced.key,
        }
    }
}

/// Outcome of the second ways that a part names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NotedWays {
    /// Those to announce: they were not known.
    pub(crate) new: Vec<Duplicate>,
    /// How many are not kept, because there are too many.
    pub(crate) dropped: u64,
}

/// Second way of a minion: the words of a syndic on one that stands in the inventory of another.
pub(super) struct Way {
    /// The list that named the minion last.
    pub(super) list: u64,
    is_away: bool,
    key: Option<KeyDigest>,
    /// It was proved when it was named last.
    was_proved: bool,
}

/// Numbers of second ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WayCounts {
    pub(super) all: usize,
    /// Those that were not proved when they were named last.
    pub(super) unproved: usize,
}

impl WayCounts {
    fn add(&mut self, way: &Way) {
        self.all += 1;
        self.unproved += usize::from(!way.was_proved);
    }

    fn remove(&mut self, way: &Way) {
        self.all = self.all.saturating_sub(1);
        let unproved = usize::from(!way.was_proved);
        self.unproved = self.unproved.saturating_sub(unproved);
    }

    /// Whether there is no room for one more, of `limit`. Ways that are not proved have half of it: they may not return,
    /// and leave the rest to those that may.
    fn is_full(self, is_proved: bool, limit: usize) -> bool {
        self.all >= limit || (!is_proved && self.unproved >= limit / 2)
    }
}

impl State {
    pub(super) fn other_ways(&self, minion: &MinionId, now: i64) -> Vec<BelowSyndic> {
        let Some(others) = self.duplicates.get(minion) else {
            return Vec::new();
        };
        let others = others.iter();
        let open = others.filter(|(syndic, way)| self.is_open(minion, syndic, way, now));
        open.map(|(syndic, _)| BelowSyndic {
            syndic: syndic.clone(),
            away: None,
            is_current: true,
        })
        .collect()
    }

    /// Whether a second way is proved, and the minion can be reached by it, as its syndic says.
    fn is_open(&self, minion: &MinionId, syndic: &MinionId, way: &Way, now: i64) -> bool {
        self.is_current(syndic, now) && !way.is_away && self.is_proved_way(minion, syndic)
    }

    fn is_current(&self, syndic: &MinionId, now: i64) -> bool {
        let list = self.lists.get(syndic);
        list.is_some_and(|list| list.is_current(now))
    }

    pub(super) fn is_proved_way(&self, minion: &MinionId, syndic: &MinionId) -> bool {
        let others = self.duplicates.get(minion);
        let second = others.and_then(|others| others.get(syndic)?.key);
        self.proves(minion, syndic, second)
    }

    /// Whether a digest that this syndic announces is that of the minion's first way, another one.
    fn proves(&self, minion: &MinionId, syndic: &MinionId, key: Option<KeyDigest>) -> bool {
        let first = self.below.get(minion);
        let first = first.filter(|kept| kept.syndic != *syndic);
        let first = first.and_then(|kept| kept.key);
        first.is_some() && first == key
    }

    /// The syndic that jobs for a minion go by, where these are away: that in whose inventory it stands or, where that
    /// way is closed, that of an open proved second way.
    pub(super) fn route(
        &self,
        minion: &MinionId,
        away: &HashSet<MinionId>,
        now: i64,
    ) -> Option<&MinionId> {
        let first = self.below.get(minion)?;
        let Some(others) = self.duplicates.get(minion) else {
            return Some(&first.syndic);
        };
        let is_closed = away.contains(&first.syndic)
            || (first.away.is_some() && self.is_current(&first.syndic, now));
        let mut open = others.iter().filter(|(syndic, way)| {
            !away.contains(*syndic) && self.is_open(minion, syndic, way, now)
        });
        let second = open.next().filter(|_| is_closed);
        Some(second.map_or(&first.syndic, |(syndic, _)| syndic))
    }

    /// Syndics that have announced a minion in vain begin with a full list at their next part, or after the list that
    /// is under way: it may have named the minion already. Not the one whose part puts the minion into its inventory.
    pub(super) fn take_up_second_ways(&mut self, minion: &MinionId, but: Option<&MinionId>) {
        let others = self.duplicates.remove(minion).unwrap_or_default();
        for (other, way) in &others {
            self.second_ways.remove(way);
            if let Some(list) = self.lists.get_mut(other) {
                list.second_ways.remove(way);
                match list.is_under_way && list.next > 0 {
                    _ if Some(other) == but => {}
                    true => list.begins_anew_after = true,
                    false => list.next = 0,
                }
            }
        }
    }

    /// A syndic is no second way of a minion any more.
    pub(super) fn forget_way(&mut self, minion: &MinionId, syndic: &MinionId) {
        let Some(others) = self.duplicates.get_mut(minion) else {
            return;
        };
        if let Some(way) = others.remove(syndic) {
            self.second_ways.remove(&way);
            if let Some(list) = self.lists.get_mut(syndic) {
                list.second_ways.remove(&way);
            }
        }
        if others.is_empty() {
            self.duplicates.remove(minion);
        }
    }

    /// Forgets the ways of a syndic that its last list does not name; without a list, all of them.
    pub(super) fn forget_ways(&mut self, syndic: &MinionId, but_of_list: Option<u64>) {
        let is_old = |way: &Way| Some(way.list) != but_of_list;
        let ways = self.duplicates.iter().filter(|(_, others)| {
            let way = others.get(syndic);
            way.is_some_and(is_old)
        });
        let ways: Vec<MinionId> = ways.map(|(minion, _)| minion.clone()).collect();
        for minion in &ways {
            self.forget_way(minion, syndic);
        }
    }

    /// Minions of a part that stand in the inventory of another syndic.
    pub(super) fn second_ways(&self, syndic: &MinionId, part: &InventoryPart) -> Vec<Duplicate> {
        let announced = part.minions.iter().filter_map(|announced| {
            let kept = self.below.get(&announced.id)?;
            (kept.syndic != *syndic).then(|| Duplicate::new(announced, kept.syndic.clone()))
        });
        announced.collect()
    }

    /// Remembers minions below two syndics, as far as there is room.
    pub(super) fn note_duplicates(
        &mut self,
        syndic: &MinionId,
        number: u64,
        duplicates: Vec<Duplicate>,
    ) -> NotedWays {
        let mut noted = NotedWays::default();
        let limits = self.limits;
        for duplicate in duplicates {
            let way = Way {
                list: number,
                is_away: duplicate.is_away,
                key: duplicate.key,
                was_proved: self.proves(&duplicate.minion, syndic, duplicate.key),
            };
            let others = self.duplicates.get(&duplicate.minion);
            let before = others.and_then(|others| others.get(syndic));
            let is_new = before.is_none();
            let list = self.lists.entry(syndic.clone()).or_default();
            let of_list = list.second_ways;
            let is_full = of_list.is_full(way.was_proved, limits.second_ways.0)
                || self
                    .second_ways
                    .is_full(way.was_proved, limits.second_ways.1);
            if is_new && is_full {
                noted.dropped += 1;
                continue;
            }
            if let Some(before) = before {
                list.second_ways.remove(before);
                self.second_ways.remove(before);
            }
            list.second_ways.add(&way);
            self.second_ways.add(&way);
            let others = self.duplicates.entry(duplicate.minion.clone());
            others.or_default().insert(syndic.clone(), way);
            if is_new && self.duplicates.len() <= limits.announced {
                noted.new.push(duplicate);
            }
        }
        noted
    }
}

//! Inventories of the syndics below this master: the minions below each of them, with their grains and
//! whether they can be reached, as the syndic announces them (`saltern_syndic_inventory`).
//!
//! An inventory comes in numbered parts. The first full list is believed once its last part is there;
//! from then on parts are changes. A part that is not the next one, or that bears the epoch of an
//! earlier process, has the syndic begin anew; a syndic that has only lost its connection sends no grains a
//! second time. In memory only, and bounded: an inventory that is too
//! large is dropped as a whole, and targets are then as exact as with stock's syndics.
//!
//! A syndic may have none any more: `salt-syndic` under the same id, or the option turned off below. Signing in
//! shows nothing, because the minion of that machine signs in under the same id. A start event of a syndic that does
//! not announce one (`saltern_syndic_inventory` in it) may come of an earlier release of ours, and returns after a
//! long cut may come before the next part. So neither forgets an inventory: it is doubted from then on, and goes
//! with a later request of its syndic when no part has come for `DOUBT`. Any part ends the doubt. Any
//! other request of a syndic that has sent no part for `SILENCE` begins one, as when the start event was lost. These
//! times are monotonic: the time of day only decides what counts as current.
//!
//! A syndic that does not know all minions below it says so (`is_partial`): its inventory counts as one that is
//! not full.
//!
//! Grains that a syndic does not know go up as an empty map. While those of one minion are not known, a
//! target with grains may mean minions that are not found here.
//!
//! A minion stands in one inventory. A syndic that announces minions that stand in another's, or that
//! are not its own to announce, may be their second way: jobs for any minions go to it, too. When such
//! a minion is gone from the inventory that it stood in, the other syndic begins with a full list.
//!
//! Syndics also send a digest of each minion's public key. A second way with the digest of the first is called proved
//! ([`SyndicInventories::is_proved_way`]), which is little: whoever has the minion's public key can make the digest, and
//! minions send that key in clear. So it is the route where the first way is closed, and the minion may return by it
//! within the bounds of `syndics`. While it is the route, the syndic also says why the minion has not returned a job
//! (`saltern_syndic_verdicts`) and what it runs; otherwise it may only confirm that a job runs. It has no other say. Any other second way has none but what the first
//! leaves it.
//!
//! Not here: for which minions a syndic may speak (`syndics`), and what a target means (`job::below`). Longer than 500
//! lines because one lock holds it all.

mod second_ways;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use saltern_base::clock::Clock;
use saltern_base::metrics::{Registry, gauge_on_scrape};
use saltern_config::MasterConfig;
use saltern_crypto::public_random;
use saltern_model::{Absence, Changed, DataChanges, MinionId, Standing};
use saltern_policy::matching::MinionData;
use saltern_policy::target::Targeting;
use saltern_store::{AcceptedIds, MinionDataStore};
use saltern_wire::msgpack::{Limits, Value, decode};

pub(crate) use second_ways::{Duplicate, NotedWays};
use second_ways::{Way, WayCounts};

use crate::services::PresenceView;
use crate::syndic_frames::RefusalClass;
use crate::targets;
use crate::uptime::Uptime;

/// Bounds on what is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InventoryLimits {
    /// Minions of one syndic, and of all.
    minions: (usize, usize),
    /// Bytes of ids, packed grains and reasons of one syndic, and of all.
    bytes: (usize, usize),
    /// Second ways by one syndic, and of all; half as many that are not proved.
    second_ways: (usize, usize),
    /// Minions with second ways up to which each new way is announced by an event.
    announced: usize,
}

const LIMITS: InventoryLimits = InventoryLimits {
    minions: (100_000, 500_000),
    bytes: (128 << 20, 256 << 20),
    second_ways: (50_000, 200_000),
    announced: 10_000,
};

/// Changes that are remembered for the index of grains; a reader that is further behind reads all.
const MAX_CHANGES: usize = 10_000;

/// Seconds for which an inventory counts as current after each part; one comes every 15 seconds at
/// least.
const CURRENT_SECONDS: i64 = 60;

/// Time without a part after which other requests of a syndic raise doubts whether it has an inventory still.
const SILENCE: Duration = Duration::from_secs(300);

/// Time without a part after which a doubted inventory is forgotten.
const DOUBT: Duration = Duration::from_secs(60);

/// One part of an inventory.
#[derive(Clone, Debug, Default)]
pub(crate) struct InventoryPart {
    /// Epoch of the master that it is for.
    pub(crate) epoch: String,
    /// Number of the full list that it belongs to.
    pub(crate) list: u64,
    /// Its number in that list, from zero.
    pub(crate) part: u64,
    /// The list is full with it.
    pub(crate) is_last: bool,
    /// There may be minions below the syndic that stand in no part: below a syndic without an inventory.
    pub(crate) is_partial: bool,
    /// Minions that are new or have changed.
    pub(crate) minions: Vec<Announced>,
    /// Minions that are not below the syndic any more.
    pub(crate) gone: Vec<MinionId>,
    /// It named minions that are not the syndic's to announce.
    pub(crate) has_others: bool,
    /// Those among them that are below another syndic, with that one.
    pub(crate) duplicates: Vec<Duplicate>,
}

/// Digest of a minion's public key.
pub type KeyDigest = [u8; 32];

/// A minion below a syndic, as the syndic announces it.
#[derive(Clone, Debug)]
pub(crate) struct Announced {
    pub(crate) id: MinionId,
    /// Why it receives nothing; `None` when it may.
    pub(crate) away: Option<Arc<str>>,
    /// Its packed grains, empty when the syndic does not know them; `None` when they are as before.
    pub(crate) grains: Option<Bytes>,
    /// Of its public key, if the syndic says it.
    pub(crate) key: Option<KeyDigest>,
}

/// Outcome of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartResult {
    /// It is kept, or was before.
    Taken,
    /// Parts are missing: the syndic has to begin with a full list. What it has announced of grains is
    /// still kept.
    BeginAnew,
    /// The same, and the list has to bear the grains of all minions.
    BeginWithGrains,
    /// The inventory is not kept, for this reason.
    Refused(RefusalClass, &'static str),
}

/// A minion below a syndic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BelowSyndic {
    /// The syndic.
    pub syndic: MinionId,
    /// Why the minion receives nothing from its master; `None` when it may, or when that is not known
    /// any more.
    pub away: Option<Arc<str>>,
    /// The syndic announced its minions within the last minute.
    pub is_current: bool,
}

/// Inventories of all syndics.
pub struct SyndicInventories {
    is_on: bool,
    /// Random text of this process, which every part has to bear.
    epoch: String,
    clock: Clock,
    uptime: Uptime,
    state: Arc<RwLock<State>>,
    /// Resolves targets among the minions of the inventories.
    pub(crate) targeting: Targeting,
}

struct State {
    limits: InventoryLimits,
    lists: HashMap<MinionId, List>,
    below: BTreeMap<MinionId, Kept>,
    bytes: usize,
    /// Minions in `below` whose grains are not known.
    without_grains: usize,
    generation: u64,
    changed: VecDeque<(u64, MinionId)>,
    ids: Option<Arc<AcceptedIds>>,
    /// Of minions below several syndics: the others.
    duplicates: BTreeMap<MinionId, BTreeMap<MinionId, Way>>,
    /// All of these ways.
    second_ways: WayCounts,
}

/// Inventory of one syndic.
#[derive(Default)]
struct List {
    number: u64,
    /// The part that comes next.
    next: u64,
    /// A full list is on its way.
    is_under_way: bool,
    /// Another full list has to follow it: a minion that it may have named in vain is its own now.
    begins_anew_after: bool,
    /// There was a full list.
    is_complete: bool,
    /// See [`InventoryPart::is_partial`], as the last part says.
    is_partial: bool,
    /// When the last part came, in seconds since 1970; `None` since the syndic started anew.
    last_part: Option<i64>,
    /// When the last part or start event came, in time since the start; `None` before the first.
    heard: Option<Duration>,
    /// Since when it is doubted that the syndic has an inventory still.
    doubted: Option<Duration>,
    /// The last list that named minions that do not stand in this inventory.
    list_with_others: Option<u64>,
    minions: usize,
    bytes: usize,
    /// Ways to minions of other inventories.
    second_ways: WayCounts,
}

struct Kept {
    syndic: MinionId,
    /// The list in which it stood last.
    list: u64,
    away: Option<Arc<str>>,
    /// Empty when they are not known.
    grains: Bytes,
    key: Option<KeyDigest>,
}

impl Kept {
    /// Bytes that count against the bounds.
    fn size(&self, id: &MinionId) -> usize {
        let reason = self.away.as_ref().map_or(0, |why| why.len());
        let key = self.key.map_or(0, |key| key.len());
        id.as_str().len() + reason + self.grains.len() + key
    }
}

impl List {
    /// Whether a part came lately. A clock that is set back ends that, too.
    fn is_current(&self, now: i64) -> bool {
        let since = |at: i64| now.saturating_sub(at);
        self.last_part
            .is_some_and(|at| (-CURRENT_SECONDS..=CURRENT_SECONDS).contains(&since(at)))
    }

    fn hear(&mut self, now: Duration) {
        self.heard = Some(now);
        self.doubted = None;
    }

    /// Whether nothing of it came for long, and that is to be noted.
    fn becomes_doubtful(&self, now: Duration) -> bool {
        let is_silent = |at: Duration| now.saturating_sub(at) >= SILENCE;
        self.doubted.is_none() && self.heard.is_some_and(is_silent)
    }

    /// Whether it was doubted, and no part came since.
    fn is_gone(&self, now: Duration) -> bool {
        let is_over = |at: Duration| now.saturating_sub(at) >= DOUBT;
        self.doubted.is_some_and(is_over)
    }
}

impl SyndicInventories {
    /// None yet; they are taken where `saltern_syndic_inventory` and `order_masters` are on.
    pub fn new(config: &MasterConfig, clock: Clock) -> Self {
        let state = Arc::new(RwLock::new(State::new(LIMITS)));
        let data: Arc<dyn MinionData> = Arc::new(Grains(state.clone()));
        Self {
            is_on: config.syndic.inventory && config.order_masters(),
            epoch: format!("{:032x}", u128::from_be_bytes(public_random())),
            targeting: targets::of_data(config, Some(data)),
            clock,
            uptime: Uptime::new(),
            state,
        }
    }

    /// Shows what is kept.
    pub(crate) fn register(&self, registry: &Registry) {
        let gauge = |name, help, read: fn(&State) -> usize| {
            let state = self.state.clone();
            gauge_on_scrape(registry, name, help, &[], move |gauges| {
                let value = i64::try_from(read(&state.read()));
                let gauge = gauges.with_label_values::<&str>(&[]);
                gauge.set(value.unwrap_or(i64::MAX));
            });
        };
        gauge(
            "saltern_syndic_inventory_minions",
            "Minions below syndics that stand in the inventories of these.",
            |state| state.below.len(),
        );
        gauge(
            "saltern_syndic_inventory_minions_without_grains",
            "Minions in the inventories of syndics whose grains are not known; with one, jobs for grains wait for syndics.",
            |state| state.without_grains,
        );
        gauge(
            "saltern_syndic_inventory_second_ways",
            "Second ways to minions below two syndics: one for each minion and syndic beside the first.",
            |state| state.second_ways.all,
        );
        gauge(
            "saltern_syndic_inventory_bytes",
            "Bytes of ids, grains and reasons that the inventories of syndics have.",
            |state| state.bytes,
        );
    }

    /// Whether this master takes inventories.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The epoch, where inventories are taken.
    pub(crate) fn agreement(&self) -> Option<&str> {
        self.is_on.then_some(self.epoch.as_str())
    }

    /// Whether there is anything of this syndic.
    pub fn has(&self, syndic: &MinionId) -> bool {
        self.state.read().lists.contains_key(syndic)
    }

    /// The syndics with an inventory.
    pub fn syndics(&self) -> Vec<MinionId> {
        self.state.read().lists.keys().cloned().collect()
    }

    /// Whether all of these have a full and current inventory here, in which all minions below them stand.
    pub(crate) fn are_complete(&self, syndics: &[MinionId]) -> bool {
        let state = self.state.read();
        state.are_complete(syndics, self.clock.unix())
    }

    /// Number that grows when a minion joins or leaves an inventory, or its grains change.
    pub(crate) fn generation(&self) -> u64 {
        self.state.read().generation
    }

    /// Whether whoever has looked for minions since the inventories had this generation has seen all of these
    /// syndics, `with_grains` by all of their grains.
    pub(crate) fn were_whole_since(
        &self,
        generation: u64,
        syndics: &[MinionId],
        with_grains: bool,
    ) -> bool {
        let state = self.state.read();
        state.were_whole_since(generation, syndics, with_grains, self.clock.unix())
    }

    /// Whether a syndic announces minions that do not stand in its inventory.
    pub(crate) fn has_second_ways(&self) -> bool {
        let state = self.state.read();
        let mut lists = state.lists.values();
        lists.any(|list| list.list_with_others.is_some())
    }

    /// The syndics that may have one of these minions below, sorted: those in whose inventories they
    /// stand, and those that announce minions beyond their inventory.
    pub(crate) fn routes(&self, minions: &[MinionId]) -> Vec<MinionId> {
        let state = self.state.read();
        let kept = minions.iter().filter_map(|id| state.below.get(id));
        let with_others = state.lists.iter();
        let with_others = with_others.filter(|(_, list)| list.list_with_others.is_some());
        let routes = kept.map(|kept| &kept.syndic);
        let routes: BTreeSet<&MinionId> = routes.chain(with_others.map(|(id, _)| id)).collect();
        routes.into_iter().cloned().collect()
    }

    /// The minions of all inventories.
    pub fn ids(&self) -> Arc<AcceptedIds> {
        if let Some(ids) = &self.state.read().ids {
            return ids.clone();
        }
        let mut state = self.state.write();
        let ids = Arc::new(AcceptedIds::new(state.below.keys().cloned().collect()));
        state.ids = Some(ids.clone());
        ids
    }

    /// The minion, if it stands in an inventory.
    pub fn find(&self, minion: &MinionId) -> Option<BelowSyndic> {
        self.state.read().find(minion, self.clock.unix())
    }

    /// The syndics of the proved second ways of a minion by which it can be reached, as these say.
    pub(crate) fn other_ways(&self, minion: &MinionId) -> Vec<BelowSyndic> {
        self.state.read().other_ways(minion, self.clock.unix())
    }

    /// Whether a minion that stands in the inventory of another syndic is certainly below this one, too.
    pub(crate) fn is_proved_way(&self, minion: &MinionId, syndic: &MinionId) -> bool {
        self.state.read().is_proved_way(minion, syndic)
    }

    /// The digest of the public key of a minion that stands in an inventory.
    pub fn key(&self, minion: &MinionId) -> Option<KeyDigest> {
        self.state.read().below.get(minion)?.key
    }

    /// Looks at the syndics that jobs for minions of inventories go by, all at the same moment, where these syndics are
    /// away.
    pub(crate) fn look_at_routes<T>(
        &self,
        away: &HashSet<MinionId>,
        look: impl FnOnce(&dyn Fn(&MinionId) -> Option<MinionId>) -> T,
    ) -> T {
        let (state, now) = (self.state.read(), self.clock.unix());
        look(&|minion| state.route(minion, away, now).cloned())
    }

    /// The grains of a minion: those kept here, else those in an inventory. One whose key is accepted here
    /// is no syndic's to describe.
    pub fn grains_beside(
        &self,
        minion: &MinionId,
        data: &MinionDataStore,
        presence: &dyn PresenceView,
    ) -> Option<Arc<Value>> {
        let own = data.grains(minion).unwrap_or_else(|error| {
            tracing::warn!(%minion, %error, "cached data cannot be read: it counts as absent");
            None
        });
        own.or_else(|| {
            let is_below = presence.state(minion) == Standing::Away(Absence::NoKey);
            is_below.then(|| Grains(self.state.clone()).grains(minion))?
        })
    }

    /// The minions whose entry has changed.
    pub fn changes(&self, since: Option<u64>) -> DataChanges {
        self.state.read().changes(since)
    }

    /// Takes one part of a syndic's inventory, and its second ways where it is taken.
    pub(crate) fn take(&self, syndic: &MinionId, part: InventoryPart) -> (PartResult, NotedWays) {
        let mut state = self.state.write();
        // A refused part shows that there is an inventory, too.
        state.hear(syndic, self.uptime.now());
        if part.epoch != self.epoch {
            return (PartResult::BeginWithGrains, NotedWays::default());
        }
        let taken = state.take(syndic, part, self.clock.unix());
        state.hear(syndic, self.uptime.now());
        taken
    }

    /// A minion is not below this syndic any more, which had claimed it. A part that is about to be taken puts it into
    /// the inventory of `announcing`, if there is one.
    pub(crate) fn remove(
        &self,
        minion: &MinionId,
        syndic: &MinionId,
        announcing: Option<&MinionId>,
    ) {
        self.state.write().release(minion, syndic, announcing);
    }

    /// Takes the inventory of a syndic for outdated until the syndic has sent a full list: it was
    /// started anew, or its connection was.
    pub(crate) fn expect_anew(&self, syndic: &MinionId) {
        self.state.write().expect_anew(syndic, self.uptime.now());
    }

    /// Forgets the inventory of a syndic; whether there was one.
    pub fn forget(&self, syndic: &MinionId) -> bool {
        self.state.write().forget(syndic)
    }

    /// Time since the start of this master, by which syndics are silent.
    pub(crate) fn uptime(&self) -> Duration {
        self.uptime.now()
    }

    /// Looks, with inventories that do not change, at which minions are certainly not below which syndics any more:
    /// the full and current inventory of the syndic does not have them.
    pub(crate) fn look_at_gone<R>(
        &self,
        look: impl FnOnce(&dyn Fn(&MinionId, &MinionId) -> bool) -> R,
    ) -> R {
        let (state, now) = (self.state.read(), self.clock.unix());
        let lists = state.lists.keys();
        let complete: HashSet<&MinionId> = lists
            .filter(|syndic| state.are_complete(std::slice::from_ref(syndic), now))
            .collect();
        look(&|minion, syndic| complete.contains(syndic) && !state.has_below(minion, syndic))
    }

    /// Whether a minion stands in the inventory of this syndic.
    pub(crate) fn has_below(&self, minion: &MinionId, syndic: &MinionId) -> bool {
        self.state.read().has_below(minion, syndic)
    }

    /// Moves the time since the start forward, for tests.
    pub fn advance(&self, by: Duration) {
        self.uptime.advance(by);
    }

    /// Takes the inventory of a syndic that started without announcing one for doubtful.
    pub(crate) fn doubt(&self, syndic: &MinionId) {
        self.state.write().doubt(syndic, self.uptime.now());
    }

    /// Forgets the inventory of a syndic that has sent another request, if it was doubtful for long; it becomes so
    /// if no part of it came for long. Whether it was forgotten.
    pub(crate) fn forget_doubtful(&self, syndic: &MinionId) -> bool {
        let now = self.uptime.now();
        // Nearly always there is nothing to do, and others go on reading.
        let needs_look = self.state.read().needs_look(syndic, now);
        needs_look && self.state.write().forget_doubtful(syndic, now)
    }
}

impl State {
    fn has_below(&self, minion: &MinionId, syndic: &MinionId) -> bool {
        self.below
            .get(minion)
            .is_some_and(|it| it.syndic == *syndic)
    }

    fn new(limits: InventoryLimits) -> Self {
        Self {
            limits,
            lists: HashMap::new(),
            below: BTreeMap::new(),
            bytes: 0,
            without_grains: 0,
            generation: 1,
            changed: VecDeque::new(),
            ids: None,
            duplicates: BTreeMap::new(),
            second_ways: WayCounts::default(),
        }
    }

    fn are_complete(&self, syndics: &[MinionId], now: i64) -> bool {
        let mut lists = syndics.iter().map(|syndic| self.lists.get(syndic));
        let is_whole = |list: &List| list.is_complete && !list.is_partial && list.is_current(now);
        lists.all(|list| list.is_some_and(is_whole))
    }

    /// A list that has become complete since then, in the same generation, had all of its minions before.
    fn were_whole_since(
        &self,
        generation: u64,
        syndics: &[MinionId],
        with_grains: bool,
        now: i64,
    ) -> bool {
        self.generation == generation
            && !(with_grains && self.without_grains > 0)
            && self.are_complete(syndics, now)
    }

    fn find(&self, minion: &MinionId, now: i64) -> Option<BelowSyndic> {
        let kept = self.below.get(minion)?;
        let list = self.lists.get(&kept.syndic);
        let is_current = list.is_some_and(|list| list.is_current(now));
        Some(BelowSyndic {
            syndic: kept.syndic.clone(),
            away: kept.away.clone().filter(|_| is_current),
            is_current,
        })
    }

    fn expect_anew(&mut self, syndic: &MinionId, now: Duration) {
        if let Some(list) = self.lists.get_mut(syndic) {
            list.hear(now);
            list.is_complete = false;
            list.last_part = None;
            // No part is the next one: the syndic is answered that it has to begin anew.
            list.next = 0;
        }
    }

    fn take(
        &mut self,
        syndic: &MinionId,
        mut part: InventoryPart,
        now: i64,
    ) -> (PartResult, NotedWays) {
        let result = self.begin_part(syndic, &part, now);
        if let Some(result) = result {
            return (result, NotedWays::default());
        }
        let mut duplicates = std::mem::take(&mut part.duplicates);
        duplicates.extend(self.second_ways(syndic, &part));
        // Before a full list forgets those of the one before.
        let noted = self.note_duplicates(syndic, part.list, duplicates);
        match self.take_minions(syndic, part) {
            Ok(()) => (PartResult::Taken, noted),
            Err(reason) => {
                self.forget(syndic);
                let refused = PartResult::Refused(RefusalClass::Content, reason);
                (refused, NotedWays::default())
            }
        }
    }

    /// Whether a part is the next one, or the last one once more: its result otherwise.
    fn begin_part(
        &mut self,
        syndic: &MinionId,
        part: &InventoryPart,
        now: i64,
    ) -> Option<PartResult> {
        let list = self.lists.entry(syndic.clone()).or_default();
        let is_same = list.number == part.list && list.next > 0;
        match part.part {
            // Taken once more, which changes nothing but for what came between: a minion of another syndic may have
            // become this one's with the claim to it.
            again if is_same && again + 1 == list.next => {}
            0 => {
                list.number = part.list;
                list.is_under_way = true;
                list.begins_anew_after = false;
            }
            next if is_same && next == list.next => {}
            _ => return Some(PartResult::BeginAnew),
        }
        // Its grains are as before, says the syndic, and they are not here.
        let is_lacking = |it: &Announced| it.grains.is_none() && !self.below.contains_key(&it.id);
        if part.minions.iter().any(is_lacking) {
            (list.next, list.is_complete) = (0, false);
            return Some(PartResult::BeginWithGrains);
        }
        list.next = part.part + 1;
        list.last_part = Some(now);
        list.is_partial = part.is_partial;
        if part.has_others {
            list.list_with_others = Some(part.list);
        }
        None
    }

    fn take_minions(&mut self, syndic: &MinionId, part: InventoryPart) -> Result<(), &'static str> {
        for gone in &part.gone {
            self.remove(gone, syndic);
            self.forget_way(gone, syndic);
        }
        for announced in part.minions {
            self.put(syndic, part.list, announced)?;
        }
        if part.is_last {
            self.complete(syndic);
        }
        Ok(())
    }

    /// The full list is there: minions that did not stand in it are gone.
    fn complete(&mut self, syndic: &MinionId) {
        let Some(list) = self.lists.get_mut(syndic) else {
            return;
        };
        list.is_complete = true;
        if !std::mem::take(&mut list.is_under_way) {
            return;
        }
        let number = list.number;
        if std::mem::take(&mut list.begins_anew_after) {
            list.next = 0;
        }
        list.list_with_others = list.list_with_others.filter(|with| *with == number);
        self.forget_ways(syndic, Some(number));
        let is_old = |kept: &Kept| kept.syndic == *syndic && kept.list != number;
        let old = self.below.iter().filter(|(_, kept)| is_old(kept));
        let old: Vec<MinionId> = old.map(|(id, _)| id.clone()).collect();
        for id in &old {
            self.remove(id, syndic);
        }
    }

    fn put(
        &mut self,
        syndic: &MinionId,
        number: u64,
        announced: Announced,
    ) -> Result<(), &'static str> {
        let Announced {
            id,
            away,
            grains,
            key,
        } = announced;
        let before = self.below.get(&id);
        // A minion stands in the inventory that had it first.
        if before.is_some_and(|kept| kept.syndic != *syndic) {
            let list = self.lists.entry(syndic.clone()).or_default();
            list.list_with_others = Some(number);
            return Ok(());
        }
        let is_new = before.is_none();
        let has_other_key = before.is_some_and(|kept| kept.key != key);
        let size_before = before.map_or(0, |kept| kept.size(&id));
        let old = before.map(|kept| kept.grains.clone()).unwrap_or_default();
        let kept = Kept {
            syndic: syndic.clone(),
            list: number,
            away,
            grains: grains.unwrap_or_else(|| old.clone()),
            key,
        };
        let size = kept.size(&id);
        let limits = self.limits;
        let count = self.below.len();
        let list = self.lists.entry(syndic.clone()).or_default();
        if is_new && (list.minions >= limits.minions.0 || count >= limits.minions.1) {
            return Err("it names more minions than are kept");
        }
        let of_list = list.bytes.saturating_sub(size_before) + size;
        let of_all = self.bytes.saturating_sub(size_before) + size;
        if of_list > limits.bytes.0 || of_all > limits.bytes.1 {
            return Err("it is larger than what is kept");
        }
        let lacked_grains = usize::from(!is_new && old.is_empty());
        self.without_grains += usize::from(kept.grains.is_empty());
        self.without_grains = self.without_grains.saturating_sub(lacked_grains);
        list.minions += usize::from(is_new);
        list.bytes = of_list;
        self.bytes = of_all;
        if kept.grains != old || is_new || has_other_key {
            self.note(&id);
        }
        if is_new {
            self.ids = None;
        }
        // The way of before, when it stood in the inventory of another one.
        self.forget_way(&id, syndic);
        self.below.insert(id, kept);
        Ok(())
    }

    /// The claim of a syndic to a minion has ended.
    fn release(&mut self, id: &MinionId, syndic: &MinionId, announcing: Option<&MinionId>) {
        match self.below.contains_key(id) {
            true => self.remove_but(id, syndic, announcing),
            // It stood nowhere, and others may have announced it beside the claim.
            false => self.take_up_second_ways(id, announcing),
        }
    }

    fn remove(&mut self, id: &MinionId, syndic: &MinionId) {
        self.remove_but(id, syndic, None);
    }

    /// The same, where a part of `announcing` is about to put it into the inventory of that one.
    fn remove_but(&mut self, id: &MinionId, syndic: &MinionId, announcing: Option<&MinionId>) {
        if self.below.get(id).is_none_or(|kept| kept.syndic != *syndic) {
            return;
        }
        let Some(kept) = self.below.remove(id) else {
            return;
        };
        let size = kept.size(id);
        self.bytes = self.bytes.saturating_sub(size);
        let lacked_grains = usize::from(kept.grains.is_empty());
        self.without_grains = self.without_grains.saturating_sub(lacked_grains);
        if let Some(list) = self.lists.get_mut(syndic) {
            list.minions = list.minions.saturating_sub(1);
            list.bytes = list.bytes.saturating_sub(size);
        }
        self.ids = None;
        self.note(id);
        self.take_up_second_ways(id, announcing);
    }

    /// Notes that a part of a syndic came, if it has an inventory.
    fn hear(&mut self, syndic: &MinionId, now: Duration) {
        if let Some(list) = self.lists.get_mut(syndic) {
            list.hear(now);
        }
    }

    fn doubt(&mut self, syndic: &MinionId, now: Duration) {
        let Some(list) = self.lists.get_mut(syndic) else {
            return;
        };
        let since = list.doubted.unwrap_or(now);
        self.expect_anew(syndic, now);
        if let Some(list) = self.lists.get_mut(syndic) {
            list.doubted = Some(since);
        }
    }

    fn needs_look(&self, syndic: &MinionId, now: Duration) -> bool {
        let list = self.lists.get(syndic);
        list.is_some_and(|list| list.becomes_doubtful(now) || list.is_gone(now))
    }

    fn forget_doubtful(&mut self, syndic: &MinionId, now: Duration) -> bool {
        let Some(list) = self.lists.get_mut(syndic) else {
            return false;
        };
        if list.becomes_doubtful(now) {
            list.doubted = Some(now);
        }
        list.is_gone(now) && self.forget(syndic)
    }

    fn forget(&mut self, syndic: &MinionId) -> bool {
        self.forget_ways(syndic, None);
        if self.lists.remove(syndic).is_none() {
            return false;
        }
        let of_it = self.below.iter().filter(|(_, kept)| kept.syndic == *syndic);
        let of_it: Vec<MinionId> = of_it.map(|(id, _)| id.clone()).collect();
        for id in &of_it {
            self.remove(id, syndic);
        }
        true
    }

    fn note(&mut self, id: &MinionId) {
        self.generation += 1;
        if self.changed.len() >= MAX_CHANGES {
            self.changed.pop_front();
        }
        self.changed.push_back((self.generation, id.clone()));
    }

    fn changes(&self, since: Option<u64>) -> DataChanges {
        let generation = self.generation;
        // The generation before the oldest change that is remembered.
        let oldest = generation - self.changed.len() as u64;
        let changed = match since {
            Some(since) if (oldest..=generation).contains(&since) => {
                let newer = self.changed.iter().filter(|(at, _)| *at > since);
                Changed::These(newer.map(|(_, id)| id.clone()).collect())
            }
            _ => Changed::Everything,
        };
        DataChanges {
            generation,
            changed,
        }
    }
}

/// The grains of the inventories, as the matcher reads them. Pillars stay below.
struct Grains(Arc<RwLock<State>>);

impl MinionData for Grains {
    fn grains(&self, id: &MinionId) -> Option<Arc<Value>> {
        let packed = self.0.read().below.get(id).map(|kept| kept.grains.clone());
        let packed = packed.filter(|packed| !packed.is_empty())?;
        decode(&packed, &Limits::WIRE).ok().map(Arc::new)
    }

    fn pillar(&self, _: &MinionId) -> Option<Arc<Value>> {
        None
    }

    fn known(&self) -> Arc<[MinionId]> {
        self.0.read().below.keys().cloned().collect()
    }

    fn changes(&self, since: Option<u64>) -> DataChanges {
        self.0.read().changes(since)
    }
}

#[cfg(test)]
mod tests;

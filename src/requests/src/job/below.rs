//! The minions below syndics that a target means, where these announce their inventories
//! (`saltern_syndic_inventory`).
//!
//! Where it cannot be decided here (pillars stay below, so do ranges and resources), or for a sender
//! whose rules name minions, no minion is expected by an inventory: then syndics announce theirs, as
//! stock's do. A minion has grains that may be missing here, so a target with grains is exact only where
//! those of all minions are known.

use std::cell::Cell;
use std::collections::HashSet;

use saltern_model::{Jid, MinionId, Standing, Target, TargetType};
use saltern_policy::acl::Whom;
use saltern_policy::matching::MatchOptions;
use saltern_policy::target::{Candidates, Resolved, names_in_list};
use saltern_store::{AcceptedIds, StoreError};
use saltern_wire::msgpack::{Value, decode_exact};

use super::request::Request;
use super::resolve::match_options;
use crate::credentials::Sender;
use crate::envelope::LOAD_LIMITS;
use crate::syndic_inventories::SyndicInventories;
use crate::targets::Accepted;
use crate::{Services, syndics, targets};

/// Minions below syndics that a target means.
#[derive(Clone, Debug, Default)]
pub(crate) struct Below {
    /// The minions.
    pub(crate) minions: Vec<MinionId>,
    /// The syndics that may have one of them below.
    pub(crate) syndics: Vec<MinionId>,
    /// No other minion below any syndic is meant.
    pub(crate) is_exact: bool,
    /// None will return but these: `is_exact`, and no syndic announces minions beyond its inventory.
    pub(crate) are_all: bool,
}

/// The minions below syndics that are expected to return to this sender.
pub(crate) fn of_sender(
    load: &Value,
    request: &Request<'_>,
    target: &Target,
    sender: &Sender,
    services: &Services,
) -> Below {
    let inventories = &services.minions.inventories;
    let is_free = || sender.may_publish(load, &request.functions, Whom::Anybody, services);
    match inventories.is_on() && is_free() {
        true => of_load(load, request, target, services),
        false => Below::default(),
    }
}

/// The minions below syndics that the target of a load means.
pub(crate) fn of_load(
    load: &Value,
    request: &Request<'_>,
    target: &Target,
    services: &Services,
) -> Below {
    resolve(target, &match_options(load, &request.functions), services)
}

fn resolve(target: &Target, options: &MatchOptions<'_>, services: &Services) -> Below {
    let inventories = &services.minions.inventories;
    let Ok(accepted) = services.keys.pki.accepted() else {
        return Below::default();
    };
    // Parts may come while the minions are looked for.
    let generation = inventories.generation();
    let Some(found) = among(inventories, &accepted, target, options) else {
        return Below::default();
    };
    let routes = inventories.routes(&found.minions);
    // What is below a syndic that is away may meanwhile be below another.
    let is_away = |syndic| matches!(services.minions.presence.state(syndic), Standing::Away(_));
    let known = services.minions.syndics.ids();
    let is_exact = !found.may_mean_more
        && found.problems.is_empty()
        && !syndics::may_be_unknown(&known, services)
        && inventories.were_whole_since(generation, &known, !is_decided_by_ids(target))
        && !routes.iter().any(is_away);
    Below {
        is_exact,
        are_all: is_exact && !inventories.has_second_ways(),
        minions: found.minions,
        syndics: routes,
    }
}

/// A job that a minion returns by its second way, as far as is known here for whom it is.
pub(crate) struct AskedJob {
    target: AskedTarget,
    /// All minions that the job expects; they are read when the target does not mean one.
    expected: Option<HashSet<MinionId>>,
}

/// Minions that a job's target means. Those that the job expects beside the target are not in it.
enum AskedTarget {
    /// No job is stored. Nor are probes and, as the tracker looks for the job as well, answers to them.
    NoJob,
    /// A peer has reported it: this master has not published it.
    Reported,
    /// No publication, or one that means nobody.
    Nobody,
    /// It is not known here for whom.
    Unknown,
    /// Minions of these names.
    Names(HashSet<String>),
    /// Those that this target means, of this load; with about how many bytes it has.
    Target(Target, Value, usize),
}

/// About how many bytes of jobs are read and searched for one request with returns by second ways, before it has to come
/// in parts. A single return is always decided.
const MAX_READ: usize = 16 << 20;

/// How much of a request's jobs was read and searched, in bytes.
#[derive(Default)]
pub(crate) struct Read(Cell<usize>);

impl Read {
    fn add(&self, bytes: usize) {
        self.0.update(|read| read.saturating_add(bytes));
    }

    /// Whether this request may read and search no more.
    pub(crate) fn is_used_up(&self) -> bool {
        self.0.get() >= MAX_READ
    }
}

/// Cost of a look into the database, and of matching a target, beside their bytes.
const LOOK: usize = 1 << 10;
const MATCH: usize = 1 << 8;

impl AskedJob {
    /// Looks for a job. Of a published one nothing but its load is read: it may expect very many minions.
    ///
    /// # Errors
    /// The job database cannot be read.
    pub(crate) fn find(jid: &Jid, read: &Read, services: &Services) -> Result<Self, StoreError> {
        Ok(Self {
            target: AskedTarget::find(jid, read, services)?,
            expected: None,
        })
    }

    /// Whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self.target, AskedTarget::NoJob)
    }

    /// Whether this master has published it for this minion of an inventory, whatever the rules of its user are: its target
    /// means the minion, or it expects it beside that. `None` where that cannot be said without `may_read`.
    ///
    /// # Errors
    /// The job database cannot be read.
    pub(crate) fn is_for(
        &mut self,
        (minion, jid): (&MinionId, &Jid),
        may_read: bool,
        read: &Read,
        services: &Services,
    ) -> Result<Option<bool>, StoreError> {
        match &self.target {
            AskedTarget::NoJob | AskedTarget::Reported => return Ok(Some(false)),
            AskedTarget::Target(..) if !may_read => return Ok(None),
            target if target.means(minion, read, services) => return Ok(Some(true)),
            _ => {}
        }
        let expected = match self.expected.take() {
            Some(expected) => expected,
            None if !may_read => return Ok(None),
            None => expected_by(jid, read, services)?,
        };
        Ok(Some(self.expected.insert(expected).contains(minion)))
    }
}

/// All minions that a job expects: one search of the database costs as much as reading them once for all returns.
fn expected_by(
    jid: &Jid,
    read: &Read,
    services: &Services,
) -> Result<HashSet<MinionId>, StoreError> {
    let Some(job) = services.jobs.reader.load(jid)? else {
        return Ok(HashSet::new());
    };
    let minions = job.record.minions;
    let names = minions.iter().map(|minion| minion.as_str().len() + 16);
    read.add(LOOK + job.record.load.bytes().len() + names.sum::<usize>());
    Ok(minions.into_iter().collect())
}

impl AskedTarget {
    fn find(jid: &Jid, read: &Read, services: &Services) -> Result<Self, StoreError> {
        let reader = &services.jobs.reader;
        read.add(LOOK);
        let Some(load) = reader.load_of(jid)? else {
            return Ok(Self::NoJob);
        };
        if reader.is_reported(jid)? {
            return Ok(Self::Reported);
        }
        let bytes = load.bytes().len();
        read.add(bytes);
        let load = decode_exact(load.bytes(), &LOAD_LIMITS).unwrap_or(Value::Nil);
        let compat = services.config.salt_compat;
        let target = load.get("tgt");
        let target = target.and_then(|tgt| targets::of_load(tgt, load.get("tgt_type"), compat));
        Ok(match target {
            None => Self::Nobody,
            Some(Target::List(names)) => Self::Names(names.into_iter().collect()),
            Some(Target::Expression(TargetType::List, text)) => {
                Self::Names(names_in_list(&text).map(str::to_owned).collect())
            }
            // Grains may have changed below.
            Some(target) if !is_decided_by_ids(&target) => Self::Unknown,
            Some(target) => {
                let bytes = match &target {
                    Target::Expression(_, text) => text.len(),
                    Target::List(words) | Target::Words(words) => {
                        words.iter().map(String::len).sum()
                    }
                };
                Self::Target(target, load, bytes)
            }
        })
    }

    fn means(&self, minion: &MinionId, read: &Read, services: &Services) -> bool {
        match self {
            Self::NoJob | Self::Reported | Self::Nobody => false,
            Self::Unknown => true,
            Self::Names(names) => names.contains(minion.as_str()),
            Self::Target(target, load, bytes) => {
                read.add(MATCH + bytes);
                let options = MatchOptions {
                    greedy: false,
                    expands_ranges: false,
                    ..match_options(load, &[])
                };
                let targeting = &services.minions.inventories.targeting;
                let found = targeting.resolve_with(target, &One(minion), &options);
                found.map_or(true, |found| {
                    found.may_mean_more || !found.problems.is_empty() || !found.minions.is_empty()
                })
            }
        }
    }
}

/// One minion as the only candidate of a target.
struct One<'a>(&'a MinionId);

impl Candidates for One<'_> {
    fn ids(&self) -> &[MinionId] {
        std::slice::from_ref(self.0)
    }

    fn find(&self, id: &str) -> Option<&MinionId> {
        (self.0.as_str() == id).then_some(self.0)
    }
}

/// The minions of the inventories that a target means; `None` where that cannot be decided.
pub(crate) fn among(
    inventories: &SyndicInventories,
    accepted: &AcceptedIds,
    target: &Target,
    options: &MatchOptions<'_>,
) -> Option<Resolved> {
    if !inventories.is_on() || !is_decided_by_grains(target) {
        return None;
    }
    let ids = inventories.ids();
    let targeting = &inventories.targeting;
    let options = MatchOptions {
        greedy: false,
        expands_ranges: false,
        ..*options
    };
    let found = targeting.resolve_with(target, &Accepted(&ids), &options);
    let mut found = found.ok()?;
    // A minion of this master's own is not below.
    found.minions.retain(|id| !accepted.contains(id.as_str()));
    Some(found)
}

/// Whether ids alone decide it. Grains that a master below lacks count as a mismatch here, and the minion,
/// which has them, may still match.
fn is_decided_by_ids(target: &Target) -> bool {
    let is_by_id = |word: &str| {
        let word = word.trim_start_matches('(');
        !word.contains('@') || word.starts_with("L@") || word.starts_with("E@")
    };
    match target {
        Target::List(_) => true,
        Target::Words(words) => words.iter().all(|word| is_by_id(word)),
        Target::Expression(kind, text) => match kind {
            TargetType::Glob | TargetType::List | TargetType::Pcre => true,
            TargetType::Compound => text.split_whitespace().all(is_by_id),
            _ => false,
        },
    }
}

/// Whether ids and grains decide it.
fn is_decided_by_grains(target: &Target) -> bool {
    /// Pillars, ranges, resources, and groups that may have them in.
    const OTHERS: [&str; 5] = ["I@", "J@", "R@", "T@", "N@"];
    let is_plain = |text: &str| !OTHERS.iter().any(|prefix| text.contains(prefix));
    match target {
        Target::List(_) => true,
        Target::Words(words) => words.iter().all(|word| is_plain(word)),
        Target::Expression(kind, text) => match kind {
            TargetType::Compound => is_plain(text),
            TargetType::Glob
            | TargetType::List
            | TargetType::Pcre
            | TargetType::Grain
            | TargetType::GrainPcre
            | TargetType::Ipcidr => true,
            _ => false,
        },
    }
}

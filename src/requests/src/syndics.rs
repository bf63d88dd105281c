//! Identity and authority of syndics: which peers are syndics, for which minions they may speak,
//! and which minions they announce for a job.
//!
//! Nothing on the wire distinguishes a syndic from a minion. Without `order_masters` there are
//! none. With it, a peer that sends what only syndics of any release send is one: their start event
//! (`salt/syndic/<id>/start`), and `_syndic_return` and events under `syndic/<id>`, as at stock's master, so that one
//! of stock which this master does not know any more (another machine of a cluster took over, `cachedir/syndics` was
//! removed) loses nothing. So every minion could be one, as it could by the start event alone, and that gives it no more
//! than what follows here. Syndics of ours are refused what else they send, and send their start event again.
//!
//! The machine of a syndic may have a minion of the same id and key. So an id that acts as a minion is both, and
//! expected in jobs, while it acts as a syndic, too. Its role as a syndic ends where it has been silent as one for
//! `SILENT_WITH_INVENTORY`, or `SILENT` where nothing is to come regularly, and goes on acting as a minion for
//! `ROLE_DOUBT`: then it was a syndic, and would be out of jobs and keep its claims for ever.
//!
//! In the name of a minion whose key this master has accepted only that minion itself speaks. In the name of another
//! one only the first syndic that did speaks, unless a site turns `saltern_strict_minion_events` off. Where
//! inventories are taken, that ends when the inventory of this syndic has the minion no more, or the
//! syndic has been away for `CLAIM_SECONDS` and it or the next one has an inventory: then the next one does
//! that returns for it or announces it in its own inventory. A list of the minions of a job ends no claim.
//! A minion that is connected to the masters of two syndics may return by either. That both announce the same public
//! key of it proves little, as public keys go in clear: so the second syndic only returns for it, and only jobs that
//! this master published for it, or any while the first way is closed. It claims, names and announces nothing. An
//! answer to a probe counts as that of the first way while this one is closed; before, it may only confirm that jobs
//! run ([`MayReturn::ConfirmsOnly`]). A return of which this cannot be decided is not refused: its request comes again.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::civil;
use saltern_model::{Absence, Doubt, Jid, MinionId, Standing};
use saltern_store::{AcceptedIds, RoleAfter, RoleBounds, StoreError};
use saltern_wire::msgpack::{MapView, RawValue};
use sha2::{Digest, Sha256};

use crate::job::below::AskedJob;
use crate::outcome::SyndicMinions;
use crate::syndic_inventories::{BelowSyndic, KeyDigest, SyndicInventories};
use crate::{Minions, PresenceView, Services, job, probe};

/// The most minions that one request may announce, over all its jobs.
pub(crate) const MAX_LEAVES: usize = 100_000;

/// Seconds for which a syndic has to be away before another one may speak for its minions.
const CLAIM_SECONDS: i64 = 600;

/// Time for which a syndic with an inventory has to be silent, as a syndic, before it may be a minion alone. A part
/// comes every 15 seconds.
const SILENT_WITH_INVENTORY: Duration = Duration::from_secs(600);

/// The same of any other. One of stock sends nothing until it has a job, and one that is forgotten gets none where the
/// inventories of all others are full: so this is longer than sites are idle.
const SILENT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Time in which a syndic whose master above has gone without a word is back: TCP keepalive notices it after 105
/// seconds.
const RETURN_TIME: Duration = Duration::from_secs(120);

/// Time for which a syndic may be silent after a minion of its id was heard, before its role ends: after a long cut the
/// minion may be back first.
const ROLE_DOUBT: Duration = RETURN_TIME;

/// The least time between two searches for claims that are outdated.
const CLAIM_SEARCH_INTERVAL: Duration = Duration::from_secs(60);

/// Start event of a syndic, as far as it says something of inventories.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SyndicStart {
    /// It announces an inventory.
    pub(crate) announces_inventory: bool,
    /// Its process is the one of before, and only its connection is new.
    pub(crate) is_again: bool,
}

/// Records a syndic that starts; in the files of stock's command line too. One that does not announce an
/// inventory may have none any more. What one has announced that only connects anew counts as before.
pub(crate) fn register(syndic: &MinionId, start: SyndicStart, services: &Services) {
    let Minions {
        syndics,
        inventories,
        ..
    } = &services.minions;
    match start.announces_inventory {
        true if start.is_again && syndics.has(syndic) => {}
        true => inventories.expect_anew(syndic),
        false => {
            heard(syndic, services);
            inventories.doubt(syndic);
        }
    }
    make_known(syndic, services);
    let now = inventories.uptime();
    let is_minion_since = match start.is_again {
        // Its machine has the minion that it had.
        true => Duration::ZERO,
        false => now.saturating_sub(SILENT_WITH_INVENTORY),
    };
    syndics.note_start(syndic, now, is_minion_since);
}

fn make_known(syndic: &MinionId, services: &Services) {
    let syndics = &services.minions.syndics;
    match syndics.register(syndic) {
        Ok(true) => tracing::info!(%syndic, "a syndic is known from now on"),
        Ok(false) => return,
        Err(error) => {
            tracing::error!(%syndic, %error, "stock's tools take a syndic for a minion");
        }
    }
    // The key may have gone since the request came, and what was known of its owner with it.
    if matches!(services.keys.pki.accepted_key(syndic), Ok(None))
        && let Err(error) = syndics.forget(syndic)
    {
        tracing::error!(%syndic, %error, "stock's tools take somebody without a key for a syndic");
    }
}

/// Whether this peer, which sends what syndics of all releases send, is one: above syndics it is from then on, as at
/// stock's master.
pub(crate) fn becomes_known(syndic: &MinionId, services: &Services) -> bool {
    if services.site.order_masters && !services.minions.syndics.has(syndic) {
        make_known(syndic, services);
    }
    acts(syndic, services)
}

/// Whether this peer, which sends what only syndics of ours send, is known as a syndic. Its role goes on.
pub(crate) fn acts(syndic: &MinionId, services: &Services) -> bool {
    let is_known = is_known(syndic, services);
    if is_known {
        let Minions {
            syndics,
            inventories,
            ..
        } = &services.minions;
        syndics.note_act(syndic, inventories.uptime());
    }
    is_known
}

/// Records that a syndic has sent returns or events: if its inventory is doubtful for long, it has none any more.
pub(crate) fn heard(syndic: &MinionId, services: &Services) {
    let was_there = services.minions.inventories.forget_doubtful(syndic);
    note_forgotten(was_there, syndic, services);
}

fn note_forgotten(was_there: bool, syndic: &MinionId, services: &Services) {
    if was_there {
        services.metrics.inventories_forgotten.inc();
        tracing::info!(%syndic, "a syndic announces its minions no more: its inventory is forgotten");
    }
}

/// Whether this peer is known as a syndic.
fn is_known(syndic: &MinionId, services: &Services) -> bool {
    services.site.order_masters && services.minions.syndics.has(syndic)
}

/// Records that it acted as a minion: its returns are expected. It is a syndic no more if nothing of one came for long.
pub(crate) fn is_minion(id: &MinionId, services: &Services) {
    if !is_known(id, services) {
        return;
    }
    let inventories = &services.minions.inventories;
    let bounds = RoleBounds {
        kept: match inventories.has(id) {
            true => SILENT_WITH_INVENTORY,
            false => SILENT,
        },
        doubt: ROLE_DOUBT,
    };
    let syndics = &services.minions.syndics;
    match syndics.note_minion_act(id, inventories.uptime(), bounds) {
        RoleAfter::NoSyndic | RoleAfter::BothStill => return,
        RoleAfter::Both => {
            tracing::info!(minion = %id, "a syndic is a minion, too");
            return;
        }
        RoleAfter::Ended => {}
    }
    inventories.forget(id);
    services.minions.frames.forget(id);
    match services.minions.syndics.forget(id) {
        Ok(_) => tracing::info!(minion = %id, "a syndic is a minion again"),
        Err(error) => {
            tracing::error!(minion = %id, %error, "stock's tools take a minion for a syndic");
        }
    }
}

/// Presence of a minion, of those below syndics as far as these announce it.
pub(crate) fn standing(id: &MinionId, services: &Services) -> Standing {
    let Minions {
        presence,
        inventories,
        ..
    } = &services.minions;
    standing_of(id, &**presence, inventories)
}

/// The same, of these parts of a master.
pub(crate) fn standing_of(
    id: &MinionId,
    presence: &dyn PresenceView,
    inventories: &SyndicInventories,
) -> Standing {
    let own = presence.state(id);
    if own != Standing::Away(Absence::NoKey) {
        return own;
    }
    let Some(below) = route(id, presence, inventories) else {
        return own;
    };
    match presence.state(&below.syndic) {
        Standing::Away(_) => Standing::Away(Absence::SyndicAway),
        _ if below.away.is_some() => Standing::Away(Absence::AwayBelow),
        _ if !below.is_current => Standing::Stale(Doubt::Silent),
        _ => Standing::Connected,
    }
}

/// The syndic that jobs for a minion go by: the one in whose inventory it stands or, where that one is away or has no
/// connection to it, a proved second way that is open.
fn route(
    id: &MinionId,
    presence: &dyn PresenceView,
    inventories: &SyndicInventories,
) -> Option<BelowSyndic> {
    let first = inventories.find(id)?;
    if is_open(&first, presence) {
        return Some(first);
    }
    let mut others = inventories.other_ways(id).into_iter();
    let open = others.find(|way| is_open(way, presence));
    Some(open.unwrap_or(first))
}

/// Whether a minion may receive jobs by this way.
fn is_open(way: &BelowSyndic, presence: &dyn PresenceView) -> bool {
    way.away.is_none() && !matches!(presence.state(&way.syndic), Standing::Away(_))
}

/// The syndics with an inventory that are away.
fn away(services: &Services) -> HashSet<MinionId> {
    let presence = &services.minions.presence;
    let mut syndics = services.minions.inventories.syndics();
    syndics.retain(|syndic| matches!(presence.state(syndic), Standing::Away(_)));
    syndics.into_iter().collect()
}

/// Whether a minion is below this syndic, and jobs for it go by another one.
pub(crate) fn is_other_way(minion: &MinionId, syndic: &MinionId, services: &Services) -> bool {
    let (presence, inventories) = (&services.minions.presence, &services.minions.inventories);
    let first = inventories.find(minion);
    let is_first = first.is_some_and(|first| first.syndic == *syndic);
    let is_way = is_first || inventories.is_proved_way(minion, syndic);
    is_way && route(minion, &**presence, inventories).is_some_and(|way| way.syndic != *syndic)
}

/// Digest of the public key of a minion whose key is accepted here, for the inventory of a master above. It is of more
/// than a fingerprint: those are shown to people.
pub fn key_digest(minion: &MinionId, services: &Services) -> Option<KeyDigest> {
    let key = services.keys.pki.accepted_key(minion).ok().flatten()?;
    let digest = Sha256::new().chain_update(b"saltern inventory\0");
    Some(digest.chain_update(key.pem()).finalize().into())
}

/// The minions among these that are below this syndic, in their order: jobs for each go by it or, where the minion
/// stands in no inventory, it is claimed by it. Looks once at the accepted keys and at the inventories.
pub fn minions_below(
    minions: Vec<MinionId>,
    syndic: &MinionId,
    services: &Services,
) -> Vec<MinionId> {
    match services.keys.pki.accepted() {
        Ok(accepted) => minions_below_beside(&accepted, minions, syndic, services),
        Err(_) => Vec::new(),
    }
}

/// The same, where these keys are accepted here.
pub(crate) fn minions_below_beside(
    accepted: &AcceptedIds,
    mut minions: Vec<MinionId>,
    syndic: &MinionId,
    services: &Services,
) -> Vec<MinionId> {
    let Minions {
        inventories,
        syndics,
        ..
    } = &services.minions;
    inventories.look_at_routes(&away(services), |syndic_of| {
        minions.retain(|minion| {
            // One whose key is accepted here is no syndic's.
            !accepted.contains(minion.as_str())
                && match syndic_of(minion) {
                    Some(it) => it == *syndic,
                    None => syndics.claimant(minion).as_ref() == Some(syndic),
                }
        });
    });
    minions
}

/// The minions among these that are certainly not below this syndic any more: their key is accepted here, they
/// are another one's, or its full and current inventory has them not.
pub fn minions_moved(
    mut minions: Vec<MinionId>,
    syndic: &MinionId,
    services: &Services,
) -> Vec<MinionId> {
    let Minions {
        inventories,
        syndics,
        ..
    } = &services.minions;
    let accepted = services.keys.pki.accepted().ok();
    let is_accepted = |minion: &MinionId| {
        accepted
            .as_ref()
            .is_some_and(|accepted| accepted.contains(minion.as_str()))
    };
    let has_all = inventories.are_complete(std::slice::from_ref(syndic));
    inventories.look_at_routes(&away(services), |syndic_of| {
        minions.retain(|minion| {
            is_accepted(minion)
                || match syndic_of(minion) {
                    Some(it) => it != *syndic,
                    None => has_all || syndics.claimant(minion).is_some_and(|it| it != *syndic),
                }
        });
    });
    minions
}

/// Why a minion below a syndic certainly receives nothing, in words; `None` when it may, or stands in
/// no inventory.
pub fn absence_below(id: &MinionId, services: &Services) -> Option<Option<Arc<str>>> {
    let presence = &services.minions.presence;
    let below = route(id, &**presence, &services.minions.inventories)?;
    let syndic = &below.syndic;
    let standing = presence.state(syndic);
    Some(match standing {
        Standing::Away(absence) => {
            let since = absence
                .at()
                .map(|at| format!(" since {}", civil(at).strftime("%FT%TZ")));
            let since = since.unwrap_or_default();
            Some(format!("below the syndic \"{syndic}\", which is {standing}{since}").into())
        }
        _ => {
            let why = below.away.as_ref();
            why.map(|why| format!("below the syndic \"{syndic}\", where it is {why}").into())
        }
    })
}

/// Whether there may be syndics that are not known here: none is, and this master has begun to serve a moment ago. Its
/// files of syndics may be gone, or those of another machine that served before.
pub(crate) fn may_be_unknown(known: &[MinionId], services: &Services) -> bool {
    known.is_empty() && services.minions.inventories.uptime() < RETURN_TIME
}

/// Whether all minions below this master's syndics stand in inventories: each syndic is connected, and its
/// inventory is full and current.
pub fn inventories_are_whole(services: &Services) -> bool {
    let Minions {
        presence,
        inventories,
        syndics,
        ..
    } = &services.minions;
    let known = syndics.ids();
    let is_away = |syndic| matches!(presence.state(syndic), Standing::Away(_));
    !services.site.order_masters
        || (inventories.are_complete(&known)
            && !may_be_unknown(&known, services)
            && !known.iter().any(is_away))
}

/// Whether a syndic may bring a return by a minion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayReturn {
    /// It may.
    Yes,
    /// As an answer to a probe, which may only confirm that jobs run: an open way is before this one.
    ConfirmsOnly,
    /// It may not.
    No,
    /// That cannot be read now: the request has to come again.
    CannotSay,
    /// There are too many of the kind in one request: it has to come in parts.
    TooMany,
}

/// Authority of a syndic to speak for minions; made for one request.
pub(crate) struct SyndicIdentity<'a> {
    syndic: &'a MinionId,
    /// `None` when they cannot be listed: then it speaks for no minion.
    accepted: Option<Arc<AcceptedIds>>,
    /// Its inventory is full and current.
    announces_all: bool,
    /// Minions taken over from other syndics.
    taken_over: Cell<u64>,
    /// Words in the name of minions that are not its own.
    refused: Cell<u64>,
    /// The jobs that minions of other syndics return; no more than `read` allows.
    asked: RefCell<HashMap<Jid, AskedJob>>,
    read: job::below::Read,
    services: &'a Services,
}

impl Drop for SyndicIdentity<'_> {
    fn drop(&mut self) {
        let refused = self.refused.get();
        self.services.metrics.refuse_many("syndic_leaf", refused);
        let minions = self.taken_over.get();
        if minions > 0 {
            tracing::info!(syndic = %self.syndic, minions, "minions are below another syndic now");
        }
    }
}

impl<'a> SyndicIdentity<'a> {
    pub(crate) fn of(syndic: &'a MinionId, services: &'a Services) -> Self {
        let accepted = services.keys.pki.accepted();
        let accepted = accepted
            .inspect_err(|error| tracing::error!(%error, "accepted keys cannot be listed"))
            .ok();
        let inventories = &services.minions.inventories;
        Self {
            syndic,
            accepted,
            announces_all: inventories.are_complete(std::slice::from_ref(syndic)),
            taken_over: Cell::new(0),
            refused: Cell::new(0),
            asked: RefCell::default(),
            read: job::below::Read::default(),
            services,
        }
    }

    /// Whether its inventory should have this minion, and does not. One that was accepted below a moment
    /// ago stands in none yet.
    pub(crate) fn lacks(&self, minion: &MinionId) -> bool {
        let inventories = &self.services.minions.inventories;
        self.announces_all
            && minion != self.syndic
            && !inventories.has_below(minion, self.syndic)
            && !inventories.is_proved_way(minion, self.syndic)
    }

    /// The syndic itself.
    pub(crate) fn syndic(&self) -> &MinionId {
        self.syndic
    }

    /// Nothing of the request is decided: what was refused does not count.
    pub(crate) fn forget_refused(&self) {
        self.refused.set(0);
    }

    /// Whether it may speak for this minion, which it names in a list. Another syndic keeps its claim.
    pub(crate) fn may_name(&self, minion: &MinionId) -> bool {
        self.may_speak(minion, |_| false)
    }

    /// Whether this minion, which it announces, is its own. An outdated claim of another syndic ends.
    pub(crate) fn may_announce(&self, minion: &MinionId) -> bool {
        self.may_speak(minion, |minion| {
            self.replace_outdated_claim(minion, Some(self.syndic))
        })
    }

    /// Whether it may bring a return of this job and function by this minion. An outdated claim of another syndic ends.
    pub(crate) fn may_return(&self, minion: &MinionId, job: (&Jid, Option<&str>)) -> MayReturn {
        let is_strict = self.services.config.saltern_strict_minion_events;
        if is_strict && minion != self.syndic && self.accepted.is_none() {
            return MayReturn::CannotSay;
        }
        let mut beside = MayReturn::Yes;
        let is_its = self.may_speak(minion, |minion| {
            self.replace_outdated_claim(minion, None) || {
                beside = self.may_return_beside(minion, job);
                matches!(beside, MayReturn::Yes | MayReturn::ConfirmsOnly)
            }
        });
        match beside {
            MayReturn::Yes if !is_its => MayReturn::No,
            beside => beside,
        }
    }

    fn may_speak(&self, minion: &MinionId, else_if: impl FnOnce(&MinionId) -> bool) -> bool {
        // The machine of a syndic may have a minion of the same name below.
        if minion == self.syndic || !self.services.config.saltern_strict_minion_events {
            return true;
        }
        let is_stranger = |ids: &Arc<AcceptedIds>| !ids.contains(minion.as_str());
        if !self.accepted.as_ref().is_some_and(is_stranger) {
            return false;
        }
        let Minions {
            syndics,
            inventories,
            ..
        } = &self.services.minions;
        let claims = || syndics.claim(minion, self.syndic);
        let is_its = claims() || (self.makes_room_for(minion) && claims()) || else_if(minion);
        // It is no fault of the second way of a minion to say something.
        if !is_its && !inventories.is_proved_way(minion, self.syndic) {
            self.refused.update(|count| count.saturating_add(1));
        }
        is_its
    }

    /// Whether room was made for a minion that nobody has claimed, and for which there was none.
    fn makes_room_for(&self, minion: &MinionId) -> bool {
        self.services.minions.syndics.claimant(minion).is_none() && self.makes_room()
    }

    /// Whether claims have ended to minions that the full and current inventory of their syndic does not have. While
    /// there is room they stand: nobody else may claim such a minion by a list then.
    fn makes_room(&self) -> bool {
        let Minions {
            syndics,
            inventories,
            ..
        } = &self.services.minions;
        let may_search = || syndics.may_search(inventories.uptime(), CLAIM_SEARCH_INTERVAL);
        if !inventories.is_on() || !may_search() {
            return false;
        }
        let ended = inventories.look_at_gone(|is_gone| syndics.release_where(is_gone));
        if ended > 0 {
            tracing::info!(
                claims = ended,
                "claims to minions that are gone from inventories have ended"
            );
        }
        ended > 0
    }

    /// Whether it may bring a return by the minion of another syndic: it is its second way, and the first one is closed
    /// or the job is for it.
    fn may_return_beside(&self, minion: &MinionId, job: (&Jid, Option<&str>)) -> MayReturn {
        let Minions {
            presence,
            inventories,
            ..
        } = &self.services.minions;
        if !inventories.is_proved_way(minion, self.syndic) {
            return MayReturn::No;
        }
        let first = inventories.find(minion);
        if first.is_some_and(|first| !is_open(&first, &**presence)) {
            return MayReturn::Yes;
        }
        self.is_asked(minion, job).unwrap_or_else(|error| {
            tracing::error!(%minion, %error, "the job of a return by a second syndic cannot be read");
            MayReturn::CannotSay
        })
    }

    /// Whether this master has published the job for this minion, as far as is known here.
    fn is_asked(
        &self,
        minion: &MinionId,
        (jid, fun): (&Jid, Option<&str>),
    ) -> Result<MayReturn, StoreError> {
        // As it is now: what this return needs, and one before it did not, is read whole.
        let may_read = !self.read.is_used_up();
        let mut asked = self.asked.borrow_mut();
        let job = match asked.entry(jid.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if !may_read => return Ok(MayReturn::TooMany),
            Entry::Vacant(new) => new.insert(AskedJob::find(jid, &self.read, self.services)?),
        };
        if job.is_none() && fun.is_some_and(probe::may_answer) {
            return Ok(MayReturn::ConfirmsOnly);
        }
        let is_for = job.is_for((minion, jid), may_read, &self.read, self.services)?;
        Ok(match is_for {
            Some(true) => MayReturn::Yes,
            Some(false) => MayReturn::No,
            None => MayReturn::TooMany,
        })
    }

    /// Replaces the claim of another syndic to a minion, if it is outdated and this one may have more. `announcing` puts
    /// the minion into its inventory with the part that it is in.
    fn replace_outdated_claim(&self, minion: &MinionId, announcing: Option<&MinionId>) -> bool {
        let minions = &self.services.minions;
        let Some(before) = minions.syndics.claimant(minion) else {
            return false;
        };
        if before == *self.syndic || !self.is_outdated(minion, &before) {
            return false;
        }
        if minions.syndics.claimed_by(self.syndic) >= MAX_LEAVES && !self.makes_room() {
            return false;
        }
        minions.syndics.release(minion, &before);
        if !minions.syndics.claim(minion, self.syndic) {
            // Another request was faster: of a third syndic, or the last that this one may have.
            minions.syndics.claim(minion, &before);
            return false;
        }
        tracing::debug!(%minion, %before, now = %self.syndic, "a minion is below another syndic");
        minions.inventories.remove(minion, &before, announcing);
        self.taken_over.update(|count| count.saturating_add(1));
        true
    }

    /// Whether a syndic has a minion no more, or has been away for long and has an inventory, or this one has;
    /// never where no inventories are taken.
    fn is_outdated(&self, minion: &MinionId, syndic: &MinionId) -> bool {
        let Minions {
            presence,
            inventories,
            syndics,
            ..
        } = &self.services.minions;
        if !inventories.is_on() {
            return false;
        }
        let are_complete = inventories.are_complete(std::slice::from_ref(syndic));
        if are_complete && !inventories.has_below(minion, syndic) {
            return true;
        }
        // Between two syndics of stock, nothing shows that a minion has moved.
        if !inventories.has(syndic) && !inventories.has(self.syndic) {
            return false;
        }
        // The minion of its machine may be connected still.
        let silence = || syndics.silence(syndic, inventories.uptime());
        if inventories.has(syndic) && silence().is_some_and(|it| it >= SILENT_WITH_INVENTORY) {
            return true;
        }
        let Standing::Away(absence) = presence.state(syndic) else {
            return false;
        };
        let now = self.services.clock.unix_micros();
        let since = |at: i64| now.saturating_sub(at) / 1_000_000;
        absence.at().is_some_and(|at| since(at) >= CLAIM_SECONDS)
    }

    /// The other syndic below which a minion is, too; none of a minion whose key is accepted here.
    pub(crate) fn other_of(&self, minion: &MinionId) -> Option<MinionId> {
        let accepted = self.accepted.as_ref()?;
        if accepted.contains(minion.as_str()) {
            return None;
        }
        let Minions {
            syndics,
            inventories,
            ..
        } = &self.services.minions;
        let standing = inventories.find(minion).map(|below| below.syndic);
        let other = standing.or_else(|| syndics.claimant(minion));
        other.filter(|other| other != self.syndic)
    }
}

/// Minions below a syndic that have jobs, collected from the events of one request.
///
/// 3006 and 3007 forward `<jid>` and `salt/job/<jid>/new`, 3008 the latter, each with a list
/// `minions`; from a third level they come as `syndic/<id>/…` (`_handle_minion_event` in
/// `salt/master.py`, `_process_event` in `salt/minion.py`).
pub(crate) struct Announced {
    jobs: BTreeMap<String, BTreeSet<MinionId>>,
    /// The number of minions that may still be added.
    room: usize,
}

impl Default for Announced {
    fn default() -> Self {
        Self {
            jobs: BTreeMap::new(),
            room: MAX_LEAVES,
        }
    }
}

impl Announced {
    /// Collects from one event of a syndic.
    pub(crate) fn look(&mut self, tag: &str, data: &MapView, voice: &SyndicIdentity<'_>) {
        let Some(minions) = data.get("minions").and_then(RawValue::as_array) else {
            return;
        };
        let of_tag = || tag.rsplit('/').find(|part| Jid::parse(part).is_ok());
        let Some(jid) = data.str("jid").or_else(of_tag) else {
            return;
        };
        if Jid::parse(jid).is_err() {
            return;
        }
        let heard = minions.len().min(self.room);
        self.room -= heard;
        let minions = minions.iter().take(heard).filter_map(RawValue::as_str);
        let minions = minions.filter_map(|name| MinionId::parse(name).ok());
        let minions = minions.filter(|minion| voice.may_name(minion));
        self.jobs.entry(jid.to_owned()).or_default().extend(minions);
    }

    /// The minions found, for each job that has any.
    pub(crate) fn into_leaves(self, syndic: &MinionId) -> Vec<SyndicMinions> {
        let found = self.jobs.into_iter();
        let found = found.filter(|(_, minions)| !minions.is_empty());
        found
            .filter_map(|(jid, minions)| {
                Some(SyndicMinions {
                    jid: Jid::parse(&jid).ok()?,
                    syndic: syndic.clone(),
                    minions: minions.into_iter().collect(),
                })
            })
            .collect()
    }
}

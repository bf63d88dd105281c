//! Verdicts of syndics on silent minions below them, kept for people: no state changes by one, and nothing ends.
//!
//! A syndic may send many requests a second, and one verdict may be about all minions of a job. So a verdict on
//! all minions is carried over to the minions at most once per [`INTERVAL`] for each job and syndic, the last one
//! then, and at most one event announces what has changed meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use saltern_model::{Jid, MinionId};
use saltern_requests::SyndicVerdict;
use saltern_store::jobs::SyndicSays;

use super::job::Job;
use super::machine::{Counted, Machine, TrackerEffect, Turn};
use super::moment::{Moment, Timer};
use super::news::{JobNews, SaidBelow};

/// Minimum interval between two events of one job and syndic, between two verdicts on all minions, and between
/// two searches for texts that no minion has any more.
const INTERVAL: Duration = Duration::from_secs(1);

/// The most minions in one event; further ones are in the next.
pub(super) const MAX_ANNOUNCED: usize = 10_000;

/// The most pairs of a job and a syndic with a verdict in the last [`INTERVAL`].
pub(super) const MAX_PENDING: usize = 10_000;

/// Different texts that are kept, of one syndic and of all.
pub(super) const MAX_TEXTS_OF_SYNDIC: usize = 500;
pub(super) const MAX_TEXTS: usize = 10_000;

/// Verdicts of syndics, as far as the jobs do not have them.
#[derive(Default)]
pub(super) struct SyndicVerdicts {
    /// Each with a timer.
    pending: HashMap<(Jid, MinionId), Pending>,
    texts: Texts,
}

/// Verdicts of a syndic on a job since the last event.
#[derive(Default)]
struct Pending {
    /// Its last verdict on all minions, and those that it has named since.
    of_all: Option<(SyndicVerdict, HashSet<MinionId>)>,
    /// The minions to announce, each with the number of syndics that its last verdict came through.
    changed: IndexMap<MinionId, u8>,
}

/// The texts of verdicts, each once.
#[derive(Default)]
struct Texts {
    of: HashMap<MinionId, TextsOfSyndic>,
    /// The number of all texts.
    count: usize,
    searched: Option<Moment>,
}

#[derive(Default)]
struct TextsOfSyndic {
    texts: HashSet<Arc<str>>,
    searched: Option<Moment>,
}

impl Machine {
    /// Keeps the verdict of a syndic on minions that have not returned.
    pub(super) fn said_below(&mut self, verdict: SyndicVerdict, turn: &mut Turn<'_>) {
        let count = |word| TrackerEffect::Count(Counted::SaidBelow(word));
        if !self.is_remembered(&verdict.jid) {
            return turn.effects.push(count("no_job"));
        }
        let key = (verdict.jid.clone(), verdict.syndic.clone());
        let is_first = !self.verdicts.pending.contains_key(&key);
        if is_first && self.verdicts.pending.len() >= MAX_PENDING {
            return turn.effects.push(count("no_room"));
        }
        let pending = self.verdicts.pending.entry(key.clone()).or_default();
        if let Some(named) = &verdict.minions {
            if let Some((_, since)) = &mut pending.of_all {
                since.extend(named.iter().cloned());
            }
            self.apply_verdict(&verdict, named, turn);
        } else {
            pending.of_all = Some((verdict, HashSet::new()));
        }
        if is_first {
            self.announce_below(&key, turn);
            self.set_below(key, turn);
        }
    }

    /// Ends the time in which a syndic that has said something of a job waits for the next event.
    pub(super) fn below_is_due(&mut self, jid: Jid, syndic: MinionId, turn: &mut Turn<'_>) {
        let key = (jid, syndic);
        match self.announce_below(&key, turn) {
            true => self.set_below(key, turn),
            false => {
                self.verdicts.pending.remove(&key);
            }
        }
    }

    fn set_below(&mut self, (jid, syndic): (Jid, MinionId), turn: &Turn<'_>) {
        let at = turn.now.after(INTERVAL);
        self.timers.set(at, Timer::Below(jid, syndic));
    }

    /// Carries over the last verdict of a syndic on all minions of a job, and announces what has changed; whether
    /// there was anything.
    fn announce_below(&mut self, key: &(Jid, MinionId), turn: &mut Turn<'_>) -> bool {
        let (jid, syndic) = key;
        let of_all = self.verdicts.pending.get_mut(key);
        let of_all = of_all.and_then(|pending| pending.of_all.take());
        if let (Some((verdict, named)), Some(job)) = (&of_all, self.jobs.get(jid)) {
            let missing = job.missing().map(|(minion, _)| minion);
            let missing = missing.filter(|minion| !named.contains(*minion));
            let minions = turn.world.below(syndic, missing.cloned().collect());
            self.apply_verdict(verdict, &minions, turn);
        }
        let (Some(job), Some(pending)) = (self.jobs.get(jid), self.verdicts.pending.get_mut(key))
        else {
            return false;
        };
        let count = pending.changed.len().min(MAX_ANNOUNCED);
        let changed = pending.changed.drain(..count);
        let said = said_of(job, syndic, changed);
        if !said.is_empty() {
            turn.effects.push(TrackerEffect::Report(JobNews::Below {
                jid: jid.clone(),
                syndic: syndic.clone(),
                said,
            }));
        }
        count > 0 || of_all.is_some()
    }

    /// Keeps a verdict with these minions of its job, as far as they have not returned. Of the masters below one
    /// syndic, the verdict of the one that is nearest to a minion stays; one of another syndic, below which the
    /// minion was before, goes.
    fn apply_verdict(
        &mut self,
        verdict: &SyndicVerdict,
        minions: &[MinionId],
        turn: &mut Turn<'_>,
    ) {
        let SyndicVerdict {
            jid,
            syndic,
            text,
            depth,
            ..
        } = verdict;
        let count = |word| TrackerEffect::Count(Counted::SaidBelow(word));
        let Some(job) = self.jobs.get_mut(jid) else {
            return;
        };
        let is_new = |before: &Option<Box<SyndicSays>>| match before {
            None => text.is_some(),
            Some(before) if before.syndic != *syndic => true,
            Some(before) if before.depth > *depth => false,
            Some(before) => before.depth != *depth || Some(&before.text) != text.as_ref(),
        };
        let minions = minions.iter().filter(|minion| {
            let entry = job.entry(minion);
            let entry = entry.filter(|entry| !entry.state().has_returned());
            entry.is_some_and(|entry| is_new(&entry.below))
        });
        let minions: Vec<&MinionId> = minions.collect();
        if minions.is_empty() {
            return turn.effects.push(count("kept"));
        }
        let says = match text {
            Some(text) => match self.verdicts.texts.intern(syndic, text, turn.now) {
                Some(text) => Some(SyndicSays {
                    syndic: syndic.clone(),
                    depth: *depth,
                    text,
                }),
                None => return turn.effects.push(count("no_room")),
            },
            None => None,
        };
        turn.effects.push(count("kept"));
        let mut pending = self
            .verdicts
            .pending
            .get_mut(&(jid.clone(), syndic.clone()));
        for minion in minions {
            if let Some(entry) = job.entry_mut(minion) {
                entry.below = says.clone().map(Box::new);
            }
            if let Some(pending) = &mut pending {
                pending.changed.insert(minion.clone(), *depth);
            }
        }
        self.keep(jid, turn);
    }
}

/// Present verdicts of a syndic on these minions, those of the same text together.
fn said_of(
    job: &Job,
    syndic: &MinionId,
    changed: impl Iterator<Item = (MinionId, u8)>,
) -> Vec<SaidBelow> {
    let mut groups: IndexMap<(Option<Arc<str>>, u8), Vec<MinionId>> = IndexMap::new();
    for (minion, depth) in changed {
        let Some(entry) = job.entry(&minion) else {
            continue;
        };
        let below = entry.below.as_deref();
        // Another syndic says something of it meanwhile, and announces that.
        let is_other = below.is_some_and(|said| said.syndic != *syndic);
        if entry.state().has_returned() || is_other {
            continue;
        }
        let says = below.map(|said| said.text.clone());
        groups.entry((says, depth)).or_default().push(minion);
    }
    let said = groups.into_iter();
    let said = said.map(|((says, depth), minions)| SaidBelow {
        says,
        depth,
        minions,
    });
    said.collect()
}

impl Texts {
    /// The same text, kept once; `None` when too many are in use, of this syndic or of all.
    fn intern(&mut self, syndic: &MinionId, text: &Arc<str>, now: Moment) -> Option<Arc<str>> {
        let of_syndic = self.of.get_mut(syndic);
        if let Some(known) = of_syndic.as_ref().and_then(|it| it.texts.get(text)) {
            return Some(known.clone());
        }
        if let Some(of_syndic) = of_syndic.filter(|it| it.texts.len() >= MAX_TEXTS_OF_SYNDIC) {
            self.count -= of_syndic.drop_unused(now);
            if of_syndic.texts.len() >= MAX_TEXTS_OF_SYNDIC {
                return None;
            }
        }
        if self.count >= MAX_TEXTS && is_due(&mut self.searched, now) {
            self.of.retain(|_, of_syndic| {
                of_syndic.searched = None;
                self.count -= of_syndic.drop_unused(now);
                !of_syndic.texts.is_empty()
            });
        }
        if self.count >= MAX_TEXTS {
            return None;
        }
        let of_syndic = self.of.entry(syndic.clone()).or_default();
        of_syndic.texts.insert(text.clone());
        self.count += 1;
        Some(text.clone())
    }
}

impl TextsOfSyndic {
    /// Drops the texts that no minion has any more, at most once per [`INTERVAL`]; how many.
    fn drop_unused(&mut self, now: Moment) -> usize {
        if !is_due(&mut self.searched, now) {
            return 0;
        }
        let before = self.texts.len();
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        before - self.texts.len()
    }
}

/// Whether the last time was at least [`INTERVAL`] ago; it is this one then.
fn is_due(last: &mut Option<Moment>, now: Moment) -> bool {
    let is_due = last.is_none_or(|last| now.since(last) >= INTERVAL);
    if is_due {
        *last = Some(now);
    }
    is_due
}

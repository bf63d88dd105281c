//! When the machine probes minions, how it handles their answers and their silence, and how it
//! answers clients that ask the same.

use std::time::Duration;

use indexmap::IndexMap;
use saltern_model::{Jid, MinionId, Packed};
use saltern_store::jobs::JobState;
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::job::{ClientQuestion, Job, MinionState, Reason, Said};
use super::machine::{
    Answered, Asked, Counted, Machine, Rules, TrackerEffect, Turn, answer_asks, change,
};
use super::moment::{Moment, Timer};
use super::news::Change;

/// Questions of clients that are answered at a time; further ones go out to the minions.
const MAX_ASKS: usize = 10_000;

/// How long a probe is remembered for late answers.
const REMEMBERED: Duration = Duration::from_secs(60);

impl Rules {
    /// How long a minion's statement is recent enough for an answer.
    fn fresh(&self) -> Duration {
        self.timeout
            .clamp(Duration::from_secs(1), Duration::from_secs(5))
    }
}

impl Job {
    pub(super) fn begin(&mut self, silence: Duration, now: Moment) {
        self.begun = now;
        self.heard = now;
        self.asked = now;
        self.silence = silence;
        self.rounds = 0;
        self.left = None;
        self.part_is_under_way = false;
        self.is_reloaded = false;
        self.may_have_left = false;
        self.settled = None;
    }

    /// When its minions are next probed: after a silence, and now and then while returns come in.
    fn round_at(&self, rules: &Rules) -> Moment {
        let silent = self.heard.max(self.asked).after(self.silence);
        silent.min(self.asked.after(rules.interval.max(self.silence)))
    }

    pub(super) fn was_killed(&self) -> bool {
        let mut missing = self.missing();
        missing.any(|(_, entry)| entry.state().reason() == Some(&Reason::Killed))
    }
}

/// Action that a look at a job finds for one of its minions.
enum Need {
    ClientQuestion,
    Put(MinionState),
    PutAndAsk(MinionState),
}

impl Machine {
    /// Sets the job's timer no later than this.
    pub(super) fn look_by(&mut self, jid: &Jid, at: Moment) {
        if let Some(job) = self.jobs.get_mut(jid)
            && job.is_open()
            && job.look_at.is_none_or(|set| at < set)
        {
            job.look_at = Some(at);
            self.timers.set(at, Timer::Look(jid.clone()));
        }
    }

    /// Handles a job's timer: probes its minions after a silence, ends it if no minion was awaited
    /// for long enough, and sets the next timer.
    pub(super) fn look(&mut self, at: Moment, jid: &Jid, turn: &mut Turn<'_>) {
        let now = turn.now;
        let Some(job) = self.jobs.get_mut(jid) else {
            return;
        };
        if job.look_at != Some(at) {
            return;
        }
        job.look_at = None;
        let patience = self.rules.patience;
        if job
            .settled
            .is_some_and(|since| now.since(since) >= patience)
        {
            return self.end(jid, JobState::Expired, turn);
        }
        if job.settled.is_none() && job.counts().awaited() == 0 {
            // It was only held open.
            self.conclude(jid, Vec::new(), turn);
        }
        let Some(job) = self.jobs.get_mut(jid).filter(|job| job.is_open()) else {
            return;
        };
        let is_round = now >= job.round_at(&self.rules);
        if is_round || job.counts().ending() > 0 {
            let needs = needs(job, is_round, &self.rules, turn);
            self.meet(jid, needs, turn);
        }
        if is_round {
            self.count_round(jid, turn);
        }
        self.set_look(jid, now);
    }

    fn meet(&mut self, jid: &Jid, needs: Vec<(MinionId, Need)>, turn: &mut Turn<'_>) {
        let mut changes = Vec::new();
        for (minion, need) in needs {
            let (state, asks) = match need {
                Need::ClientQuestion => (None, true),
                Need::Put(state) => (Some(state), false),
                Need::PutAndAsk(state) => (Some(state), true),
            };
            if let (Some(state), Some(job)) = (state, self.jobs.get_mut(jid)) {
                changes.extend(change(job, &minion, state));
            }
            if asks {
                self.ask(jid, &minion, turn);
            }
        }
        self.conclude(jid, changes, turn);
    }

    fn count_round(&mut self, jid: &Jid, turn: &mut Turn<'_>) {
        let Some(job) = self.jobs.get_mut(jid).filter(|job| job.is_open()) else {
            return;
        };
        job.rounds += 1;
        job.asked = turn.now;
        let rules = &self.rules;
        let doubled = rules.timeout.max(rules.gather) * (1 << job.rounds.min(10));
        // One and a half times the duration of earlier such jobs.
        let learned = self.learned.time_of(&job.fun).unwrap_or_default();
        let left = (learned * 3 / 2).saturating_sub(turn.now.since(job.begun));
        let silence = (doubled / 2).max(left).min(rules.interval);
        job.silence = self.chance.about(silence.max(rules.timeout));
        turn.effects.push(TrackerEffect::Count(Counted::Round));
    }

    fn set_look(&mut self, jid: &Jid, now: Moment) {
        let Some(job) = self.jobs.get(jid).filter(|job| job.is_open()) else {
            return;
        };
        let gather = self.rules.gather;
        let mut next = job.round_at(&self.rules);
        if let Some(since) = job.settled {
            next = next.min(since.after(self.rules.patience));
        }
        if job.counts().ending() > 0 {
            let endings = job.missing().filter_map(|(_, entry)| match entry.state() {
                MinionState::Ending { since } => Some(since.after(gather)),
                _ => None,
            });
            let ahead = endings.filter(|at| *at > now);
            next = ahead.fold(next, Moment::min);
        }
        // Never immediately, whatever the options say.
        self.look_by(jid, next.max(now.after(Duration::from_millis(1))));
    }

    /// Requests a probe of a minion because of this job.
    pub(super) fn ask(&mut self, jid: &Jid, minion: &MinionId, turn: &mut Turn<'_>) {
        if !turn.world.is_asked(minion) {
            return;
        }
        let Some(entry) = self.jobs.get_mut(jid).and_then(|job| job.entry_mut(minion)) else {
            return;
        };
        entry.asked_since.get_or_insert(turn.now);
        if !std::mem::replace(&mut entry.is_listed, true) {
            let jids = self.listed.entry(minion.clone()).or_default();
            jids.push(jid.clone());
        }
        if !self.rounds.want(minion) {
            turn.effects.push(TrackerEffect::Count(Counted::Merged));
        }
    }

    /// Withdraws the request for a probe of this minion because of this job.
    pub(super) fn unlist(&mut self, jid: &Jid, minion: &MinionId) {
        let Some(job) = self.jobs.get_mut(jid) else {
            return;
        };
        let Some(entry) = job.entry_mut(minion) else {
            return;
        };
        if !std::mem::replace(&mut entry.is_listed, false) {
            return;
        }
        if let Some(jids) = self.listed.get_mut(minion) {
            jids.retain(|listed| listed != jid);
            if jids.is_empty() {
                self.listed.remove(minion);
            }
        }
    }

    pub(super) fn set_flush(&mut self, turn: &mut Turn<'_>) {
        if let Some((at, is_capped)) = self.rounds.next_flush(turn.now) {
            self.timers.set(at, Timer::Flush);
            if is_capped {
                turn.effects.push(TrackerEffect::Count(Counted::Capped));
            }
        }
    }

    pub(super) fn flush(&mut self, turn: &mut Turn<'_>) {
        let listed = &self.listed;
        let minions = self.rounds.take(|minion| listed.contains_key(minion));
        if minions.is_empty() {
            return;
        }
        let probe = turn.world.mint();
        self.rounds.sent(&probe, &minions, turn.now);
        let over = turn.now.after(self.rules.gather);
        self.timers.set(over, Timer::ProbeOver(probe.clone()));
        let forgotten = over.after(REMEMBERED);
        self.timers
            .set(forgotten, Timer::ProbeForgotten(probe.clone()));
        turn.effects.push(TrackerEffect::Probe { probe, minions });
    }

    pub(super) fn answered(&mut self, answered: &Answered, turn: &mut Turn<'_>) {
        let Answered {
            probe,
            minion,
            running,
            confirms_only,
        } = answered;
        if *confirms_only && !self.confirms(answered) {
            return;
        }
        let sent = self.rounds.answered(probe, minion);
        for jid in self.listed.get(minion).cloned().unwrap_or_default() {
            let Some(job) = self.jobs.get_mut(&jid) else {
                continue;
            };
            let change = match running {
                None => change_if_awaited(job, minion, Reason::CannotSay),
                Some(running) => {
                    let found = running.iter().find(|(running, _)| *running == jid);
                    let found = found.map(|(_, description)| description);
                    // A job missing from an answer may have reached the minion after the probe.
                    let left = job.left.unwrap_or(job.begun);
                    if found.is_none() && sent.is_none_or(|sent| sent < left) {
                        continue;
                    }
                    self.said(&jid, (minion, *confirms_only), found, turn)
                }
            };
            self.conclude(&jid, change.into_iter().collect(), turn);
        }
    }

    /// Whether an answer says that all jobs run which the minion is asked about, and none by its first way came before:
    /// to this probe, or to one that left a job ending or lost. So the first way alone ends the wait for a minion, and
    /// no second one prolongs it then.
    fn confirms(&self, answered: &Answered) -> bool {
        let Answered {
            probe,
            minion,
            running,
            ..
        } = answered;
        let is_awaited = |jid: &Jid| {
            let entry = self.jobs.get(jid).and_then(|job| job.entry(minion));
            let state = entry.map(|entry| entry.state());
            !state
                .is_some_and(|state| matches!(state, MinionState::Ending { .. }) || state.is_lost())
        };
        let is_named = |jid: &Jid| running.iter().flatten().any(|(running, _)| running == jid);
        let runs = |jid: &Jid| is_named(jid) && is_awaited(jid);
        let mut listed = self.listed.get(minion).into_iter().flatten();
        self.rounds.awaits(probe, minion) && listed.all(runs)
    }

    /// Records a minion's statement about a job. One that only confirms does not take the place of the last that came by
    /// the first way.
    fn said(
        &mut self,
        jid: &Jid,
        (minion, confirms_only): (&MinionId, bool),
        running: Option<&Packed>,
        turn: &mut Turn<'_>,
    ) -> Option<Change> {
        let (now, gather) = (turn.now, self.rules.gather);
        let job = self.jobs.get_mut(jid)?;
        answer_asks(job, jid, minion, running, &mut turn.effects);
        let entry = job.entry_mut(minion)?;
        entry.asked_since = None;
        if !confirms_only {
            entry.said = Some(Box::new(Said {
                at: now,
                running: running.cloned(),
            }));
        }
        if running.is_some() {
            let change = change(job, minion, MinionState::Running);
            self.progress_soon(jid, now);
            return change;
        }
        let lost = |reason| Some(MinionState::Unknown(reason));
        let after = match entry.state() {
            MinionState::Returned { .. } | MinionState::Unreachable(Reason::NotSent) => None,
            MinionState::Unknown(Reason::Killed | Reason::NotRunning | Reason::PerhapsNotSent) => {
                None
            }
            MinionState::Ending { since } if now.since(*since) < gather => None,
            MinionState::Ending { .. } | MinionState::Unknown(_) if entry.was_signalled => {
                lost(Reason::Killed)
            }
            MinionState::Ending { .. } | MinionState::Unknown(_) => lost(Reason::NotRunning),
            _ => Some(MinionState::Ending { since: now }),
        };
        let change = after.and_then(|after| change(job, minion, after));
        self.look_by(jid, now.after(gather));
        change
    }

    /// Gives up the minions that have not answered this probe, as unknown.
    pub(super) fn missed(&mut self, probe: &Jid, turn: &mut Turn<'_>) {
        let mut changes: IndexMap<Jid, Vec<Change>> = IndexMap::new();
        for minion in self.rounds.over(probe) {
            for jid in self.listed.get(&minion).into_iter().flatten() {
                if let Some(job) = self.jobs.get_mut(jid)
                    && let Some(change) = change_if_awaited(job, &minion, Reason::NoAnswer)
                {
                    changes.entry(jid.clone()).or_default().push(change);
                }
            }
        }
        for (jid, changes) in changes {
            self.conclude(&jid, changes, turn);
        }
    }

    /// Whether a client's question about a job can be answered from here.
    pub(super) fn can_answer(&self, about: &Jid, minions: &[MinionId]) -> bool {
        self.asks < MAX_ASKS
            && self.jobs.get(about).is_some_and(|job| {
                let is_known = job.is_open() || job.state == JobState::Complete;
                is_known && minions.iter().all(|minion| job.entry(minion).is_some())
            })
    }

    pub(super) fn asked(&mut self, asked: Asked, turn: &mut Turn<'_>) {
        let Asked {
            question,
            about,
            minions,
        } = asked;
        let mut pending = Vec::new();
        for minion in minions {
            let Some(entry) = self.jobs.get(&about).and_then(|job| job.entry(&minion)) else {
                continue;
            };
            let fresh = self.rules.fresh();
            let said = entry.said.as_ref();
            let said = said.filter(|said| turn.now.since(said.at) < fresh);
            let known = match said {
                _ if entry.state().has_returned() => Some(None),
                Some(said) => Some(said.running.clone()),
                None => None,
            };
            if let Some(running) = known {
                turn.effects.push(TrackerEffect::PendingReply {
                    question: question.clone(),
                    about: about.clone(),
                    minion,
                    running,
                });
            } else if turn.world.absence(&minion).is_none() {
                self.ask(&about, &minion, turn);
                pending.push(minion);
            }
        }
        let Some(job) = self.jobs.get_mut(&about).filter(|_| !pending.is_empty()) else {
            return;
        };
        self.asks += 1;
        job.asks.push(ClientQuestion {
            question: question.clone(),
            pending,
        });
        let late = turn.now.after(self.rules.gather / 2);
        self.timers
            .set(late, Timer::AskLate(question.clone(), about.clone()));
        let over = turn.now.after(self.rules.gather * 2);
        self.timers.set(over, Timer::AskOver(question, about));
    }

    /// A client takes a missing answer for "does not run it" (`gather_job_timeout`), and its user
    /// sees that the minion did not return. A minion under load answers later than that. So for a
    /// connected minion its last statement holds, and one without any has twice the time.
    pub(super) fn ask_is_late(&mut self, question: &Jid, about: &Jid, turn: &mut Turn<'_>) {
        let patience = self.rules.gather * 2;
        let Some(job) = self.jobs.get_mut(about).filter(|job| job.is_open()) else {
            return;
        };
        let description = presumed(about, &job.fun);
        let Some(place) = job.asks.iter().position(|ask| ask.question == *question) else {
            return;
        };
        let mut ask = job.asks.swap_remove(place);
        ask.pending.retain(|minion| {
            let Some(entry) = job.entry(minion) else {
                return false;
            };
            let running = match &entry.said {
                Some(said) => said.running.clone(),
                None => entry
                    .asked_since
                    .filter(|since| turn.now.since(*since) < patience)
                    .map(|_| description.clone()),
            };
            let is_presumed =
                running.is_some() && entry.may_run() && turn.world.absence(minion).is_none();
            if is_presumed {
                turn.effects.push(TrackerEffect::PendingReply {
                    question: question.clone(),
                    about: about.clone(),
                    minion: minion.clone(),
                    running,
                });
            }
            !is_presumed
        });
        job.asks.push(ask);
    }

    pub(super) fn ask_over(&mut self, question: &Jid, about: &Jid) {
        let Some(job) = self.jobs.get_mut(about) else {
            return;
        };
        let before = job.asks.len();
        job.asks.retain(|ask| ask.question != *question);
        self.asks -= before - job.asks.len();
    }
}

/// The answer about a job of which it is only known that it was sent.
fn presumed(jid: &Jid, fun: &str) -> Packed {
    let description = Value::map([("jid", jid.as_str()), ("fun", fun)]);
    Packed::new(encode(&description, Dialect::Bin))
}

/// Actions that a look at a job finds for its missing minions.
fn needs(job: &Job, is_round: bool, rules: &Rules, turn: &Turn<'_>) -> Vec<(MinionId, Need)> {
    let fresh = rules.fresh();
    let missing = job.missing().filter_map(|(minion, entry)| {
        let state = entry.state();
        let is_overdue = match state {
            MinionState::Ending { since } => turn.now.since(*since) >= rules.gather,
            _ => false,
        };
        if !is_round && !is_overdue {
            return None;
        }
        let is_fresh = entry
            .said
            .as_ref()
            .is_some_and(|said| turn.now.since(said.at) < fresh);
        let need = match (turn.world.absence(minion), state) {
            (Some(_), MinionState::Unreachable(Reason::NotSent)) => return None,
            (Some(why), _) => Need::Put(MinionState::Unreachable(Reason::NotConnected(why))),
            (None, MinionState::Unreachable(Reason::NotConnected(_))) => {
                Need::PutAndAsk(MinionState::Expected)
            }
            (None, _) if is_fresh => return None,
            (None, _) => Need::ClientQuestion,
        };
        Some((minion.clone(), need))
    });
    missing.collect()
}

/// Gives up a minion that was awaited.
fn change_if_awaited(job: &mut Job, minion: &MinionId, reason: Reason) -> Option<Change> {
    let state = job.entry(minion)?.state();
    let is_awaited = !state.has_returned() && !state.is_lost();
    is_awaited.then(|| change(job, minion, MinionState::Unknown(reason)))?
}

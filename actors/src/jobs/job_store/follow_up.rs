//! Follow-ups of a commit: job files, the tracker's notice, events, publishes and replies.

use actix::Context;
use saltern_base::fail_point::FailPoint;
use saltern_base::planted_bug::PlantedBug;
use saltern_model::{Event, Jid, Packed};
use saltern_requests::{Publication, SyndicMinions};
use saltern_store::jobs::Written;

use super::JobStore;
use super::commit_group::{CommitGroup, CommitOutcome};
use crate::messages::{
    AnswerWhenGiven, Beginning, Fire, FireKept, FollowUp, JobBegun, MinionReturned, Publish,
    RowsCommitted, Stored,
};
use crate::shared::answer::PendingReply;

/// Effects of one commit.
#[derive(Default)]
struct CommitEffects {
    stored: Stored,
    /// Each publish with the events that come before it.
    publishes: Vec<(Vec<Event>, Publish)>,
    /// Events behind the last publish.
    events: Vec<Event>,
    answers: Vec<PendingReply>,
    /// Replies that wait for the returner.
    given: Vec<AnswerWhenGiven>,
}

/// The publish of a job.
pub(super) fn published(job: &JobBegun, publication: Publication) -> Publish {
    Publish {
        jid: job.jid.clone(),
        is_job: true,
        minions: job.minions.clone(),
        publication,
    }
}

impl JobStore {
    /// Carries out what follows the commit of `group`.
    pub(super) fn follow_up(
        &mut self,
        mut group: CommitGroup,
        CommitOutcome { written, took }: CommitOutcome,
        context: &mut Context<Self>,
    ) {
        FailPoint::CommitAfter.pass();
        let mut effects = CommitEffects::default();
        effects.answers.reserve(group.len());
        let follow_ups = std::mem::take(&mut group.follow_ups);
        let mut outcomes = follow_ups.into_iter().zip(written);
        for request in group.requests.drain(..) {
            request.trace(took);
            let mut begun = None;
            for (follow_up, written) in outcomes.by_ref().take(request.writes) {
                begun = begun.or(self.follow(follow_up, written, &mut effects));
            }
            match (request.answer, begun) {
                (Some(answer), Some(jid)) if self.seed.job_cache.is_some() => {
                    effects.given.push(AnswerWhenGiven { jid, answer });
                }
                (answer, _) => effects.answers.extend(answer),
            }
        }
        self.carry_out(effects, context);
    }

    /// Adds what follows one write to the effects; returns the job that begins with it, if any.
    fn follow(
        &mut self,
        follow_up: FollowUp,
        written: Written,
        effects: &mut CommitEffects,
    ) -> Option<Jid> {
        match follow_up {
            FollowUp::Nothing | FollowUp::ReportFailure(_) | FollowUp::ReportLostDeparture(_) => {}
            FollowUp::Fire(events) => effects.events.extend(events),
            FollowUp::Return { returned, events } => {
                self.follow_return(returned, events, written, effects);
            }
            FollowUp::Expect(leaves) => {
                if written != Written::NoSuchJob {
                    self.write_leaves(&leaves);
                    effects.stored.leaves.push(leaves);
                }
            }
            FollowUp::Begin(beginning) => return Some(self.begin(*beginning, effects)),
        }
        None
    }

    fn follow_return(
        &mut self,
        returned: MinionReturned,
        events: Vec<Event>,
        written: Written,
        effects: &mut CommitEffects,
    ) {
        if !self.was_fired(written) {
            effects.events.extend(events);
        }
        effects.stored.repeated += u64::from(!written.is_new());
        effects.stored.returns.push(returned);
    }

    fn begin(&self, beginning: Beginning, effects: &mut CommitEffects) -> Jid {
        let Beginning {
            job,
            announce,
            load,
            publication,
        } = beginning;
        effects.events.extend(announce);
        FailPoint::PublishBefore.pass();
        self.write_job_files(&job, &load);
        FailPoint::PublishAnnounced.pass();
        let jid = job.jid.clone();
        let announcement = std::mem::take(&mut effects.events);
        if !PlantedBug::PublishedBeforeCommit.is_planted() {
            let publish = published(&job, publication);
            effects.publishes.push((announcement, publish));
        }
        effects.stored.jobs.push(job);
        jid
    }

    fn carry_out(&mut self, effects: CommitEffects, context: &mut Context<Self>) {
        let CommitEffects {
            stored,
            publishes,
            events,
            answers,
            given,
        } = effects;
        // Before a minion can return what is published now.
        self.notify_tracker(stored);
        for (announcement, publish) in publishes {
            self.fire(announcement, context);
            self.outbox.push(context, &self.seed.publisher, publish);
        }
        if !events.is_empty() {
            self.fire(events, context);
        }
        self.outbox.then(context, move || {
            FailPoint::AnswerBefore.pass();
            for answer in answers {
                answer.done();
                FailPoint::AnswerBetween.pass();
            }
        });
        if let Some(job_cache) = &self.seed.job_cache {
            for message in given {
                self.outbox.push(context, job_cache, message);
            }
        }
        for follower in &self.seed.followers {
            // One waiting message is enough, so a full mailbox is no loss.
            let _ = follower.try_send(RowsCommitted);
        }
    }

    /// Puts the events of changes on the bus, behind their commit.
    fn fire(&mut self, events: Vec<Event>, context: &mut Context<Self>) {
        match &self.seed.durable_events {
            Some(durable) => self.outbox.push(context, &durable.bus, FireKept(events)),
            None => self.outbox.push(context, &self.seed.bus, Fire(events)),
        }
    }

    /// Whether the events of this return are on the bus already. A minion that got no answer sends
    /// its return again; its events must not be fired twice. Events of returns stored before a
    /// restart of the actor may not have been fired: they are fired at least once.
    fn was_fired(&mut self, written: Written) -> bool {
        match written {
            Written::New { id } => {
                self.fired_from.get_or_insert(id);
                false
            }
            Written::Repeated { id } => self.fired_from.is_some_and(|first| id >= first),
            _ => false,
        }
    }

    fn write_leaves(&self, leaves: &SyndicMinions) {
        let Some(writer) = &self.seed.job_files else {
            return;
        };
        let SyndicMinions {
            jid,
            syndic,
            minions,
        } = leaves;
        if let Err(error) = writer.write_minions(jid, minions, Some(syndic)) {
            tracing::error!(%jid, %syndic, %error, "stock's tools will not find these minions");
        }
    }

    fn write_job_files(&self, job: &JobBegun, load: &Packed) {
        let Some(writer) = &self.seed.job_files else {
            return;
        };
        let written = writer.write_load(&job.jid, load, Some(&job.minions), job.nocache);
        if let Err(error) = written {
            tracing::error!(jid = %job.jid, %error, "stock's tools will not find this job");
        }
    }

    pub(super) fn notify_tracker(&self, stored: Stored) {
        let nothing = stored.jobs.is_empty() && stored.leaves.is_empty();
        let none = stored.returns.is_empty() && stored.unsent.is_empty();
        let no_failure = stored.refused.is_empty() && stored.lost_departures.is_empty();
        if nothing && none && no_failure {
            return;
        }
        // Never waits: the tracker may be waiting for this actor.
        self.seed.tracker.do_send(stored);
    }
}

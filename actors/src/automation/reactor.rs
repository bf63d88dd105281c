//! Reactor: renders the files of the rules that an event matches, begins jobs like a client's and
//! passes calls of functions to the runners.
//!
//! Events wait in the [`ReactionQueue`] (`reactor/queue.rs`), which outlives the actor: events of a second
//! may take minutes of reactions, and the bus never waits. One event is rendered after the other,
//! as in stock, so jobs go out in the order of their events; functions run on threads of their own
//! (`reactor_worker_threads`), one started after the other.
//!
//! A reaction is begun at most once. Each reaction in progress carries a [`Watch`], which reports
//! it as lost when dropped: so a panic, here or in a function, loses nothing silently and needs no
//! record of what was done.

mod dead_letter;
mod dropped;
mod event_queues;
mod failures;
mod metrics;
mod reaction_log;
mod reaction_queue;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Recipient, ResponseActFuture, WrapFuture};
use saltern_automation::reactor::{self, Begun, End, Plan, Reaction, Reactions, USER};
use saltern_model::Event;
use saltern_requests::Services;
use saltern_supervise::Child;
use saltern_wire::msgpack::{Limits, Value, decode};

use self::dead_letter::{ReplayError, ReplaySelection};
use self::event_queues::{InFlightEvent, Item, Kind};
pub(crate) use self::reaction_queue::{OpenError, ReactionQueue};
use self::watch::{Lost, Subject, Watch};
use crate::content::renderer::Look;
use crate::functions::runner::RunQueue;
use crate::messages::{BeginJob, Fire, Persist};
use crate::shared::answer::PendingReply;
use crate::shared::history_writer::HistoryWriter;
use crate::shared::priority::give_way;
use crate::shared::send::{Outbox, SendsThroughOutbox};

/// Below the workers, like the renderers.
const NICENESS: i32 = 5;

/// Interval of the reports of dropped events, of the checks of rule files, and of looks at the log.
const TICK: Duration = Duration::from_secs(1);

/// Seed of the reactor.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) queue: Arc<ReactionQueue>,
    pub(crate) services: Arc<Services>,
    pub(crate) reactions: Arc<Reactions>,
    pub(crate) begin_job: Recipient<BeginJob>,
    pub(crate) runs: Arc<RunQueue>,
    /// For the rows of reactions that are refused.
    pub(crate) store: Recipient<Persist>,
    pub(crate) bus: Recipient<Fire>,
}

/// Actor that reacts to events.
pub(crate) struct Reactor {
    seed: Seed,
    outbox: Outbox,
    log_writer: HistoryWriter,
}

impl Child for Reactor {
    type Seed = Seed;

    const NAME: &'static str = "reactor";
    const MAILBOX: usize = 4;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
            log_writer: HistoryWriter::default(),
        }
    }

    /// Waiting events are dropped and counted; jobs that have begun are awaited.
    fn drain(&mut self, context: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        self.seed.queue.close();
        self.report_state(context);
        let queue = self.seed.queue.clone();
        Some(Box::pin(
            async move { queue.jobs_ended().await }.into_actor(self),
        ))
    }
}

impl Actor for Reactor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        give_way(NICENESS);
        context.run_interval(TICK, |reactor, context| {
            let queue = &reactor.seed.queue;
            queue.refresh_rules();
            let log = queue.clone();
            reactor
                .log_writer
                .look(queue.has_news_of_log(), move || log.save_log());
            let news = queue
                .dropped_event()
                .into_iter()
                .chain(queue.unreported_event());
            let news: Vec<Event> = news.collect();
            if !news.is_empty() {
                let bus = &reactor.seed.bus;
                reactor.outbox.push(context, bus, Fire(news));
            }
        });
        context.notify(Look);
    }
}

impl SendsThroughOutbox for Reactor {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Handler<Look> for Reactor {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Self::Context) {
        self.report_state(context);
        let Some((item, place)) = self.seed.queue.pop() else {
            return;
        };
        // Before the work: whatever becomes of it, the next one is taken.
        context.notify(Look);
        self.react(item, &Arc::new(place), context);
    }
}

impl Reactor {
    /// Fires the events about failed reactions.
    fn report_state(&mut self, context: &mut Context<Self>) {
        let news = self.seed.queue.take_news();
        if !news.is_empty() {
            self.outbox.push(context, &self.seed.bus, Fire(news));
        }
    }

    fn react(&mut self, item: Item, place: &Arc<InFlightEvent>, context: &mut Context<Self>) {
        let Seed {
            queue, services, ..
        } = &self.seed;
        let event = &item.event;
        if let Kind::ReplaySelection(again) = &item.kind {
            let begun = self.react_again(event, again, place, context);
            if let Some(asker) = item.asker {
                asker(begun);
            }
            return;
        }
        let lost = Lost::new(queue, event);
        let Ok(data) = decode(event.data.as_ref(), &Limits::WIRE) else {
            tracing::error!(tag = %event.tag, "an event cannot be read, and is dropped");
            return lost.settled();
        };
        if let Some(order) = reactor::order_of(event.tag.as_str()) {
            let answer = order.and_then(|order| queue.obey(order, &data, services));
            if let Some(answer) = answer {
                self.outbox
                    .push(context, &self.seed.bus, Fire(vec![answer]));
            }
            return lost.settled();
        }
        if data.get("user").and_then(Value::as_str) == Some(USER) {
            return lost.settled();
        }
        let reactions = self.watched(self.plan(event, data), event, place);
        lost.settled();
        for (reaction, watch) in reactions {
            self.begin(&reaction.call, watch, context);
        }
    }

    /// Replays a dead letter. All files of the event are rendered, as they were the first time:
    /// they may need each other. The dead letter is removed before the first reaction is begun,
    /// and stays when none is.
    fn react_again(
        &mut self,
        event: &Event,
        again: &ReplaySelection,
        place: &Arc<InFlightEvent>,
        context: &mut Context<Self>,
    ) -> Result<(), ReplayError> {
        let data = decode(event.data.as_ref(), &Limits::WIRE).map_err(ReplayError::Event)?;
        let Seed {
            queue, reactions, ..
        } = &self.seed;
        let files = again.sls.as_ref().map(|sls| reactions.files(sls));
        let plan = again.of(self.plan(event, data), &files.unwrap_or_default())?;
        queue.remove_letter(&again.dead_letter)?;
        for (reaction, watch) in self.watched(plan, event, place) {
            self.begin(&reaction.call, watch, context);
        }
        Ok(())
    }

    /// The reactions to an event.
    fn plan(&self, event: &Event, data: Value) -> Plan {
        let Seed {
            queue, reactions, ..
        } = &self.seed;
        let tag = event.tag.as_str();
        let references = queue.matched(tag);
        let _timer = queue.metrics.rendering.start_timer();
        reactions.of(&references, tag, &Arc::new(data))
    }

    /// Reports the problems of a plan. Each of its reactions has its watch before the first is
    /// begun: what a panic prevents is named, too.
    fn watched(
        &self,
        plan: Plan,
        event: &Event,
        place: &Arc<InFlightEvent>,
    ) -> Vec<(Reaction, Watch)> {
        let queue = &self.seed.queue;
        for problem in plan.problems {
            queue.failed(&Subject::of_problem(event, &problem), problem.to_string());
        }
        let reactions = plan.reactions.into_iter().map(|reaction| {
            let watch = Watch::new(queue, event, &reaction, place);
            (reaction, watch)
        });
        reactions.collect()
    }

    fn begin(
        &mut self,
        call: &reactor::ReactionCall,
        mut watch: Watch,
        context: &mut Context<Self>,
    ) {
        match reactor::begin(call, &self.seed.services) {
            Err(reason) => {
                let row = reactor::refusal_row(call, &reason, &self.seed.services);
                let persist = Persist::row(Box::new(row));
                self.outbox.push(context, &self.seed.store, persist);
                watch.settle(End::Failed(reason.to_string()));
            }
            Ok(Begun::Nobody) => watch.meant_nobody(),
            Ok(Begun::Job(start)) => {
                watch.leads_to(Some(&start.job.jid));
                let (answer, stored) = PendingReply::inside();
                let begun = self.seed.queue.begin_job();
                self.outbox
                    .push(context, &self.seed.begin_job, BeginJob { start, answer });
                // A task of its own, so that it survives a panic of this actor.
                actix_rt::spawn(async move {
                    watch.settle(match stored.await {
                        true => End::Done,
                        false => End::Failed(NOT_STORED.to_owned()),
                    });
                    drop(begun);
                });
            }
            Ok(Begun::Call(call)) => {
                watch.leads_to(call.jid());
                let runs = &self.seed.runs;
                if !runs.has_room(call.is_python()) {
                    return watch.dropped();
                }
                let Some(held) = self.seed.queue.hold(watch.size()) else {
                    return watch.dropped();
                };
                let run = call.run(Box::new(move |end| {
                    watch.settle(end);
                    drop(held);
                }));
                // There was room, and this is the only sender.
                drop(runs.push(run));
            }
        }
    }
}

const NOT_STORED: &str = "the job could not be stored, so it was not published";

#[cfg(test)]
mod tests;

//! Calls of minions to the master (`peer_run`, `peer`): a function of the master, or a job on
//! other minions and its returns.
//!
//! No worker waits with them. Each minion has one function running at a time and a few calls
//! waiting; the total is bounded. On timeout the minion is answered, and what was begun goes on
//! without it. A function that has not been begun by then never is.
//!
//! Functions run on threads of their own (`runner.rs`), so that minions never delay calls of local
//! users; the processes of Python are shared, and where there are several, minions have at most
//! half of them. The returns of a job, which may be many, are read by the renderers of `pub_ret`
//! (`renderer.rs`): this actor only records which minion waits for what.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle,
    WrapFuture,
};
use bytes::Bytes;
use saltern_base::metrics::{IntCounterVec, IntGauge, Registry, counter_vec, gauge};
use saltern_model::{Event, Jid, MinionId};
use saltern_requests::{Later, PeerCall, PeerCallWork, PeerRun, PeerRunWork, Run, StartJob};
use saltern_supervise::Child;

use crate::content::render_queue::{Asker, RenderQueue, Rendering};
use crate::functions::runner::RunQueue;
use crate::jobs::job_completions::JobCompletions;
use crate::messages::{BeginJob, JobOver, TakePeerCall};
use crate::shared::answer::PendingReply;
use crate::shared::send::{Outbox, SendsThroughOutbox};

/// Calls of all minions together.
const MAX_WAITING: usize = 1024;

/// Calls of one minion. A real one has one, or a few when its states run in parallel.
const MAX_PER_MINION: usize = 8;

/// Seed of the actor.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) begin_job: Recipient<BeginJob>,
    pub(crate) ends: Arc<JobCompletions>,
    pub(crate) runs: Arc<RunQueue>,
    pub(crate) renderings: Arc<RenderQueue>,
    /// The last number of a call: no number is used twice, not after a restart either.
    pub(crate) numbers: Arc<AtomicU64>,
    pub(crate) metrics: PeerCallMetrics,
}

/// Metrics of the calls.
#[derive(Clone)]
pub(crate) struct PeerCallMetrics {
    waiting: IntGauge,
    unfinished: IntCounterVec,
}

impl PeerCallMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            waiting: gauge(
                registry,
                "saltern_peer_calls_waiting",
                "Functions and jobs of the master that minions wait for.",
            ),
            unfinished: counter_vec(
                registry,
                "saltern_peer_calls_unfinished_total",
                "Minions answered without what they waited for, by reason: too many waited, or it \
                 took too long.",
                &["reason"],
            ),
        }
    }
}

/// Actor that holds the calls of minions.
pub(crate) struct PeerCalls {
    seed: Seed,
    outbox: Outbox,
    waiting: HashMap<u64, Waiting>,
    jobs: HashMap<Jid, u64>,
    /// Queues of every minion with a call or a running function.
    lines: HashMap<MinionId, MinionQueue>,
}

/// A call that has not been answered.
struct Waiting {
    minion: MinionId,
    answer: PendingReply,
    what_for: WaitsFor,
    end: SpawnHandle,
}

enum WaitsFor {
    Run { too_late: Bytes },
    Job { jid: Jid, returned: Later },
}

/// The work of a call.
enum PeerWork {
    Run(Function),
    Begin(Box<StartJob>),
}

/// A function of the master.
struct Function {
    lost: Event,
    work: PeerRunWork,
    is_python: bool,
}

/// The calls of one minion.
#[derive(Default)]
struct MinionQueue {
    /// Calls that have not been answered.
    waiting: usize,
    /// Functions that have not been begun.
    runs: VecDeque<(u64, Function)>,
    is_served: bool,
}

impl MinionQueue {
    fn is_over(&self) -> bool {
        self.waiting == 0 && self.runs.is_empty() && !self.is_served
    }
}

/// A function has ended, with a reply, or was lost.
#[derive(Message)]
#[rtype(result = "()")]
struct RunOver {
    number: u64,
    minion: MinionId,
    reply: Option<Bytes>,
}

/// Notifies the actor of a function's end on drop, also if the function panics or is never queued.
struct RunningFunction {
    peer_calls: Recipient<RunOver>,
    over: Option<RunOver>,
}

impl Drop for RunningFunction {
    fn drop(&mut self) {
        if let Some(over) = self.over.take() {
            // One for each function that was begun, and those are bounded.
            self.peer_calls.do_send(over);
        }
    }
}

impl Child for PeerCalls {
    type Seed = Seed;

    const NAME: &'static str = "peer_calls";
    const MAILBOX: usize = 256;

    fn build(seed: &Seed) -> Self {
        seed.metrics.waiting.set(0);
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
            waiting: HashMap::new(),
            jobs: HashMap::new(),
            lines: HashMap::new(),
        }
    }
}

impl Actor for PeerCalls {
    type Context = Context<Self>;
}

impl SendsThroughOutbox for PeerCalls {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Handler<TakePeerCall> for PeerCalls {
    type Result = ();

    fn handle(&mut self, message: TakePeerCall, context: &mut Self::Context) {
        let TakePeerCall { call, answer } = message;
        let PeerCall { minion, wait, work } = *call;
        let of_this_one = self.lines.get(&minion).map_or(0, |line| line.waiting);
        if self.waiting.len() >= MAX_WAITING || of_this_one >= MAX_PER_MINION {
            self.count_unfinished("full");
            answer.failed();
            return;
        }
        let number = self.seed.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (what_for, deed) = match work {
            PeerCallWork::Run(PeerRun {
                lost,
                work,
                too_late,
                is_python,
            }) => {
                let function = Function {
                    lost,
                    work,
                    is_python,
                };
                (WaitsFor::Run { too_late }, PeerWork::Run(function))
            }
            PeerCallWork::Job { start, returned } => {
                let jid = start.job.jid.clone();
                (WaitsFor::Job { jid, returned }, PeerWork::Begin(start))
            }
        };
        let waiting = Waiting {
            minion: minion.clone(),
            answer,
            what_for,
            end: context.run_later(wait, move |peer_calls, context| {
                peer_calls.time_is_over(number, context);
            }),
        };
        self.waiting.insert(number, waiting);
        let line = self.lines.entry(minion.clone()).or_default();
        line.waiting += 1;
        match deed {
            PeerWork::Run(function) => {
                line.runs.push_back((number, function));
                self.serve(&minion, context);
            }
            PeerWork::Begin(start) => self.begin(number, start, context),
        }
        self.count_waiting();
    }
}

impl Handler<RunOver> for PeerCalls {
    type Result = ();

    fn handle(&mut self, over: RunOver, context: &mut Self::Context) {
        if let Some(waiting) = self.take(over.number, context) {
            match over.reply {
                Some(reply) => waiting.answer.saying(reply).done(),
                None => waiting.answer.failed(),
            }
        }
        if let Some(line) = self.lines.get_mut(&over.minion) {
            line.is_served = false;
        }
        self.serve(&over.minion, context);
    }
}

impl Handler<JobOver> for PeerCalls {
    type Result = ();

    fn handle(&mut self, JobOver(jid): JobOver, context: &mut Self::Context) {
        let number = self.jobs.get(&jid).copied();
        if let Some(waiting) = number.and_then(|number| self.take(number, context)) {
            waiting.answer_with_returned(&self.seed.renderings);
        }
    }
}

impl Waiting {
    fn answer_with_returned(self, renderings: &RenderQueue) {
        match self.what_for {
            WaitsFor::Run { too_late } => self.answer.saying(too_late).done(),
            WaitsFor::Job { returned, .. } => renderings.push(Rendering {
                asker: Asker::Minion(self.minion),
                command: "minion_publish",
                work: returned,
                answer: self.answer,
            }),
        }
    }
}

impl PeerCalls {
    /// Starts the next function of a minion, unless one is running. Those whose minion has gone
    /// are skipped.
    fn serve(&mut self, minion: &MinionId, context: &mut Context<Self>) {
        while let Some(line) = self.lines.get_mut(minion) {
            if line.is_over() {
                self.lines.remove(minion);
                return;
            }
            if line.is_served {
                return;
            }
            let Some((number, function)) = line.runs.pop_front() else {
                return;
            };
            let is_wanted = |waiting: &Waiting| !waiting.answer.is_unwanted();
            if !self.waiting.get(&number).is_some_and(is_wanted) {
                self.take(number, context);
                continue;
            }
            line.is_served = true;
            let mut under_way = RunningFunction {
                peer_calls: context.address().recipient(),
                over: Some(RunOver {
                    number,
                    minion: minion.clone(),
                    reply: None,
                }),
            };
            let Function {
                lost,
                work,
                is_python,
            } = function;
            let run = Run::new(lost, move |fire| {
                let (ran, reply) = work(fire);
                if let Some(over) = &mut under_way.over {
                    over.reply = Some(reply);
                }
                ran
            });
            let run = if is_python { run.in_python() } else { run };
            // Without a free slot it is dropped, which reports its end.
            let _ = self.seed.runs.push(run);
        }
    }

    fn begin(&mut self, number: u64, start: Box<StartJob>, context: &mut Context<Self>) {
        let jid = start.job.jid.clone();
        self.seed.ends.follow(&jid);
        self.jobs.insert(jid, number);
        let (answer, begun) = PendingReply::inside();
        let begin = BeginJob { start, answer };
        self.outbox.push(context, &self.seed.begin_job, begin);
        let begun = begun
            .into_actor(self)
            .map(move |has_begun, peer_calls, context| {
                let refused = (!has_begun)
                    .then(|| peer_calls.take(number, context))
                    .flatten();
                if let Some(waiting) = refused {
                    waiting.answer.failed();
                }
            });
        context.spawn(begun);
    }

    fn time_is_over(&mut self, number: u64, context: &mut Context<Self>) {
        let Some(waiting) = self.take(number, context) else {
            return;
        };
        self.count_unfinished("late");
        waiting.answer_with_returned(&self.seed.renderings);
    }

    /// Takes out a call that is to be answered now.
    fn take(&mut self, number: u64, context: &mut Context<Self>) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        context.cancel_future(waiting.end);
        if let WaitsFor::Job { jid, .. } = &waiting.what_for {
            self.jobs.remove(jid);
            self.seed.ends.forget(jid);
        }
        if let Some(line) = self.lines.get_mut(&waiting.minion) {
            line.waiting -= 1;
            line.runs.retain(|(queued, _)| *queued != number);
            if line.is_over() {
                self.lines.remove(&waiting.minion);
            }
        }
        self.count_waiting();
        Some(waiting)
    }

    fn count_waiting(&self) {
        let waiting = i64::try_from(self.waiting.len()).unwrap_or(i64::MAX);
        self.seed.metrics.waiting.set(waiting);
    }

    fn count_unfinished(&self, reason: &str) {
        let counter = &self.seed.metrics.unfinished;
        counter.with_label_values(&[reason]).inc();
    }
}

#[cfg(test)]
mod tests;

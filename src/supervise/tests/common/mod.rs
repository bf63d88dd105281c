//! A scripted actor, and systems to run it in.

use std::{future::Future, sync::Arc, time::Duration};

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AtomicResponse, Context, Handler, Message,
    ResponseActFuture, ResponseFuture, Running, System, WrapFuture,
};
use parking_lot::Mutex;
use prometheus::Registry;
use saltern_supervise::{Budget, Child, ChildSpec, Supervisor, Tree, current_actor};
use tokio::time::Instant;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Runs a test in a system whose clock stands still unless everyone waits for it.
pub(crate) fn paused(test: impl Future<Output = ()>) {
    in_system(true, test);
}

/// Runs a test with the real clock, for actors on several threads.
pub(crate) fn real_time(test: impl Future<Output = ()>) {
    in_system(false, test);
}

fn in_system(paused: bool, test: impl Future<Output = ()>) {
    let system = System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(paused)
            .build()
            .expect("a runtime")
    });
    system.block_on(test);
}

pub(crate) fn tree(max_restarts: u32) -> (Tree, Supervisor) {
    let budget = Budget::new(max_restarts, SECOND * 60);
    let tree = Tree::new("root", budget, &Registry::new());
    let root = tree.root();
    (tree, root)
}

/// Log of the probes' actions, in order, with the time since the log was made.
#[derive(Clone)]
pub(crate) struct Log {
    entries: Arc<Mutex<Vec<(String, Duration)>>>,
    epoch: Instant,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            entries: Arc::default(),
            epoch: Instant::now(),
        }
    }
}

impl Log {
    pub(crate) fn add(&self, entry: impl Into<String>) {
        self.entries
            .lock()
            .push((entry.into(), self.epoch.elapsed()));
    }

    pub(crate) fn take(&self) -> Vec<String> {
        self.entries
            .lock()
            .drain(..)
            .map(|(entry, _)| entry)
            .collect()
    }

    /// The times, in milliseconds, at which this happened.
    pub(crate) fn times(&self, wanted: &str) -> Vec<u128> {
        let entries = self.entries.lock();
        entries
            .iter()
            .filter(|(entry, _)| entry == wanted)
            .map(|(_, at)| at.as_millis())
            .collect()
    }

    pub(crate) fn count(&self, wanted: &str) -> usize {
        self.times(wanted).len()
    }
}

type Step = Arc<dyn Fn(&mut Probe, &mut Context<Probe>) + Send + Sync>;
type Draining = Arc<
    dyn Fn(&mut Probe, &mut Context<Probe>) -> Option<ResponseActFuture<Probe, ()>> + Send + Sync,
>;

/// How a probe behaves each time it is built.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) number: u32,
    pub(crate) log: Log,
    pub(crate) build: Arc<dyn Fn() + Send + Sync>,
    pub(crate) started: Step,
    pub(crate) drain: Draining,
    /// `stopping` answers this.
    pub(crate) stopping: Running,
    pub(crate) drop: Arc<dyn Fn() + Send + Sync>,
}

impl Script {
    pub(crate) fn new(number: u32, log: &Log) -> Self {
        Self {
            number,
            log: log.clone(),
            build: Arc::new(|| {}),
            started: Arc::new(|_, _| {}),
            drain: Arc::new(|_, _| None),
            stopping: Running::Stop,
            drop: Arc::new(|| {}),
        }
    }

    pub(crate) fn building(mut self, step: impl Fn() + Send + Sync + 'static) -> Self {
        self.build = Arc::new(step);
        self
    }

    pub(crate) fn starting(
        mut self,
        step: impl Fn(&mut Probe, &mut Context<Probe>) + Send + Sync + 'static,
    ) -> Self {
        self.started = Arc::new(step);
        self
    }

    pub(crate) fn draining_for(mut self, time: Duration) -> Self {
        self.drain = Arc::new(move |probe: &mut Probe, _: &mut Context<Probe>| {
            let number = probe.script.number;
            probe.script.log.add(format!("drain {number}"));
            let done = tokio::time::sleep(time).into_actor(probe);
            Some(Box::pin(done.map(move |(), probe: &mut Probe, _| {
                probe.script.log.add(format!("drained {number}"));
            })))
        });
        self
    }

    pub(crate) fn start(self, under: &Supervisor) -> Addr<Probe> {
        self.start_with(under, generous())
    }

    pub(crate) fn start_with(self, under: &Supervisor, spec: ChildSpec) -> Addr<Probe> {
        let number = self.number;
        under.start_child::<Probe>(spec, self, number)
    }
}

/// Permanent, with more restarts than any test needs.
pub(crate) fn generous() -> ChildSpec {
    ChildSpec::permanent().with_budget(Budget::new(1000, SECOND * 60))
}

/// An actor that counts messages and runs the outcome in each.
pub(crate) struct Probe {
    pub(crate) script: Script,
    pub(crate) count: u32,
}

impl Probe {
    fn log(&self, what: &str) {
        self.script
            .log
            .add(format!("{what} {}", self.script.number));
    }
}

impl Actor for Probe {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.log("started");
        let step = Arc::clone(&self.script.started);
        step(self, ctx);
    }

    fn stopping(&mut self, _: &mut Context<Self>) -> Running {
        self.log("stopping");
        self.script.stopping
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.log("stopped");
    }
}

impl Child for Probe {
    type Seed = Script;
    const NAME: &'static str = "probe";
    const MAILBOX: usize = 16;

    fn build(script: &Script) -> Self {
        script.log.add(format!("build {}", script.number));
        (script.build)();
        Self {
            script: script.clone(),
            count: 0,
        }
    }

    fn drain(&mut self, ctx: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        let drain = Arc::clone(&self.script.drain);
        drain(self, ctx)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.log("drop");
        (self.script.drop)();
    }
}

/// Counts one more, and answers the count.
pub(crate) struct Bump;

impl Message for Bump {
    type Result = u32;
}

impl Handler<Bump> for Probe {
    type Result = u32;

    fn handle(&mut self, _: Bump, _: &mut Context<Self>) -> u32 {
        self.count += 1;
        self.count
    }
}

type Deed = Box<dyn FnOnce(&mut Probe, &mut Context<Probe>) + Send>;

/// Does anything at all, inside the handler.
pub(crate) struct Do(Deed);

pub(crate) fn act(deed: impl FnOnce(&mut Probe, &mut Context<Probe>) + Send + 'static) -> Do {
    Do(Box::new(deed))
}

pub(crate) fn boom() -> Do {
    act(|_, _| panic!("boom"))
}

pub(crate) fn stop() -> Do {
    act(|_, ctx| ctx.stop())
}

/// The actor that runs now, according to the framework.
pub(crate) fn who(into: &Log) -> Do {
    let log = into.clone();
    act(move |_, _| {
        log.add(format!(
            "{:?}",
            current_actor().map(|actor| actor.to_string())
        ))
    })
}

impl Message for Do {
    type Result = ();
}

impl Handler<Do> for Probe {
    type Result = ();

    fn handle(&mut self, Do(deed): Do, ctx: &mut Context<Self>) {
        deed(self, ctx);
    }
}

/// How a [`Later`] answers.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Count,
    Panic,
}

/// Answers after a while, as a future of the actor: other messages are handled meanwhile.
pub(crate) struct Later(pub(crate) Duration, pub(crate) Outcome);

impl Message for Later {
    type Result = u32;
}

impl Handler<Later> for Probe {
    type Result = ResponseActFuture<Self, u32>;

    fn handle(&mut self, Later(time, outcome): Later, _: &mut Context<Self>) -> Self::Result {
        let wait = tokio::time::sleep(time).into_actor(self);
        Box::pin(wait.map(move |(), probe: &mut Self, _| conclude(probe, outcome)))
    }
}

/// Answers after a while; no other message is handled meanwhile.
pub(crate) struct Atomic(pub(crate) Duration, pub(crate) Outcome);

impl Message for Atomic {
    type Result = u32;
}

impl Handler<Atomic> for Probe {
    type Result = AtomicResponse<Self, u32>;

    fn handle(&mut self, Atomic(time, outcome): Atomic, _: &mut Context<Self>) -> Self::Result {
        let wait = tokio::time::sleep(time).into_actor(self);
        let work = wait.map(move |(), probe: &mut Self, _| conclude(probe, outcome));
        AtomicResponse::new(Box::pin(work))
    }
}

fn conclude(probe: &mut Probe, outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Panic => panic!("boom, later"),
        Outcome::Count => {
            probe.count += 1;
            probe.count
        }
    }
}

/// Answers after a while from a task of its own, which belongs to no actor.
pub(crate) struct Detached(pub(crate) Duration, pub(crate) Outcome);

impl Message for Detached {
    type Result = u32;
}

impl Handler<Detached> for Probe {
    type Result = ResponseFuture<u32>;

    fn handle(&mut self, Detached(time, outcome): Detached, _: &mut Context<Self>) -> Self::Result {
        Box::pin(async move {
            tokio::time::sleep(time).await;
            match outcome {
                Outcome::Panic => panic!("boom, detached"),
                Outcome::Count => 42,
            }
        })
    }
}

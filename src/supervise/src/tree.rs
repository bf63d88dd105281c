//! The tree: who supervises whom, and what the end of one means for the others.
//!
//! Decisions are taken under one lock, on the thread of the child that ended, so that a stuck
//! thread cannot hold up the restart of an actor on another one. The lock is taken when a child
//! starts, ends or is looked at, never for a message. Stopping is in `stop.rs`.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use actix::{Addr, Arbiter, ArbiterHandle, dev::channel::channel};
use parking_lot::Mutex;
use saltern_base::metrics::Registry;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use crate::{
    ActorId, Budget, Child, ChildSpec, ChildState, Placement, Restart, Strategy,
    line::{Command, Line, Rebuild},
    metrics::Metrics,
    policy::Record,
    runner::Runner,
};

/// How often every actor is asked for a sign of life.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// Why a value of an actor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It panicked; the text of the panic.
    Panicked(String),
    /// It stopped by itself (`ctx.stop()`, or a stream whose `finished` does that).
    Stopped,
}

impl fmt::Display for ExitReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(text) => write!(out, "panicked: \"{text}\""),
            Self::Stopped => out.write_str("stopped by itself"),
        }
    }
}

/// Why the whole tree gave up: the child that failed last, and the supervisor that had no
/// restart left for it and nobody above to ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("supervisor \"{supervisor}\" has used up its restarts: actor \"{actor}\" {reason}")]
pub struct Failure {
    /// The name of the root.
    pub supervisor: String,
    /// The last straw.
    pub actor: ActorId,
    /// What happened to it.
    pub reason: ExitReason,
}

/// One actor as the watchdog and the doctor see it.
#[derive(Clone, Debug)]
pub struct ChildHealth {
    /// [`Child::NAME`].
    pub name: &'static str,
    /// 0 for an actor that exists once, else its number in the pool.
    pub instance: u32,
    /// The supervisor's name.
    pub supervisor: String,
    /// What it is doing.
    pub state: ChildState,
    /// Times it was built again, for whatever reason.
    pub restarts: u64,
    /// Time since the last beat that it answered. Up to [`HEARTBEAT`] when all is well; growing
    /// means that its thread is stuck in synchronous code.
    pub last_beat_age: Duration,
    /// Messages waiting when it was last polled; [`Child::MAILBOX`] means "that many or more".
    pub mailbox_len: usize,
}

/// A supervision tree. Clones are handles to the same tree.
#[derive(Clone)]
pub struct Tree {
    shared: Arc<Shared>,
}

impl Tree {
    /// A tree with a root supervisor of this name, whose metrics go into `registry`.
    ///
    /// # Panics
    /// Outside an actix system, or when the registry already has the metrics of a tree.
    #[must_use]
    pub fn new(name: &str, strategy: Strategy, budget: Budget, registry: &Registry) -> Self {
        let shared = Arc::new(Shared {
            metrics: Metrics::new(registry),
            home: Arbiter::current(),
            epoch: Instant::now(),
            state: Mutex::new(State::new(name, strategy, budget)),
            level: watch::Sender::new(Level::Running),
            failure: watch::Sender::new(None),
        });
        actix_rt::spawn(ask_for_beats(Arc::downgrade(&shared)));
        Self { shared }
    }

    /// The root supervisor.
    #[must_use]
    pub fn root(&self) -> Supervisor {
        Supervisor {
            shared: Arc::clone(&self.shared),
            number: ROOT,
        }
    }

    /// Resolves when the root has given up and everything is stopped; the process should then
    /// end with exit code 70 and be started anew. Stays pending for ever otherwise.
    pub async fn failed(&self) -> Failure {
        let mut watch = self.shared.failure.subscribe();
        let seen = watch.wait_for(Option::is_some).await;
        match seen.ok().and_then(|failure| failure.clone()) {
            Some(failure) => failure,
            // The sender lives in `self`, which is borrowed until here.
            None => std::future::pending().await,
        }
    }

    /// Stops everything, in the reverse order of starting: each child is asked to
    /// [`drain`](Child::drain) and given its budget, then stopped, before the next one is asked.
    ///
    /// A second call (a second signal), while the first is under way, stops everyone at once
    /// and lets the first return. Must be awaited to the end; a call dropped half-way leaves
    /// the rest running until the next call.
    pub async fn shutdown(&self) -> crate::Stopped {
        crate::stop::shutdown(&self.shared).await
    }

    /// Everyone who is not gone for good, in the order of starting.
    #[must_use]
    pub fn liveness(&self) -> Vec<ChildHealth> {
        let now = self.shared.micros();
        let state = self.shared.state.lock();
        state
            .children
            .values()
            .map(|child| ChildHealth {
                name: child.line.actor.name,
                instance: child.line.actor.instance,
                supervisor: state.supervisors[child.supervisor].name.clone(),
                state: child.line.state(),
                restarts: child
                    .line
                    .restarts
                    .load(std::sync::atomic::Ordering::Relaxed),
                last_beat_age: Duration::from_micros(now.saturating_sub(child.line.answered())),
                mailbox_len: child
                    .line
                    .mailbox
                    .load(std::sync::atomic::Ordering::Relaxed),
            })
            .collect()
    }

    /// Makes an actor panic at its next poll, for tests of what happens then. `false`: there is
    /// no such actor.
    pub fn inject_panic(&self, name: &str, instance: u32) -> bool {
        let line = self
            .shared
            .state
            .lock()
            .children
            .values()
            .find_map(|child| {
                let actor = child.line.actor;
                (actor.name == name && actor.instance == instance).then(|| Arc::clone(&child.line))
            });
        line.is_some_and(|line| {
            line.command(Command::Panic);
            true
        })
    }
}

/// A place in the tree where children are started. Clones are handles to the same supervisor.
#[derive(Clone)]
pub struct Supervisor {
    shared: Arc<Shared>,
    number: usize,
}

impl Supervisor {
    /// A supervisor under this one. When it has used up its budget this one restarts it, which
    /// is to restart all its children in the order of their start; their addresses stay good.
    #[must_use]
    pub fn supervisor(&self, name: &str, strategy: Strategy, budget: Budget) -> Self {
        let mut state = self.shared.state.lock();
        let number = state.supervisors.len();
        state
            .supervisors
            .push(Node::new(name, strategy, budget, Some(self.number)));
        state.supervisors[self.number]
            .members
            .push(Member::Supervisor(number));
        Self {
            shared: Arc::clone(&self.shared),
            number,
        }
    }

    /// Starts an actor and returns its address at once; messages wait until it is built on its
    /// own thread. `instance` is 0 for an actor that exists once, else its number in the pool.
    ///
    /// While the tree is being stopped nothing starts any more: the address is closed.
    ///
    /// # Panics
    /// Outside an actix system, or when the system refuses a new thread.
    pub fn start_child<A: Child>(&self, spec: ChildSpec, seed: A::Seed, instance: u32) -> Addr<A> {
        const { assert!(A::MAILBOX > 0, "a mailbox of 0 would be unbounded") };
        let (sender, receiver) = channel::<A>(A::MAILBOX);
        let address = Addr::new(sender);
        let arbiter = self.shared.arbiter(&spec.arbiter);
        let actor = ActorId {
            name: A::NAME,
            instance,
        };
        let line = Arc::new(Line::new(actor, self.shared.micros()));
        let Some(key) = self.shared.add_child(self.number, &spec, Arc::clone(&line)) else {
            return address;
        };
        let tree = Arc::clone(&self.shared);
        let meters = tree.metrics.of(A::NAME);
        let spawned = arbiter.spawn_fn(move || {
            actix_rt::spawn(Runner::<A>::new(tree, key, line, meters, seed, receiver));
        });
        if !spawned {
            tracing::error!(%actor, "its thread has stopped; the actor does not start");
            self.shared.child_over(key);
        }
        address
    }
}

const ROOT: usize = 0;

/// How far the tree is on its way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Running,
    Draining,
    /// Nobody is waited for any more.
    Hurrying,
    /// Everyone has ended, or is stuck.
    Over,
}

pub(crate) struct Shared {
    metrics: Metrics,
    /// Where the tree's own tasks run.
    home: ArbiterHandle,
    epoch: Instant,
    state: Mutex<State>,
    pub(crate) level: watch::Sender<Level>,
    failure: watch::Sender<Option<Failure>>,
}

struct State {
    /// Never shrinks: supervisors live as long as the tree.
    supervisors: Vec<Node>,
    /// In the order of starting; a child that is gone for good is not in here.
    children: BTreeMap<u64, ChildNode>,
    next_key: u64,
    threads: HashMap<String, Arbiter>,
}

struct Node {
    name: String,
    strategy: Strategy,
    record: Record,
    parent: Option<usize>,
    /// In the order of starting.
    members: Vec<Member>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Child(u64),
    Supervisor(usize),
}

struct ChildNode {
    line: Arc<Line>,
    supervisor: usize,
    restart: Restart,
    record: Record,
    shutdown: Duration,
}

/// Whoever must be built again, and how long the first of them waits.
struct Plan {
    scope: Member,
    supervisor: usize,
    delay: Duration,
}

impl Shared {
    /// The tree's clock, in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        let age = Instant::now().saturating_duration_since(self.epoch);
        u64::try_from(age.as_micros()).unwrap_or(u64::MAX)
    }

    /// Everyone with the time to drain, in the order of starting.
    pub(crate) fn lines(&self) -> Vec<(Arc<Line>, Duration)> {
        let state = self.state.lock();
        state
            .children
            .values()
            .map(|child| (Arc::clone(&child.line), child.shutdown))
            .collect()
    }

    pub(crate) fn stop_threads(&self) {
        for arbiter in self.state.lock().threads.values() {
            arbiter.stop();
        }
    }

    /// `None` while the tree is being stopped.
    fn add_child(&self, supervisor: usize, spec: &ChildSpec, line: Arc<Line>) -> Option<u64> {
        let mut state = self.state.lock();
        // Read under the lock: `shutdown` raises the level before it looks at the children.
        if *self.level.borrow() != Level::Running {
            line.set_state(ChildState::Over);
            return None;
        }
        let key = state.next_key;
        state.next_key += 1;
        let node = ChildNode {
            line,
            supervisor,
            restart: spec.restart,
            record: Record::new(spec.budget),
            shutdown: spec.shutdown,
        };
        state.children.insert(key, node);
        state.supervisors[supervisor]
            .members
            .push(Member::Child(key));
        Some(key)
    }

    fn arbiter(&self, placement: &Placement) -> ArbiterHandle {
        match placement {
            Placement::Here => Arbiter::current(),
            Placement::Thread(name) => {
                let mut state = self.state.lock();
                if let Some(arbiter) = state.threads.get(name) {
                    return arbiter.handle();
                }
                let arbiter = named_arbiter(name);
                let handle = arbiter.handle();
                state.threads.insert(name.clone(), arbiter);
                handle
            }
        }
    }

    /// A value ended. Says when to build the next one, and tells everyone else concerned.
    /// `None`: the child is not built again.
    pub(crate) fn child_exited(self: &Arc<Self>, key: u64, reason: &ExitReason) -> Option<Rebuild> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let child = state.children.get(&key)?;
        let actor = child.line.actor;
        if *self.level.borrow() != Level::Running {
            tracing::info!(%actor, %reason, "actor ended while the tree stops");
            return None;
        }
        let again = match child.restart {
            Restart::Permanent => true,
            Restart::Transient => matches!(reason, ExitReason::Panicked(_)),
            Restart::Temporary => false,
        };
        if !again {
            match reason {
                ExitReason::Stopped => tracing::debug!(%actor, "actor has ended"),
                ExitReason::Panicked(_) => tracing::error!(%actor, %reason, "actor has ended"),
            }
            return None;
        }
        let Some(plan) = state.plan(key, now) else {
            let failure = Failure {
                supervisor: state.supervisors[ROOT].name.clone(),
                actor,
                reason: reason.clone(),
            };
            drop(state);
            self.give_up(failure);
            return None;
        };
        tracing::error!(
            %actor,
            %reason,
            supervisor = %state.supervisors[plan.supervisor].name,
            delay_ms = plan.delay.as_millis(),
            "actor is restarted"
        );
        state.rebuild(key, &plan)
    }

    /// A child is gone for good.
    pub(crate) fn child_over(&self, key: u64) {
        let mut state = self.state.lock();
        if let Some(child) = state.children.remove(&key) {
            state.supervisors[child.supervisor]
                .members
                .retain(|member| *member != Member::Child(key));
        }
    }

    fn give_up(self: &Arc<Self>, failure: Failure) {
        tracing::error!(%failure, "the root gives up; everything is stopped");
        let shared = Arc::clone(self);
        // Not on the thread of the failed child, which has a child to finish. If the home
        // thread is gone, so is whoever could wait for the answer.
        self.home.spawn(async move {
            crate::stop::shutdown(&shared).await;
            shared.failure.send_replace(Some(failure));
        });
    }
}

impl State {
    fn new(name: &str, strategy: Strategy, budget: Budget) -> Self {
        Self {
            supervisors: vec![Node::new(name, strategy, budget, None)],
            children: BTreeMap::new(),
            next_key: 0,
            threads: HashMap::new(),
        }
    }

    /// Charges the budgets from the child upwards until one allows the restart.
    fn plan(&mut self, key: u64, now: Instant) -> Option<Plan> {
        let child = self.children.get_mut(&key)?;
        let mut number = child.supervisor;
        let allowed = child.record.charge(now);
        if allowed && self.supervisors[number].record.charge(now) {
            let delay = child.record.back_off(now);
            return Some(Plan {
                scope: Member::Child(key),
                supervisor: number,
                delay,
            });
        }
        while let Some(parent) = self.supervisors[number].parent {
            if self.supervisors[parent].record.charge(now) {
                let delay = self.supervisors[number].record.back_off(now);
                self.clear(number);
                let scope = Member::Supervisor(number);
                return Some(Plan {
                    scope,
                    supervisor: parent,
                    delay,
                });
            }
            number = parent;
        }
        None
    }

    /// A restarted supervisor begins with a full budget, and so does everyone below it.
    fn clear(&mut self, number: usize) {
        self.supervisors[number].record.clear();
        for member in self.supervisors[number].members.clone() {
            match member {
                Member::Supervisor(below) => self.clear(below),
                Member::Child(key) => {
                    if let Some(child) = self.children.get_mut(&key) {
                        child.record.clear();
                    }
                }
            }
        }
    }

    /// Chains the group in the order of starting: each waits until the one before has started.
    /// Returns the part of `failed`; the others are told.
    fn rebuild(&self, failed: u64, plan: &Plan) -> Option<Rebuild> {
        let mut group = Vec::new();
        let node = &self.supervisors[plan.supervisor];
        match node.strategy {
            Strategy::OneForOne => self.leaves(plan.scope, &mut group),
            Strategy::RestForOne => {
                let from = node.members.iter().position(|member| *member == plan.scope);
                for member in node.members.iter().skip(from.unwrap_or(0)) {
                    self.leaves(*member, &mut group);
                }
            }
        }
        let mut own = None;
        let mut gate = None;
        for (place, key) in group.iter().enumerate() {
            let (release, next) = oneshot::channel();
            let delay = if place == 0 {
                plan.delay
            } else {
                Duration::ZERO
            };
            let rebuild = Rebuild {
                delay,
                gate: gate.replace(next),
                release: Some(release),
            };
            if *key == failed {
                own = Some(rebuild);
            } else if let Some(child) = self.children.get(key) {
                child.line.command(Command::Rebuild(rebuild));
            }
        }
        own
    }

    fn leaves(&self, member: Member, into: &mut Vec<u64>) {
        match member {
            Member::Child(key) => into.push(key),
            Member::Supervisor(number) => {
                for below in &self.supervisors[number].members {
                    self.leaves(*below, into);
                }
            }
        }
    }
}

impl Node {
    fn new(name: &str, strategy: Strategy, budget: Budget, parent: Option<usize>) -> Self {
        let record = Record::new(budget);
        Self {
            name: name.to_owned(),
            strategy,
            record,
            parent,
            members: Vec::new(),
        }
    }
}

async fn ask_for_beats(shared: std::sync::Weak<Shared>) {
    let mut ticks = tokio::time::interval(HEARTBEAT);
    loop {
        ticks.tick().await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if *shared.level.borrow() == Level::Over {
            return;
        }
        let now = shared.micros();
        for (line, _) in shared.lines() {
            line.ask(now);
        }
    }
}

/// A thread with its own runtime. Actix names threads by number; the name that `top -H` and
/// debuggers show is set from inside.
fn named_arbiter(name: &str) -> Arbiter {
    let name = name.to_owned();
    Arbiter::with_tokio_rt(move || {
        set_thread_name(&name);
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the system refuses a new event loop")
    })
}

#[cfg(target_os = "linux")]
fn set_thread_name(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        // Only cosmetic, so a refusal is no reason not to run.
        let _ = rustix::thread::set_name(&name);
    }
}

#[cfg(not(target_os = "linux"))]
fn set_thread_name(_name: &str) {}

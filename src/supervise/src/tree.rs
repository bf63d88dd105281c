//! The supervision tree: starts children, and decides what the end of one means for the others.
//!
//! Decisions are taken under one lock, on the thread of the child that ended, so that a stuck
//! thread cannot hold up the restart of an actor on another one. The lock is taken when a child
//! starts, ends or is looked at, never for a message. Stopping is in `stop.rs`.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use actix::{Addr, Arbiter, ArbiterHandle};
use parking_lot::Mutex;
use saltern_base::{metrics::Registry, simulation};
use tokio::{sync::watch, time::Instant};

use crate::{
    ActorId, Budget, Child, ChildSpec, ChildState, Placement, Reserved, Restart,
    family::{ChildNode, Family, Member, Node, ROOT},
    line::{Command, Line, Rebuild},
    metrics::Metrics,
    policy::Record,
    runner::Runner,
    thread::named_arbiter,
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
    /// The event.
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
    /// Its state.
    pub state: ChildState,
    /// Times it was built again, for whatever reason.
    pub restarts: u64,
    /// Time since the last beat that it answered. Up to [`HEARTBEAT`] when all is well; growing
    /// means that its thread is stuck in synchronous code.
    pub last_beat_age: Duration,
    /// Whether its silence is no fault: [`ChildSpec::may_block`].
    pub may_block: bool,
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
    pub fn new(name: &str, budget: Budget, registry: &Registry) -> Self {
        let shared = Arc::new(Shared {
            metrics: Metrics::new(registry),
            home: Arbiter::current(),
            epoch: Instant::now(),
            family: Mutex::new(Family::new(name, budget)),
            threads: Mutex::default(),
            level: watch::Sender::new(Level::Running),
            failure: watch::Sender::new(None),
            beat: watch::Sender::new(()),
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

    /// Resolves at the next heartbeat by which everyone has answered the one before, but for those
    /// who [`may_block`](ChildSpec::may_block); pending for as long as a thread is stuck, and for
    /// ever once the tree has stopped. What a watchdog is fed by.
    pub async fn heartbeat(&self) {
        let mut beat = self.shared.beat.subscribe();
        // The sender lives in `self`, which is borrowed until here.
        let _ = beat.changed().await;
    }

    /// All children that have not ended for good, in the order of starting.
    #[must_use]
    pub fn liveness(&self) -> Vec<ChildHealth> {
        let now = self.shared.micros();
        let family = self.shared.family.lock();
        family
            .children
            .values()
            .map(|child| ChildHealth {
                name: child.line.actor.name,
                instance: child.line.actor.instance,
                supervisor: family.supervisors[child.supervisor].name.clone(),
                state: child.line.state(),
                restarts: child.line.restarts.load(Ordering::Relaxed),
                last_beat_age: Duration::from_micros(now.saturating_sub(child.line.answered())),
                may_block: child.may_block,
                mailbox_len: child.line.mailbox.load(Ordering::Relaxed),
            })
            .collect()
    }

    /// Makes an actor panic at its next poll, for tests of what happens then. `false`: there is
    /// no such actor.
    pub fn inject_panic(&self, name: &str, instance: u32) -> bool {
        self.command(name, instance, Command::Panic)
    }

    /// Makes the thread of an actor hang for ever, for tests of what happens then. `false`: there
    /// is no such actor.
    pub fn inject_stall(&self, name: &str, instance: u32) -> bool {
        self.command(name, instance, Command::Stall)
    }

    fn command(&self, name: &str, instance: u32, command: Command) -> bool {
        let line = self
            .shared
            .family
            .lock()
            .children
            .values()
            .find_map(|child| {
                let actor = child.line.actor;
                (actor.name == name && actor.instance == instance).then(|| Arc::clone(&child.line))
            });
        line.is_some_and(|line| {
            line.command(command);
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
    pub fn supervisor(&self, name: &str, budget: Budget) -> Self {
        let mut family = self.shared.family.lock();
        let number = family.supervisors.len();
        family
            .supervisors
            .push(Node::new(name, budget, Some(self.number)));
        family.supervisors[self.number]
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
        self.start_reserved(Reserved::new(), spec, seed, instance)
    }

    /// Starts an actor behind an address that was reserved for it, as
    /// [`start_child`](Self::start_child) does.
    ///
    /// # Panics
    /// As `start_child`.
    pub fn start_reserved<A: Child>(
        &self,
        reserved: Reserved<A>,
        spec: ChildSpec,
        seed: A::Seed,
        instance: u32,
    ) -> Addr<A> {
        let (address, receiver) = reserved.into_parts();
        let actor = ActorId {
            name: A::NAME,
            instance,
        };
        let line = Arc::new(Line::new(actor, self.shared.micros(), spec.work.clone()));
        let Some(key) = self.shared.add_child(self.number, &spec, Arc::clone(&line)) else {
            return address;
        };
        let arbiter = self.shared.arbiter(&spec.arbiter);
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

/// Stage of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Running,
    Draining,
    /// Stops without waiting for children.
    Hurrying,
    /// Everyone has ended, or is stuck.
    Over,
}

pub(crate) struct Shared {
    metrics: Metrics,
    /// Arbiter of the tree's own tasks.
    home: ArbiterHandle,
    epoch: Instant,
    family: Mutex<Family>,
    threads: Mutex<HashMap<String, Arbiter>>,
    pub(crate) level: watch::Sender<Level>,
    failure: watch::Sender<Option<Failure>>,
    /// Notified of every heartbeat that all children have answered.
    beat: watch::Sender<()>,
}

impl Shared {
    /// The tree's clock, in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        let age = Instant::now().saturating_duration_since(self.epoch);
        u64::try_from(age.as_micros()).unwrap_or(u64::MAX)
    }

    /// Everyone with the time to drain, in the order of starting.
    pub(crate) fn lines(&self) -> Vec<(Arc<Line>, Duration)> {
        let family = self.family.lock();
        family
            .children
            .values()
            .map(|child| (Arc::clone(&child.line), child.shutdown))
            .collect()
    }

    /// Whether all children that may not block have answered the last heartbeat.
    fn is_alive(&self) -> bool {
        let family = self.family.lock();
        let mut children = family.children.values();
        children.all(|child| child.may_block || child.line.is_answered())
    }

    pub(crate) fn stop_threads(&self) {
        for arbiter in self.threads.lock().values() {
            arbiter.stop();
        }
    }

    /// `None` while the tree is being stopped.
    fn add_child(&self, supervisor: usize, spec: &ChildSpec, line: Arc<Line>) -> Option<u64> {
        let mut family = self.family.lock();
        // Read under the lock: `shutdown` raises the level before it looks at the children.
        if *self.level.borrow() != Level::Running {
            line.set_state(ChildState::Over);
            return None;
        }
        let key = family.next_key;
        family.next_key += 1;
        let node = ChildNode {
            line,
            supervisor,
            restart: spec.restart,
            record: Record::new(spec.budget),
            shutdown: spec.shutdown,
            may_block: spec.may_block,
        };
        family.children.insert(key, node);
        family.supervisors[supervisor]
            .members
            .push(Member::Child(key));
        Some(key)
    }

    fn arbiter(&self, placement: &Placement) -> ArbiterHandle {
        match placement {
            // One thread for all, so that the order of events follows from the seed.
            Placement::Thread(_) if simulation::is_running() => Arbiter::current(),
            Placement::Here => Arbiter::current(),
            Placement::Thread(name) => self
                .threads
                .lock()
                .entry(name.clone())
                .or_insert_with(|| named_arbiter(name))
                .handle(),
        }
    }

    /// Handles the end of a value: decides when to build the next one, and notifies affected
    /// siblings. `None`: the child is not built again.
    pub(crate) fn child_exited(self: &Arc<Self>, key: u64, reason: &ExitReason) -> Option<Rebuild> {
        let now = Instant::now();
        let mut family = self.family.lock();
        let child = family.children.get(&key)?;
        let actor = child.line.actor;
        if *self.level.borrow() != Level::Running {
            tracing::info!(%actor, %reason, "actor ended while the tree stops");
            return None;
        }
        let again = match child.restart {
            Restart::Permanent => true,
            Restart::Transient => matches!(reason, ExitReason::Panicked(_)),
        };
        if !again {
            match reason {
                ExitReason::Stopped => tracing::debug!(%actor, "actor has ended"),
                ExitReason::Panicked(_) => tracing::error!(%actor, %reason, "actor has ended"),
            }
            return None;
        }
        let Some(plan) = family.plan(key, now) else {
            let failure = Failure {
                supervisor: family.supervisors[ROOT].name.clone(),
                actor,
                reason: reason.clone(),
            };
            if !std::mem::replace(&mut family.given_up, true) {
                self.give_up(failure);
            }
            return None;
        };
        tracing::error!(
            %actor,
            %reason,
            supervisor = %family.supervisors[plan.supervisor].name,
            delay_ms = plan.delay.as_millis(),
            "actor is restarted"
        );
        family.rebuild(key, &plan)
    }

    /// Removes a child that ended for good.
    pub(crate) fn child_over(&self, key: u64) {
        let mut family = self.family.lock();
        if let Some(child) = family.children.remove(&key) {
            family.supervisors[child.supervisor]
                .members
                .retain(|member| *member != Member::Child(key));
        }
    }

    fn give_up(self: &Arc<Self>, failure: Failure) {
        tracing::error!(%failure, "the root supervisor has used up its restarts; the tree is stopped");
        let shared = Arc::clone(self);
        // Not on the thread of the failed child, which has a child to finish. If the home
        // thread is gone, nothing is left that could wait for the answer.
        self.home.spawn(async move {
            crate::stop::shutdown(&shared).await;
            shared.failure.send_replace(Some(failure));
        });
    }
}

async fn ask_for_beats(shared: Weak<Shared>) {
    let mut ticks = tokio::time::interval(HEARTBEAT);
    loop {
        ticks.tick().await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if *shared.level.borrow() == Level::Over {
            return;
        }
        if shared.is_alive() {
            shared.beat.send_replace(());
        }
        let now = shared.micros();
        for (line, _) in shared.lines() {
            line.ask(now);
        }
    }
}

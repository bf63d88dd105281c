//! The control channel between the tree and one runner: commands in, heartbeats out.
//!
//! It does not pass through the mailbox, so a full mailbox, a waiting actor or one in back-off
//! still obeys and still answers. Only a thread that is stuck in synchronous code does not, nor an
//! actor whose [`Work`] on another thread is stuck, and that is exactly what the beat is there to
//! show. Bounded: a beat is a number, not a message.

use std::{
    collections::VecDeque,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    task::Waker,
    time::Duration,
};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::{ActorId, Work};

/// Order of the tree to a runner.
pub(crate) enum Command {
    /// Throw the value away and build it anew (because of a sibling).
    Rebuild(Rebuild),
    /// Finish what was begun, then end.
    Drain,
    /// End now.
    Stop,
    /// Panic at the next poll, as the actor.
    Panic,
    /// Be stuck from now on, with the whole thread.
    Stall,
}

/// When to build, and after which sibling.
#[derive(Default)]
pub(crate) struct Rebuild {
    pub(crate) delay: Duration,
    /// Resolves when the child before this one in the group has started, or never will.
    pub(crate) gate: Option<oneshot::Receiver<()>>,
    /// Opens the gate of the next one.
    pub(crate) release: Option<oneshot::Sender<()>>,
}

/// State of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChildState {
    /// Not built yet, or waiting to be built again.
    Waiting,
    /// Taking messages.
    Running,
    /// Finishing, because the tree stops.
    Draining,
    /// Gone for good.
    Over,
}

pub(crate) struct Line {
    pub(crate) actor: ActorId,
    commands: Mutex<VecDeque<Command>>,
    /// Spares the lock on the hot path: set after a command was queued.
    ringing: AtomicBool,
    waker: AtomicWaker,
    /// Microseconds of the tree's clock at the last beat asked for, and at the last answered.
    asked: AtomicU64,
    answered: AtomicU64,
    work: Option<Arc<Work>>,
    pub(crate) restarts: AtomicU64,
    pub(crate) mailbox: AtomicUsize,
    state: AtomicU8,
    over: watch::Sender<bool>,
}

impl Line {
    pub(crate) fn new(actor: ActorId, now_micros: u64, work: Option<Arc<Work>>) -> Self {
        Self {
            actor,
            commands: Mutex::new(VecDeque::new()),
            ringing: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            asked: AtomicU64::new(now_micros),
            answered: AtomicU64::new(now_micros),
            work,
            restarts: AtomicU64::new(0),
            mailbox: AtomicUsize::new(0),
            state: AtomicU8::new(ChildState::Waiting as u8),
            over: watch::Sender::new(false),
        }
    }

    // The tree's end.

    pub(crate) fn command(&self, command: Command) {
        self.commands.lock().push_back(command);
        self.ringing.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Asks for a sign of life; the answer is the time of the question, so that only one clock
    /// is involved however many threads there are.
    pub(crate) fn ask(&self, now_micros: u64) {
        self.asked.store(now_micros, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Acquire)
    }

    /// Whether the last question has been answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered() == self.asked.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self) -> ChildState {
        match self.state.load(Ordering::Acquire) {
            state if state == ChildState::Running as u8 => ChildState::Running,
            state if state == ChildState::Draining as u8 => ChildState::Draining,
            state if state == ChildState::Over as u8 => ChildState::Over,
            _ => ChildState::Waiting,
        }
    }

    /// Resolves when the runner has ended.
    pub(crate) async fn over(&self) {
        // The sender lives as long as `self`, so the only way out is the value.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    // The runner's end.

    /// Answers the beat, unless work on another thread is stuck. Called first in every poll.
    pub(crate) fn beat(&self, waker: &Waker) {
        // Registered before the flags are read, so that a ring in between is not lost.
        self.waker.register(waker);
        let asked = self.asked.load(Ordering::Acquire);
        let is_new = self.answered.load(Ordering::Relaxed) != asked;
        if is_new && self.work.as_ref().is_none_or(|work| work.answers()) {
            self.answered.store(asked, Ordering::Release);
        }
    }

    pub(crate) fn next_command(&self) -> Option<Command> {
        if !self.ringing.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = self.commands.lock();
        let command = commands.pop_front();
        if command.is_none() {
            self.ringing.store(false, Ordering::Release);
        }
        command
    }

    pub(crate) fn set_state(&self, state: ChildState) {
        self.state.store(state as u8, Ordering::Release);
        if state == ChildState::Over {
            self.over.send_replace(true);
        }
    }
}

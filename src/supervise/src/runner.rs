//! The future that runs one actor and outlives its values.
//!
//! It polls the context of the current value inside `catch_unwind`. When the value panics or
//! stops, it is dropped there and then (with its timers, its futures and the answers they owe,
//! so that no caller waits for ever), the tree is asked what to do, and a new value is built from
//! the seed. It takes no decisions: those are in `tree.rs`.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::{Context as Task, Poll, ready},
};

use actix::{
    ActorContext, ActorFuture, AsyncContext, Context, ResponseActFuture,
    dev::{AsyncContextParts, ContextFut, Mailbox, channel::AddressReceiver},
};
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep},
};

use crate::{
    Child, ChildState, ExitReason,
    current::Scope,
    inbox::{Inbox, Pump},
    line::{Command, Line, Rebuild},
    metrics::Meters,
    tree::Shared,
};

type Value<A> = ContextFut<A, Context<A>>;

pub(crate) struct Runner<A: Child> {
    tree: Arc<Shared>,
    /// The tree's number for this child.
    key: u64,
    line: Arc<Line>,
    meters: Meters,
    seed: A::Seed,
    inbox: Rc<RefCell<Inbox<A>>>,
    phase: Phase<A>,
    /// Opens the next sibling's gate when the new value has started.
    release: Option<oneshot::Sender<()>>,
    /// Set by [`Drainer`] when the actor says that it is finished.
    drained: Option<Rc<Cell<bool>>>,
    /// A panic was ordered for the next poll.
    fault: bool,
    /// Share of this runner in the depth gauge of its pool.
    depth: i64,
}

enum Phase<A: Child> {
    /// Waits for its back-off and for the sibling before it.
    Waiting {
        sleep: Option<Pin<Box<Sleep>>>,
        gate: Option<oneshot::Receiver<()>>,
    },
    Running(Box<Value<A>>),
    Over,
}

// Nothing in here is pinned in place: what needs it is boxed.
impl<A: Child> Unpin for Runner<A> {}

impl<A: Child> Runner<A> {
    pub(crate) fn new(
        tree: Arc<Shared>,
        key: u64,
        line: Arc<Line>,
        meters: Meters,
        seed: A::Seed,
        channel: AddressReceiver<A>,
    ) -> Self {
        Self {
            tree,
            key,
            line,
            meters,
            seed,
            inbox: Rc::new(RefCell::new(Inbox::new(channel))),
            phase: Phase::Waiting {
                sleep: None,
                gate: None,
            },
            release: None,
            drained: None,
            fault: false,
            depth: 0,
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Rebuild(rebuild) => {
                if !matches!(self.phase, Phase::Over) {
                    self.discard();
                    self.rebuild(rebuild);
                }
            }
            Command::Drain => match &mut self.phase {
                Phase::Running(value) => {
                    let drained = Rc::new(Cell::new(false));
                    value.ctx().spawn(Drainer {
                        asked: false,
                        work: None,
                        inbox: Rc::clone(&self.inbox),
                        drained: Rc::clone(&drained),
                    });
                    self.drained = Some(drained);
                    self.line.set_state(ChildState::Draining);
                }
                Phase::Waiting { .. } => self.finish(),
                Phase::Over => {}
            },
            Command::Stop => self.stop(),
            Command::Panic => self.fault = true,
            Command::Stall => loop {
                std::thread::park();
            },
        }
    }

    /// Builds the next value. `Err`: it panicked.
    fn build(&mut self) -> Result<(), ExitReason> {
        let seed = &self.seed;
        let value = guarded(&self.line, || A::build(seed))?;
        let mut context = Context::new();
        if let Some(parts) = self.inbox.borrow().context_parts() {
            // From now on `ctx.address()` is the address that the world has.
            *context.parts() = parts;
        }
        // First in the context, so that messages come before timers, as actix has it. It also
        // keeps the context alive when nobody holds the address.
        context.spawn(Pump(Rc::clone(&self.inbox)));
        // The context's own mailbox stays empty; the pump is the mailbox.
        let value = ContextFut::new(context, value, Mailbox::default());
        self.phase = Phase::Running(Box::new(value));
        self.line.set_state(ChildState::Running);
        self.meters.up.inc();
        Ok(())
    }

    /// The value panicked or stopped: asks the tree.
    fn ended(&mut self, reason: &ExitReason) {
        self.discard();
        match self.tree.child_exited(self.key, reason) {
            Some(rebuild) => self.rebuild(rebuild),
            None => self.finish(),
        }
    }

    fn rebuild(&mut self, rebuild: Rebuild) {
        self.line.restarts.fetch_add(1, Ordering::Relaxed);
        self.meters.restarts.inc();
        let sleep = (!rebuild.delay.is_zero())
            .then(|| Box::pin(tokio::time::sleep_until(Instant::now() + rebuild.delay)));
        self.release = rebuild.release;
        self.phase = Phase::Waiting {
            sleep,
            gate: rebuild.gate,
        };
    }

    /// Drops the value without giving it another word.
    fn discard(&mut self) {
        let before = std::mem::replace(
            &mut self.phase,
            Phase::Waiting {
                sleep: None,
                gate: None,
            },
        );
        if let Phase::Running(mut value) = before {
            self.meters.up.dec();
            self.line.set_state(ChildState::Waiting);
            // `ContextFut::drop` polls the actor once more, to run `stopping` and `stopped` on
            // a value that may be broken. Terminated, it does not.
            value.ctx().terminate();
            if let Err(reason) = guarded(&self.line, || drop(value)) {
                tracing::error!(actor = %self.line.actor, %reason, "actor panicked while it was dropped");
            }
        }
        self.drained = None;
    }

    /// Ends for good: the address closes, and callers that wait for an answer get an error.
    fn finish(&mut self) {
        self.discard();
        self.phase = Phase::Over;
        let inbox = Rc::clone(&self.inbox);
        if let Err(reason) = guarded(&self.line, || inbox.borrow_mut().close()) {
            tracing::error!(actor = %self.line.actor, %reason, "a queued message panicked while it was dropped");
        }
        self.report_depth(0);
        self.release = None;
        self.tree.child_over(self.key);
        self.line.set_state(ChildState::Over);
    }

    /// Ends at once, but lets the value's `stopping` and `stopped` run.
    fn stop(&mut self) {
        if let Phase::Running(value) = &mut self.phase {
            value.ctx().stop();
            let mut task = Task::from_waker(std::task::Waker::noop());
            let last = guarded(&self.line, || Pin::new(value.as_mut()).poll(&mut task));
            if let Err(reason) = last {
                tracing::error!(actor = %self.line.actor, %reason, "actor panicked while stopping");
            }
        }
        if !matches!(self.phase, Phase::Over) {
            self.finish();
        }
    }

    /// Polls the value once. Not `Pending`: it ended.
    fn run(&mut self, task: &mut Task<'_>) -> Poll<ExitReason> {
        let Phase::Running(value) = &mut self.phase else {
            return Poll::Pending;
        };
        let fault = std::mem::take(&mut self.fault);
        self.inbox.borrow_mut().start_turn(task);
        let handled = self.inbox.borrow().handled;
        let begin = Instant::now();
        let poll = guarded(&self.line, || {
            assert!(!fault, "injected fault");
            Pin::new(value.as_mut()).poll(task)
        });
        self.meters.handling.observe(begin.elapsed().as_secs_f64());
        let (handled, depth) = {
            let inbox = self.inbox.borrow();
            (inbox.handled - handled, inbox.len())
        };
        self.meters.messages.inc_by(handled);
        self.report_depth(depth);
        match poll {
            Ok(Poll::Pending) => {
                if let Some(next) = self.release.take() {
                    // The sibling may be gone by now.
                    let _ = next.send(());
                }
                if self.drained.is_some() && handled > 0 {
                    // The drainer may have been polled before the pump found the mailbox empty.
                    task.waker().wake_by_ref();
                }
                Poll::Pending
            }
            Ok(Poll::Ready(())) => Poll::Ready(ExitReason::Stopped),
            Err(reason) => Poll::Ready(reason),
        }
    }

    fn report_depth(&mut self, depth: usize) {
        let depth_now = i64::try_from(depth).unwrap_or(i64::MAX);
        if depth_now != self.depth {
            self.meters.depth.add(depth_now - self.depth);
            self.depth = depth_now;
            self.line.mailbox.store(depth, Ordering::Relaxed);
        }
    }

    fn is_drained(&self) -> bool {
        self.drained.as_ref().is_some_and(|drained| drained.get())
    }
}

impl<A: Child> Future for Runner<A> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.line.beat(task.waker());
        while let Some(command) = this.line.next_command() {
            this.obey(command);
        }
        loop {
            match &mut this.phase {
                Phase::Over => return Poll::Ready(()),
                Phase::Waiting { sleep, gate } => {
                    if let Some(timer) = sleep {
                        ready!(timer.as_mut().poll(task));
                        *sleep = None;
                    }
                    if let Some(sibling) = gate {
                        // An error says that the sibling will never start; that is as good.
                        let _ = ready!(Pin::new(sibling).poll(task));
                        *gate = None;
                    }
                    if let Err(reason) = this.build() {
                        this.ended(&reason);
                    }
                }
                Phase::Running(_) => {
                    let reason = ready!({
                        let poll = this.run(task);
                        if poll.is_pending() && this.is_drained() {
                            this.stop();
                            continue;
                        }
                        poll
                    });
                    this.ended(&reason);
                }
            }
        }
    }
}

impl<A: Child> Drop for Runner<A> {
    /// The arbiter was stopped under it: no hooks run, but all waiting callers get an error.
    fn drop(&mut self) {
        if !matches!(self.phase, Phase::Over) {
            self.finish();
        }
    }
}

/// Calls foreign code under the actor's name; a panic becomes a value.
fn guarded<R>(line: &Line, code: impl FnOnce() -> R) -> Result<R, ExitReason> {
    let _scope = Scope::enter(line.actor);
    // What a panic leaves half-changed is the value, and that is thrown away.
    catch_unwind(AssertUnwindSafe(code))
        .map_err(|payload| ExitReason::Panicked(message_of(payload.as_ref())))
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "(no text)".to_owned()
    }
}

/// Asks the actor to drain, inside its context, and says when it is done and nothing waits.
struct Drainer<A: Child> {
    asked: bool,
    work: Option<ResponseActFuture<A, ()>>,
    inbox: Rc<RefCell<Inbox<A>>>,
    drained: Rc<Cell<bool>>,
}

impl<A: Child> ActorFuture<A> for Drainer<A> {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut A,
        context: &mut Context<A>,
        task: &mut Task<'_>,
    ) -> Poll<()> {
        if !self.asked {
            self.asked = true;
            self.work = actor.drain(context);
        }
        if let Some(work) = &mut self.work {
            ready!(work.as_mut().poll(actor, context, task));
            self.work = None;
        }
        // Not polled at all while an `AtomicResponse` is under way, which is what is wanted.
        if context.waiting() || !self.inbox.borrow().is_idle() {
            return Poll::Pending;
        }
        self.drained.set(true);
        Poll::Ready(())
    }
}

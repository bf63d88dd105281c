//! Login worker: calls backends such as PAM, which may take seconds, so that no request worker has
//! to.
//!
//! The log-ins wait in [`Logins`], which outlives the actors; an idle login worker takes the next
//! one. Its outcome is carried out as a worker would have done it. A refusal is answered late,
//! after about as long as the slowest refusal took, as in stock (`time_auth` in
//! `salt/auth/__init__.py`). So the clock shows neither how far a password got, nor can passwords
//! be tried quickly. The delay occupies no thread and no slot. Of too many delayed answers the
//! oldest leaves early: strangers from many addresses may shorten delays, but not lock anybody
//! out.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, ResponseActFuture, SpawnHandle};
use saltern_requests::Handled;
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::content::renderer::Look;
use crate::front::carry_out::Sinks;
use crate::front::logins::{Logins, Try};
use crate::shared::answer::PendingReply;
use crate::shared::send::{Outbox, SendsThroughOutbox};

/// Backends called at a time.
pub(crate) const THREADS: usize = 4;

/// Minimum time of a refusal, about.
const REFUSAL: Duration = Duration::from_secs(1);

/// Longest delay that a slow refusal imposes on others.
const MAX_REFUSAL_DELAY: Duration = Duration::from_secs(5);

/// Delayed refusals of one login worker.
const MAX_HELD_BACK: usize = 256;

/// Seed of a login worker.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) logins: Arc<Logins>,
    pub(crate) sinks: Sinks,
}

/// Actor that calls the authentication backends.
pub(crate) struct LoginWorker {
    seed: Seed,
    outbox: Outbox,
    /// How long refusals take.
    refusal: Duration,
    chance: RandomState,
    refused: u64,
    /// Delayed refusals, by number.
    held_back: BTreeMap<u64, HeldBack>,
}

/// A delayed refusal.
struct HeldBack {
    handled: Handled,
    answer: PendingReply,
    timer: SpawnHandle,
    _counted: Try,
}

impl Child for LoginWorker {
    type Seed = Seed;

    const NAME: &'static str = "login_worker";
    const MAILBOX: usize = 4;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
            refusal: REFUSAL,
            chance: RandomState::new(),
            refused: 0,
            held_back: BTreeMap::new(),
        }
    }

    /// Waiting log-ins are given up; users log in again. The names that have logged in are saved.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        while let Some(login) = self.seed.logins.give_up() {
            login.answer.failed();
        }
        self.seed.logins.save();
        None
    }
}

impl Actor for LoginWorker {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.notify(Look);
    }
}

impl SendsThroughOutbox for LoginWorker {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Handler<Look> for LoginWorker {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Self::Context) {
        let Some((login, turn)) = self.seed.logins.pop() else {
            return;
        };
        // Before the work: whatever becomes of it, the next one is taken.
        context.notify(Look);
        if login.answer.is_unwanted() {
            return;
        }
        let began = Instant::now();
        let end = login.log_in.run();
        let took = began.elapsed();
        self.seed.logins.taking.observe(took.as_secs_f64());
        if end.is_refused {
            self.hold_back(end.handled, login.answer, (turn.refused(), took), context);
        } else {
            turn.proved();
            let sinks = self.seed.sinks.clone();
            let mut handled = end.handled;
            let answer = login.answer.traced(handled.span.take());
            sinks.carry_out(handled, answer, &mut self.outbox, context);
        }
    }
}

impl LoginWorker {
    fn hold_back(
        &mut self,
        handled: Handled,
        answer: PendingReply,
        (counted, took): (Try, Duration),
        context: &mut Context<Self>,
    ) {
        let wait = self.delay(took);
        let number = self.refused;
        let timer = context.run_later(wait, move |login_worker, context| {
            login_worker.answer_refusal(number, context);
        });
        let held_back = HeldBack {
            handled,
            answer,
            timer,
            _counted: counted,
        };
        self.held_back.insert(number, held_back);
        if self.held_back.len() > MAX_HELD_BACK
            && let Some(oldest) = self.held_back.keys().next().copied()
        {
            self.seed.logins.early.inc();
            self.answer_refusal(oldest, context);
        }
    }

    /// Answers a delayed refusal.
    fn answer_refusal(&mut self, number: u64, context: &mut Context<Self>) {
        if let Some(held_back) = self.held_back.remove(&number) {
            let HeldBack {
                handled,
                answer,
                timer,
                _counted,
            } = held_back;
            context.cancel_future(timer);
            let sinks = self.seed.sinks.clone();
            sinks.carry_out(handled, answer, &mut self.outbox, context);
        }
    }

    /// Remaining delay of a refusal that took so long: a random time within a quarter of the
    /// refusal time.
    fn delay(&mut self, took: Duration) -> Duration {
        self.refusal = self.refusal.max(took).min(MAX_REFUSAL_DELAY);
        self.refused = self.refused.wrapping_add(1);
        let chance = self.chance.hash_one(self.refused) as f64 / u64::MAX as f64;
        self.refusal
            .mul_f64(0.75 + chance / 2.0)
            .saturating_sub(took)
    }
}

#[cfg(test)]
mod tests;

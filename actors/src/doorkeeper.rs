//! Asks backends such as PAM who somebody is, so that no worker has to: they may take seconds.
//!
//! The log-ins wait in [`Logins`], which outlives the actors; whoever has time takes the next one.
//! What comes of it is carried out as a worker would have done it. Who was not known is answered
//! late, after about as long as the slowest refusal took: neither how far a password got can be told
//! by the clock, nor can passwords be tried quickly (`time_auth` in `salt/auth/__init__.py`). The
//! delay occupies nobody and no place. Of too many answers that are held back the oldest leaves
//! early: strangers from many places may shorten delays, but not lock anybody out.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, ResponseActFuture, SpawnHandle};
use saltern_requests::Handled;
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::carry_out::Sinks;
use crate::logins::{Logins, Refused};
use crate::renderer::Look;
use crate::send::{Outbox, Sends};

/// How many backends are asked at a time.
pub(crate) const THREADS: u32 = 4;

/// How long a refusal takes at least, about.
const REFUSAL: Duration = Duration::from_secs(1);

/// The longest that one takes because another did.
const LONGEST_REFUSAL: Duration = Duration::from_secs(5);

/// Refusals that one doorkeeper holds back.
const MOST_HELD_BACK: usize = 256;

/// What a doorkeeper is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) logins: Arc<Logins>,
    pub(crate) sinks: Sinks,
}

/// See the module.
pub(crate) struct Doorkeeper {
    seed: Seed,
    outbox: Outbox,
    /// How long refusals take.
    refusal: Duration,
    chance: RandomState,
    refused: u64,
    /// Refusals whose time has not come, by number.
    held_back: BTreeMap<u64, HeldBack>,
}

/// A refusal that is yet to be answered.
struct HeldBack {
    handled: Handled,
    answer: Answer,
    timer: SpawnHandle,
    _counted: Refused,
}

impl Child for Doorkeeper {
    type Seed = Seed;

    const NAME: &'static str = "doorkeeper";
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

    /// What waits is given up; users log in again.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        while let Some(login) = self.seed.logins.give_up() {
            login.answer.failed();
        }
        None
    }
}

impl Actor for Doorkeeper {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.notify(Look);
    }
}

impl Sends for Doorkeeper {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Handler<Look> for Doorkeeper {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Self::Context) {
        let Some((login, turn)) = self.seed.logins.pop() else {
            return;
        };
        // Before the work: whatever becomes of it, the next one is looked for.
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

impl Doorkeeper {
    fn hold_back(
        &mut self,
        handled: Handled,
        answer: Answer,
        (counted, took): (Refused, Duration),
        context: &mut Context<Self>,
    ) {
        let wait = self.delay(took);
        let number = self.refused;
        let timer = context.run_later(wait, move |doorkeeper, context| {
            doorkeeper.tell(number, context);
        });
        let held_back = HeldBack {
            handled,
            answer,
            timer,
            _counted: counted,
        };
        self.held_back.insert(number, held_back);
        if self.held_back.len() > MOST_HELD_BACK
            && let Some(oldest) = self.held_back.keys().next().copied()
        {
            self.seed.logins.early.inc();
            self.tell(oldest, context);
        }
    }

    /// Answers a refusal.
    fn tell(&mut self, number: u64, context: &mut Context<Self>) {
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

    /// How long the answer to a refusal that took so long has to wait: up to a quarter less or
    /// more than refusals take, by chance.
    fn delay(&mut self, took: Duration) -> Duration {
        self.refusal = self.refusal.max(took).min(LONGEST_REFUSAL);
        self.refused = self.refused.wrapping_add(1);
        let chance = self.chance.hash_one(self.refused) as f64 / u64::MAX as f64;
        self.refusal
            .mul_f64(0.75 + chance / 2.0)
            .saturating_sub(took)
    }
}

#[cfg(test)]
mod tests;

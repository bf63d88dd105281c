//! Questions that went down one connection each, by their jids.
//!
//! A question is a load like any other, so its answer comes as a return. It is known by its jid and
//! goes no further: it is no job.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::metrics::{IntCounter, Registry, counter};
use saltern_model::Jid;
use tokio::time::Instant;

/// An answer that comes later is taken for the return of a job that is not known here.
const KEPT: Duration = Duration::from_secs(600);

/// See the module. Bounded by how many are asked while one is [`KEPT`].
pub(super) struct Questions {
    asked: Mutex<HashMap<Jid, Question>>,
    /// How many `asked` holds: most returns come while it is none.
    open: AtomicUsize,
    sent: IntCounter,
    answers: IntCounter,
}

struct Question {
    connection: u64,
    at: Instant,
}

impl Questions {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            asked: Mutex::default(),
            open: AtomicUsize::new(0),
            sent: counter(
                registry,
                "saltern_presence_questions_total",
                "Connections of the publish port that were asked who they are.",
            ),
            answers: counter(
                registry,
                "saltern_presence_answers_total",
                "Answers of minions to those questions.",
            ),
        }
    }

    /// Notes a question that is about to be sent.
    pub(super) fn ask(&self, jid: &Jid, connection: u64, now: Instant) {
        let mut asked = self.asked.lock();
        asked.retain(|_, question| now < question.at + KEPT);
        let question = Question {
            connection,
            at: now,
        };
        asked.insert(jid.clone(), question);
        self.open.store(asked.len(), Ordering::Release);
        self.sent.inc();
    }

    /// The question was not sent; gives the connection that it was for.
    pub(super) fn take_back(&self, jid: &Jid) -> Option<u64> {
        let mut asked = self.asked.lock();
        let question = asked.remove(jid)?;
        self.open.store(asked.len(), Ordering::Release);
        Some(question.connection)
    }

    /// The connection that was asked with this jid, if it was a question. It stays one: the
    /// connection may be that of a syndic, behind which several answer.
    pub(super) fn answered(&self, jid: &str, now: Instant) -> Option<u64> {
        if self.open.load(Ordering::Acquire) == 0 {
            return None;
        }
        let asked = self.asked.lock();
        let question = asked.get(jid)?;
        self.answers.inc();
        (now < question.at + KEPT).then_some(question.connection)
    }
}

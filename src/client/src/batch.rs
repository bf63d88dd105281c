//! Follows a batch that the master drives: its parts as they are sent, the returns, and its end.
//!
//! The master alone decides; a follower may come and go. It gets no events from before it
//! subscribed.

use saltern_wire::msgpack::Value;
use serde::Serialize;

use crate::event::{FollowedEvents, ReceivedEvent};
use crate::job::{MinionReturn, minion_return};
use crate::publish::strings;
use crate::{ClientError, EventListener, LocalClient, PublishRequest, Published, RunnerRequest};

/// Options of a batch, the entry `batch` of the master's command `saltern_batch`; the master chooses
/// those that are `None`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BatchWishes {
    /// How many minions at a time: `10`, or `25%` of all.
    pub size: Option<String>,
    /// With `safe_size`: a batch only if at least this many minions match.
    pub safe_limit: Option<u32>,
    /// See `safe_limit`.
    pub safe_size: Option<String>,
    /// Only this many minions, chosen at random.
    pub subset: Option<u32>,
    /// How long a place stays empty after a minion is done, in seconds.
    pub wait: Option<f64>,
    /// Whether the first bad return ends it.
    pub failhard: bool,
    /// How long a minion may be silent, in seconds.
    pub timeout: Option<u64>,
}

/// Something that happened to a batch.
#[derive(Debug, Clone)]
pub enum BatchNews {
    /// These minions were sent their part.
    Part(Vec<String>),
    /// A minion has returned.
    Returned(MinionReturn),
    /// The batch is over.
    Over(BatchEnd),
    /// Events were lost, or none came for a while: the master knows where the batch stands
    /// (`batch.status`).
    Unsure,
}

/// How a batch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchEnd {
    /// Why it ended before its time.
    pub halted: Option<String>,
    /// How many minions were given up.
    pub failed: u64,
    /// How many minions had no turn.
    pub abandoned: usize,
}

/// A batch being followed. Give up by dropping it: the batch goes on.
pub struct BatchFollower {
    events: FollowedEvents,
    jid: String,
}

impl BatchFollower {
    fn new(mut events: EventListener, jid: String) -> Self {
        events.only(&jid);
        let events = FollowedEvents::new(events);
        Self { events, jid }
    }
}

impl LocalClient {
    /// Asks for a batch and follows it: the subscription stands before the batch begins.
    ///
    /// # Errors
    /// When the master does not begin it.
    pub async fn run_batch(
        &self,
        request: &PublishRequest,
    ) -> Result<(Published, BatchFollower), ClientError> {
        let events = self.link().listen().await?;
        let published = self.publish(request).await?;
        let jid = published.jid.clone();
        Ok((published, BatchFollower::new(events, jid)))
    }

    /// Follows a batch that runs already.
    ///
    /// # Errors
    /// When the event socket cannot be opened.
    pub async fn follow_batch(&self, jid: &str) -> Result<BatchFollower, ClientError> {
        let events = self.link().listen().await?;
        Ok(BatchFollower::new(events, jid.to_owned()))
    }

    /// Status of a batch, from the master's `batch.status`.
    ///
    /// # Errors
    /// When the master cannot be asked.
    pub async fn batch_status(&self, jid: &str) -> Result<Value, ClientError> {
        let request = RunnerRequest {
            fun: "batch.status".to_owned(),
            arg: vec![jid.into()],
            kwarg: Vec::new(),
            timeout: None,
        };
        Ok(self.call(&request).await?.value)
    }
}

impl BatchEnd {
    /// How the batch of a status ended; nothing while it runs. One that the master does not know any
    /// more is over, too.
    #[must_use]
    pub fn of_status(status: &Value) -> Option<Self> {
        let count = |name: &str| status.get(name).and_then(Value::as_u64).unwrap_or(0);
        let halted = status.get("halted_reason").and_then(Value::as_str);
        let is_over = halted.is_some() || count("active") + count("pending") == 0;
        is_over.then(|| Self {
            halted: halted.map(str::to_owned),
            failed: count("failed"),
            abandoned: usize::try_from(count("pending")).unwrap_or(usize::MAX),
        })
    }
}

impl BatchFollower {
    /// The next thing that happens. A dropped future loses nothing.
    ///
    /// # Errors
    /// When the master closes the event socket, or sends a malformed event.
    pub async fn next(&mut self) -> Result<BatchNews, ClientError> {
        let jid = &self.jid;
        let news = self.events.next(|event| read(event, jid)).await?;
        Ok(news.unwrap_or(BatchNews::Unsure))
    }
}

/// News of a batch in an event; none in one about something else.
fn read(event: &ReceivedEvent, jid: &str) -> Result<Option<BatchNews>, ClientError> {
    let Some((of_batch, what)) = parse_tag(&event.tag, jid) else {
        return Ok(None);
    };
    let data = event.value()?;
    Ok(match (of_batch, what) {
        (false, "new") => Some(BatchNews::Part(strings(data.get("minions")))),
        (false, what) if what.starts_with("ret/") => minion_return(&data).map(BatchNews::Returned),
        (true, "complete" | "halted") => Some(BatchNews::Over(end(&data))),
        _ => None,
    })
}

/// Whether a tag is one of the batch or of its job, and what follows the jid in it.
fn parse_tag<'t>(tag: &'t str, jid: &str) -> Option<(bool, &'t str)> {
    let (rest, of_batch) = match tag.strip_prefix("salt/batch/") {
        Some(rest) => (rest, true),
        None => (tag.strip_prefix("salt/job/")?, false),
    };
    let what = rest.strip_prefix(jid)?.strip_prefix('/')?;
    Some((of_batch, what))
}

fn end(data: &Value) -> BatchEnd {
    let reason = data.get("reason").and_then(Value::as_str);
    BatchEnd {
        halted: reason.map(str::to_owned),
        failed: data.get("failed").and_then(Value::as_u64).unwrap_or(0),
        abandoned: strings(data.get("abandoned_pending")).len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::testing::Bus;

    #[tokio::test(start_paused = true)]
    async fn batch_follower_reports_gaps_and_silence() {
        let (mut bus, events) = Bus::with_listener();
        let mut follower = BatchFollower::new(events, "20260102030405060708".to_owned());
        let nothing = Value::Map(Vec::new());
        bus.fire("saltern/bus/gap", &nothing).await;
        let news = follower.next().await.expect("news");
        assert!(matches!(news, BatchNews::Unsure), "{news:?}");
        // Time passes by itself while nobody has anything to do.
        let news = follower.next().await.expect("news");
        assert!(matches!(news, BatchNews::Unsure), "{news:?}");
        bus.fire("salt/batch/20260102030405060708/complete", &nothing)
            .await;
        let news = follower.next().await.expect("news");
        assert!(matches!(news, BatchNews::Over(_)), "{news:?}");
    }

    #[test]
    fn batch_end_is_read_from_either_event() {
        let complete = Value::map([("completed", 3_i64), ("failed", 1), ("total_minions", 4)]);
        let expected = BatchEnd {
            halted: None,
            failed: 1,
            abandoned: 0,
        };
        assert_eq!(end(&complete), expected);
        let halted = Value::map([
            ("reason", Value::from("stop")),
            ("failed", Value::from(0_i64)),
            ("abandoned_pending", Value::from(vec![Value::from("m1")])),
        ]);
        let expected = BatchEnd {
            halted: Some("stop".to_owned()),
            failed: 0,
            abandoned: 1,
        };
        assert_eq!(end(&halted), expected);
    }
}

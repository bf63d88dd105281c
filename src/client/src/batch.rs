//! Follows a batch that the master drives: its parts as they are sent, the returns, and its end.
//!
//! The master alone decides; a follower may come and go. It gets no events from before it
//! subscribed.

use std::time::Duration;

use saltern_wire::msgpack::{Value, as_map};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::event::{FollowedEvents, ReceivedEvent};
use crate::job::{MinionReturn, minion_return};
use crate::publish::strings;
use crate::{ClientError, EventListener, LocalClient, PublishRequest, Published, RunnerRequest};

/// Events that the master has fired arrive within this.
const REST: Duration = Duration::from_secs(2);

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

/// What is done with a batch that the master drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchChange {
    /// Send nobody else their part, until it is resumed.
    Pause,
    /// Go on.
    Resume,
    /// End it; with `kill`, also the minions' processes that run it.
    Stop {
        /// Whether those are ended.
        kill: bool,
    },
}

/// A query of the master's command `saltern_query`.
#[derive(Serialize)]
struct QueryLoad {
    cmd: &'static str,
    fun: &'static str,
    #[serde(serialize_with = "as_map::serialize")]
    kwarg: Vec<(&'static str, Value)>,
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
    /// The batch is over, but events of it were missed.
    Missed(BatchEnd),
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
pub struct BatchFollower<'a> {
    client: &'a LocalClient,
    events: FollowedEvents,
    jid: String,
    certainty: Certainty,
}

/// Whether the events show all that happened to a batch.
enum Certainty {
    /// No event was missed.
    Sure,
    /// Events were lost, or none came for a while: the master knows where the batch stands.
    Unsure,
    /// The master's status names this end; its last events may come until then.
    Ended(BatchEnd, Instant),
}

impl<'a> BatchFollower<'a> {
    fn new(client: &'a LocalClient, mut events: EventListener, jid: String) -> Self {
        events.only(&jid);
        Self {
            client,
            events: FollowedEvents::new(events),
            jid,
            certainty: Certainty::Sure,
        }
    }

    /// The next thing that happens; after [`BatchNews::Over`] or [`BatchNews::Missed`] nothing does. A
    /// dropped future loses nothing.
    ///
    /// # Errors
    /// When the master closes the event socket, sends a malformed event, or cannot be asked for the
    /// batch's status.
    pub async fn next(&mut self) -> Result<BatchNews, ClientError> {
        let (client, jid) = (self.client, self.jid.as_str());
        let status = || client.batch_status(jid);
        next(&mut self.events, jid, &mut self.certainty, status).await
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
    ) -> Result<(Published, BatchFollower<'_>), ClientError> {
        let events = self.link().listen().await?;
        let published = self.publish(request).await?;
        let jid = published.jid.clone();
        Ok((published, BatchFollower::new(self, events, jid)))
    }

    /// Follows a batch that runs already.
    ///
    /// # Errors
    /// When the event socket cannot be opened.
    pub async fn follow_batch(&self, jid: &str) -> Result<BatchFollower<'_>, ClientError> {
        let events = self.link().listen().await?;
        Ok(BatchFollower::new(self, events, jid.to_owned()))
    }

    /// Changes a batch; gives whether there was one that is not over, when the change is stored.
    ///
    /// # Errors
    /// When the master cannot be asked, or refuses: a batch is changed by the user who began it, or
    /// by one who may call the runner's function.
    pub async fn change_batch(&self, jid: &str, change: BatchChange) -> Result<bool, ClientError> {
        let mut kwarg = vec![("jid", Value::from(jid))];
        let fun = match change {
            BatchChange::Pause => "batches.pause",
            BatchChange::Resume => "batches.resume",
            BatchChange::Stop { kill } => {
                kwarg.push(("kill", kill.into()));
                "batches.stop"
            }
        };
        let load = QueryLoad {
            cmd: "saltern_query",
            fun,
            kwarg,
        };
        let reply = self.ask(&load).await?;
        let is_done = reply.get("return").and_then(Value::as_bool);
        is_done.ok_or_else(|| self.not_run(&reply))
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

/// The next news of a batch; asks for its `status` where events may be missing.
async fn next<F>(
    events: &mut FollowedEvents,
    jid: &str,
    certainty: &mut Certainty,
    status: impl Fn() -> F,
) -> Result<BatchNews, ClientError>
where
    F: Future<Output = Result<Value, ClientError>>,
{
    loop {
        let news = match certainty {
            Certainty::Sure => events.next(|event| read(event, jid)).await?,
            Certainty::Ended(end, until) => {
                let rest = events.next(|event| read(event, jid));
                match timeout_at(*until, rest).await {
                    Ok(news) => news?,
                    Err(_) => return Ok(BatchNews::Missed(end.clone())),
                }
            }
            Certainty::Unsure => {
                *certainty = match BatchEnd::of_status(&status().await?) {
                    Some(end) => Certainty::Ended(end, Instant::now() + REST),
                    None => Certainty::Sure,
                };
                continue;
            }
        };
        match news {
            Some(news) => return Ok(news),
            // The end is known: only its last events are awaited.
            None if matches!(certainty, Certainty::Ended(..)) => {}
            None => *certainty = Certainty::Unsure,
        }
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
    use std::cell::Cell;

    use super::*;
    use crate::event::SILENCE;
    use crate::event::testing::Bus;

    const JID: &str = "20260102030405060708";

    /// A batch that is followed on a bus, and the status that its master gives when asked.
    struct Followed {
        events: FollowedEvents,
        certainty: Certainty,
        asked: Cell<usize>,
        is_over: bool,
    }

    impl Followed {
        fn new(events: EventListener, is_over: bool) -> Self {
            Self {
                events: FollowedEvents::new(events),
                certainty: Certainty::Sure,
                asked: Cell::new(0),
                is_over,
            }
        }

        async fn next(&mut self) -> BatchNews {
            let status = || {
                self.asked.set(self.asked.get() + 1);
                let active = i64::from(!self.is_over);
                std::future::ready(Ok(Value::map([("active", active), ("failed", 1)])))
            };
            let news = next(&mut self.events, JID, &mut self.certainty, status);
            news.await.expect("news")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn batch_status_is_asked_after_a_gap_and_after_silence() {
        let (mut bus, events) = Bus::with_listener();
        let mut followed = Followed::new(events, false);
        let nothing = Value::Map(Vec::new());
        bus.fire("saltern/bus/gap", &nothing).await;
        // Time passes by itself while nobody has anything to do.
        let silence = tokio::time::timeout(SILENCE + REST, followed.next());
        assert!(silence.await.is_err(), "the batch goes on");
        assert_eq!(followed.asked.get(), 2);
        bus.fire(&format!("salt/batch/{JID}/complete"), &nothing)
            .await;
        let news = followed.next().await;
        assert!(matches!(news, BatchNews::Over(_)), "{news:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn last_events_of_an_ended_batch_are_awaited_and_then_missed() {
        let (mut bus, events) = Bus::with_listener();
        let mut followed = Followed::new(events, true);
        let nothing = Value::Map(Vec::new());
        bus.fire("saltern/bus/gap", &nothing).await;
        let returned = Value::map([("id", Value::from("m1")), ("return", true.into())]);
        bus.fire(&format!("salt/job/{JID}/ret/m1"), &returned).await;
        let news = followed.next().await;
        assert!(matches!(news, BatchNews::Returned(_)), "{news:?}");
        match followed.next().await {
            BatchNews::Missed(end) => assert_eq!(end.failed, 1),
            news => panic!("{news:?}"),
        }
        assert_eq!(followed.asked.get(), 1);
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

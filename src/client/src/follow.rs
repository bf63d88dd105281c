//! Follows a job of a master of ours by its events, whoever published it: returns as they come, and the
//! end, on which the master decides. Publishes nothing and asks no minion.
//!
//! A follower may come and go. It gets no events from before it subscribed: what was there already is in
//! the job database.

use saltern_model::control::Missing;
use saltern_model::{Jid, MinionId};
use saltern_wire::msgpack::Value;

use crate::event::{FollowedEvents, ReceivedEvent};
use crate::job::{MinionReturn, minion_return, not_returned};
use crate::{ClientError, EventListener, LocalClient};

/// Something that happened to a job.
#[derive(Debug, Clone)]
pub enum FollowNews {
    /// A minion has returned.
    Returned(MinionReturn),
    /// The job is over; these have not returned.
    Over(Vec<Missing>),
    /// Something else happened to it, events were lost, or none came for a while: the job database knows
    /// where the job stands.
    Unsure,
}

/// A job being followed. Give up by dropping it: the job itself goes on.
pub struct JobFollower {
    events: FollowedEvents,
    jid: Jid,
}

impl LocalClient {
    /// Follows a job from now on.
    ///
    /// # Errors
    /// When the event socket cannot be opened.
    pub async fn follow_job(&self, jid: &Jid) -> Result<JobFollower, ClientError> {
        let events = self.link().listen().await?;
        Ok(JobFollower::new(events, jid.clone()))
    }
}

impl JobFollower {
    fn new(mut events: EventListener, jid: Jid) -> Self {
        events.only(jid.as_str());
        Self {
            events: FollowedEvents::new(events),
            jid,
        }
    }

    /// The next thing that happens. A dropped future loses nothing.
    ///
    /// # Errors
    /// When the master closes the event socket, or sends a malformed event.
    pub async fn next(&mut self) -> Result<FollowNews, ClientError> {
        let jid = &self.jid;
        let news = self.events.next(|event| read(event, jid)).await?;
        Ok(news.unwrap_or(FollowNews::Unsure))
    }
}

/// News of a job in an event; none in one about something else.
fn read(event: &ReceivedEvent, jid: &Jid) -> Result<Option<FollowNews>, ClientError> {
    let prefixes = ["salt/job/", "saltern/job/"];
    let rest = prefixes.iter().find_map(|prefix| {
        let rest = event.tag.strip_prefix(prefix)?;
        rest.strip_prefix(jid.as_str())?.strip_prefix('/')
    });
    Ok(match rest {
        Some(what) if what.starts_with("ret/") => {
            minion_return(&event.value()?).map(FollowNews::Returned)
        }
        Some("finished") => Some(FollowNews::Over(missing(&event.value()?))),
        // Minions that are given up; parts of a batch, and minions that a syndic adds.
        Some("verdict" | "new") => Some(FollowNews::Unsure),
        _ => None,
    })
}

/// The minions that did not return, sorted, each with the evidence for its state.
fn missing(data: &Value) -> Vec<Missing> {
    let mut missing: Vec<Missing> = not_returned(data)
        .filter_map(|(state, minion, why)| {
            Some(Missing {
                minion: MinionId::parse(minion).ok()?,
                state: state.to_owned(),
                why: why.to_owned(),
            })
        })
        .collect();
    missing.sort_unstable_by(|one, other| one.minion.cmp(&other.minion));
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::testing::Bus;

    const JID: &str = "20260102030405060708";

    #[tokio::test(start_paused = true)]
    async fn job_follower_gives_its_own_returns_and_the_end_with_reasons() {
        let (mut bus, events) = Bus::with_listener();
        let mut follower = JobFollower::new(events, Jid::parse(JID).unwrap());
        let returned = |id: &str| Value::map([("id", Value::from(id)), ("return", true.into())]);
        bus.fire("salt/job/20260102030405060709/ret/m1", &returned("m1"))
            .await;
        bus.fire(&format!("salt/job/{JID}/ret/m2"), &returned("m2"))
            .await;
        let gone = Value::map([("m4", "no connection")]);
        let running = Value::map([("m3", "")]);
        let end = Value::map([("unreachable", gone), ("awaited", running)]);
        bus.fire(&format!("saltern/job/{JID}/finished"), &end).await;
        match follower.next().await.expect("news") {
            FollowNews::Returned(returned) => assert_eq!(returned.id, "m2"),
            news => panic!("{news:?}"),
        }
        let FollowNews::Over(missing) = follower.next().await.expect("news") else {
            panic!("the job is over");
        };
        let shown: Vec<String> = missing
            .iter()
            .map(|one| format!("{} {} {}", one.minion, one.state, one.why))
            .collect();
        assert_eq!(shown, ["m3 awaited ", "m4 unreachable no connection"]);
    }

    #[tokio::test(start_paused = true)]
    async fn job_follower_reports_gaps_and_silence() {
        let (mut bus, events) = Bus::with_listener();
        let mut follower = JobFollower::new(events, Jid::parse(JID).unwrap());
        bus.fire("saltern/bus/gap", &Value::Map(Vec::new())).await;
        for _ in 0..2 {
            let news = follower.next().await.expect("news");
            assert!(matches!(news, FollowNews::Unsure), "{news:?}");
        }
    }
}

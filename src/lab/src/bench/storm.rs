//! The reconnect storm: a master is killed with all its minions connected and restarted. Measures
//! the time until each of them is served, the outcome of the running job, and the waits of clients.
//!
//! A minion counts as served when a return of it shows on the event bus of the new master, so it
//! was reached by a publication and its request was understood. For that `test.ping` goes to all of
//! them again and again, not before the answers to the last one have ceased. The client's side has
//! a thread of its own, so that it measures the master and not the swarm.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use saltern_client::{ClientConfig, ClientError, EventListener, LocalClient, PublishRequest};
use saltern_minion::swarm::{Latencies, Swarm, SwarmConfig};
use saltern_wire::msgpack::Value;
use tokio::time::{Instant, timeout_at};

use super::own_thread::on_own_thread;
use super::progress::{Progress, millis};
use super::{Bench, BenchError};

/// Minions that run a job while the master is killed, and for how long.
const BUSY: usize = 500;
const JOB: Duration = Duration::from_secs(20);
/// Time from the beginning of that job until the master is killed.
const BEFORE: Duration = Duration::from_secs(2);
/// Interval at which the client publishes.
const PUBLISH_EVERY: Duration = Duration::from_millis(200);
/// Time without an answer to a ping, after which all minions are pinged again.
const QUIET: Duration = Duration::from_secs(1);
/// Delay before a retry while the master is down.
const AGAIN: Duration = Duration::from_millis(50);

/// Why a storm gave no figures.
#[derive(Debug, thiserror::Error)]
pub(super) enum StormError {
    #[error("cannot wait for the master to be killed")]
    Restart(#[source] std::io::Error),
}

/// The waits of stock's defaults, and a job at a time for each of the busy ones.
pub(super) fn configure(config: &mut SwarmConfig) {
    config.auth_timeout = Duration::from_secs(5);
    config.auth_tries = 7;
    config.jobs = BUSY;
}

pub(super) async fn run(bench: &Bench<'_>, swarm: &Arc<Swarm>) -> Result<(), BenchError> {
    let (stop, listening) = bench.listening(swarm).await?;
    let signed_in = swarm.stats().sign_in_time.count();
    bench.progress.begin("storm");
    let minions = bench.arguments.minions;
    let observer = Observer {
        client: LocalClient::new(ClientConfig::from(bench.config)),
        sock_dir: bench.config.sock_dir.clone(),
        minions,
        limit: bench.limit(),
        json: bench.arguments.json,
        seen: RefCell::default(),
    };
    let busy = observer.busy();
    let seen = on_own_thread(move || async move {
        observer.watch().await?;
        Ok(observer.seen.into_inner())
    })
    .await?;
    let again = swarm.stats().sign_in_time.count() - signed_in;
    // Never is the end of the time that was given.
    let when = |minions| {
        seen.served_after(minions)
            .unwrap_or(bench.limit().as_secs_f64())
    };
    bench.progress.curve("storm", &seen.curve);
    bench.progress.end(
        "storm",
        &[
            ("done", seen.served.len() as f64),
            ("half_served_seconds", when(minions / 2)),
            ("all_served_seconds", when(minions)),
            ("sign_ins", again as f64),
            ("job_minions", busy as f64),
            ("job_returned", seen.job.len() as f64),
            ("publishes", seen.publishes.count() as f64),
            ("publishes_failed", seen.failed as f64),
            ("publish_p50_ms", millis(seen.publishes.percentile(0.5))),
            ("publish_p99_ms", millis(seen.publishes.percentile(0.99))),
        ],
    );
    stop.cancel();
    let _ = listening.await;
    Ok(())
}

/// The client's side.
struct Observer {
    client: LocalClient,
    sock_dir: PathBuf,
    minions: usize,
    limit: Duration,
    json: bool,
    seen: RefCell<Seen>,
}

/// Observations of the client.
#[derive(Default)]
struct Seen {
    /// Minions with any return since the master was killed.
    served: HashSet<String>,
    /// Minions that returned the job that was running.
    job: HashSet<String>,
    /// Number of minions served over time: pairs of seconds and count, at most one each tenth of a
    /// second.
    curve: Vec<(f64, usize)>,
    /// When a minion was served for the first time, last.
    last: Option<Instant>,
    publishes: Latencies,
    failed: usize,
    /// Since when a client waits for the answer to its publish.
    asking: Option<Instant>,
}

impl Observer {
    async fn watch(&self) -> Result<(), BenchError> {
        let mut events = EventListener::connect(&self.sock_dir).await?;
        let job = self.client.publish(&self.long_job()).await?.jid;
        let until = Instant::now() + BEFORE;
        while let Ok(event) = timeout_at(until, events.next()).await {
            if let Some(event) = event? {
                self.seen.borrow_mut().note_job(&job, &event.tag);
            }
        }
        drop(events);
        Progress::new(self.json)
            .wait_for_restart()
            .map_err(StormError::Restart)?;
        let killed = Instant::now();
        // Subscribe to the bus first, else the return of a quick minion is missed.
        let events = self.connect_again(killed + self.limit).await?;
        let over = async {
            tokio::select! {
                over = self.follow(events, &job, killed) => over,
                () = self.ask_all_again_and_again() => Ok(()),
                () = self.publish_now_and_then() => Ok(()),
            }
        };
        let ended = timeout_at(killed + self.limit, over).await;
        self.seen.borrow_mut().give_up_asking();
        match ended {
            Ok(over) => Ok(over?),
            // Then the figures show what is missing.
            Err(_) => Ok(()),
        }
    }

    /// How many minions ran a job when the master was killed.
    fn busy(&self) -> usize {
        BUSY.min(self.minions)
    }

    fn long_job(&self) -> PublishRequest {
        let ids: Vec<Value> = (0..self.busy())
            .map(|number| Value::from(format!("swarm-{number}")))
            .collect();
        let seconds = i64::try_from(JOB.as_secs()).unwrap_or(i64::MAX);
        PublishRequest::new(ids.into(), "list", "test.sleep", vec![seconds.into()])
    }

    async fn connect_again(&self, end: Instant) -> Result<EventListener, ClientError> {
        loop {
            match EventListener::connect(&self.sock_dir).await {
                Ok(events) => return Ok(events),
                Err(error) if Instant::now() >= end => return Err(error),
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Reads the bus until all minions were served and the job is complete.
    async fn follow(
        &self,
        mut events: EventListener,
        job: &str,
        killed: Instant,
    ) -> Result<(), ClientError> {
        loop {
            let Some(event) = events.next().await? else {
                events = self.connect_again(killed + self.limit).await?;
                continue;
            };
            let mut seen = self.seen.borrow_mut();
            seen.note_job(job, &event.tag);
            seen.note_served(&event.tag, killed);
            if seen.served.len() >= self.minions && seen.job.len() >= self.busy() {
                return Ok(());
            }
        }
    }

    async fn ask_all_again_and_again(&self) {
        let mut asked: Option<Instant> = None;
        loop {
            let (is_due, is_over) = {
                let seen = self.seen.borrow();
                let quiet = |since: Option<Instant>| since.is_none_or(|at| at.elapsed() >= QUIET);
                (
                    quiet(asked) && quiet(seen.last),
                    seen.served.len() >= self.minions,
                )
            };
            if is_due && !is_over && self.client.publish(&ping("*")).await.is_ok() {
                asked = Some(Instant::now());
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Latency of jobs for one connected minion, as a client sees it. Nothing is measured before
    /// the first minion is served.
    async fn publish_now_and_then(&self) {
        loop {
            tokio::time::sleep(PUBLISH_EVERY).await;
            let Some(minion) = self.seen.borrow().served.iter().next().cloned() else {
                continue;
            };
            let began = Instant::now();
            self.seen.borrow_mut().asking = Some(began);
            let answer = self.client.publish(&ping(&minion)).await;
            let mut seen = self.seen.borrow_mut();
            seen.asking = None;
            seen.publishes.record(began.elapsed());
            seen.failed += usize::from(answer.is_err());
        }
    }
}

impl Seen {
    fn note_job(&mut self, jid: &str, tag: &str) {
        if let Some((of, minion)) = returned(tag)
            && of == jid
        {
            self.job.insert(minion.to_owned());
        }
    }

    fn note_served(&mut self, tag: &str, killed: Instant) {
        let Some((_, minion)) = returned(tag) else {
            return;
        };
        if self.served.contains(minion) {
            return;
        }
        self.served.insert(minion.to_owned());
        self.last = Some(Instant::now());
        let seconds = (killed.elapsed().as_secs_f64() * 10.0).ceil() / 10.0;
        match self.curve.last_mut() {
            Some((last, count)) if *last >= seconds => *count = self.served.len(),
            _ => self.curve.push((seconds, self.served.len())),
        }
    }

    /// Counts a client that still waits at the end with its wait so far.
    fn give_up_asking(&mut self) {
        if let Some(since) = self.asking.take() {
            self.publishes.record(since.elapsed());
            self.failed += 1;
        }
    }

    /// Time until this many minions were served, in seconds after the master was killed.
    fn served_after(&self, minions: usize) -> Option<f64> {
        let mut points = self.curve.iter();
        Some(points.find(|(_, count)| *count >= minions)?.0)
    }
}

fn ping(target: &str) -> PublishRequest {
    PublishRequest::new(Value::from(target), "glob", "test.ping", Vec::new())
}

/// The job and the minion of a return, from the tag of its event.
fn returned(tag: &str) -> Option<(&str, &str)> {
    tag.strip_prefix("salt/job/")?.split_once("/ret/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_are_parsed_from_event_tags() {
        let tag = "salt/job/20260102030405060708/ret/swarm-7";
        assert_eq!(returned(tag), Some(("20260102030405060708", "swarm-7")));
        for other in ["salt/job/20260102030405060708/new", "salt/auth", ""] {
            assert_eq!(returned(other), None, "{other}");
        }
    }
}

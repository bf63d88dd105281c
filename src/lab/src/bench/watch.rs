//! Long jobs, each followed by a client as stock's command line does: counts the publications that
//! ask minions what they run, and the false reports that a minion did not return.
//!
//! A few minions are slow, as machines under load are: they take longer for the job, and they
//! answer later than `gather_job_timeout` whether they run it. Every minion of the swarm runs every
//! job to its end, so each "did not return" is wrong.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use saltern_client::{ClientConfig, ClientError, LocalClient, MinionOutcome, PublishRequest};
use saltern_minion::swarm::{Slow, Swarm, SwarmConfig};
use saltern_wire::msgpack::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::own_thread::on_own_thread;
use super::{Bench, BenchError};

/// How many jobs, how long they take, and how long after each other they begin.
const JOBS: usize = 20;
const JOB_DURATION: Duration = Duration::from_secs(20);
const APART: Duration = Duration::from_millis(250);
/// The slow minions: slower than stock's `timeout` and `gather_job_timeout`.
const SLOW: Slow = Slow {
    minions: 10,
    probes: Duration::from_secs(15),
    jobs: Duration::from_secs(25),
};

/// Room for every job on every minion at once.
pub(super) fn configure(config: &mut SwarmConfig) {
    config.jobs = config.jobs.max(JOBS * config.minions);
    config.slow = SLOW;
}

pub(super) async fn run(bench: &Bench<'_>, swarm: &Arc<Swarm>) -> Result<(), BenchError> {
    let (stop, listening) = bench.listening(swarm).await?;
    let config = ClientConfig::from(bench.config);
    bench.progress.begin("watch");
    let began = Instant::now();
    let seen = on_own_thread(|| follow_all(config)).await?;
    bench.progress.end(
        "watch",
        &[
            ("done", seen.returned as f64),
            ("jobs", JOBS as f64),
            ("find_job_publishes", swarm.stats().probes() as f64),
            ("wrong_verdicts", seen.given_up as f64),
            ("seconds", began.elapsed().as_secs_f64()),
        ],
    );
    stop.cancel();
    let _ = listening.await;
    Ok(())
}

/// Observations of clients about their jobs.
#[derive(Default)]
struct Followed {
    returned: usize,
    /// Minions that are said not to have returned.
    given_up: usize,
}

/// All the jobs, each with a client of its own; what they saw together.
async fn follow_all(config: ClientConfig) -> Result<Followed, BenchError> {
    let client = Rc::new(LocalClient::new(config));
    let mut jobs = JoinSet::new();
    for _ in 0..JOBS {
        let client = Rc::clone(&client);
        jobs.spawn_local(async move { follow(&client).await });
        tokio::time::sleep(APART).await;
    }
    let mut all = Followed::default();
    while let Some(followed) = jobs.join_next().await {
        let followed = followed.expect("invariant: following a job does not panic")?;
        all.returned += followed.returned;
        all.given_up += followed.given_up;
    }
    Ok(all)
}

async fn follow(client: &LocalClient) -> Result<Followed, ClientError> {
    let seconds = i64::try_from(JOB_DURATION.as_secs()).unwrap_or(i64::MAX);
    let request = PublishRequest::new(
        Value::from("*"),
        "glob",
        "test.sleep",
        vec![Value::from(seconds)],
    );
    let mut job = client.run(&request).await?;
    let mut seen = Followed::default();
    while let Some(answer) = job.next().await? {
        match answer {
            MinionOutcome::Returned(_) => seen.returned += 1,
            MinionOutcome::NoResponse { .. } => seen.given_up += 1,
        }
    }
    Ok(seen)
}

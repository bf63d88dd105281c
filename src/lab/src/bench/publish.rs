//! How long a publication takes while returns come in at a steady rate: from the request until the
//! client has the jid, and until the minion that it is for has it. With a cluster the first of them
//! is a commit on every machine that keeps the jobs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use saltern_client::{ClientConfig, LocalClient, PublishRequest};
use saltern_minion::swarm::{Latencies, SteadyReturns, Swarm, SwarmStats};
use saltern_wire::msgpack::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::own_thread::on_own_thread;
use super::progress::millis;
use super::{Bench, BenchError};

/// Time from one publication to the next.
const INTERVAL: Duration = Duration::from_millis(50);

/// How long a publication may take to reach its minion before it counts as lost.
const MAX_DELIVERY: Duration = Duration::from_secs(10);

/// Length of the text that a minion returns, in bytes.
const RETURN_BYTES: usize = 64;

/// Measured times, and how many publications did not arrive.
#[derive(Default)]
struct Figures {
    answered: Latencies,
    delivered: Latencies,
    lost: u64,
}

/// Publishes to one minion of `swarm` after another, while all return at the rate that was asked for.
pub(super) async fn run(bench: &Bench<'_>, swarm: &Arc<Swarm>) -> Result<(), BenchError> {
    let (stop, listening) = bench.listening(swarm).await?;
    let stop_returns = CancellationToken::new();
    let returns = SteadyReturns {
        in_flight: bench.arguments.in_flight,
        per_second: Some(bench.arguments.returns_per_second),
        bytes: RETURN_BYTES,
    };
    let returning = tokio::task::spawn_local({
        let (swarm, stop) = (swarm.clone(), stop_returns.clone());
        async move { swarm.return_steadily(&returns, &stop).await }
    });
    // Not the first moments, in which all connect.
    tokio::time::sleep(INTERVAL * 20).await;

    bench.progress.begin("publish");
    let (began, before) = (
        Instant::now(),
        swarm.stats().returns.load(Ordering::Relaxed),
    );
    let (config, limit) = (ClientConfig::from(bench.config), bench.limit());
    let stats = Arc::clone(swarm.stats());
    let figures = on_own_thread(move || publish_for(config, limit, stats)).await?;
    let returned = swarm.stats().returns.load(Ordering::Relaxed) - before;
    let seconds = began.elapsed().as_secs_f64();
    bench.progress.end(
        "publish",
        &[
            ("done", figures.answered.count() as f64),
            ("failed", figures.lost as f64),
            ("returns_per_second", returned as f64 / seconds),
            ("p50_ms", millis(figures.answered.percentile(0.5))),
            ("p99_ms", millis(figures.answered.percentile(0.99))),
            ("delivery_p50_ms", millis(figures.delivered.percentile(0.5))),
            (
                "delivery_p99_ms",
                millis(figures.delivered.percentile(0.99)),
            ),
        ],
    );
    stop_returns.cancel();
    let _ = returning.await;
    stop.cancel();
    let _ = listening.await;
    Ok(())
}

async fn publish_for(
    config: ClientConfig,
    limit: Duration,
    stats: Arc<SwarmStats>,
) -> Result<Figures, BenchError> {
    let client = LocalClient::new(config);
    let ping = |tgt: Value, kind| PublishRequest::new(tgt, kind, "test.ping", Vec::new());
    let minions = client
        .publish(&ping(Value::from("*"), "glob"))
        .await?
        .minions;
    let mut figures = Figures::default();
    let mut ticks = tokio::time::interval(INTERVAL);
    let end = Instant::now() + limit;
    // Those of the first publication arrive first.
    tokio::time::sleep(INTERVAL * 20).await;
    for minion in minions.iter().cycle() {
        if Instant::now() > end {
            break;
        }
        ticks.tick().await;
        let before = stats.publications.load(Ordering::Relaxed);
        let began = Instant::now();
        let target = Value::Array(vec![Value::from(minion.as_str())]);
        client.publish(&ping(target, "list")).await?;
        figures.answered.record(began.elapsed());
        match wait_for_delivery(&stats, before, began).await {
            Some(delivered) => figures.delivered.record(delivered),
            None => figures.lost += 1,
        }
    }
    Ok(figures)
}

/// How long after `began` the minion had its publication.
async fn wait_for_delivery(stats: &SwarmStats, before: u64, began: Instant) -> Option<Duration> {
    while stats.publications.load(Ordering::Relaxed) == before {
        if began.elapsed() > MAX_DELIVERY {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let last = stats.last_publication()?;
    Some(last.saturating_duration_since(began))
}

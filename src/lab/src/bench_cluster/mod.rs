//! `saltern-lab bench-cluster`: how fast several masters write and follow one PostgreSQL, for
//! `tests/bench/cluster/spike.py`. Shows what a cluster can reach before one is built: no master runs.
//!
//! Each master has one connection that commits numbered batches, one that reads what the others
//! committed, and two for ticks. Says what it found as one line of JSON.

mod follower;
mod schema;
mod takeover;
mod ticks;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::chain;
use saltern_base::exit::Exit;
use saltern_minion::swarm::Latencies;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

use crate::terminal::{complain, say, start_logging};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the database is, as libpq says it: "host=/run/postgresql user=salt dbname=salt".
    #[arg(long)]
    postgres: String,
    /// How many masters there are.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=64))]
    masters: i32,
    /// Returns in one commit.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    group: u32,
    /// Returns a second of all masters together; 0 is as many as there can be.
    #[arg(long, default_value_t = 0)]
    rate: u32,
    /// Bytes of one return.
    #[arg(long, default_value_t = 1_000)]
    bytes: usize,
    /// Seconds of writing.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Milliseconds between two looks at what others committed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    poll: u64,
    /// Look as soon as a NOTIFY without payload comes, by a connection of its own; at most one in so
    /// many milliseconds. 0 is never.
    #[arg(long, default_value_t = 0)]
    tick: u64,
    /// Open jobs that one master takes over from another at the end.
    #[arg(long, default_value_t = 1_000)]
    jobs: u32,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
enum ClusterError {
    #[error("PostgreSQL")]
    Postgres(#[from] tokio_postgres::Error),
    #[error("a task ended")]
    Task(#[from] tokio::task::JoinError),
    #[error("batch {batch} of master {master} was refused by its epoch")]
    Fenced { master: i32, batch: i64 },
    #[error("master {master} saw {seen} of {committed} returns")]
    Missed {
        master: i32,
        seen: u64,
        committed: u64,
    },
    #[error("the runtime could not be made")]
    Runtime(#[source] std::io::Error),
}

/// State of a master that its tasks share.
struct Master {
    number: i32,
    /// When each of its batches was begun, by number.
    begun: Mutex<Vec<Instant>>,
    /// Woken by a tick.
    ticked: Notify,
    /// Woken by its own commit.
    committed: Notify,
}

impl Master {
    fn new(number: i32) -> Arc<Self> {
        Arc::new(Self {
            number,
            begun: Mutex::default(),
            ticked: Notify::new(),
            committed: Notify::new(),
        })
    }
}

/// State that the tasks of all masters share.
#[derive(Default)]
struct Shared {
    commits: Latencies,
    seen: Latencies,
    written: CancellationToken,
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    start_logging(LevelFilter::WARN);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let measured = runtime
        .map_err(ClusterError::Runtime)
        .and_then(|runtime| runtime.block_on(measure(arguments)));
    match measured {
        Ok(line) => {
            say(&line);
            Exit::Ok
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Failure
        }
    }
}

/// A connection, driven by a task of its own.
async fn connect(postgres: &str) -> Result<Client, ClusterError> {
    let (client, connection) = tokio_postgres::connect(postgres, NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(error = chain(&error), "a connection has ended");
        }
    });
    Ok(client)
}

async fn measure(arguments: &Arguments) -> Result<String, ClusterError> {
    let observer = connect(&arguments.postgres).await?;
    schema::create(&observer, arguments.masters).await?;
    let shared = Arc::new(Shared::default());
    let masters: Arc<[_]> = (0..arguments.masters).map(Master::new).collect();
    let before = schema::log_position(&observer).await?;
    let began = Instant::now();

    let mut followers = JoinSet::new();
    let mut helpers = JoinSet::new();
    let mut writers = JoinSet::new();
    for master in &*masters {
        if arguments.tick > 0 {
            let pause = Duration::from_millis(arguments.tick);
            let postgres = arguments.postgres.clone();
            helpers.spawn(ticks::hear(postgres.clone(), Arc::clone(master)));
            helpers.spawn(ticks::send(postgres, Arc::clone(master), pause));
        }
        let client = connect(&arguments.postgres).await?;
        let follower = follower::Follower {
            shared: Arc::clone(&shared),
            masters: Arc::clone(&masters),
            own: Arc::clone(master),
            poll: Duration::from_millis(arguments.poll),
        };
        followers.spawn(follower.follow(client));
        let client = connect(&arguments.postgres).await?;
        let load = writer::Load {
            group: arguments.group,
            bytes: arguments.bytes,
            interval: interval(arguments),
            until: began + Duration::from_secs(arguments.seconds),
        };
        writers.spawn(writer::write(
            client,
            Arc::clone(&shared),
            Arc::clone(master),
            load,
        ));
    }
    let mut returns = 0;
    while let Some(written) = writers.join_next().await {
        returns += written??;
    }
    let elapsed = began.elapsed();
    shared.written.cancel();
    while let Some(seen) = followers.join_next().await {
        let (master, seen) = seen??;
        if seen != returns {
            return Err(ClusterError::Missed {
                master,
                seen,
                committed: returns,
            });
        }
    }
    helpers.shutdown().await;

    let log = schema::log_position(&observer).await? - before;
    let takeover = takeover::measure(&observer, arguments.jobs).await?;
    let milliseconds = |latency: Duration| latency.as_secs_f64() * 1e3;
    let percentiles = |latencies: &Latencies| {
        format!(
            "{{\"p50\": {:.2}, \"p99\": {:.2}, \"max\": {:.2}}}",
            milliseconds(latencies.percentile(0.5)),
            milliseconds(latencies.percentile(0.99)),
            milliseconds(latencies.longest())
        )
    };
    Ok(format!(
        "{{\"masters\": {}, \"group\": {}, \"returns\": {returns}, \"returns_per_second\": {:.0}, \
         \"commits_per_second\": {:.1}, \"commit_ms\": {}, \"seen_ms\": {}, \
         \"log_bytes_a_return\": {:.0}, \"takeover_ms\": {:.1}}}",
        arguments.masters,
        arguments.group,
        returns as f64 / elapsed.as_secs_f64(),
        shared.commits.count() as f64 / elapsed.as_secs_f64(),
        percentiles(&shared.commits),
        percentiles(&shared.seen),
        log as f64 / returns.max(1) as f64,
        milliseconds(takeover),
    ))
}

/// The time between two batches of one master.
fn interval(arguments: &Arguments) -> Option<Duration> {
    let share = f64::from(arguments.rate) / f64::from(arguments.masters);
    (arguments.rate > 0).then(|| Duration::from_secs_f64(f64::from(arguments.group) / share))
}

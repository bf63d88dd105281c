//! `saltern bench`: the load of `make bench`. Signs a swarm in at a master, ours or stock's, and
//! measures authentications, returns and whole jobs, each for a number of seconds.
//!
//! With `--json` one line says which phase begins and one what it came to, so that whoever started
//! this can look at what the master's processes used meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use saltern_base::exit::Exit;
use saltern_client::{Answer, ClientConfig, ClientError, LocalClient, PublishRequest};
use saltern_config::MasterConfig;
use saltern_minion::swarm::{
    AuthCheck, AuthStorm, Latencies, LoadReport, ReturnFlood, Swarm, SwarmConfig, SwarmStats,
};
use saltern_wire::msgpack::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

use super::{chain, complain, load_config, say};
use crate::{ConfigArgument, logging, privileges};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// How many minions.
    #[arg(long, default_value_t = 1000)]
    minions: usize,
    /// How long each phase lasts.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Say what was measured as JSON, one line a message.
    #[arg(long)]
    json: bool,
}

/// Returns that are under way at a time.
const RETURNS_IN_FLIGHT: usize = 256;
/// Authentications that are under way at a time.
const AUTHENTICATIONS_IN_FLIGHT: usize = 64;

/// Why the load could not be put on.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Swarm(#[from] saltern_minion::swarm::SwarmError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("only {subscribed} of {minions} minions are connected after {} s", .waited.as_secs())]
    NotConnected {
        subscribed: u64,
        minions: usize,
        waited: Duration,
    },
    #[error("a job of {minions} minions was answered by {returned}")]
    Incomplete { minions: usize, returned: usize },
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    logging::start_plain(LevelFilter::WARN);
    privileges::raise_open_files(8 * arguments.minions as u64 + 1024);
    let loaded = match load_config(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let bench = Bench {
        arguments,
        config: &loaded.config,
    };
    match actix_rt::System::new().block_on(bench.run()) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            complain(&chain(&error));
            Exit::Failure
        }
    }
}

struct Bench<'a> {
    arguments: &'a Arguments,
    config: &'a MasterConfig,
}

impl Bench<'_> {
    async fn run(&self) -> Result<(), BenchError> {
        let master = SocketAddr::new(
            ClientConfig::from(self.config).interface,
            self.config.ret_port,
        );
        let config = SwarmConfig::new(self.arguments.minions, master);
        self.begin("sign_in");
        let began = Instant::now();
        let swarm = Arc::new(Swarm::start(config, Arc::new(SwarmStats::default())).await?);
        let seconds = began.elapsed().as_secs_f64();
        self.end(
            "sign_in",
            &[("done", swarm.len() as f64), ("seconds", seconds)],
        );

        self.begin("auth");
        let report = swarm.auth_storm(&self.storm()).await;
        self.end_load("auth", &report);
        for (phase, fresh) in [("returns", false), ("returns_fresh", true)] {
            self.begin(phase);
            let report = swarm.return_flood(&self.flood(fresh)).await;
            self.end_load(phase, &report);
            self.let_mirror_catch_up(phase).await;
        }
        self.jobs(&swarm).await
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.arguments.seconds)
    }

    fn storm(&self) -> AuthStorm {
        AuthStorm {
            total: usize::MAX,
            in_flight: AUTHENTICATIONS_IN_FLIGHT,
            fresh_connection: true,
            check: AuthCheck::Signature,
            limit: self.limit(),
        }
    }

    fn flood(&self, fresh_connection: bool) -> ReturnFlood {
        ReturnFlood {
            total: usize::MAX,
            in_flight: RETURNS_IN_FLIGHT,
            fresh_connection,
            jid: None,
            fun: "test.ping".to_owned(),
            value: Value::Bool(true),
            limit: self.limit(),
        }
    }

    /// Our master writes stock's job-cache files behind the answers; what that costs is shown as
    /// a phase of its own. A stock master has written them already.
    async fn let_mirror_catch_up(&self, after: &str) {
        let phase = format!("mirror_after_{after}");
        let Some(rows) = self.mirror_lag() else {
            return;
        };
        self.begin(&phase);
        let began = Instant::now();
        while self.mirror_lag().is_some_and(|lag| lag > 0.0) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.end(
            &phase,
            &[("done", rows), ("seconds", began.elapsed().as_secs_f64())],
        );
    }

    fn mirror_lag(&self) -> Option<f64> {
        let metrics = saltern_actors::control::ask(&self.config.sock_dir, "metrics").ok()?;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("saltern_mirror_lag_rows "));
        line?.parse().ok()
    }

    /// `test.ping` to everybody, one job after another.
    async fn jobs(&self, swarm: &Arc<Swarm>) -> Result<(), BenchError> {
        let stop = CancellationToken::new();
        let listening = tokio::task::spawn_local({
            let (swarm, stop) = (swarm.clone(), stop.clone());
            async move { swarm.run(stop).await }
        });
        self.wait_for_connections(swarm).await?;
        let client = LocalClient::new(ClientConfig::from(self.config));
        // The first job finds everything cold, and a minion that came last may still be on its way.
        self.one_job(&client, swarm).await?;
        self.begin("jobs");
        let (whole, delivery) = (Latencies::default(), Latencies::default());
        let end = Instant::now() + self.limit();
        while Instant::now() < end || whole.count() < 5 {
            let (took, delivered) = self.one_job(&client, swarm).await?;
            whole.record(took);
            delivery.record(delivered);
        }
        let millis = |latency: Duration| latency.as_secs_f64() * 1e3;
        self.end(
            "jobs",
            &[
                ("done", whole.count() as f64),
                ("p50_ms", millis(whole.percentile(0.5))),
                ("p99_ms", millis(whole.percentile(0.99))),
                ("delivery_p50_ms", millis(delivery.percentile(0.5))),
                ("delivery_p99_ms", millis(delivery.percentile(0.99))),
            ],
        );
        stop.cancel();
        let _ = listening.await;
        Ok(())
    }

    async fn wait_for_connections(&self, swarm: &Swarm) -> Result<(), BenchError> {
        let waited = Duration::from_secs(120);
        let end = Instant::now() + waited;
        let minions = self.arguments.minions;
        loop {
            let subscribed = swarm.stats().subscribed.load(Ordering::Relaxed);
            if subscribed >= minions as u64 {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(BenchError::NotConnected {
                    subscribed,
                    minions,
                    waited,
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// From the request to the last return on the event bus, and to the last minion's receipt.
    async fn one_job(
        &self,
        client: &LocalClient,
        swarm: &Swarm,
    ) -> Result<(Duration, Duration), BenchError> {
        let request = PublishRequest::new(Value::from("*"), "glob", "test.ping", Vec::new());
        let began = Instant::now();
        let mut job = client.run(&request).await?;
        let mut returned = 0;
        while let Some(answer) = job.next().await? {
            returned += usize::from(matches!(answer, Answer::Returned(_)));
        }
        let took = began.elapsed();
        let minions = self.arguments.minions;
        if returned != minions {
            return Err(BenchError::Incomplete { minions, returned });
        }
        let last = swarm.stats().last_publication().unwrap_or(began);
        Ok((took, last.saturating_duration_since(began)))
    }

    fn begin(&self, phase: &str) {
        if self.arguments.json {
            say(&format!("{{\"begin\": \"{phase}\"}}\n"));
        }
    }

    fn end_load(&self, phase: &str, report: &LoadReport) {
        self.end(
            phase,
            &[
                ("done", report.done as f64),
                ("failed", report.failed as f64),
                ("seconds", report.elapsed.as_secs_f64()),
                ("per_second", report.per_second),
                ("p50_ms", report.p50.as_secs_f64() * 1e3),
                ("p99_ms", report.p99.as_secs_f64() * 1e3),
            ],
        );
    }

    fn end(&self, phase: &str, figures: &[(&str, f64)]) {
        let separator = if self.arguments.json { ", " } else { "  " };
        let quote = if self.arguments.json { "\"" } else { "" };
        let shown: Vec<String> = figures
            .iter()
            .map(|(name, figure)| format!("{quote}{name}{quote}: {figure:.3}"))
            .collect();
        let shown = shown.join(separator);
        if self.arguments.json {
            say(&format!("{{\"end\": \"{phase}\", {shown}}}\n"));
        } else {
            say(&format!("{phase:>22}  {shown}\n"));
        }
    }
}

//! `saltern-lab bench`: the load of `make bench`. Signs a swarm in at a master, ours or stock's, and
//! measures authentications, returns, whole jobs, pillars and files, each for a number of seconds;
//! and how long a master of a fleet that exists only in its files looks for a target.
//!
//! Pillars and files are those of the site that `make bench` makes (`tests/bench/site`), so these
//! phases run only when they are asked for.

mod files;
mod fleet;
mod open_jobs;
mod own_thread;
mod pillar;
mod progress;
mod publish;
mod server;
mod storm;
mod targets;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use saltern_base::exit::Exit;
use saltern_base::{chain, open_files};
use saltern_client::{ClientConfig, ClientError, LocalClient, MinionOutcome, PublishRequest};
use saltern_config::MasterConfig;
use saltern_minion::swarm::{
    AuthCheck, AuthStorm, Latencies, PillarStorm, ReturnFlood, Swarm, SwarmConfig, SwarmStats,
};
use saltern_wire::msgpack::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

use crate::ConfigArgument;
use crate::terminal::{complain, say, start_logging};
use progress::{Progress, millis};
use server::Server;
use targets::Targets;

/// Phases, in the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Phase {
    Auth,
    Returns,
    Jobs,
    /// Publications to one minion each, while returns come in at `--returns-per-second`.
    Publish,
    /// Returns while 1, 10 and 100 jobs are open.
    OpenJobs,
    Pillar,
    Files,
    /// A master is killed and started under all its minions.
    Storm,
    /// Long jobs, each followed by a client of its own.
    Watch,
    /// Of a master with a fleet (`--fleet`); needs no swarm.
    Targets,
}

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
    /// Phases to run; pillar, files and targets need the site of `make bench`.
    #[arg(long, value_delimiter = ',', default_value = "auth,returns,jobs")]
    phases: Vec<Phase>,
    /// Write keys and cached data of this many minions for a master that is not running, and exit.
    #[arg(long, value_name = "MINIONS", hide = true)]
    make_fleet: Option<usize>,
    /// Print the nodegroups that the master of such a fleet needs, as YAML, and exit.
    #[arg(long, hide = true)]
    print_nodegroups: bool,
    /// How many minions such a fleet has.
    #[arg(long, value_name = "MINIONS", hide = true)]
    fleet: Option<usize>,
    /// How many seconds to wait for the answer to a target.
    #[arg(long, default_value_t = 60, hide = true)]
    target_cap: u64,
    /// Returns that are under way at a time, at most one a minion.
    #[arg(long, default_value_t = 512, value_name = "NUMBER")]
    in_flight: usize,
    /// Returns a second while publications are measured.
    #[arg(long, value_name = "NUMBER", default_value_t = 5000)]
    returns_per_second: u32,
    /// Say what was measured as JSON, one line a message.
    #[arg(long)]
    json: bool,
}

/// How many jobs are open while returns are counted.
const OPEN_JOBS: [usize; 3] = [1, 10, 100];
/// Authentications that are under way at a time.
const AUTHENTICATIONS_IN_FLIGHT: usize = 64;

/// Why the load could not be put on.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error("the swarm speaks ZeroMQ and TCP without TLS; the master listens for neither")]
    NoTransport,
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
    #[error(transparent)]
    OpenJobs(#[from] open_jobs::OpenJobsError),
    #[error(transparent)]
    Pillar(#[from] saltern_minion::swarm::WrongPillar),
    #[error("no pillar came in time, and {0} requests failed")]
    NoPillar(u64),
    #[error(transparent)]
    Files(#[from] files::FilesError),
    #[error(transparent)]
    Targets(#[from] targets::TargetsError),
    #[error(transparent)]
    Fleet(#[from] fleet::FleetError),
    #[error(transparent)]
    Storm(#[from] storm::StormError),
    #[error("cannot start a thread for the clients")]
    Thread(#[source] std::io::Error),
    #[error("the clients' side failed")]
    ClientSide,
    #[error("the phase \"targets\" needs \"--fleet\"")]
    NoFleet,
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    // Thousands of minions that lose their master would each say so.
    let is_storm = arguments.phases.contains(&Phase::Storm);
    start_logging(if is_storm {
        LevelFilter::ERROR
    } else {
        LevelFilter::WARN
    });
    if arguments.print_nodegroups {
        say(&nodegroups());
        return Exit::Ok;
    }
    open_files::raise(8 * arguments.minions as u64 + 1024);
    let loaded = match arguments.config.load() {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let bench = Bench {
        arguments,
        config: &loaded.config,
        progress: Progress::new(arguments.json),
    };
    let done = match arguments.make_fleet {
        Some(minions) => fleet::write(&loaded.config, minions).map_err(BenchError::from),
        None => actix_rt::System::new().block_on(bench.run()),
    };
    match done {
        Ok(()) => Exit::Ok,
        Err(error) => {
            complain(&chain(&error));
            Exit::Failure
        }
    }
}

fn nodegroups() -> String {
    let mut text = "nodegroups:\n".to_owned();
    for (name, target) in fleet::NODEGROUPS {
        text.push_str(&format!("  {name}: '{target}'\n"));
    }
    text
}

struct Bench<'a> {
    arguments: &'a Arguments,
    config: &'a MasterConfig,
    progress: Progress,
}

impl Bench<'_> {
    async fn run(&self) -> Result<(), BenchError> {
        let phases = &self.arguments.phases;
        if phases.iter().any(|phase| *phase != Phase::Targets) {
            let swarm = self.sign_in().await?;
            // In the order of their declaration, whatever the order of the argument.
            for phase in <Phase as clap::ValueEnum>::value_variants() {
                if phases.contains(phase) {
                    self.phase(*phase, &swarm).await?;
                }
            }
        } else {
            self.targets().await?;
        }
        Ok(())
    }

    async fn phase(&self, phase: Phase, swarm: &Arc<Swarm>) -> Result<(), BenchError> {
        match phase {
            Phase::Auth => self.auth(swarm).await,
            Phase::Returns => self.returns(swarm).await,
            Phase::Jobs => return self.jobs(swarm).await,
            Phase::Publish => return publish::run(self, swarm).await,
            Phase::OpenJobs => return self.open_jobs(swarm).await,
            Phase::Pillar => return self.pillars(swarm).await,
            Phase::Files => {
                files::run(swarm, self.config, self.limit(), &self.progress).await?;
            }
            Phase::Storm => return storm::run(self, swarm).await,
            Phase::Watch => return watch::run(self, swarm).await,
            Phase::Targets => return self.targets().await,
        }
        Ok(())
    }

    async fn sign_in(&self) -> Result<Arc<Swarm>, BenchError> {
        let (transport, port) = ClientConfig::from(self.config)
            .request_port
            .ok_or(BenchError::NoTransport)?;
        let master = SocketAddr::new(self.config.interface, port);
        let mut config = SwarmConfig::new(self.arguments.minions, master);
        config.transport = transport;
        if self.arguments.phases.contains(&Phase::Storm) {
            storm::configure(&mut config);
        }
        if self.arguments.phases.contains(&Phase::Watch) {
            watch::configure(&mut config);
        }
        self.progress.begin("sign_in");
        let began = Instant::now();
        let swarm = Arc::new(Swarm::start(config, Arc::new(SwarmStats::default())).await?);
        let seconds = began.elapsed().as_secs_f64();
        let figures = [("done", swarm.len() as f64), ("seconds", seconds)];
        self.progress.end("sign_in", &figures);
        Ok(swarm)
    }

    async fn auth(&self, swarm: &Swarm) {
        self.progress.begin("auth");
        let report = swarm.auth_storm(&self.storm()).await;
        self.progress.end_load("auth", &report);
    }

    async fn returns(&self, swarm: &Swarm) {
        for (phase, fresh) in [("returns", false), ("returns_fresh", true)] {
            self.progress.begin(phase);
            let report = swarm.return_flood(&self.flood(fresh)).await;
            self.progress.end_load(phase, &report);
            self.let_mirror_catch_up(phase).await;
            // What either master has written must not be on its way to the disk in the next phase.
            rustix::fs::sync();
        }
    }

    async fn pillars(&self, swarm: &Swarm) -> Result<(), BenchError> {
        let storm = PillarStorm {
            total: usize::MAX,
            in_flight: pillar::IN_FLIGHT,
            limit: self.limit(),
            grains: &|number, id| Server(number).grains(id),
            check: &pillar::check,
            check_first: pillar::CHECK_FIRST,
            check_every: pillar::CHECK_EVERY,
        };
        // Each process of a stock master takes seconds for its first pillar.
        let warm_up = PillarStorm {
            total: pillar::WARM_UP,
            limit: pillar::WARM_UP_LIMIT,
            ..storm
        };
        self.progress.begin("pillar_first");
        let report = swarm.pillar_storm(&warm_up).await?;
        self.progress.end_load("pillar_first", &report);
        self.progress.begin("pillar");
        let report = swarm.pillar_storm(&storm).await?;
        self.progress.end_load("pillar", &report);
        if report.done == 0 {
            return Err(BenchError::NoPillar(report.failed));
        }
        Ok(())
    }

    async fn targets(&self) -> Result<(), BenchError> {
        let minions = self.arguments.fleet.ok_or(BenchError::NoFleet)?;
        let mut config = ClientConfig::from(self.config);
        config.publish_timeout = Duration::from_secs(self.arguments.target_cap);
        let targets = Targets {
            client: LocalClient::new(config),
            minions,
            limit: self.limit(),
            progress: &self.progress,
        };
        Ok(targets.run().await?)
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
            in_flight: self.arguments.in_flight,
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
        self.progress.begin(&phase);
        let began = Instant::now();
        while self.mirror_lag().is_some_and(|lag| lag > 0.0) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.progress.end(
            &phase,
            &[("done", rows), ("seconds", began.elapsed().as_secs_f64())],
        );
    }

    fn mirror_lag(&self) -> Option<f64> {
        let metrics = saltern_client::control::metrics(&self.config.sock_dir).ok()?;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("saltern_mirror_lag_rows "));
        line?.parse().ok()
    }

    /// Lets the swarm subscribe and answer until the token is cancelled.
    async fn listening(
        &self,
        swarm: &Arc<Swarm>,
    ) -> Result<(CancellationToken, JoinHandle<()>), BenchError> {
        let stop = CancellationToken::new();
        let listening = tokio::task::spawn_local({
            let (swarm, stop) = (swarm.clone(), stop.clone());
            async move { swarm.run(stop).await }
        });
        self.wait_for_connections(swarm).await?;
        Ok((stop, listening))
    }

    /// Returns a second with more and more jobs open.
    async fn open_jobs(&self, swarm: &Arc<Swarm>) -> Result<(), BenchError> {
        let (stop, listening) = self.listening(swarm).await?;
        let client = LocalClient::new(ClientConfig::from(self.config));
        // Cold caches, and minions that are still on their way, belong to no figure.
        self.one_job(&client, swarm).await?;
        for open in OPEN_JOBS {
            let phase = format!("open_jobs_{open}");
            self.progress.begin(&phase);
            let figures = open_jobs::measure(client.config().clone(), open, self.limit()).await?;
            self.progress.end(
                &phase,
                &[
                    ("done", figures.returns as f64),
                    ("jobs", figures.jobs as f64),
                    ("seconds", figures.seconds),
                    ("per_second", figures.returns as f64 / figures.seconds),
                ],
            );
        }
        stop.cancel();
        let _ = listening.await;
        Ok(())
    }

    /// `test.ping` to all minions, one job after another.
    async fn jobs(&self, swarm: &Arc<Swarm>) -> Result<(), BenchError> {
        let (stop, listening) = self.listening(swarm).await?;
        let client = LocalClient::new(ClientConfig::from(self.config));
        // The first job finds everything cold, and a minion that came last may still be on its way.
        self.one_job(&client, swarm).await?;
        self.progress.begin("jobs");
        let (whole, delivery) = (Latencies::default(), Latencies::default());
        let end = Instant::now() + self.limit();
        while Instant::now() < end || whole.count() < 5 {
            let (took, delivered) = self.one_job(&client, swarm).await?;
            whole.record(took);
            delivery.record(delivered);
        }
        self.progress.end(
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
            returned += usize::from(matches!(answer, MinionOutcome::Returned(_)));
        }
        let took = began.elapsed();
        let minions = self.arguments.minions;
        if returned != minions {
            return Err(BenchError::Incomplete { minions, returned });
        }
        let last = swarm.stats().last_publication().unwrap_or(began);
        Ok((took, last.saturating_duration_since(began)))
    }
}

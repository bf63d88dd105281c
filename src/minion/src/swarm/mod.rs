//! Thousands of minions in one process, each with its own connections, session and id: a load for
//! a master, and a way to see one at work. They share key pairs, because making thousands of
//! these takes minutes. Each trusts a key of the master of its own, which the first one got: they share
//! one copy of it until the master's key is rotated. Everything else is the real minion.
//!
//! A swarm runs on the runtime it is started on. For more than one core start several, each on a
//! current-thread runtime of its own, with the parts that [`SwarmConfig::split`] gives.

mod fetch;
mod load;
mod pillars;
mod steady;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use saltern_base::clock::Clock;
use saltern_base::{blocking, chain};
use saltern_model::MinionId;
use saltern_wire::client::Route;
use saltern_wire::msgpack::Value;
use saltern_wire::port::Transport;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::events::Introduction;
use crate::functions::{Context, grains};
use crate::jobs::JobTable;
use crate::minion::Life;
use crate::stats::{Channel, Stats};
use saltern_channel::{
    Identity, KeyError, MemoryStore, MinionConfig, MinionKeys, PkiDir, SignInError,
};

pub use crate::acknowledged::Acknowledged;
pub use crate::history::History;
pub use crate::stats::{Latencies, Stats as SwarmStats};
pub use fetch::{Fetch, FetchError, Fetched};
pub use load::{AuthCheck, AuthStorm, LoadReport, ReturnFlood};
pub use pillars::{PillarDifference, PillarStorm, WrongPillar};
pub use steady::SteadyReturns;

/// Settings of a swarm.
#[derive(Debug, Clone)]
pub struct SwarmConfig {
    /// How many minions.
    pub minions: usize,
    /// Ids are `<prefix>-<number>`.
    pub prefix: String,
    /// The number of the first minion.
    pub first: usize,
    /// How many different key pairs they share.
    pub keys: usize,
    /// The size of those in bits.
    pub keysize: u32,
    /// Directory of the key pairs, so that a later swarm of the same ids is known to the master; in
    /// memory only when absent.
    pub pki_dir: Option<PathBuf>,
    /// The master's request port.
    pub master: SocketAddr,
    /// The transport of both ports.
    pub transport: Transport,
    /// How many sign in at a time.
    pub parallel: usize,
    /// Whether each fires its start event.
    pub start_events: bool,
    /// Whether each sends its grains: those of this machine, with its own id.
    pub grains: bool,
    /// Subscribe to own topics (`zmq_filtering`).
    pub zmq_filtering: bool,
    /// How many jobs that do more than answer (`test.sleep`, `cmd.run`) run at once in all.
    pub jobs: usize,
    /// How long a sign-in may take.
    pub auth_timeout: Duration,
    /// How often a sign-in is tried that takes longer.
    pub auth_tries: u32,
    /// How long any other request may take.
    pub request_timeout: Duration,
    /// The pause while the master has not accepted a key.
    pub acceptance_wait_time: Duration,
    /// Minions that have much else to do.
    pub slow: Slow,
    /// The first pause before a minion subscribes anew; it grows to ten times as much.
    pub reconnect: Duration,
    /// How many jobs each remembers, so that one that is sent twice runs once; what the minions of a swarm
    /// remember adds up.
    pub jid_queue: usize,
}

/// The first minions of a swarm, slow as machines under load are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slow {
    /// How many.
    pub minions: usize,
    /// How much later they answer whether they run a job.
    pub probes: Duration,
    /// How much later they begin a job that does more than answer.
    pub jobs: Duration,
}

impl SwarmConfig {
    /// A swarm of `minions` for the master at `master`, with one key pair, 64 sign-ins at a time
    /// and no start events.
    #[must_use]
    pub fn new(minions: usize, master: SocketAddr) -> Self {
        Self {
            minions,
            prefix: "swarm".to_owned(),
            first: 0,
            keys: 1,
            keysize: 2048,
            pki_dir: None,
            master,
            transport: Transport::ZeroMq,
            parallel: 64,
            start_events: false,
            grains: false,
            zmq_filtering: false,
            jobs: 64,
            auth_timeout: Duration::from_secs(60),
            auth_tries: 3,
            request_timeout: Duration::from_secs(60),
            acceptance_wait_time: Duration::from_secs(2),
            slow: Slow::default(),
            reconnect: Duration::from_secs(1),
            jid_queue: 8,
        }
    }

    /// The same swarm in `parts`, for as many runtimes.
    #[must_use]
    pub fn split(&self, parts: usize) -> Vec<Self> {
        let parts = parts.clamp(1, self.minions.max(1));
        let share = |part: usize| self.minions * part / parts;
        (0..parts)
            .map(|part| Self {
                minions: share(part + 1) - share(part),
                first: self.first + share(part),
                parallel: self.parallel.div_ceil(parts),
                jobs: self.jobs.div_ceil(parts),
                slow: Slow {
                    minions: self
                        .slow
                        .minions
                        .saturating_sub(share(part))
                        .min(share(part + 1) - share(part)),
                    ..self.slow
                },
                ..self.clone()
            })
            .collect()
    }
}

/// Why a swarm cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum SwarmError {
    /// The prefix makes no valid id.
    #[error("\"{0}\" cannot be the beginning of a minion id")]
    Prefix(String),
    /// No key pair can be made.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// A minion is not let in.
    #[error("minion \"{id}\" cannot sign in: {source}")]
    SignIn {
        /// The minion.
        id: String,
        /// Why not.
        source: SignInError,
    },
}

/// The address of a minion: on loopback each has one of its own, as machines have. With one for
/// all, the kernel would look for a free port among tens of thousands that have just been used.
fn own_address(master: SocketAddr, number: usize) -> Option<IpAddr> {
    const FIRST: u32 = u32::from_be_bytes([127, 1, 0, 1]);
    const LAST: u32 = u32::from_be_bytes([127, 255, 255, 254]);
    let IpAddr::V4(to) = master.ip() else {
        return None;
    };
    let number = u32::try_from(number).ok()?;
    let address = FIRST
        .checked_add(number)
        .filter(|address| *address <= LAST)?;
    to.is_loopback()
        .then(|| Ipv4Addr::from_bits(address).into())
}

/// Many minions, signed in.
pub struct Swarm {
    members: Vec<Arc<Channel>>,
    stats: Arc<Stats>,
    config: SwarmConfig,
}

impl Swarm {
    /// Makes the minions and signs all of them in, `parallel` at a time. The first one goes
    /// alone, so that all others know the master's key. Counts into `stats`, which several
    /// swarms may share.
    pub async fn start(config: SwarmConfig, stats: Arc<Stats>) -> Result<Self, SwarmError> {
        let keys = make_keys(&config).await?;
        let shared = Arc::new(shared_config(&config)?);
        let mut members = Vec::with_capacity(config.minions);
        for (number, keys) in (config.first..)
            .zip(keys.iter().cycle())
            .take(config.minions)
        {
            let identity = Identity {
                id: minion_id(&config.prefix, number)?,
                config: Arc::clone(&shared),
                keys: Arc::clone(keys),
                store: Arc::new(MemoryStore::default()),
                clock: Clock::system(),
            };
            let route = Route {
                from: own_address(config.master, number),
                transport: config.transport,
                ..Route::from(config.master)
            };
            members.push(Arc::new(Channel::new(identity, route, Arc::clone(&stats))));
        }
        let swarm = Self {
            members,
            stats,
            config,
        };
        swarm.sign_in_all().await?;
        Ok(swarm)
    }

    async fn sign_in_all(&self) -> Result<(), SwarmError> {
        let mut waiting = self.members.iter();
        if let Some(first) = waiting.next() {
            sign_in(first).await?;
            if let Some(key) = first.identity().store.load()? {
                for other in waiting.as_slice() {
                    other.identity().store.store(&key)?;
                }
            }
        }
        let parallel = self.config.parallel.max(1);
        let mut running: FuturesUnordered<_> =
            waiting.by_ref().take(parallel).map(sign_in).collect();
        while let Some(ended) = running.next().await {
            ended?;
            running.extend(waiting.next().map(sign_in));
        }
        Ok(())
    }

    /// Counts of the minions so far.
    #[must_use]
    pub const fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// How many minions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Subscribes every minion and answers jobs until `stop` is cancelled. Quick functions are
    /// answered at once; others run in tasks, at most `jobs` at a time in the whole swarm.
    pub async fn run(&self, stop: CancellationToken) {
        let shared = Arc::new(Value::map([(
            "saltern",
            Value::from(env!("CARGO_PKG_VERSION")),
        )]));
        let machine = match self.members.first().filter(|_| self.config.grains) {
            Some(first) => grains::collect(first.config()),
            None => Value::Nil,
        };
        let turns = Arc::new(Semaphore::new(self.config.jobs.max(1)));
        let mut lives = JoinSet::new();
        for (number, member) in self.members.iter().enumerate() {
            let Some(session) = member.session() else {
                continue;
            };
            let own = match self.config.grains {
                true => Arc::new(grains::of_member(&machine, member.id())),
                false => Arc::clone(&shared),
            };
            let mut life = Life {
                channel: Arc::clone(member),
                context: Arc::new(Context {
                    grains: own,
                    jobs: Arc::new(JobTable::default()),
                    master_key: Arc::clone(&member.identity().store),
                }),
                turns: Arc::clone(&turns),
                tasks: JoinSet::new(),
                seen: VecDeque::new(),
                answer_at_once: true,
                introduction: Introduction {
                    grains: self.config.grains,
                    start_events: self.config.start_events,
                },
                renews_grains: false,
                lacks_grains: Arc::default(),
                slow: (number < self.config.slow.minions).then_some(self.config.slow),
            };
            lives.spawn(async move {
                if let Err(error) = life.listen(session).await {
                    tracing::error!("a minion of the swarm ended: {error}");
                }
            });
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = async { while lives.join_next().await.is_some() {} } => {}
        }
        lives.shutdown().await;
    }
}

async fn sign_in(member: &Arc<Channel>) -> Result<(), SwarmError> {
    match member.sign_in(None).await {
        Ok(_) => Ok(()),
        Err(source) => Err(SwarmError::SignIn {
            id: member.id().to_owned(),
            source,
        }),
    }
}

fn minion_id(prefix: &str, number: usize) -> Result<MinionId, SwarmError> {
    MinionId::parse(&format!("{prefix}-{number}"))
        .map_err(|_| SwarmError::Prefix(prefix.to_owned()))
}

/// The configuration that all minions share; its id is not used.
fn shared_config(config: &SwarmConfig) -> Result<MinionConfig, SwarmError> {
    let mut shared = MinionConfig::new(minion_id(&config.prefix, config.first)?, Path::new("/"));
    shared.zmq_filtering = config.zmq_filtering;
    shared.auth_timeout = config.auth_timeout;
    shared.auth_tries = config.auth_tries;
    shared.return_retry_timer = config.request_timeout;
    shared.return_retry_timer_max = Duration::ZERO;
    shared.request_channel_timeout = config.request_timeout;
    shared.acceptance_wait_time = config.acceptance_wait_time;
    shared.recon_default = config.reconnect;
    shared.recon_max = 10 * config.reconnect;
    shared.enable_legacy_startup_events = false;
    shared.minion_jid_queue_hwm = config.jid_queue;
    Ok(shared)
}

async fn make_keys(config: &SwarmConfig) -> Result<Vec<Arc<MinionKeys>>, SwarmError> {
    let (count, bits, kept) = (config.keys.max(1), config.keysize, config.pki_dir.clone());
    let made = blocking::run(move || {
        let one = |number: usize| match &kept {
            Some(path) => PkiDir::open(&path.join(format!("key-{number}")))?.keys(bits),
            None => MinionKeys::generate(bits),
        };
        (0..count)
            .map(|number| one(number).map(Arc::new))
            .collect::<Result<_, _>>()
    });
    let made = made.await;
    Ok(made.map_err(|error| KeyError::Generate(chain(&error)))??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_swarm_has_every_minion_once() {
        let whole = SwarmConfig::new(10, SocketAddr::from(([127, 0, 0, 1], 1)));
        for parts in 1..12 {
            let split = whole.split(parts);
            let numbers: Vec<usize> = split
                .iter()
                .flat_map(|part| part.first..part.first + part.minions)
                .collect();
            assert_eq!(numbers, (0..10).collect::<Vec<_>>(), "{parts} parts");
        }
    }
}

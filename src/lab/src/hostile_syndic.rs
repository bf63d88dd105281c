//! `saltern-lab hostile-syndic`: an accepted syndic that lies until it has said everything, for trials of a master above.
//!
//! It announces minions that there are not, names them in events of jobs, and returns jobs for minions that are not its own.
//! It prints how the master answered, and ends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_channel::{
    Channel, Identity, KeyError, MemoryStore, MinionConfig, PkiDir, RequestError, SignInError,
    Unobserved,
};
use saltern_model::{IdError, MinionId};
use saltern_wire::msgpack::Value;
use tracing_subscriber::filter::LevelFilter;

use crate::terminal::{complain, say, start_logging};

/// Minions of one part of the inventory, the most that a master takes; also those that one event names.
const MAX_PART: usize = 10_000;

/// Limit of one request: a master that is busy with these lies may take its time.
const LIMIT: Duration = Duration::from_secs(60);

/// The function of forged returns.
const FUNCTION: &str = "test.ping";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The master's request port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4506")]
    master: SocketAddr,
    /// The syndic's id.
    #[arg(long, default_value = "hostile")]
    id: String,
    /// Keep the key pair here.
    #[arg(long, value_name = "DIR")]
    pki_dir: PathBuf,
    /// How many minions it announces, in its inventory and in events.
    #[arg(long, default_value_t = 1_000_000)]
    announce: usize,
    /// The job of which it forges returns.
    #[arg(long, value_name = "JID")]
    jid: String,
    /// Minions in whose names it returns.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    victims: Vec<String>,
}

/// Why it could not say everything.
#[derive(Debug, thiserror::Error)]
enum HostileError {
    #[error("its id cannot be one")]
    Id(#[from] IdError),
    #[error("its keys cannot be used")]
    Keys(#[from] KeyError),
    #[error("it cannot sign in")]
    SignIn(#[from] SignInError),
    #[error("a request has no answer")]
    Request(#[from] RequestError),
    #[error("the master takes no inventories: order_masters or saltern_syndic_inventory is off")]
    NoInventory,
}

/// How the master answered.
#[derive(Debug, Default)]
struct Answers {
    parts_taken: u64,
    parts_refused: u64,
    lists_begun: u64,
    events: u64,
    returns: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Exit {
    start_logging(LevelFilter::INFO);
    let said = actix_rt::System::new().block_on(async {
        let syndic = HostileSyndic::sign_in(arguments).await?;
        let mut answers = Answers::default();
        syndic.announce(arguments.announce, &mut answers).await?;
        syndic
            .name_in_events(arguments.announce, &arguments.jid, &mut answers)
            .await?;
        for victim in &arguments.victims {
            syndic.forge(victim, &arguments.jid, &mut answers).await?;
        }
        Ok::<_, HostileError>(answers)
    });
    match said {
        Ok(answers) => {
            say(&format!("{answers:?}\n"));
            Exit::Ok
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Failure
        }
    }
}

struct HostileSyndic {
    channel: Channel<Unobserved>,
    epoch: String,
}

impl HostileSyndic {
    async fn sign_in(arguments: &Arguments) -> Result<Self, HostileError> {
        let id = MinionId::parse(&arguments.id)?;
        let mut config = MinionConfig::new(id.clone(), Path::new("/"));
        config.is_syndic = true;
        let keys = PkiDir::open(&arguments.pki_dir)?.keys(config.keysize)?;
        let identity = Identity {
            id,
            config: Arc::new(config),
            keys: Arc::new(keys),
            store: Arc::new(MemoryStore::default()),
            clock: Clock::system(),
        };
        let channel = Channel::new(identity, arguments.master.into(), Arc::new(Unobserved));
        let session = channel.sign_in(None).await?;
        let epoch = session.inventory_epoch.clone();
        let tag = format!("salt/syndic/{}/start", arguments.id);
        let announces = [("saltern_syndic_inventory", Value::Bool(true))];
        channel
            .fire_with(&tag, Value::from("started"), announces)
            .await?;
        Ok(Self {
            channel,
            epoch: epoch.ok_or(HostileError::NoInventory)?,
        })
    }

    /// Announces minions in parts. After a refusal it begins another list with those that come next.
    async fn announce(&self, minions: usize, answers: &mut Answers) -> Result<(), HostileError> {
        let (mut list, mut part) = (1, 0);
        for first in (0..minions).step_by(MAX_PART) {
            let fields = self.part(list, part, first..minions.min(first + MAX_PART));
            let answer = self.channel.send(&fields, LIMIT).await?;
            match answer.get("result").and_then(Value::as_str) {
                Some("taken") => {
                    answers.parts_taken += 1;
                    part += 1;
                }
                result => {
                    match result {
                        Some("begin_anew") => answers.lists_begun += 1,
                        _ => answers.parts_refused += 1,
                    }
                    (list, part) = (list + 1, 0);
                }
            }
        }
        Ok(())
    }

    fn part(
        &self,
        list: i64,
        part: i64,
        numbers: std::ops::Range<usize>,
    ) -> [(&'static str, Value); 8] {
        let minions = numbers.map(|number| {
            let grains = Value::map([("os", Value::from("Debian")), ("id", name(number))]);
            Value::Array(vec![name(number), Value::Nil, grains])
        });
        [
            ("cmd", Value::from("saltern_syndic_inventory")),
            ("epoch", Value::from(self.epoch.as_str())),
            ("list", Value::Int(list)),
            ("part", Value::Int(part)),
            ("last", Value::Bool(false)),
            ("partial", Value::Bool(false)),
            ("minions", Value::Array(minions.collect())),
            ("gone", Value::Array(Vec::new())),
        ]
    }

    /// Names them as minions of a job, as stock's syndics do.
    async fn name_in_events(
        &self,
        minions: usize,
        jid: &str,
        answers: &mut Answers,
    ) -> Result<(), HostileError> {
        for first in (0..minions).step_by(MAX_PART) {
            let named = (first..minions.min(first + MAX_PART)).map(name);
            let data = Value::map([
                ("jid", Value::from(jid)),
                ("fun", FUNCTION.into()),
                ("minions", Value::Array(named.collect())),
            ]);
            let tag = format!("salt/job/{jid}/new");
            let event = Value::map([("tag", Value::from(tag.as_str())), ("data", data)]);
            let pretag = format!("syndic/{}", self.channel.id());
            let fields = [
                ("cmd", Value::from("_minion_event")),
                ("id", self.channel.id().into()),
                ("pretag", Value::from(pretag.as_str())),
                ("events", Value::Array(vec![event])),
            ];
            self.channel.send(&fields, LIMIT).await?;
            answers.events += 1;
        }
        Ok(())
    }

    /// Returns the job for a minion of another.
    async fn forge(
        &self,
        victim: &str,
        jid: &str,
        answers: &mut Answers,
    ) -> Result<(), HostileError> {
        let forged = Value::map([("return", "forged")]);
        let job = Value::map([
            ("jid", Value::from(jid)),
            ("fun", FUNCTION.into()),
            ("return", Value::map([(victim, forged)])),
        ]);
        let fields = [
            ("cmd", Value::from("_syndic_return")),
            ("id", self.channel.id().into()),
            ("load", Value::Array(vec![job])),
        ];
        self.channel.send(&fields, LIMIT).await?;
        answers.returns += 1;
        Ok(())
    }
}

/// The name of a minion that there is not.
fn name(number: usize) -> Value {
    Value::from(format!("phantom-{number}").as_str())
}
